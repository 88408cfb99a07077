"""Runs that label rows themselves say how many, how many of such labels are right, and warn where there are none."""

from __future__ import annotations

import numpy as np
import pytest
from support.helpers import low_overlap_parties
from support.small_algorithms import make

import securevfl as sv
from securevfl.report import self_training_text, warnings_text
from securevfl.testing.trial import roles_begun
from securevfl.training.pseudo_labels import SelfTraining

LABELLING = ["risa", "fedda", "fedcvt"]


def run(name: str, confidence: float) -> sv.Result:
    algorithm = make(name, confidence=confidence)
    job = sv.Job(protection=sv.Plain(), algorithm=algorithm, epochs=algorithm.least_epochs + 2, batch_size=32, seed=3)
    return sv.simulate(job, low_overlap_parties(1, rows=300))


@pytest.mark.parametrize("name", LABELLING)
def test_a_run_that_labels_nothing_says_so(name: str) -> None:
    result = run(name, 1.0)
    (record,) = result.record.runs
    assert record.self_training.startswith("0 of ")
    (warning,) = [warning for warning in record.warnings if "self-training" in warning]
    assert "labelled none of" in warning
    assert "set confidence below" in warning
    shown = warnings_text(result.record)
    assert shown is not None
    assert self_training_text(result.record) is not None


@pytest.mark.parametrize("name", LABELLING)
def test_a_run_that_labels_rows_counts_them(name: str) -> None:
    with roles_begun() as roles:
        result = run(name, 0.6)
    (record,) = result.record.runs
    assert not [warning for warning in record.warnings if "labelled none" in warning]
    labelled = int(record.self_training.split(" of ")[0].replace(",", ""))
    assert labelled > 0
    active = next(role for role in roles if role.site.role == "active")
    if name != "fedcvt":  # whose labels last for one batch
        y = active.y.numpy()[active.table.rows_only_at("shop1")]  # type: ignore[attr-defined]
        assert labelled == (y >= 0).sum()
        assert "validation rows, which all parties have" in record.self_training


def test_the_share_of_right_labels_is_counted_on_validation_rows() -> None:
    tally = SelfTraining(0.8)
    p = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.05, 0.95]])
    tally.assess_validation(p, np.array([0, 0, 0, 1]))
    assert (tally.valid, tally.sure, tally.right) == (4, 3, 2)
    assert tally.choose_rows(p[:2]).tolist() == [True, True]
    assert (
        "of 4 validation rows, which all parties have, 3 reach it and 67 % of those are right" in tally.summary_sentence
    )
    again = SelfTraining(0.8)
    again.load_state(tally.get_state())
    assert again == tally


def test_labels_of_one_class_are_warned_of() -> None:
    tally = SelfTraining(0.8)
    tally.choose_rows(np.array([[0.9, 0.1], [0.95, 0.05], [0.3, 0.7]]))
    (warning,) = tally.warnings
    assert "assigned all of its 2 labels to one class" in warning
    tally.choose_rows(np.array([[0.9, 0.1], [0.1, 0.9]]))
    assert tally.warnings == []


def test_algorithms_that_label_nothing_stay_silent() -> None:
    result = sv.simulate(
        sv.Job(protection=sv.Plain(), algorithm=make("zero_imputation"), epochs=1, batch_size=32),
        low_overlap_parties(1, rows=200),
    )
    assert result.record.runs[0].self_training == ""
    assert self_training_text(result.record) is None

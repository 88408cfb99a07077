"""The benchmark of what may be asked: its readers, its twins of the rules, and one attack on real shares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from benchmarks.asking import attacks, readers, runs, tables, twins
else:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1]))
        from benchmarks.asking import attacks, readers, runs, tables, twins


@pytest.fixture(scope="module")
def made() -> tables.Table:
    """A table whose label depends on the asker's columns and on one passive column."""
    draw = np.random.default_rng(0)
    own, one, two = draw.normal(size=(2500, 2)), draw.normal(size=(2500, 3)), draw.normal(size=(2500, 2))
    label = (own[:, 0] + 2 * one[:, 0] + draw.normal(size=2500) > 0).astype(np.int64)
    return tables.Table("made", own, {"one": one, "two": two}, label)


def test_answers_of_known_weights_are_solved_and_those_of_zero_weights_are_not(made: tables.Table) -> None:
    weights = np.random.default_rng(1).normal(size=(8, 12))
    logits = np.column_stack([made.whole, np.ones(len(made.label))]) @ weights
    logits -= logits.mean(axis=1, keepdims=True)
    assert readers.solved(logits, made.own, weights, made.others).min() > 0.999
    assert readers.solved(logits * 0, made.own, weights * 0, made.others).max() == 0


def test_columns_are_read_from_as_many_answers_and_not_from_noise(made: tables.Table) -> None:
    rows = np.arange(1000)
    answers = made.others[rows] @ np.random.default_rng(2).normal(size=(5, 5))
    assert made.spread(readers.columns_read(made, rows, answers, known=300)) == {"one": 1.0, "two": 1.0}
    noise = np.random.default_rng(3).normal(size=(1000, 5))
    assert readers.columns_read(made, rows, noise, known=300).max() < 0.05


def test_log_odds_are_what_was_opened() -> None:
    z = np.array([[-2.0], [0.5], [6.0]])
    p = 1 / (1 + np.exp(-z))
    assert readers.log_odds(np.hstack([1 - p, p])) == pytest.approx(z)


def test_the_bit_passes_a_column_that_tells_the_label_and_not_one_that_does_not(made: tables.Table) -> None:
    train, valid = slice(0, 1000), slice(1000, 1500)
    honest = twins.fit_logistic(made.whole[train], made.label[train], 2)
    assert twins.is_useful(honest, made.whole[valid], made.label[valid])
    flat = twins.Model(np.array([1.0, 0, 0, 0, 0, 0, 0, 0]), 2)
    assert not twins.is_useful(flat, made.whole[valid], made.label[valid])  # nothing is saved: z is z₀
    coin = [
        twins.is_useful(twins.fit_logistic(made.whole[train], y[train], 2), made.whole[valid], y[valid])
        for y in np.random.default_rng(4).integers(0, 2, (40, 2500))
    ]
    assert sum(coin) < 12


def test_an_attack_runs_on_shares_and_a_refusal_is_a_result(made: tables.Table) -> None:
    rules = "off" if runs.has_rules() else "before"
    found = attacks.ATTACKS["classes"](made, rules, 0, True)
    assert found["answered"] == 500
    few = made.draw_rows(40, 4, 20, 0)
    people = made.parties(few)
    job = runs.job_on_shares(rules, people, attacks.sv.LogisticRegression(), epochs=1, batch_size=16)
    refused = runs.Asker(rules).train(job, people, {f"p{row:06d}": int(row) for row in few.all})
    assert refused.refused
    assert "validation rows" in refused.figures()["words"]

"""Boosting on the own model: what its first scores may know, what is left without a partner, and what is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import low_overlap_parties
from support.small_algorithms import make

import securevfl as sv
from securevfl.algorithms.boosting.growing import TreeLimits
from securevfl.algorithms.boosting.own_model import OwnModel, OwnTerms
from securevfl.party_context import PartySecret
from securevfl.run.simulation import RunOutcome, join_parties, run_parties
from securevfl.testing.trial import roles_begun
from securevfl.training.objectives import find_objective
from securevfl.training.role import Role

PEOPLE = low_overlap_parties(1, rows=300, overlap=0.4)
TERMS = OwnTerms(
    trees=4,
    folds=20,
    rate=0.3,
    bins=4,
    limits=TreeLimits(depth=2, leaves=0),
    l1=0.0,
    l2=1.0,
    min_gain=0.0,
    min_hessian=0.0,
)


def make_job(**settings: Any) -> sv.Job:
    return sv.Job(algorithm=make("boosted_residual", **settings), protection=sv.Plain(), epochs=3, seed=3)


def run(people: sv.Parties = PEOPLE, job: sv.Job | None = None, **settings: Any) -> tuple[RunOutcome, Any]:
    """What a short job left, and the active party's role."""
    work = job or make_job(**settings)
    with roles_begun() as roles:
        ran = run_parties(
            work,
            people,
            join_parties(people, work),
            run="run",
            secrets={name: PartySecret.from_seed(3, name) for name in people},
        )
    return ran, next(role for role in roles if role.site.name == role.site.active)


def offsets(role: Role) -> np.ndarray:
    found = role.remember()["offsets"]
    assert isinstance(found, torch.Tensor)
    return found.numpy()


def flipped(rows: np.ndarray, people: sv.Parties = PEOPLE) -> sv.Parties:
    """The same parties with other labels for some of the bank's rows."""
    bank = people.active
    assert bank.label is not None
    label = bank.label.copy()
    label[rows] = 1 - label[rows]
    return sv.Parties.of(replace(bank, label=label), *people.passive)


def bank_rows(numbers: np.ndarray) -> np.ndarray:
    """Places of aligned rows in the bank's table."""
    found: np.ndarray = join_parties(PEOPLE, make_job()).alignments["bank"]["bank"].rows[numbers]
    return found


def test_a_row_begins_at_a_score_that_knows_nothing_of_its_label() -> None:
    """Another label of a common row moves other rows' first scores, and not its own."""
    ran, role = run(own_trees=1)
    at = 5
    _, other = run(flipped(bank_rows(ran.split.train[at : at + 1])), own_trees=1)
    moved = np.abs(offsets(role) - offsets(other)).sum(axis=1)
    assert (moved > 0).sum() > len(moved) // 4
    assert moved[at] == 0
    assert np.abs(role.own_scores(ran.split.train, train=False) - offsets(role)).max() > 0.01


def test_labels_of_validation_and_test_rows_are_unknown_to_the_own_model() -> None:
    ran, role = run()
    _, other = run(flipped(bank_rows(np.concatenate([ran.split.valid, ran.split.test]))))
    np.testing.assert_array_equal(offsets(role), offsets(other))
    every = np.arange(role.table.aligned_count)
    assert torch.equal(role.score_alone(every), other.score_alone(every))


def test_the_bank_s_other_rows_teach_the_own_model() -> None:
    """With fewer of them it is another, and the note says how many there were."""
    _, role = run()
    others = role.table.rows_only_at("bank")
    assert any(f"and {len(others):,} other rows" in note for note in role.closing_notes())
    common = set.intersection(*(set(table.ids) for table in PEOPLE.values()))
    where = np.flatnonzero([one not in common for one in PEOPLE.active.ids])
    _, other = run(flipped(where))
    assert np.corrcoef(offsets(role)[:, 0], offsets(other)[:, 0])[0, 1] < 0.5


def test_trees_that_add_nothing_leave_the_own_model() -> None:
    ran, role = run(lr=1e-12)
    alone = role.task.compute_probabilities(role.score_alone(ran.split.test))
    np.testing.assert_allclose(ran.trained["bank"].scores, alone, atol=1e-9)
    corrected, again = run()
    assert torch.equal(again.score_alone(ran.split.test), role.score_alone(ran.split.test))
    assert np.abs(corrected.trained["bank"].scores - alone).max() > 0.05
    assert corrected.trained["bank"].test["auc"] > corrected.trained["bank"].alone["auc"]


def test_a_model_scores_rows_of_all_and_of_the_bank_alone() -> None:
    result = sv.simulate(make_job(), PEOPLE)
    model = result.model()
    ((scores,),) = [tuple(result.scores.values())]
    predicted = sv.predict(model, PEOPLE)
    again = dict(zip(predicted.ids, predicted.probabilities[:, 1], strict=True))
    np.testing.assert_allclose([again[one] for one in result.test_ids], scores[:, 1], atol=1e-12)
    alone = sv.predict(model, sv.Parties.of(PEOPLE.active))
    assert len(alone.ids) == len(PEOPLE.active.ids)
    own = dict(zip(alone.ids, alone.probabilities[:, 1], strict=True))
    assert max(abs(own[one] - again[one]) for one in result.test_ids) > 0.05
    assert "own" not in model.parts["shop1"]["parts"]


class _Stops(sv.Observer):
    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise RuntimeError("the power failed")


def test_a_run_goes_on_from_its_checkpoint_without_another_own_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sv.simulate(make_job(), PEOPLE)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(make_job(), PEOPLE, checkpoints=tmp_path, observer=_Stops())
    monkeypatch.delattr(OwnModel, "fit")
    found = sv.simulate(make_job(), PEOPLE, checkpoints=tmp_path)
    for one, other in zip(whole.scores.values(), found.scores.values(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_three_classes_a_number_and_no_partner() -> None:
    ran, role = run(low_overlap_parties(2, rows=400, classes=3, overlap=0.5))
    assert role.own.start.shape == (3,)
    assert ran.trained["bank"].test["accuracy"] > ran.trained["bank"].constant["accuracy"]
    bank = PEOPLE.active
    amounts = 1000 + 50 * np.sum([np.asarray(column, float) for column in bank.columns.values()], axis=0)
    number = sv.Parties.of(replace(bank, label=amounts, label_name="amount", classes=(), book=None), *PEOPLE.passive)
    ran, role = run(number, make_job(own_trees=20).replace(task="regression"))
    assert ran.trained["bank"].alone["r2"] > 0.5
    ran, role = run(sv.Parties.of(replace(bank, book=None)))
    assert ran.trained["bank"].test["auc"] > 0.6


def test_scores_follow_monotone_columns() -> None:
    column = next(iter(PEOPLE.active.columns))
    for key, sign in (("rising", 1), ("falling", -1)):
        _, role = run(PEOPLE, make_job(**{key: [f"bank.{column}"]}, own_trees=30))
        x = role.columns_of(role.table.split.train)
        grid = np.repeat(x[:20], 9, axis=0)
        grid[:, 0] = np.tile(np.linspace(-3, 3, 9), 20)
        steps = np.diff(role.own.score_rows(grid)[:, 0].reshape(20, 9), axis=1) * sign
        assert steps.min() >= -1e-12
    _, free = run(own_trees=30)
    steps = np.diff(free.own.score_rows(grid)[:, 0].reshape(20, 9), axis=1)
    assert steps.min() < 0 < steps.max()


def fit(rows: int, common: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    model, x = OwnModel(1, (0,), np.zeros(1, np.int64)), rng.normal(size=(rows, 1))
    y = np.arange(rows) % 2
    return asyncio.run(model.fit(find_objective("logistic"), x, y, common, TERMS, rng))[0]


def test_folds_are_no_more_than_rows_and_one_row_is_refused() -> None:
    assert np.isfinite(fit(3, 3)).all()
    assert fit(5, 1).shape == (1, 1)
    for rows, common in ((1, 1), (4, 0)):
        with pytest.raises(sv.InputError, match=rf"{common} common and {rows - common} other rows"):
            fit(rows, common)


def test_drawn_labels_and_weights_are_refused() -> None:
    drawn = sv.Plain(dp=sv.DP(labels=sv.RandomisedResponse(epsilon=1.0)))
    with pytest.raises(sv.InputError, match=r"drawn labels have other odds|does not support dp"):
        run(job=make_job().replace(protection=drawn))
    bank = PEOPLE.active
    weighed = replace(bank, weight=np.ones(len(bank.ids)))
    with pytest.raises(sv.InputError, match="weight"):
        run(sv.Parties.of(weighed, *PEOPLE.passive))

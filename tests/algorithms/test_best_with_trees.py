"""Best with trees: what its pools are made of, what they save on both sides, and whose columns trees split by."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from support.helpers import low_overlap_parties
from support.small_algorithms import make

import securevfl as sv
from securevfl.algorithms.best_with_trees_roles import TreesWeighting
from securevfl.run.simulation import join_parties, run_parties
from securevfl.training.pooling import average_probabilities, fit_stacking_weights, log_loss

PEOPLE = low_overlap_parties(1, rows=300, overlap=0.4)


def _make_job(**settings: Any) -> sv.Job:
    algorithm = make("best_with_trees").replace(**settings)
    return sv.Job(algorithm=algorithm, protection=sv.Plain(), epochs=2, batch_size=32, seed=3)


def _run(people: sv.Parties, **settings: Any) -> tuple[Any, TreesWeighting]:
    """A short run, and what weighed its members."""
    heard: list[TreesWeighting] = []
    write = TreesWeighting.write_to

    def weighed(self: TreesWeighting, trained: Any, epochs: int) -> dict[str, float]:
        heard.append(self)
        return write(self, trained, epochs)

    job = _make_job(**settings)
    with mock.patch.object(TreesWeighting, "write_to", weighed):
        return run_parties(job, people, join_parties(people, job), run="run"), heard[0]


@pytest.fixture(scope="module")
def ran() -> tuple[Any, TreesWeighting]:
    return _run(PEOPLE)


def test_scores_are_the_pool_of_three_opinions(ran: tuple[Any, TreesWeighting]) -> None:
    trained, weighting = ran[0].trained["bank"], ran[1]
    weights = trained.model["parts"]["weights"]
    unseen, tested = weighting.opinions["pool"]
    given = [weights[f"pool: {name}"] for name in ("best", "trees", "own trees")]
    np.testing.assert_allclose(trained.scores, average_probabilities(tested, given), atol=1e-12)
    rows, _ = weighting.unseen_probabilities("boosted_residual")
    assert len(rows) >= 50
    np.testing.assert_allclose(given, fit_stacking_weights(unseen, weighting.y[rows], pull=3.0), atol=1e-9)
    np.testing.assert_array_equal(unseen[1], weighting.unseen_probabilities("boosted_residual")[1])
    np.testing.assert_array_equal(unseen[2], weighting.unseen_probabilities("boosted_residual", alone=True)[1])
    pooled = log_loss(average_probabilities(unseen, given), weighting.y[rows])
    assert pooled < log_loss(np.mean(unseen, axis=0), weighting.y[rows])
    _, alone = weighting.opinions["pool alone"]
    given = [weights[f"pool alone: {name}"] for name in ("best", "own trees")]
    np.testing.assert_allclose(trained.alone_scores, average_probabilities(alone, given), atol=1e-12)


@pytest.mark.parametrize(
    ("people", "settings", "said"),
    [
        (low_overlap_parties(1, rows=200, overlap=0.1), {}, "common rows are too few to choose by"),
        (PEOPLE, {"stack": False}, "equal, as the job file sets them"),
        (PEOPLE, {}, "chosen on"),
    ],
)
def test_a_scored_row_gets_what_the_run_reported(people: sv.Parties, settings: dict[str, Any], said: str) -> None:
    found, weighting = _run(people, **settings)
    trained = found.trained["bank"]
    assert sum(said in note for note in trained.notes if note.startswith("probabilities")) == 2
    if said != "chosen on":
        for pool, scores in (("pool", trained.scores), ("pool alone", trained.alone_scores)):
            np.testing.assert_allclose(scores, np.mean(weighting.opinions[pool][1], axis=0), atol=1e-12)
    job = _make_job(**settings)
    models = {name: one.model for name, one in found.trained.items()}
    model, aligned = sv.Model(job=job, parts=models), join_parties(people, job)
    tested = np.asarray(people["bank"].ids)[aligned.parties["bank"].rows[found.split.test]]
    for asked, scores in (
        (people, trained.scores),
        (sv.Parties.of(people["bank"], active="bank"), trained.alone_scores),
    ):
        again = sv.predict(model, asked, everyone=True)
        at = dict(zip(again.ids, again.probabilities, strict=True))
        np.testing.assert_allclose([at[one] for one in tested], scores, atol=1e-5)


def test_opinions_of_common_rows_are_of_members_that_did_not_see_them(ran: tuple[Any, TreesWeighting]) -> None:
    weighting = ran[1]
    for one in weighting.of_method("boosted_residual"):
        split = weighting.members[one.name].split
        assert not np.isin(split.valid, split.train).any()
        assert len(one.alone_valid_scores) == len(one.valid_scores) == len(split.valid)
        assert len(one.epochs) == 3  # the job has two


@pytest.mark.parametrize("protection", [sv.Plain(), sv.Shares(few_rows=True)], ids=["plain", "shares"])
def test_trees_of_partners_columns_split_by_no_own_column(protection: sv.Plain | sv.Shares) -> None:
    """Another value of the bank's columns moves a score as the own model does, and not otherwise."""
    people = low_overlap_parties(2, rows=120, overlap=0.5)
    job = sv.Job(algorithm=make("boosted_residual", corrects_by="partners"), protection=protection, epochs=2, seed=3)
    result = sv.simulate(job, people)
    if isinstance(protection, sv.Plain):
        trees = result.model().parts["bank"]["parts"]["forest"]["trees"]
        owners = trees["owner"].tolist()
        assert 0 not in owners
        assert {one for one in owners if one > 0}
        both = sv.simulate(sv.Job(**{**_terms(job), "algorithm": make("boosted_residual")}), people)
        assert 0 in both.model().parts["bank"]["parts"]["forest"]["trees"]["owner"].tolist()
    assert result.record.runs[-1].test["auc"] > 0.5


def _terms(job: sv.Job) -> dict[str, Any]:
    return {"protection": job.protection, "epochs": job.epochs, "seed": job.seed}


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(sv.InputError, match="corrects_by is 'partners': leave columns out"):
        make("boosted_residual", corrects_by="partners", columns=0.5)
    with pytest.raises(sv.InputError, match="drop it"):
        make("best_with_trees", methods=("laser", "boosted_residual"))

"""Trees on shares that begin at the active party's own scores: how these are dealt, kept and used again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from securevfl_crypto.replicated import Computing, Share, deal_narrow, run_three
from support.helpers import low_overlap_parties

import securevfl as sv
from securevfl.algorithms.boosting import on_own
from securevfl.algorithms.boosting.own_model import OwnModel
from securevfl.party_context import PartySecret
from securevfl.run.simulation import RunOutcome, join_parties, run_parties
from securevfl.shares.engine import ONE
from securevfl.shares.trees import course
from securevfl.shares.trees.course import TreeCourse, lift_words
from securevfl.training import calibration
from securevfl.transport import Kind

PEOPLE = low_overlap_parties(2, rows=400, overlap=0.4)
ROUNDS = 3


def make_job(protection: Any = None, **settings: Any) -> sv.Job:
    trees = {"depth": 3, "bins": 8, "lr": 0.3, "min_hessian": 0.01, "own_trees": 10, "own_depth": 3} | settings
    algorithm = sv.BoostedResidual(**trees)
    shares = sv.Shares(few_rows=True)
    return sv.Job(algorithm=algorithm, protection=protection or shares, epochs=ROUNDS, seed=3, keep="last")


def run(people: sv.Parties, job: sv.Job) -> RunOutcome:
    secrets = {name: PartySecret.from_seed(3, name) for name in people}
    return run_parties(job, people, join_parties(people, job), run="run", secrets=secrets)


@pytest.fixture(scope="module")
def ran() -> Any:
    return sv.simulate(make_job(), PEOPLE)


def test_scores_are_lifted_exactly_and_no_word_beyond_32_bits() -> None:
    chosen = np.array([0, 1, -1, 16 * ONE, -16 * ONE, 256 * ONE, -256 * ONE, 2**30, -(2**30)])
    drawn = np.random.default_rng(0).integers(-(2**31), 2**31, 500)
    values = np.concatenate([chosen, drawn]).astype(np.int64)
    dealt = deal_narrow(values.astype(np.uint32)[:, None])

    async def program(party: Computing) -> Share:
        return await lift_words(party, dealt[party.index].share())

    results = run_three(program, seed=b"first scores, not secret").results
    found = np.asarray(np.sum([share.mine for share in results], axis=0, dtype=np.uint64)).view(np.int64)
    small = np.abs(values) <= 2**30
    np.testing.assert_array_equal(found[small, 0], values[small])
    np.testing.assert_array_equal(found[:, 0].astype(np.uint32), values.astype(np.uint32))
    assert np.abs(found).max() < 2**32


def test_scores_that_are_dealt_differently_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    deal = course.deal_narrow

    def unequal(words: np.ndarray) -> Any:
        zero, one, two = deal(words)  # type: ignore[arg-type]
        last, seed = two.parts
        return zero, one, replace(two, parts=(last, seed ^ np.uint8(1)))

    monkeypatch.setattr(course, "deal_narrow", unequal)
    with pytest.raises(sv.ProtocolError, match="hold different summands at 'first scores'"):
        sv.simulate(make_job(), PEOPLE)


@pytest.mark.parametrize("kind", ["classes", "three", "number"])
def test_scores_are_near_those_in_the_clear(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the active party finds alone is the same; on shares no correction of it is fitted."""
    monkeypatch.setattr(calibration, "fit_correction", lambda *scores, **more: None)
    people, plan = (low_overlap_parties(2, rows=600, overlap=0.5, classes=3 if kind == "three" else 2), {})
    if kind == "number":
        people, plan = as_number(people), {"task": "regression"}
    shared, plain = (
        run(people, make_job(one).replace(**plan)).trained["bank"] for one in (sv.Shares(few_rows=True), sv.Plain())
    )
    name = {"classes": "auc", "three": "accuracy", "number": "r2"}[kind]
    assert abs(shared.test[name] - plain.test[name]) < (0.02 if kind == "classes" else 0.05)
    assert shared.alone[name] < shared.test[name]
    if kind != "number":  # its loss is clipped on shares alone
        np.testing.assert_array_equal(shared.alone_scores, plain.alone_scores)


def as_number(people: sv.Parties) -> sv.Parties:
    """The same people with a number as their target, the sum of all columns."""
    bank, every = people.active, dict.fromkeys(people.active.ids, 0.0)
    for table in people.values():
        total = np.sum([np.asarray(column, float) for column in table.columns.values()], axis=0)
        for one, amount in zip(table.ids, total, strict=True):
            if one in every:
                every[one] += amount
    label = np.array([1000 + 50 * every[one] for one in bank.ids])
    return sv.Parties.of(replace(bank, label=label, label_name="amount", classes=(), book=None), *people.passive)


def test_a_model_predicts_rows_of_all_and_of_the_active_party_alone(ran: Any) -> None:
    model = ran.model()
    predicted = sv.predict(model, PEOPLE)
    again = dict(zip(predicted.ids, predicted.probabilities[:, 1], strict=True))
    (scores,) = ran.scores.values()
    assert max(abs(again[one] - p) for one, p in zip(ran.test_ids, scores[:, 1], strict=True)) < 0.016
    alone = sv.predict(model, sv.Parties.of(PEOPLE.active))
    assert len(alone.ids) == len(PEOPLE.active.ids)
    for name, part in model.parts.items():
        assert set(part["parts"]) == {"bins", "shares"} | ({"own"} if name == PEOPLE.active.name else set())


def test_partners_get_words_and_nothing_else(ran: Any) -> None:
    (ledgers,) = [kept for key, kept in ran.ledgers.items() if key != "alignment"]
    for name in PEOPLE:
        entries = list(ledgers[name].iter_entries())
        assert all(e.kind in (Kind.CONTROL, Kind.PUBLIC_KEY, Kind.SHARE) for e in entries)
        sent = {
            peer: sum(e.peer == peer for e in entries if e.what == "shares/input" and e.way == "sent")
            for peer in PEOPLE
        }
        wanted = 7 if name == PEOPLE.active.name else 3  # cells and scores of three sets of rows, and the targets
        assert {sent[peer] for peer in PEOPLE if peer != name} == {wanted}


def test_common_training_rows_alone_train_on_shares_and_begin_out_of_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[np.ndarray, bool, Any]] = []
    own_scores = on_own._OwnStart.own_scores

    def watched(self: Any, rows: np.ndarray, *, train: bool) -> np.ndarray:
        asked.append((rows, train, self))
        return own_scores(self, rows, train=train)

    monkeypatch.setattr(on_own._OwnStart, "own_scores", watched)
    run(PEOPLE, make_job())
    role = asked[0][2]
    trained = [rows for rows, train, _ in asked if train]
    assert len(trained) == 1
    np.testing.assert_array_equal(trained[0], np.unique(role.table.split.train))
    assert all(not np.isin(rows, trained[0]).any() for rows, train, _ in asked if not train)


class _Stops(sv.Observer):
    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise RuntimeError("the power failed")


def test_a_run_goes_on_with_the_outputs_that_it_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[dict[int, Share]] = []
    deal = TreeCourse.deal_rows

    async def dealt(course: TreeCourse, *given: Any, **more: Any) -> None:
        await deal(course, *given, **more)
        forest = course.network
        assert forest is not None
        assert forest.fitted is not None
        if not stored or len(stored[-1]) == 3:
            stored.append({})
        stored[-1][forest.engine.index] = forest.fitted

    job = make_job().replace(valid_every=1)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, PEOPLE, checkpoints=tmp_path, observer=_Stops())
    monkeypatch.setattr(TreeCourse, "deal_rows", dealt)
    monkeypatch.delattr(OwnModel, "fit")
    found = sv.simulate(job, PEOPLE, checkpoints=tmp_path)
    assert len(found.record.runs[-1].epochs) == ROUNDS
    assert found.record.runs[-1].test["auc"] > found.record.runs[-1].alone["auc"]
    opened = np.sum([share.mine for share in stored[0].values()], axis=0, dtype=np.uint64).view(np.int64) / ONE
    assert len(np.unique(np.round(opened, 3))) > 10  # not one constant
    assert np.abs(opened).max() < 16


def test_what_trees_on_shares_cannot_have_is_refused() -> None:
    for settings, words in (({"l1": 0.5}, "l1 is 0.5"), ({"leaves": 8}, "leaves is 8"), ({"depth": 8}, "depth is 8")):
        with pytest.raises(sv.InputError, match=words):
            make_job(**settings)
    drawn = sv.Shares(few_rows=True, dp=sv.DP(labels=sv.RandomisedResponse(epsilon=1.0)))
    with pytest.raises(sv.InputError, match=r"drawn labels have other odds|does not support dp"):
        make_job(drawn)

"""Jobs that grow boosted trees on shares: what is opened, what a model keeps, who is refused."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from securevfl_crypto.replicated import NarrowShare, Share
from securevfl_crypto.ring import decode_words
from support.helpers import make_parties

import securevfl as sv
from securevfl.algorithms.boosting.on_shares import KeptBins
from securevfl.data import Parties
from securevfl.run import Result
from securevfl.shares.packed_shares import unpack_share
from securevfl.shares.trees import course, growing, programs
from securevfl.shares.trees.course import TreeCourse, make_rule
from securevfl.training.tree_terms import TreeTerms
from securevfl.transport import Kind

ROUNDS = 3


def _job(protection: sv.Shares | None = None, *, epochs: int = ROUNDS, **settings: Any) -> sv.Job:
    tree = {"depth": 3, "bins": 8, "lr": 0.3} | settings
    return sv.Job(algorithm=sv.Boosting(**tree), protection=protection or sv.Shares(), epochs=epochs, seed=3)


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(2, 400)


@pytest.fixture(scope="module")
def ran(people: Parties) -> Result:
    return sv.simulate(_job(), people)


def _entries(result: Result, party: str) -> list[Any]:
    (ledgers,) = [kept for key, kept in result.ledgers.items() if key != "alignment"]
    return list(ledgers[party].iter_entries())


def test_trees_grow_and_the_report_has_rounded_metrics_and_no_loss(ran: Result) -> None:
    run = ran.record.runs[-1]
    assert [set(epoch.valid) for epoch in run.epochs] == [{"accuracy", "log_loss", "auc"}] * ROUNDS
    assert all(epoch.train_loss is None for epoch in run.epochs)
    assert run.test["auc"] > 0.6
    assert any("rounds a round of trees" in note for note in run.notes)


def test_metrics_an_epoch_one_bit_and_predictions_once_are_all_that_is_opened(ran: Result, people: Parties) -> None:
    active = people.active.name
    for name in people:
        entries = _entries(ran, name)
        opened = Counter(e.what for e in entries if e.way == "received" and "open" in e.what)
        wanted = {"shares/open useful": 2}
        if name == active:
            wanted |= {"shares/open metrics": 2 * ROUNDS, "shares/open predictions": 2}
        assert opened == wanted
        assert all(e.kind in (Kind.CONTROL, Kind.PUBLIC_KEY, Kind.SHARE) for e in entries)
        assert all(e.cipher == "masked" for e in entries if e.kind is Kind.SHARE)
        steps = {e.what.split("/")[0] for e in entries}
        assert "boost" not in steps  # no sums, sides, gradients or splits


def test_cells_are_dealt_once_for_training_and_once_for_validation(ran: Result, people: Parties) -> None:
    """To each of the two others: cells that train, cells that validate, cells of the test; the active party's targets
    besides."""
    for name in people:
        sent = Counter(e.peer for e in _entries(ran, name) if e.what == "shares/input" and e.way == "sent")
        assert set(sent.values()) == {4 if name == people.active.name else 3}


def _plain_like(job: sv.Job, people: Parties) -> Result:
    return sv.simulate(job.replace(protection=sv.Plain()), people)


def test_scores_are_near_those_of_trees_in_the_clear(people: Parties) -> None:
    job = _job(min_hessian=0.01).replace(keep="last")
    shared, plain = sv.simulate(job, people), _plain_like(job, people)
    one, other = (next(iter(found.scores.values()))[:, 1] for found in (shared, plain))
    logits = [np.log(p / (1 - p)) for p in (one, other)]
    assert np.corrcoef(*logits)[0, 1] > 0.97
    assert np.abs(logits[0] - logits[1]).mean() < 0.06  # logits are rounded at 2^-4


def test_a_number_and_three_classes_are_learned(people: Parties) -> None:
    run = sv.simulate(_job(), make_parties(2, 400, classes=3)).record.runs[-1]
    assert set(run.epochs[-1].valid) == {"accuracy", "log_loss"}
    assert run.test["accuracy"] > run.constant["accuracy"]
    bank = people.active
    every: dict[str, dict[str, float]] = {}
    for name, table in people.items():
        columns = [np.asarray(column, float) for column in table.columns.values()]
        every[name] = dict(zip(table.ids, np.sum(columns, axis=0), strict=True))
    amounts = [1000 + 50 * sum(every[name].get(one, 0.0) for name in people) for one in bank.ids]
    numbers = Parties.of(replace(bank, label=np.array(amounts), label_name="amount", classes=()), *people.passive)
    number = sv.simulate(_job(epochs=8).replace(task="regression"), numbers).record.runs[-1]
    assert set(number.epochs[-1].valid) == {"huber"}
    assert number.test["r2"] > 0.2


def test_a_model_predicts_again_with_all_parties(ran: Result, people: Parties) -> None:
    model = ran.model()
    predicted = sv.predict(model, people)
    again = dict(zip(predicted.ids, predicted.probabilities[:, 1], strict=True))
    (scores,) = ran.scores.values()
    gap = max(abs(again[name] - p) for name, p in zip(ran.test_ids, scores[:, 1], strict=True))
    assert gap < 0.016  # logits are rounded at 2^-4, each time by chance
    for part in model.parts.values():
        assert set(part["parts"]) == {"bins", "shares"}


def _opened_bytes(parts: list[Any]) -> np.ndarray:
    """The sides of a tree, from all three parties' parts."""
    shares = [NarrowShare(*(np.ascontiguousarray(one.numpy()) for one in part)) for part in parts]
    for share, after in zip(shares, [*shares[1:], shares[0]], strict=True):
        np.testing.assert_array_equal(share.next, after.mine)
    return np.asarray(sum(share.mine for share in shares))


def _opened(parts: list[Any]) -> np.ndarray:
    shares: list[Share] = [unpack_share(part) for part in parts]
    return decode_words(np.asarray(sum(share.mine for share in shares)))


def test_the_three_parts_are_a_tree_of_zeros_and_ones_and_no_part_alone_is(ran: Result, people: Parties) -> None:
    kept = [part["parts"]["shares"] for part in ran.model().parts.values()]
    trees = list(zip(*(one["trees"] for one in kept), strict=True))
    assert len(trees) == ran.record.runs[-1].best_epoch
    for three in trees:
        sides = _opened_bytes([one["sides"] for one in three])
        assert set(np.unique(sides)) <= {0, 1}
        assert sides.any()
        leaves = _opened([one["leaves"] for one in three])
        assert 0 < np.abs(leaves).max() < 2
        for one in three:
            assert len(np.unique(one["sides"][0].numpy())) > 100


class _Stops(sv.Observer):
    """Ends the run in its second round."""

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise RuntimeError("the power failed")


@pytest.mark.parametrize("coordinated", [False, True])
def test_a_run_goes_on_from_its_checkpoint_with_the_same_words(
    tmp_path: Path, coordinated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is loaded has the values that were stored, in fresh shares; the round that was lost grows again."""
    people = make_parties(1 if coordinated else 2, 300)
    names = (people.active.name, people.passive[0].name, "helper")
    job = _job(sv.Shares(computing=names) if coordinated else None).replace(keep="last", valid_every=1)
    stored: dict[int, dict[str, Any]] = {}
    train, deal = TreeCourse.train, TreeCourse.deal_rows

    def look(course: TreeCourse) -> None:
        forest = course.network
        if forest is not None and forest.fitted is not None:
            found = stored.setdefault(len(forest.trees), {})
            found.setdefault(course.member.site.name, []).append((forest.fitted, [t.leaves for t in forest.trees]))

    async def trained(course: TreeCourse, *given: Any, **more: Any) -> None:
        await train(course, *given, **more)
        look(course)

    async def dealt(course: TreeCourse, *given: Any, **more: Any) -> None:
        await deal(course, *given, **more)
        look(course)

    monkeypatch.setattr(TreeCourse, "train", trained)
    monkeypatch.setattr(TreeCourse, "deal_rows", dealt)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, people, checkpoints=tmp_path, observer=_Stops())
    found = sv.simulate(job, people, checkpoints=tmp_path)
    assert len(found.record.runs[-1].epochs) == ROUNDS
    kept = stored[1]
    assert len(kept) == 3
    attempts = [[of[attempt] for of in kept.values()] for attempt in (0, -1)]
    opened = [sum(fitted.mine for fitted, _ in attempt) for attempt in attempts]
    np.testing.assert_array_equal(*opened)
    leaves = [sum(leaf[0].mine for _, leaf in attempt) for attempt in attempts]
    np.testing.assert_array_equal(*leaves)
    assert all((one[0].mine != other[0].mine).any() for one, other in zip(*attempts, strict=True))


def test_a_coordinator_computes_and_a_fourth_party_only_deals() -> None:
    people = make_parties(3, 200)
    names = [people.active.name, *(table.name for table in people.passive)]
    found = sv.simulate(_job(sv.Shares(computing=(names[0], names[2], names[3])), epochs=2), people)
    steps = {entry.what for entry in _entries(found, names[1]) if entry.what.startswith("shares/")}
    assert steps == {"shares/width", "shares/cells", "shares/plan", "shares/input"}
    assert found.card is not None
    assert found.card.cell(names[1], names[0]).says.startswith("only how many columns each party has")
    two = make_parties(1, 200)
    helped = sv.simulate(_job(sv.Shares(computing=(*two, "helper")), epochs=2), two)
    assert not any(e.what == "shares/input" and e.way == "sent" for e in _entries(helped, "helper"))
    assert sv.predict(helped.model(), two).probabilities.shape[1] == 2


def test_rows_and_columns_of_a_round_follow_the_job(people: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    grow = growing.grow_trees

    async def watched(engine: Any, cells: Any, gradients: Share, rule: Any, *, allowed: Any) -> Any:
        zero = int((gradients.mine == 0).all(axis=(1, 2)).sum())
        seen.append((zero, int(allowed.sum())))
        return await grow(engine, cells, gradients, rule, allowed=allowed)

    monkeypatch.setattr("securevfl.shares.trees.course.grow_trees", watched)
    sv.simulate(_job(rows=0.5, columns=0.5, epochs=2), people)
    columns = sum(len(table.columns) for table in people.values())
    assert len(seen) == 2 * 3
    assert len(set(seen[:3])) == 1
    assert all(0 < used < columns for _, used in seen)
    assert all(zero > 50 for zero, _ in seen)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"leaves": 8}, "boosting.leaves is 8"),
        ({"goss": (0.1, 0.2)}, r"boosting.goss is \(0.1, 0.2\)"),
        ({"nodes": "shown"}, "nodes is 'shown'"),
        ({"l1": 0.5}, "boosting.l1 is 0.5"),
        ({"l2": 0.01}, "boosting.l2 is 0.01, and on shares it has to be 0.0625 or more"),
        ({"depth": 8}, "boosting.depth is 8, and on shares it is at most 7"),
        ({"lr": 1e-4}, "boosting.lr is 0.0001, and on shares it has to be 0.000976562 or more"),
    ],
)
def test_settings_that_trees_on_shares_cannot_have_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        _job(**settings)


@pytest.mark.parametrize(
    ("protection", "words"),
    [
        ({"lr": 0.5}, "the shrinkage of trees is boosting.lr"),
        ({"dp": sv.DP(model=sv.Gaussian(epsilon=1))}, "has no noise on shares"),
    ],
)
def test_protections_of_networks_are_refused(protection: dict[str, Any], words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        _job(sv.Shares(**protection))


def test_rare_classes_and_many_classes_are_refused_before_a_row_is_dealt() -> None:
    people = make_parties(2, 600)
    tables = []
    for table in people.values():
        label = None if table.label is None else (np.arange(len(table.ids)) % 100 == 0).astype(int)
        tables.append(replace(table, label=label))
    for rows, words in (
        (Parties({table.name: table for table in tables}), "the rarer class has"),
        (make_parties(2, 700, classes=13), "at most 12"),
    ):
        with pytest.raises(sv.InputError, match=words) as caught:
            sv.simulate(_job(), rows)
        dealt = [e for ledger in caught.value.ledgers for e in ledger.iter_entries() if e.what == "shares/input"]
        assert not dealt


def test_what_the_refusal_of_a_rare_class_advises_gives_its_rate_back() -> None:
    """The other class is thinned as it says, and the log-odds of predictions of all rows are moved as it says."""
    people = make_parties(2, 6000, classes=100)
    rare = (np.asarray(people.active.label) == 99).astype(int)
    people = Parties.of(replace(people.active, label=rare, classes=(0, 1)), *people.passive)
    job = _job(epochs=6)
    with pytest.raises(sv.InputError, match=r"keep .*% of the rows of the other class") as caught:
        sv.simulate(job, people)
    told = re.search(r"keep ([\d.]+)% .* the rarer one 5%, and subtract ([\d.]+) from the log-odds", str(caught.value))
    assert told is not None
    part, back = float(told[1]) / 100, float(told[2])
    kept = (rare == 1) | (np.random.default_rng(0).random(len(rare)) < part)
    thinned = Parties.of(people.active.take(np.flatnonzero(kept)), *people.passive)
    assert 0.04 < rare[kept].mean() < 0.06
    predicted = sv.predict(sv.simulate(job, thinned).model(), people).probabilities
    logits = np.log(predicted[:, 1] / predicted[:, 0]) - back
    assert (1 / (1 + np.exp(-logits))).mean() == pytest.approx(rare.mean(), rel=0.3)


def test_three_parties_get_shares_where_the_job_names_no_protection(people: Parties) -> None:
    job = sv.Job(algorithm=sv.Boosting(depth=2, bins=4), epochs=1)
    assert "secret shares" in sv.simulate(job, people).record.runs[-1].protection


def test_columns_that_computing_parties_were_told_differently_are_noticed(
    people: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An active party that tells one of them other bins of a third party's column, as many cells in all."""
    receive = programs._receive_columns

    async def other(link: Any, sharing: Any) -> Any:
        found = await receive(link, sharing)
        if link.me == people.passive[0].name:
            bins = found[2].bins
            found[2] = replace(found[2], bins=(bins[0] - 1, bins[1] + 1, *bins[2:]))
        return found

    monkeypatch.setattr(programs, "_receive_columns", other)
    with pytest.raises(sv.ProtocolError, match="do not count alike") as caught:
        sv.simulate(_job(), people)
    dealt = [e for ledger in caught.value.ledgers for e in ledger.iter_entries() if e.what == "shares/input"]
    assert not dealt


def test_cells_that_a_party_deals_differently_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party that does not compute deals one computing party another summand than the party that holds it, too."""
    deal = course.deal_cells

    def unequal(*given: Any, **named: Any) -> Any:
        found = deal(*given, **named)
        if named["computing"] is None:
            words, seed = found[2].parts
            found[2] = replace(found[2], parts=(words, seed ^ 1))
        return found

    monkeypatch.setattr(course, "deal_cells", unequal)
    people = make_parties(3, 200)
    names = list(people)
    with pytest.raises(sv.ProtocolError, match="hold different summands at 'cells'"):
        sv.simulate(_job(sv.Shares(computing=(names[0], names[2], names[3])), epochs=1), people)


def test_errors_of_numbers_count_up_to_three_of_their_scales() -> None:
    terms = TreeTerms(depth=3, bins=8, l2=1.0, min_hessian=1.0, min_gain=0.0, rate=0.1, rows=1.0, columns=1.0)
    assert make_rule(terms, 1000, 1).largest == 3.0
    assert make_rule(terms, 1000, 2).largest == 1.0


def test_a_row_without_a_value_lies_right_where_training_rows_have_all() -> None:
    kept = KeptBins()
    kept.fit(np.array([[0.0, np.nan], [1.0, 5.0], [2.0, 6.0]]), 4, (0, 0), np.zeros(2, np.int64))
    assert kept.encode_cells(np.array([[np.nan, np.nan], [1.0, 5.0]])).tolist() == [[2, 1], [2, 0]]


def test_a_least_gain_may_be_as_small_as_a_number_can_be(people: Parties) -> None:
    found = [sv.simulate(_job(min_gain=gain, epochs=1), people).record.runs[-1].test for gain in (0.0, 5e-324)]
    assert abs(found[0]["auc"] - found[1]["auc"]) < 0.13  # 0.02 by chance; without a split 0.19


def test_a_leaf_out_of_range_names_the_settings_of_trees(people: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl.shares.trees.forest.LARGEST_LEAF", 0.01)
    with pytest.raises(sv.RangeError, match=r"a leaf is beyond.*lower boosting\.lr, or raise boosting\.l2"):
        sv.simulate(_job(), people)

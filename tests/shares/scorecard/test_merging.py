"""Bins that are merged on shares: those of the plain path, in words of the clear, and nothing of it is opened."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from securevfl_crypto.replicated import Clear, Computing, Share, run_three
from support.helpers import make_parties

import securevfl as sv
from securevfl.algorithms.scorecard.binning import cut_points as cut
from securevfl.algorithms.scorecard.binning import merge_to_monotone
from securevfl.data import Parties
from securevfl.run import Result
from securevfl.shares.scorecard import course
from securevfl.shares.scorecard.layout import CardLayout
from securevfl.shares.scorecard.merging import merge_bins
from securevfl.training.binned import MOST_MERGED

SEED = bytes(range(32))
ONE = 1 << 16


def _merge_plainly(rows: np.ndarray, positives: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The counts of one column, each bin with those of what the plain path merges it with."""
    place = np.arange(len(rows))
    ends, w, p = merge_to_monotone(place[:-1].astype(np.float32), rows, positives)
    block = np.searchsorted(ends, place)
    return w[block], p[block]


def _draw(rng: np.random.Generator) -> tuple[CardLayout, int, np.ndarray, np.ndarray, int]:
    """Bins of some columns, rows, and counts of each bin; shares go up and down."""
    sizes = rng.integers(1, 11, size=6).tolist()
    trained, w, p = int(rng.integers(300, 20_000)), [], []
    for size in sizes:
        ends = np.sort(rng.integers(1, trained - 5 * size, size=size - 1))
        w.append(np.diff(np.concatenate([[0], ends, [trained - 5 * size]])) + 5)
        odds = np.linspace(-1, 1, size) * rng.normal() * 0.3 + rng.normal(size=size) * 0.3 - 1
        p.append(rng.binomial(w[-1], 1 / (1 + np.exp(-odds))))
    layout = CardLayout((tuple(sizes[:3]), (), tuple(sizes[3:])))
    return layout, trained, np.concatenate(w), np.concatenate(p), int(trained * rng.uniform(0.05, 0.6))


async def _merged(
    engine: Any, layout: CardLayout, trained: int, w: np.ndarray, p: np.ndarray, total: int
) -> tuple[Share, Share]:
    whole = [engine.constant(one.astype(np.uint64)) for one in (w, p * ONE, np.array([total * ONE]))]
    return await merge_bins(engine, whole[0], whole[1], whole[2], trained, layout)


def _clear(*drawn: Any) -> tuple[np.ndarray, np.ndarray]:
    with pytest.raises(StopIteration) as ended:
        _merged(Clear(SEED), *drawn).send(None)
    rows, positives = ended.value.value
    assert not (positives.mine % ONE).any()
    return rows.mine.astype(np.int64), (positives.mine // ONE).astype(np.int64)


@pytest.mark.parametrize("seed", range(8))
def test_merged_counts_are_those_of_the_plain_path(seed: int) -> None:
    drawn = _draw(np.random.default_rng(seed))
    layout, _, w, p, _ = drawn
    rows, positives = _clear(*drawn)
    for start, size in zip(layout.starts, layout.sizes, strict=True):
        here = slice(start, start + size)
        wanted = _merge_plainly(w[here], p[here])
        np.testing.assert_array_equal(rows[here], wanted[0])
        np.testing.assert_array_equal(positives[here], wanted[1])


def test_equal_neighbours_are_merged_and_one_or_two_bins_stay() -> None:
    w, p = np.array([10, 10, 10, 20, 10, 10, 30]), np.array([1, 1, 5, 4, 2, 2, 3])
    rows, positives = _clear(CardLayout(((3, 1), (2, 1))), 30, w, p, 8)
    assert rows.tolist() == [20, 20, 10, 20, 10, 10, 30]
    assert positives.tolist() == [2, 2, 5, 4, 2, 2, 3]


def test_a_million_rows_and_the_most_bins_do_not_wrap() -> None:
    rng, size = np.random.default_rng(1), MOST_MERGED
    trained = 1 << 20
    w = np.full(size, trained // size)
    for base in (0.5, 0.999, 0.001):
        p = rng.binomial(w, np.clip(base + rng.normal(scale=0.02, size=size), 0.0001, 0.9999))
        rows, positives = _clear(CardLayout(((size,),)), trained, w, p, int(p.sum()))
        wanted = _merge_plainly(w, p)
        np.testing.assert_array_equal(rows, wanted[0])
        np.testing.assert_array_equal(positives, wanted[1])


def test_three_parties_compute_the_words_of_the_clear_in_few_rounds_whatever_the_columns() -> None:
    drawn = _draw(np.random.default_rng(3))

    async def party(engine: Computing) -> tuple[np.ndarray, np.ndarray, int]:
        rows, positives = await _merged(engine, *drawn)
        return rows.mine, positives.mine, engine.rounds

    results = run_three(party, seed=SEED).results
    rows, positives = _clear(*drawn)
    np.testing.assert_array_equal(sum(one[0] for one in results), rows.astype(np.uint64))
    np.testing.assert_array_equal(sum(one[1] for one in results), (positives * ONE).astype(np.uint64))
    assert max(one[2] for one in results) <= 38


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(2, 300)


def _job(**more: Any) -> sv.Job:
    given: dict[str, Any] = {"epochs": 3, "batch_size": 32, "seed": 1, "keep": "last"} | more
    card = sv.Scorecard(bins=8, least=10, monotone=True)
    return sv.Job(**{"algorithm": card, "protection": sv.Shares()} | given)


def _points(result: Result, party: str) -> list[list[float]]:
    card = result.model().parts[party]["scorecard"]["columns"]
    return [[bin["points"] for bin in column["bins"]] for column in card]


def test_a_job_merges_its_counts_and_every_party_gets_points_that_rise_or_fall(
    people: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge, seen = course.merge_bins, []

    async def noted(engine: Any, rows: Share, positives: Share, total: Share, trained: int, layout: CardLayout) -> Any:
        found = await merge(engine, rows, positives, total, trained, layout)
        seen.append((layout, rows.mine, positives.mine, *(one.mine for one in found)))
        return found

    monkeypatch.setattr(course, "merge_bins", noted)
    result = sv.simulate(_job(protection=sv.Shares(model="parts")), people)
    assert len(seen) == 3
    layout = seen[0][0]
    w, p, rows, positives = (sum(one[kind] for one in seen).astype(np.int64) for kind in range(1, 5))
    changed = 0
    for start, size in zip(layout.starts, layout.sizes, strict=True):
        here = slice(start, start + size)
        wanted = _merge_plainly(w[here], p[here] // ONE)
        np.testing.assert_array_equal(rows[here], wanted[0])
        np.testing.assert_array_equal(positives[here] // ONE, wanted[1])
        changed += int((wanted[0] != w[here]).any())
    assert changed > 2
    for name in people:
        for points in _points(result, name):
            steps = np.diff(points)
            assert (steps >= -0.01).all() or (steps <= 0.01).all(), points
    predicted = sv.predict(result.model(), people)
    again = dict(zip(predicted.ids, predicted.probabilities[:, 1], strict=True))
    (scores,) = result.scores.values()
    assert max(abs(again[name] - value) for name, value in zip(result.test_ids, scores[:, 1], strict=True)) < 0.02


def test_a_bin_that_is_too_small_is_found_also_where_it_is_merged(
    people: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def all_merged(engine: Any, rows: Share, positives: Share, *_: Any) -> tuple[Share, Share]:
        return engine.constant(np.full(rows.shape, 100, np.uint64)), positives

    monkeypatch.setattr(course, "merge_bins", all_merged)
    monkeypatch.setattr(
        "securevfl.algorithms.scorecard.binned_roles.cut_points", lambda x, bins, least: cut(x, bins, 3)
    )
    with pytest.raises(sv.PolicyError, match="a bin has fewer than 30 training rows"):
        sv.simulate(_job(algorithm=sv.Scorecard(bins=8, least=30, monotone=True)), people)


def test_nothing_else_is_opened_than_without_merging(people: Parties) -> None:
    def said(job: sv.Job) -> dict[str, list[str]]:
        (ledgers,) = [kept for key, kept in sv.simulate(job, people).ledgers.items() if key != "alignment"]
        return {
            name: [one.what for one in ledger.iter_entries() if one.what.startswith("shares/open")]
            for name, ledger in ledgers.items()
        }

    merging = _job()
    assert said(merging) == said(merging.replace(algorithm=sv.Scorecard(bins=8, least=10)))


def test_more_bins_than_are_merged_are_refused() -> None:
    with pytest.raises(sv.InputError, match=r"scorecard.bins is 33, and with monotone on shares it is at most 32"):
        sv.Job(algorithm=sv.Scorecard(bins=33, monotone=True), protection=sv.Shares(), epochs=1)

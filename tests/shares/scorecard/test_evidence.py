"""Counts and weights of evidence on shares: the words of the clear, right to a stated bound, in few rounds."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from securevfl_crypto.replicated import Clear, Computing, Share, deal_shares, run_three
from securevfl_crypto.ring import decode_words

import securevfl as sv
from securevfl.algorithms.scorecard.binning import Evidence
from securevfl.shares.network_ranges import NetworkShape, OptimiserConstants
from securevfl.shares.scorecard.card_network import LARGEST_VALUE, CardNetwork
from securevfl.shares.scorecard.evidence import (
    LOG_ERROR,
    compute_evidence,
    count_positives,
    logarithm_of_integers,
    look_up,
)
from securevfl.shares.scorecard.layout import CardLayout
from securevfl.shares.scorecard.release import PointsShape, split_points

LAYOUT = CardLayout(((3, 1), (), (4, 3)))
SEED = bytes(range(32))
ONE = 1 << 16


def _clear(program: Callable[[Any], Awaitable[Any]], **more: Any) -> Any:
    with pytest.raises(StopIteration) as ended:
        program(Clear(SEED, **more)).send(None)  # type: ignore[attr-defined]
    return ended.value.value


def _table(rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Cells of some rows, and their labels, words 0 or 1."""
    draws = np.random.default_rng(3)
    cells = np.zeros((rows, sum(LAYOUT.cells)), np.uint64)
    for start, size in zip(LAYOUT.starts, LAYOUT.sizes, strict=True):
        cells[np.arange(rows), start + draws.integers(size, size=rows)] = 1
    return cells, draws.integers(2, size=(rows, 1)).astype(np.uint64)


def _counts(cells: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return cells.sum(axis=0).astype(int), (cells * y).sum(axis=0).astype(int)


def _wanted(cells: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What the plain path computes."""
    rows, positives = _counts(cells, y)
    return np.concatenate(
        [
            Evidence.from_counts(rows[start : start + size], positives[start : start + size]).woe
            for start, size in zip(LAYOUT.starts, LAYOUT.sizes, strict=True)
        ]
    )


async def _everything(engine: Any, cells: list[Share], targets: list[Share]) -> dict[str, Share]:
    """All that a scorecard computes: counts, weights of evidence, inputs, two steps, points, checks."""
    found = {"positives": await count_positives(engine, cells, targets)}
    rows = sum((part.sum(axis=0) for part in cells[1:]), cells[0].sum(axis=0))
    total = sum((part.sum() for part in targets[1:]), targets[0].sum()).reshape(1)
    trained = sum(map(len, cells))
    found["evidence"], found["short"] = await compute_evidence(engine, rows, found["positives"], total, trained, 7)
    shape, rule = NetworkShape(LAYOUT.columns, (), (), 2), OptimiserConstants(0.25, 0.9, 0.0)
    network = CardNetwork(shape, rule, 16, engine, 1, layout=LAYOUT)
    network.evidence = found["evidence"]
    columns = await network.look_up(cells)
    found |= {f"columns {number}": one for number, one in enumerate(columns)}
    for part, y in zip(columns, targets, strict=True):
        await network.train_batch(network.split_columns(part), y)
    found["weights"] = network.weights["layer 0"]
    found["range"] = await network.out_of_range()
    found["points"] = await network.compute_points()
    network.take_points(found["points"])
    found["range of points"] = await network.out_of_range()
    (again,) = await network.look_up(cells[:1])
    found["logits"] = await network.forward(network.split_columns(again))
    return found


def test_three_parties_compute_what_the_clear_does_word_for_word() -> None:
    cells, y = _table()
    parts = [deal_shares(cells[:40]), deal_shares(cells[40:])]
    labels = [deal_shares(y[:40] * np.uint64(ONE)), deal_shares(y[40:] * np.uint64(ONE))]

    async def party(engine: Computing) -> dict[str, np.ndarray]:
        shares = [[engine.read_dealt(one[engine.index]) for one in kind] for kind in (parts, labels)]
        return {name: one.mine for name, one in (await _everything(engine, *shares)).items()}

    async def clear(engine: Clear) -> dict[str, np.ndarray]:
        shares = [[engine.read_dealt(one) for one in kind] for kind in (parts, labels)]
        return {name: one.mine for name, one in (await _everything(engine, *shares)).items()}

    results = run_three(party, seed=SEED).results
    wanted = _clear(clear)
    assert {"positives", "evidence", "short", "columns 1", "weights", "points", "logits"} <= set(wanted)
    for name, words in wanted.items():
        np.testing.assert_array_equal(sum(one[name] for one in results), words, err_msg=name)
    rows, positives = _counts(cells, y)
    np.testing.assert_array_equal(wanted["positives"], positives * ONE)
    np.testing.assert_array_equal(wanted["short"], rows < 7)
    woe = decode_words(wanted["evidence"])
    np.testing.assert_allclose(woe, _wanted(cells, y), atol=2 * LOG_ERROR)
    inside = cells.astype(bool)
    for number, (start, size) in enumerate(zip(LAYOUT.starts, LAYOUT.sizes, strict=True)):
        own = inside[:40, start : start + size] @ wanted["evidence"][start : start + size]
        np.testing.assert_array_equal(wanted["columns 0"][:, number], own)
    assert not wanted["range"].any()
    assert not wanted["range of points"].any()
    points = decode_words(wanted["points"]).reshape(-1)
    weights = decode_words(wanted["weights"]).reshape(-1)
    np.testing.assert_allclose(points[:-1], np.repeat(weights[:-1], LAYOUT.sizes) * woe, atol=2e-5)
    np.testing.assert_allclose(decode_words(wanted["logits"])[:, 0], inside[:40] @ points[:-1] + points[-1], atol=1e-4)


def test_counting_takes_twelve_rounds_whatever_the_number_of_parts() -> None:
    """1 for the counts, 4 for logarithms, 4 for their difference, 2 to check the bins, 1 to look the weights up."""
    cells, y = _table()

    async def party(engine: Computing) -> int:
        shares = [engine.constant(cells[start : start + 10]) for start in range(0, 60, 10)]
        targets = [engine.constant(y[start : start + 10] * np.uint64(ONE)) for start in range(0, 60, 10)]
        positives = await count_positives(engine, shares, targets)
        rows = engine.constant(cells.sum(axis=0))
        total = engine.constant(y.sum(keepdims=True).reshape(1) * np.uint64(ONE))
        evidence, short = await compute_evidence(engine, rows, positives, total, 60, 2)
        assert await engine.is_zero("bins", short)
        await look_up(engine, shares, evidence, LAYOUT)
        return engine.rounds

    assert max(run_three(party, openings={"bins": 1}).results) <= 12


@pytest.mark.parametrize("trained", [1000, 13_000, 1 << 20])
def test_evidence_is_right_to_twice_the_error_of_a_logarithm_also_of_rare_labels(trained: int) -> None:
    draws = np.random.default_rng(trained)
    sizes = np.array([20, 21, 50, trained // 10, trained // 2])
    rows = np.append(sizes, trained - sizes.sum())
    for rate in (0.5, 0.02, 0.001, 0.0):
        positives = draws.binomial(rows, rate)
        wanted = Evidence.from_counts(rows, positives).woe

        async def weigh(engine: Clear, rows: Any = rows, positives: Any = positives) -> np.ndarray:
            words = [engine.constant(one.astype(np.uint64)) for one in (rows, positives * ONE)]
            total = engine.constant(np.array([positives.sum() * ONE], np.uint64))
            evidence, short = await compute_evidence(engine, words[0], words[1], total, trained, 20)
            assert not short.mine.any()
            return evidence.mine

        np.testing.assert_allclose(decode_words(_clear(weigh)), wanted, atol=2 * LOG_ERROR + 2**-16, err_msg=f"{rate}")


def test_a_bin_of_one_class_is_clipped_and_a_single_bin_says_nothing() -> None:
    rows, positives = np.array([1 << 19, 1 << 19, 1 << 20]), np.array([1 << 19, 0, 1 << 19])

    async def weigh(engine: Clear) -> np.ndarray:
        words = [engine.constant(one.astype(np.uint64)) for one in (rows, positives * ONE)]
        total = engine.constant(np.array([(1 << 19) * ONE], np.uint64))
        return (await compute_evidence(engine, words[0], words[1], total, 1 << 20, 20))[0].mine

    assert decode_words(_clear(weigh)).tolist() == [6.0, -6.0, 0.0]


def test_logarithms_of_integers_are_exact_when_small_and_at_most_their_bound_below() -> None:
    curve = logarithm_of_integers((1 << 21) + 1)
    v = np.unique(np.concatenate([np.arange(1, 5000), np.geomspace(5000, 1 << 21, 20_000).astype(int)])) | 1
    below = np.log(v) - curve(v).astype(float) / 2**40
    assert below.max() < LOG_ERROR
    assert below.min() > -1e-6
    assert np.abs(below[v <= 41]).max() < 1e-6
    assert len(curve.thresholds) < 260


def test_many_cells_are_compared_in_parts_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    cells, y = _table()
    rows, positives = _counts(cells, y)

    async def weigh(engine: Clear) -> np.ndarray:
        words = [engine.constant(one.astype(np.uint64)) for one in (rows, positives * ONE)]
        total = engine.constant(np.array([int(y.sum()) * ONE], np.uint64))
        evidence, short = await compute_evidence(engine, words[0], words[1], total, len(y), 7)
        assert short.mine.tolist() == (rows < 7).tolist()
        return evidence.mine

    whole = _clear(weigh)
    monkeypatch.setattr("securevfl.shares.scorecard.evidence._AT_ONCE", 100)
    assert np.abs(decode_words(_clear(weigh)) - decode_words(whole)).max() <= 2**-16


@pytest.mark.parametrize("least", [1, 10, 11])
def test_a_bin_with_fewer_rows_than_the_job_says_is_found(least: int) -> None:
    async def weigh(engine: Clear) -> bool:
        rows = engine.constant(np.array([10, 30], np.uint64))
        positives = engine.constant(np.array([5 * ONE, 2 * ONE], np.uint64))
        total = engine.constant(np.array([7 * ONE], np.uint64))
        _, short = await compute_evidence(engine, rows, positives, total, 40, least)
        return await engine.is_zero("bins", short)

    assert _clear(weigh, openings={"bins": 1}) is (least <= 10)


@pytest.mark.parametrize("value", [6.01, -7.0, 2.0**40, -(2.0**46) - 3])
def test_loaded_evidence_out_of_range_is_found(value: float) -> None:
    async def judge(engine: Clear) -> np.ndarray:
        network = CardNetwork(NetworkShape((2, 0, 2), (), (), 2), OptimiserConstants(0.2, 0.9, 0.0), 8, engine, 1,
                              layout=LAYOUT)  # fmt: skip
        words = np.zeros(sum(LAYOUT.cells), np.uint64)
        words[4] = round(value * ONE) % 2**64
        network.evidence = engine.constant(words)
        return (await network.out_of_range()).mine

    assert _clear(judge).any()


@pytest.mark.parametrize("value", [17.0, -(2.0**40)])
def test_coefficients_out_of_range_are_found(value: float) -> None:
    async def judge(engine: Clear) -> np.ndarray:
        network = CardNetwork(NetworkShape((2, 0, 2), (), (), 2), OptimiserConstants(0.2, 0.9, 0.0), 8, engine, 1,
                              layout=LAYOUT)  # fmt: skip
        network.evidence = engine.constant(np.zeros(sum(LAYOUT.cells), np.uint64))
        words = network.weights["layer 0"].mine.copy()
        assert not (await network.out_of_range()).mine.any()
        words[2] = round(value * ONE) % 2**64
        network.weights["layer 0"] = engine.constant(words)
        return (await network.out_of_range()).mine

    assert _clear(judge).any()


@pytest.mark.parametrize(("place", "value"), [(0, 200.0), (5, -(2.0**40)), (-1, 33.0)])
def test_points_out_of_range_are_found(place: int, value: float) -> None:
    async def judge(engine: Clear) -> np.ndarray:
        network = CardNetwork(NetworkShape((2, 0, 2), (), (), 2), OptimiserConstants(0.2, 0.9, 0.0), 8, engine, 1,
                              layout=LAYOUT)  # fmt: skip
        words = np.zeros((sum(LAYOUT.cells) + 1, 1), np.uint64)
        words[place] = round(value * ONE) % 2**64
        network.take_points(engine.constant(words))
        return (await network.out_of_range()).mine

    assert _clear(judge).any()


def test_points_of_a_wide_card_are_accepted_by_their_owner() -> None:
    """As large as the range allows, in each of many cells."""
    layout = CardLayout(((10,) * 300, (10,) * 300))
    (layer,) = PointsShape.of(layout).top_layers()
    assert np.linalg.norm(np.full(6000, LARGEST_VALUE)) <= 2 * layer.max_norm


def test_a_layout_knows_its_cells_and_refuses_tables_that_no_party_could_hold() -> None:
    assert LAYOUT.columns == (2, 0, 2)
    assert LAYOUT.cells == (4, 0, 7)
    assert LAYOUT.starts.tolist() == [0, 3, 4, 8]
    (one, cells_of_one), (three, cells_of_three), (four, _) = LAYOUT.groups()
    assert (one.tolist(), three.tolist(), four.tolist()) == ([1], [0, 3], [2])
    assert cells_of_one.tolist() == [[3]]
    assert cells_of_three.tolist() == [[0, 1, 2], [8, 9, 10]]
    with pytest.raises(sv.InputError, match="take fewer bins, columns or rows"):
        LAYOUT.check_rows(1 << 25)


def test_a_part_of_the_points_is_split_into_bins_and_the_bias() -> None:
    values, bias = split_points({"cells": np.ones((3, 1)), "bias": np.full((1, 1), -0.5)}, active=True)
    assert (values.tolist(), bias) == ([1, 1, 1], -0.5)
    values, bias = split_points({}, active=False)
    assert (values.tolist(), bias) == ([], None)
    assert math.isclose(split_points({"bias": np.ones((1, 1))}, active=True)[1] or 0.0, 1.0)

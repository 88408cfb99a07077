"""Trees as a model on shares: outputs, averages over passive columns, usefulness, initial scores and ranges, by three
parties as in the clear, and as a forest in floating point gives them."""

from __future__ import annotations

import numpy as np
import pytest
from securevfl_crypto.replicated import Clear, Computing, NarrowShare, Share, run_three
from securevfl_crypto.ring import decode_words, encode_words

import securevfl as sv
from securevfl.shares.engine import Engine
from securevfl.shares.trees import CellLayout
from securevfl.shares.trees.forest import LARGEST_LEAF, ForestShape, KeptTree, ScoredRows, SharedForest
from securevfl.shares.trees.owned_cells import NarrowCells
from securevfl.shares.trees.start import compute_start
from securevfl.shares.usefulness import Usefulness

SEED = bytes(32)
LAYOUT = CellLayout(bins=(4, 3, 5), missing=(False, True, False), directions=(0, 0, 0), owners=(0, 1, 1))
ROWS, DEPTH, TREES = 60, 3, 4


def _codes() -> list[np.ndarray]:
    draw = np.random.default_rng(3)
    codes = np.stack([draw.integers(0, size, ROWS) for size in LAYOUT.sizes]).astype(np.uint8)
    return [codes[:1], codes[1:]]


def _forest_words() -> tuple[np.ndarray, np.ndarray]:
    """Sides (trees, nodes, cells) and leaves (trees, leaves); one node in five has no split."""
    draw = np.random.default_rng(4)
    sides = np.zeros((TREES, (1 << DEPTH) - 1, LAYOUT.cells), np.uint64)
    for tree in sides:
        for node in tree:
            column = draw.integers(0, 3)
            start, size = LAYOUT.starts[column], LAYOUT.bins[column]
            node[start : start + draw.integers(1, size)] = draw.random() > 0.2
    return sides, draw.normal(0, 0.5, (TREES, 1 << DEPTH))


def _make_forest(engine: Engine, classes: int = 2) -> SharedForest:
    sides, leaves = _forest_words()
    forest = SharedForest(ForestShape(LAYOUT, DEPTH, classes, own=1), engine)
    forest.start = engine.constant(encode_words(np.full(forest.shape.outputs, -0.5)))
    for tree, values in zip(sides, leaves, strict=True):
        kept = NarrowShare.low_words(engine.constant(tree), 8)
        forest.trees.append(KeptTree(kept, engine.constant(encode_words(values))))
    return forest


def _cells(engine: Engine, codes: list[np.ndarray]) -> NarrowCells:
    """Rows that party 0 and party 1 own; the other summands are zero, as if their seeds gave zeros."""
    one_hot = np.zeros((LAYOUT.cells, codes[0].shape[1]), np.uint64)
    for start, row in zip(LAYOUT.starts, np.concatenate(codes), strict=True):
        one_hot[start + row.astype(int), np.arange(len(row))] = 1
    share = NarrowShare.low_words(engine.constant(one_hot), 8)
    if isinstance(engine, Clear):
        return NarrowCells(LAYOUT, codes, 0)
    return NarrowCells(LAYOUT, [share[: LAYOUT.sizes[0]], share[LAYOUT.sizes[0] :]], engine.index)


async def _scored(engine: Engine, classes: int = 2) -> np.ndarray:
    forest = _make_forest(engine, classes)
    rows = ScoredRows(_cells(engine, _codes()))
    every, forest.trees = forest.trees, forest.trees[: forest.shape.outputs]
    await forest.forward(rows)  # some rounds first, then the others
    forest.trees = every
    counted, sums = await forest.sum_others(rows)
    averages = [await engine.truncate(one * round(2**20 / counted), 20) for one in sums]
    outputs, without = await forest.forward_averaged(rows, averages)
    return np.concatenate([outputs.mine, without.mine])


def _expected(classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    sides, leaves = _forest_words()
    cells = np.concatenate([np.eye(s)[row].T for s, row in zip(LAYOUT.sizes, np.concatenate(_codes()), strict=True)])
    width = classes if classes > 2 else 1
    outputs, without = (np.full((ROWS, width), -0.5) for _ in range(2))
    own = np.arange(LAYOUT.cells) < LAYOUT.sizes[0]
    for number, (tree, values) in enumerate(zip(sides.astype(float), leaves, strict=True)):
        left = tree @ cells
        soft = tree[:, own] @ cells[own] + (tree[:, ~own] @ cells[~own]).mean(axis=1, keepdims=True)
        for found, by in ((outputs, left), (without, soft)):
            weights, first = np.ones((1, ROWS)), 0
            for level in range(DEPTH):
                here = by[first : first + (1 << level)]
                weights = np.stack([weights * here, weights * (1 - here)], 1).reshape(-1, ROWS)
                first += 1 << level
            found[:, number % width] += values @ weights
    return outputs, without


@pytest.mark.parametrize("classes", [2, 4])
def test_outputs_and_averages_are_those_of_a_forest_in_floating_point(classes: int) -> None:
    clear = _scored(Clear(SEED), classes)
    with pytest.raises(StopIteration) as done:
        clear.send(None)
    found = decode_words(done.value.value)
    outputs, without = _expected(classes)
    np.testing.assert_allclose(found[:ROWS], outputs, atol=2e-4)
    np.testing.assert_allclose(found[ROWS:], without, atol=2e-3)
    assert np.abs(outputs - without).max() > 0.1


def test_three_parties_compute_what_the_clear_does_word_by_word() -> None:
    run = run_three(_scored, seed=SEED)
    with pytest.raises(StopIteration) as done:
        _scored(Clear(SEED)).send(None)
    np.testing.assert_array_equal(np.asarray(sum(run.results)), done.value.value)


def test_rows_are_scored_again_where_the_model_went_back() -> None:
    async def scored(engine: Engine) -> tuple[np.ndarray, np.ndarray]:
        forest, rows = _make_forest(engine), ScoredRows(_cells(engine, _codes()))
        await forest.forward(rows)
        forest.trees = forest.trees[:2]
        back = await forest.forward(rows)
        return back.mine, (await forest.forward(ScoredRows(_cells(engine, _codes())))).mine

    with pytest.raises(StopIteration) as done:
        scored(Clear(SEED)).send(None)
    np.testing.assert_array_equal(*done.value.value)


@pytest.mark.parametrize(("informative", "useful"), [(True, 1), (False, 0)])
def test_the_bit_says_whether_passive_columns_help(informative: bool, useful: int) -> None:
    """Labels drawn from the forest's own outputs, or from what it gives with passive columns averaged."""
    outputs, without = _expected()
    draw = np.random.default_rng(8)
    chosen = (outputs * 4 if informative else without).reshape(-1)
    labels = (draw.random(ROWS) < 1 / (1 + np.exp(-chosen))).astype(float)[:, None]

    async def decided(engine: Engine) -> np.ndarray:
        judge, rows = Usefulness(_make_forest(engine)), ScoredRows(_cells(engine, _codes()))
        await judge.add_to_means(rows)
        await judge.add_rows(rows, engine.constant(encode_words(labels)))
        return (await judge.decide()).mine

    with pytest.raises(StopIteration) as done:
        decided(Clear(SEED)).send(None)
    assert int(done.value.value[0]) == useful


@pytest.mark.parametrize(
    ("classes", "rates"), [(2, (0.22,)), (2, (0.03,)), (2, (0.97,)), (4, (0.4, 0.3, 0.28, 0.02)), (1, (1.3,))]
)
def test_initial_scores_are_log_odds_or_means(classes: int, rates: tuple[float, ...]) -> None:
    n = 1000
    targets = np.zeros((n, len(rates)))
    for column, rate in enumerate(rates):
        targets[: round(rate * n), column] = 1
    if classes == 1:
        targets[:] = rates[0]

    async def started(engine: Engine) -> np.ndarray:
        return (await compute_start(engine, engine.constant(encode_words(targets)), classes)).mine

    with pytest.raises(StopIteration) as done:
        started(Clear(SEED)).send(None)
    shares = np.array(rates)
    wanted = shares if classes == 1 else np.log(shares / (1 - shares)) if classes == 2 else np.log(shares)
    np.testing.assert_allclose(decode_words(done.value.value), wanted, atol=0.03)
    run = run_three(started, seed=SEED)
    np.testing.assert_array_equal(np.asarray(sum(run.results)), done.value.value)


def test_the_first_score_of_a_few_rows_is_their_mean() -> None:
    async def started(engine: Engine) -> np.ndarray:
        return (await compute_start(engine, engine.constant(encode_words(np.array([[1.0], [2.0], [4.5]]))), 1)).mine

    with pytest.raises(StopIteration) as done:
        started(Clear(SEED)).send(None)
    np.testing.assert_allclose(decode_words(done.value.value), [2.5], atol=1e-4)


def test_leaves_out_of_range_are_seen_and_looked_at_once() -> None:
    async def looked(engine: Engine) -> list[int]:
        forest, found = _make_forest(engine), []
        for value in (0.0, LARGEST_LEAF + 1, -2.0 * LARGEST_LEAF):
            tree = forest.trees[0]
            leaves = engine.constant(encode_words(np.full(1 << DEPTH, value), bound=1 << 20))
            forest.trees.append(KeptTree(tree.sides, leaves))
            found.append(int((await forest.out_of_range()).mine.sum()))
        return found

    with pytest.raises(StopIteration) as done:
        looked(Clear(SEED)).send(None)
    assert done.value.value == [0, 1 << DEPTH, 1 << DEPTH]


def test_leaves_of_a_loaded_model_are_looked_at_again() -> None:
    async def looked(engine: Engine) -> list[int]:
        forest, other = _make_forest(engine), _make_forest(engine)
        leaves = engine.constant(encode_words(np.full(1 << DEPTH, LARGEST_LEAF + 1), bound=1 << 20))
        other.trees[0] = KeptTree(other.trees[0].sides, leaves)
        found = [int((await forest.out_of_range()).mine.sum())]
        forest.unpack_model(other.pack_model())
        return [*found, int((await forest.out_of_range()).mine.sum())]

    with pytest.raises(StopIteration) as done:
        looked(Clear(SEED)).send(None)
    assert done.value.value == [0, 1 << DEPTH]


def test_trees_of_other_bins_are_refused() -> None:
    forest = _make_forest(Clear(SEED))
    state = forest.pack_model()
    other = CellLayout(bins=(4, 3, 6), missing=(False, True, False), directions=(0, 0, 0), owners=(0, 1, 1))
    with pytest.raises(sv.InputError, match="other bins, columns or another depth"):
        SharedForest(ForestShape(other, DEPTH, 2, own=1), Clear(SEED)).unpack_model(state)


def test_fresh_shares_of_a_model_have_its_values() -> None:
    async def refreshed(engine: Engine) -> tuple[np.ndarray, np.ndarray]:
        forest = _make_forest(engine)
        forest.begin(forest.start or Share(np.zeros(1, np.uint64), np.zeros(1, np.uint64)), 5)
        before = forest.trees[1].sides.mine.copy()
        if isinstance(engine, Computing):
            forest.replace_shares(await engine.refresh(*forest.list_shares()))
        return before, forest.trees[1].sides.mine

    befores, afters = zip(*run_three(refreshed, seed=SEED).results, strict=True)
    np.testing.assert_array_equal(sum(befores), sum(afters))
    assert all((one != other).any() for one, other in zip(befores, afters, strict=True))

"""Trees on shares: three parties compute what the clear does word by word, and a float reference finds their splits
the best ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from securevfl_crypto.replicated import Clear, Computing, Share, run_three
from securevfl_crypto.ring import encode_words
from support.shared_trees import BinnedTable, Followed, boost, follow, opened, run_clear

from securevfl.errors import InputError
from securevfl.shares.engine import Engine
from securevfl.shares.trees import (
    CellLayout,
    SharedCells,
    SharedTree,
    TreeRule,
    choose_gradient_bits,
    compute_gradients,
    grow_trees,
)
from securevfl.shares.trees.gradients import Loss
from securevfl.shares.trees.splits import NodeSums, choose_splits, scale_task

LAYOUT = CellLayout((8, 5, 2, 6), (False, True, False, True), (0, 0, 0, 0), (0, 0, 1, 2))
PARTED = replace(LAYOUT, parted=(False, True, True, False))
RULE = TreeRule(depth=3, l2=1.0, min_hessian=1.0, min_gain=0.0, rate=0.3, gradient_bits=16, rows=400)
CASES: dict[str, tuple[Loss, TreeRule]] = {
    "two classes": ("logistic", RULE),
    "few bits": ("logistic", replace(RULE, gradient_bits=9, depth=2)),
    "no least hessian": ("logistic", replace(RULE, min_hessian=0.0, l2=0.0625, depth=2)),
    "a least gain": ("logistic", replace(RULE, min_gain=1.5)),
    "directions": ("logistic", replace(RULE, depth=2)),
    "sets": ("logistic", replace(RULE, depth=2)),
    "three classes": ("softmax", replace(RULE, depth=2)),
    "numbers": ("squares", replace(RULE, depth=2, largest=8.0)),
}


def _rows(loss: Loss, rows: int = 400, seed: int = 1) -> tuple[BinnedTable, np.ndarray, np.ndarray]:
    """A table, first scores (K, n) and targets (n, K)."""
    table = BinnedTable.draw(LAYOUT, rows, seed)
    generator = np.random.default_rng(seed + 100)
    one, two, three, four = table.bins
    z = 0.6 * (one - 3.5) + (two == 5) - 0.8 * (two < 2) + (four > 2) * (three - 0.5) + generator.normal(size=rows)
    if loss == "squares":
        return table, np.zeros((1, rows)), z[:, None]
    if loss == "logistic":
        return table, np.full((1, rows), 0.1), (z > 0.3).astype(float)[:, None]
    classes = np.digitize(z, [-1, 1])
    return table, np.zeros((3, rows)), np.eye(3)[classes]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("low", [False, True])
def test_three_parties_compute_what_the_clear_does_bit_by_bit(case: str, low: bool) -> None:
    loss, rule = CASES[case]
    rule = replace(rule, depth=2, rows=60, gradient_bits=min(rule.gradient_bits, 16))
    table, scores, targets = _rows(loss, 60)
    if case == "directions":
        table = replace(table, layout=replace(LAYOUT, directions=(1, -1, 0, 1)))
    if case == "sets":
        table = replace(table, layout=PARTED)
    allowed, weights = np.array([True, True, False, True]), (np.arange(60) % 5 > 0).astype(np.int64)

    async def program(engine: Engine) -> dict[str, np.ndarray]:
        grown, gradients, f = await boost(
            engine, table, loss, scores, targets, rule, steps=1, allowed=allowed, weights=weights, low=low
        )
        found = {"scores": f, "gradients": gradients[0]}
        for k, tree in enumerate(grown[0]):
            found[f"leaves {k}"] = tree.leaves
            for level in range(rule.depth):
                found[f"sides {k} {level}"] = tree.sides[level]
                found[f"chosen {k} {level}"] = tree.chosen[level]
        return {name: share.mine for name, share in found.items()}

    async def party(engine: Computing) -> dict[str, np.ndarray]:
        return await program(engine)

    seed = bytes(range(32))
    results = run_three(party, seed=seed).results
    for name, words in run_clear(program, seed).items():
        np.testing.assert_array_equal(sum(one[name] for one in results), words, err_msg=name)


def _followed(
    table: BinnedTable,
    loss: Loss,
    scores: np.ndarray,
    targets: np.ndarray,
    rule: TreeRule,
    steps: int = 2,
    allowed: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> list[Followed]:
    """The reference of every tree, by the gradients that the trees were grown with; leaves are compared as well."""

    async def program(engine: Clear) -> tuple[list[list[SharedTree]], list[Share], Share]:
        return await boost(engine, table, loss, scores, targets, rule, steps=steps, allowed=allowed, weights=weights)

    grown, gradients, f = run_clear(program)
    found, total = [], np.array(scores, float)
    for trees, sums in zip(grown, gradients, strict=True):
        numbers = opened(sums, rule.gradient_bits)
        for k, tree in enumerate(trees):
            one = follow(table, tree, numbers[:, k, :2], rule, allowed)
            total[k] += one.added
            found.append(one)
    np.testing.assert_allclose(opened(f, 16), total, atol=2e-4 * steps * max(1.0, float(np.abs(total).max())))
    return found


@pytest.mark.parametrize("case", CASES)
def test_splits_are_those_of_a_float_reference(case: str) -> None:
    loss, rule = CASES[case]
    table, scores, targets = _rows(loss)
    followed = _followed(table, loss, scores, targets, rule)
    assert sum(len(one.best) for one in followed) >= 2 * len(followed)
    for one in followed:
        assert one.share_lost < 3e-3
        assert all(stopped == wanted for stopped, wanted in one.stops)


def test_trees_stop_where_the_reference_does() -> None:
    """With a least gain and a least hessian, some nodes stop and others do not."""
    table, scores, targets = _rows("logistic")
    rule = replace(RULE, min_gain=4.0, min_hessian=8.0, depth=4)
    stops = [pair for one in _followed(table, "logistic", scores, targets, rule, 3) for pair in one.stops]
    assert all(stopped == wanted for stopped, wanted in stops)
    assert 5 < sum(stopped for stopped, _ in stops) < len(stops) - 5


def test_a_node_whose_children_would_be_too_small_stops() -> None:
    table, scores, targets = _rows("logistic", 60)
    (one,) = _followed(table, "logistic", scores, targets, replace(RULE, min_hessian=9.0), 1)
    assert not one.best
    assert all(stopped for stopped, _ in one.stops)
    assert one.nodes[-1].all()  # all rows go right


def test_a_fraction_of_nothing_does_not_win() -> None:
    """0 / 0 would tie with every fraction and win by its place; it takes a sum of h that ends at −λ."""
    rule = replace(RULE, min_hessian=0.0, depth=1)
    totals, lefts = np.array([[0.0], [40.0], [50.0]]), np.array([[[0.0, 5.0, 20.0]], [[-1.0, 20.0, 20.0]]])

    async def program(engine: Clear) -> Share:
        whole, left = (engine.constant((part * 65536).astype(np.int64).view(np.uint64)) for part in (totals, lefts))
        bits = (await engine.run_masked([scale_task(engine, whole, rule)]))[0][0]
        return await choose_splits(engine, np.zeros(3, np.int64), NodeSums(whole, left, bits), rule)

    assert opened(run_clear(program)).tolist() == [[0.0, 0.0, 1.0]]


def test_a_huge_least_gain_stops_every_node() -> None:
    for gain in (1e4, 1e6):
        table, scores, targets = _rows("logistic", 100)
        (one,) = _followed(table, "logistic", scores, targets, replace(RULE, min_gain=gain, depth=2), 1)
        assert not one.best


def test_a_column_without_use_is_never_split() -> None:
    table, scores, targets = _rows("logistic")
    allowed = np.array([False, True, True, False])
    for one in _followed(table, "logistic", scores, targets, RULE, 2, allowed=allowed):
        assert one.best
        assert one.share_lost < 3e-3


def test_rows_that_a_tree_leaves_out_count_nothing_and_get_its_leaves() -> None:
    table, scores, targets = _rows("logistic")
    weights = np.random.default_rng(2).integers(0, 2, 400)
    for one in _followed(table, "logistic", scores, targets, RULE, 2, weights=weights):
        assert one.share_lost < 3e-3
        assert one.nodes.any(0).all()
        assert one.added[weights == 0].any()


@pytest.mark.parametrize("direction", [1, -1])
def test_a_split_follows_the_direction_of_its_column(direction: int) -> None:
    """The first column raises scores; held to fall, it may only be split where chance lets it fall."""
    table, scores, targets = _rows("logistic")
    held = BinnedTable(replace(LAYOUT, directions=(direction, 0, 0, -direction)), table.bins)
    followed = _followed(held, "logistic", scores, targets, RULE, 2)  # asserts that no split is forbidden
    assert all(one.best and one.share_lost < 3e-3 for one in followed)


@pytest.mark.parametrize("directions", [(1, 0, 0), (0, -1, 0), (1, -1, 1)])
def test_scores_only_rise_or_fall_with_a_column_that_has_a_direction(directions: tuple[int, int, int]) -> None:
    """Over all cells of the other columns, along trees deep enough that leaves would cross without bounds."""
    layout = CellLayout((6, 5, 3), (False, True, False), directions, (0, 0, 1))
    table = BinnedTable.draw(layout, 500, 6)
    one, two, three = table.bins
    generator = np.random.default_rng(7)
    z = 0.5 * one - 0.4 * two + three + 2 * np.sin(2.5 * one) + 2 * np.cos(2 * two) + 2 * generator.normal(size=500)
    labels = (z > np.median(z)).astype(float)[:, None]
    rule = replace(RULE, depth=5, rows=500, min_hessian=0.5, rate=1.0)

    async def program(engine: Clear) -> tuple[list[list[SharedTree]], list[Share], Share]:
        return await boost(engine, table, "logistic", np.zeros((1, 500)), labels, rule, steps=2)

    grown, _, _ = run_clear(program)
    grid = np.stack(np.meshgrid(*(np.arange(size) for size in layout.sizes), indexing="ij"))
    for (tree,) in grown:
        node = np.zeros(grid.shape[1:], int)
        for sides in tree.sides:
            left = sum(opened(sides)[node, start + bins] for start, bins in zip(layout.starts, grid, strict=True))
            node = 2 * node + 1 - np.asarray(left, int)
        values = opened(tree.leaves)[node][:, :5]  # without missing values
        for axis, way in enumerate(directions):
            assert way == 0 or (way * np.diff(values, axis=axis) >= 0).all()
        assert len(np.unique(values)) > 5


async def _grown(engine: Engine, table: BinnedTable, gradients: np.ndarray, rule: TreeRule) -> SharedTree:
    words = np.rint(gradients * 2.0**rule.gradient_bits).astype(np.int64).view(np.uint64)
    cells = SharedCells(table.layout, engine.constant(table.cells), engine.index)
    trees, _ = await grow_trees(engine, cells, engine.constant(words[:, None]), rule)
    return trees[0]


def _lost(table: BinnedTable, g: np.ndarray, h: np.ndarray, rule: TreeRule) -> float:
    gradients = np.stack([g, h, np.abs(g)], 1)

    async def program(engine: Clear) -> SharedTree:
        return await _grown(engine, table, gradients, rule)

    return follow(table, run_clear(program), np.rint(gradients[:, :2] * 65536) / 65536, rule).share_lost


def test_small_gradients_lose_no_gain() -> None:
    """Of rare labels, sums of |g| are far below the number of rows: scaled by the latter, u² would keep few bits."""
    rows = 1500
    table = BinnedTable.draw(LAYOUT, rows, 4)
    generator = np.random.default_rng(5)
    rule = replace(RULE, rows=rows, min_hessian=0.0, depth=2)
    rare = (generator.random(rows) < 0.01 * (1 + table.bins[0] / 8)).astype(float)
    assert _lost(table, 0.01 - rare, np.full(rows, 0.01 * 0.99), rule) < 3e-3
    tiny = 2.0**-9 * generator.choice([-1.0, 1.0], rows) * generator.random(rows)
    assert _lost(table, tiny, np.abs(tiny), rule) < 3e-3


def test_gradients_are_the_derivatives_of_the_losses() -> None:
    scores = np.linspace(-4, 4, 33)
    losses: list[tuple[Loss, int]] = [("logistic", 1), ("squares", 1), ("softmax", 4)]
    for loss, outputs in losses:
        f = np.stack([np.roll(scores, 5 * k) for k in range(outputs)])
        y = (np.arange(33)[:, None] % 4 == np.arange(outputs)).astype(float)

        async def program(engine: Clear, f: np.ndarray = f, y: np.ndarray = y, loss: Loss = loss) -> Share:
            words = engine.constant(encode_words(f)), engine.constant(encode_words(y))
            return await compute_gradients(engine, loss, *words, replace(RULE, largest=3.0, gradient_bits=14))

        g, h, size = np.moveaxis(opened(run_clear(program), 14), -1, 0)
        p = np.exp(f.T) / np.exp(f.T).sum(1, keepdims=True) if loss == "softmax" else 1 / (1 + np.exp(-f.T))
        wanted = (f.T - y).clip(-3, 3) if loss == "squares" else p - y
        np.testing.assert_allclose(g, wanted, atol=0.013)
        np.testing.assert_allclose(h, 1.0 if loss == "squares" else p * (1 - p), atol=0.013)
        np.testing.assert_allclose(size, np.abs(g), atol=2.0**-12)
        assert (h >= 0).all()


def test_twelve_classes_grow_in_the_rounds_of_one_tree() -> None:
    layout = CellLayout((3, 2), (False, False), (0, 0), (0, 1))
    rule = replace(RULE, depth=1, rows=24)

    def rounds(classes: int) -> int:
        async def party(engine: Computing) -> None:
            table = BinnedTable.draw(layout, 24)
            gradients = np.tile([0.1, 0.2, 0.1], (24, classes, 1))
            words = engine.constant((gradients * 65536).astype(np.uint64))
            cells = SharedCells(layout, engine.constant(table.cells), engine.index)
            trees, added = await grow_trees(engine, cells, words, rule)
            assert len(trees) == classes
            assert added.shape == (classes, 24)

        return run_three(party, seed=bytes(32)).rounds

    assert rounds(12) == rounds(1)


@pytest.mark.parametrize(("low", "most"), [(False, 194), (True, 199)])
def test_rounds_of_a_tree(low: bool, most: int) -> None:
    """Depth 5, 736 cells, two classes; the gradients are counted too."""
    table = BinnedTable.draw(CellLayout((32,) * 23, (False,) * 23, (0,) * 23, (0,) * 23), 20)
    rule = replace(RULE, depth=5, rows=20)

    async def party(engine: Computing) -> int:
        labels = (table.bins[:1].T % 2).astype(float)
        await boost(engine, table, "logistic", np.zeros((1, 20)), labels, rule, low=low)
        return engine.rounds

    assert max(run_three(party, seed=bytes(32)).results) <= most


def test_what_does_not_fit_is_refused() -> None:
    for change in (
        {"depth": 8},
        {"l2": 0.01},
        {"gradient_bits": 17},
        {"rate": 0.0},
        {"rows": 1 << 24},
        {"min_gain": -1},
    ):
        with pytest.raises(InputError):
            replace(RULE, **change)
    assert choose_gradient_bits(12_945) == 16
    assert choose_gradient_bits(100_000) == 13
    assert choose_gradient_bits(1_000_000) == 10
    wide = replace(RULE, rows=100_000)
    wide.check_shift(0)
    with pytest.raises(InputError, match="choose_gradient_bits"):
        wide.check_shift(32)
    table, scores, targets = _rows("logistic", 40)
    for allowed, rule, message in (
        (np.zeros(4, bool), RULE, "no column"),
        (np.ones(3, bool), RULE, "4 columns"),
        (None, replace(RULE, rows=30), "30 rows"),
    ):

        async def program(engine: Clear, allowed: np.ndarray | None = allowed, rule: TreeRule = rule) -> object:
            return await boost(engine, table, "logistic", scores, targets, rule, allowed=allowed)

        with pytest.raises(InputError, match=message):
            run_clear(program)

"""Trees on shares: three parties compute what the clear does word by word, and a float reference finds their splits
the best ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from securevfl_crypto.replicated import Clear, Computing, Share, run_three
from support.shared_trees import BinnedTable, Followed, boost, follow, opened, run_clear

from securevfl.errors import InputError
from securevfl.shares.engine import Engine
from securevfl.shares.trees import CellLayout, SharedTree, TreeRule, choose_gradient_bits, grow_trees
from securevfl.shares.trees.gradients import Loss

LAYOUT = CellLayout((8, 5, 2, 6), (False, True, False, True), (0, 0, 0, 0), (0, 0, 1, 2))
RULE = TreeRule(depth=3, l2=1.0, min_hessian=1.0, min_gain=0.0, rate=0.3, gradient_bits=16, rows=400)
CASES: dict[str, tuple[Loss, TreeRule]] = {
    "two classes": ("logistic", RULE),
    "few bits": ("logistic", replace(RULE, gradient_bits=9, depth=2)),
    "no least hessian": ("logistic", replace(RULE, min_hessian=0.0, l2=0.0625, depth=2)),
    "a least gain": ("logistic", replace(RULE, min_gain=1.5)),
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
    followed = _followed(*_rows_for(loss), rule)
    assert sum(len(one.best) for one in followed) >= 3 * len(followed) // 2
    for one in followed:
        assert one.share_lost < 3e-3
        assert all(stopped == wanted for stopped, wanted in one.stops)


def _rows_for(loss: Loss, rows: int = 400) -> tuple[BinnedTable, Loss, np.ndarray, np.ndarray]:
    table, scores, targets = _rows(loss, rows)
    return table, loss, scores, targets

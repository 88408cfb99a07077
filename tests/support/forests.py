"""Jobs of boosting small enough for tests, and the trees that they grow, beside trees over a pooled table."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import securevfl as sv
from securevfl.algorithms.boosting.bins import Bins, fit_bins
from securevfl.algorithms.boosting.categories import NUMBER
from securevfl.algorithms.boosting.growing import Chosen, GrownTree, Owned, TreeLimits, grow_tree
from securevfl.algorithms.boosting.histograms import plain_sums, to_fixed_point
from securevfl.algorithms.boosting.splits import SplitRule
from securevfl.algorithms.boosting.trees import Tree
from securevfl.party_context import PartySecret
from securevfl.run.simulation import RunOutcome, join_parties, run_parties

__all__ = ["Pooled", "job", "part", "pooled_forest", "run", "same_trees"]


class Pooled:
    """All columns in one place: the sources of a tree that nobody splits up."""

    can_subtract_siblings = True

    def __init__(self, bins: Bins, codes: np.ndarray, values: np.ndarray) -> None:
        self.bins, self.codes, self.values = bins, codes, values

    @property
    def code_counts(self) -> Sequence[int]:
        return self.bins.code_counts

    async def node_sums(self, nodes: Sequence[int], slot: np.ndarray, totals: np.ndarray) -> np.ndarray:
        return plain_sums(self.values, self.codes, self.code_counts, slot, len(nodes))

    @property
    def category_columns(self) -> np.ndarray:
        return self.bins.category_columns

    async def goes_left(self, chosen: Sequence[Chosen]) -> tuple[np.ndarray, list[Owned]]:
        bins, sides, owned = self.bins, [], []
        for c in chosen:
            sides.append(bins.goes_left(self.codes, c.column, c.bin, missing_left=c.missing_left, left=c.codes))
            threshold = bins.threshold(c.column, c.bin) if c.codes == NUMBER else 0.0
            owned.append(Owned(0, c.column, threshold, bins.levels_of(c.column, c.codes)))
        return np.asarray(sides).reshape(len(chosen), len(self.codes)), owned


def pooled_forest(
    x: np.ndarray,
    y: np.ndarray,
    config: sv.Boosting,
    trees: int,
    levels: Sequence[int] = (),
    samples: Sequence[np.ndarray] = (),
    allowed: Sequence[np.ndarray] = (),
) -> tuple[list[Tree], np.ndarray, np.ndarray]:
    """Trees over a pooled table, the raw scores of its rows, and what they began with.

    `samples` are the rows of each tree, where it does not see all: then it is grown over a table of these alone.
    `allowed` are the columns that each may split by, bool (columns,).
    """
    from securevfl.training.objectives import find_objective

    loss = find_objective("logistic")
    bins = fit_bins(x, config.bins, levels)
    codes, start = bins.encode_rows(x), loss.initial_score(y)
    raw, forest = np.tile(start, (len(x), 1)), []
    for number in range(trees):
        rows = samples[number] if len(samples) else np.arange(len(x))
        g, h = (one[rows] for one in loss.compute_derivatives(raw, y))
        (gi, gu), (hi, hu) = to_fixed_point(g[:, 0], config.bits), to_fixed_point(h[:, 0], config.bits)
        rule = SplitRule(l1=config.l1, l2=config.l2, min_gain=0.0, min_hessian=config.min_hessian, scales=(gu, hu))
        values = np.stack([gi, hi], axis=1)
        limits = TreeLimits(depth=config.depth, leaves=config.leaves)
        columns = allowed[number] if len(allowed) else None
        source = Pooled(bins, codes[rows], values)
        grown: GrownTree = asyncio.run(grow_tree(values, (g[:, 0], h[:, 0]), rule, limits, source, allowed=columns))
        grown.tree.value = [config.lr * value for value in grown.tree.value]
        raw[:, 0] += np.asarray(grown.tree.value)[grown.tree.leaves_of(x, {}, len(x))]
        forest.append(grown.tree)
    return forest, raw, start


def job(protection: sv.Plain | sv.Paillier, **changes: Any) -> sv.Job:
    config: dict[str, Any] = {"depth": 3, "bins": 8, "lr": 0.3, "min_hessian": 0.01} | changes
    plan = {"epochs": 3, "seed": 3, "patience": None, "keep": "last"}
    return sv.Job(algorithm=sv.Boosting(**config), protection=protection, **plan)


def run(work: sv.Job, people: sv.Parties) -> RunOutcome:
    alike = {name: PartySecret.from_seed(work.seed, name) for name in people}
    return run_parties(work, people, join_parties(people, work), run="run", secrets=alike)


def same_trees(one: RunOutcome, other: RunOutcome) -> bool:
    """Whether all parties have the same part of the model, bit by bit."""

    def flat(state: Any) -> list[Any]:
        if isinstance(state, dict):
            return [item for key in sorted(state) for item in flat(state[key])]
        return [state.tolist()] if isinstance(state, torch.Tensor) else [state]

    return all(
        flat(one.trained[name].model["parts"]) == flat(other.trained[name].model["parts"]) for name in one.trained
    )


def part(ran: RunOutcome, name: str) -> Any:
    return ran.trained[name].model["parts"]["forest"]

"""One step of boosting on shares: a tree for each output, level by level, and what it adds to the scores.

Every path has the full depth: a node that does not split sends its rows right, and nothing shows. Sums of right
children are those of their parents without the left ones. Nothing is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from securevfl_crypto.replicated import Product, Share, Task, concatenate, stack
from securevfl_crypto.replicated.share import U64
from securevfl_crypto.ring import FRACTION

from securevfl.errors import InputError
from securevfl.shares.engine import Engine, compute_products, scaling_job
from securevfl.shares.trees.candidates import Candidates, list_candidates, mark_sides
from securevfl.shares.trees.cells import Cells, share_summand
from securevfl.shares.trees.leaves import bound_leaves, compute_leaves
from securevfl.shares.trees.rule import TreeRule
from securevfl.shares.trees.splits import NodeSums, choose_splits, scale_task

__all__ = ["SharedTree", "grow_trees"]


@dataclass(frozen=True, eq=False)
class SharedTree:
    """One tree.

    Attributes:
        sides: of each level, the cells that go left at its nodes, (2^level, cells), 0 or 1; their low bytes suffice.
        leaves: (2^depth,), 16 fractional bits, with the rate.
        chosen: of each level, the chosen candidate of each node, (2^level, candidates), all 0 where it has none.
    """

    sides: Sequence[Share] = field(repr=False)
    leaves: Share = field(repr=False)
    chosen: Sequence[Share] = field(repr=False)


async def grow_trees(
    engine: Engine, cells: Cells, gradients: Share, rule: TreeRule, *, allowed: np.ndarray | None = None
) -> tuple[list[SharedTree], Share]:
    """Grow K trees, one for each output, in the same rounds.

    Args:
        engine: computes on shares.
        cells: of the rows that train.
        gradients: g, h and |g|, (n, K, 3), with `gradient_bits` fractional bits; zero for rows to leave out.
        rule: of the trees.
        allowed: which columns the trees may split, bool (columns,), public; None for all.

    Returns:
        The trees, and what they add to the scores of all n rows, (K, n), with 16 fractional bits.

    Raises:
        InputError: shapes do not match, no column can be split, or sums do not fit the words of the cells.
    """
    rule.check_shift(cells.histogram_shift)
    rows, trees = gradients.shape[:2]
    if rows != cells.rows or rows > rule.rows or gradients.shape[2] != len(_SUMS):
        raise InputError(
            f"gradients of shape {gradients.shape} for {cells.rows} rows of cells, and bounds for {rule.rows} rows"
        )
    candidates = list_candidates(cells.layout, allowed)
    if not len(candidates.places):
        raise InputError("no column has two bins or more, so no tree can split: leave columns out, or take more bins")
    growth = _Growth(engine, cells, candidates, rule, gradients)
    for _ in range(rule.depth):
        await growth.split_level()
    leaves, added = await growth.set_leaves()
    found = []
    for k in range(trees):
        here = [slice(k << level, (k + 1) << level) for level in range(rule.depth)]
        sides, chosen = (
            [part[at] for part, at in zip(parts, here, strict=True)] for parts in (growth.sides, growth.chosen)
        )
        found.append(SharedTree(sides, leaves[k], chosen))
    return found, added


_SUMS = ("g", "h", "|g|")
_BLOCK = 4096


class _Growth:
    """K trees while they grow. Nodes of a level are numbered tree by tree, then from left to right.

    Attributes:
        members: g, h, |g| and 1 of each row in its node, 0 in all others, (4, nodes, n); after the last split 1 alone.
        goes_left: whether each row goes left at each node of the level above, (nodes, n).
        sums: of g and h by cell of the level above, (2, nodes, cells).
        totals: of each level below the root, sums of g and h of each node, (2, nodes).
    """

    def __init__(self, engine: Engine, cells: Cells, candidates: Candidates, rule: TreeRule, gradients: Share) -> None:
        self.engine, self.cells, self.candidates, self.rule = engine, cells, candidates, rule
        self.trees = gradients.shape[1]
        first = [gradients[..., k].T for k in range(len(_SUMS))]
        ones = engine.constant(np.ones(first[0].shape, np.uint64))
        self.members = stack([*first, ones])
        self.sums: Share | None = None
        self.totals: list[Share] = []
        self.goes_left = ones
        self.sides: list[Share] = []
        self.chosen: list[Share] = []

    async def split_level(self) -> None:
        """Split all nodes of a level."""
        engine, rule, cells = self.engine, self.rule, self.cells
        totals = self.members[:3].sum(2)
        if self.sides:
            self.totals.append(totals[:2])
        bits = await self._sum_cells(totals)
        if self.sums is None:
            raise ValueError("a level without sums")
        lefts = self.candidates.sum_left(self.sums)
        sums = NodeSums(totals, lefts, bits)
        chosen = await choose_splits(engine, self.candidates.directions, sums, rule)
        among_all = self.candidates.place_choice(chosen)
        sides = mark_sides(cells.layout, among_all)
        self.chosen.append(among_all)
        self.sides.append(sides)
        jobs = [share_summand(engine, cells.choose_sides(sides), cells.side_shift)]
        is_last = len(self.sides) == rule.depth
        if is_last:
            # Sums of the leaves are those of the chosen candidates, so that no row's g and h has to follow its side.
            pairs = Share(np.moveaxis(lefts.mine, 0, -1), np.moveaxis(lefts.next, 0, -1))
            jobs.append(Product(chosen[:, None, :], pairs))
        self.goes_left, *found = await compute_products(engine, jobs)
        if is_last:
            self.totals.append(_interleave([found[0][:, 0].T[..., None]], totals[:2, :, None])[..., 0])
            self.members = self.members[3:]
            return
        self.members = _interleave(await compute_products(engine, self._member_jobs()), self.members)

    def _member_jobs(self) -> list[Product]:
        """The products that keep the rows that go left; by blocks of rows that stay in the cache, in half the time."""
        blocks = [slice(start, start + _BLOCK) for start in range(0, self.cells.rows, _BLOCK)]
        return [Product(self.goes_left[None, :, block], self.members[..., block], "times") for block in blocks]

    async def _sum_cells(self, totals: Share) -> Share:
        """Sum g and h by cell, and compare the sums of nodes with powers of two; returns these bits."""
        members = self.members[:2]
        lefts = members if self.sums is None else members[:, 0::2]
        nodes, rows = lefts.shape[1:]
        by_row = lefts.reshape(2 * nodes, rows).T
        values = Share(np.ascontiguousarray(by_row.mine), np.ascontiguousarray(by_row.next))
        shift = self.cells.histogram_shift
        summand = self.cells.sum_by_cell(values).astype(np.uint64, copy=False) << np.uint64(shift)
        tasks = [scale_task(self.engine, totals, self.rule), Task(summand, shift)]
        (bits,), (found,) = await self.engine.run_masked(tasks)
        sums = found.T.reshape(2, nodes, -1)
        self.sums = sums if self.sums is None else _interleave([sums], self.sums)
        return bits

    async def set_leaves(self) -> tuple[Share, Share]:
        """Compute leaves, (K, leaves), and what they add to the scores, (K, n)."""
        engine, rate = self.engine, round(self.rule.rate * (1 << FRACTION))
        is_bounded = bool(self.candidates.directions.any())
        sums = self.totals if is_bounded else self.totals[-1:]
        values = await compute_leaves(engine, concatenate(sums, 1), self.rule)
        parts = _split_levels(values, [part.shape[1] for part in sums])
        jobs = [scaling_job(engine, parts[-1], rate, FRACTION)]
        if is_bounded:
            jobs += [scaling_job(engine, one.reshape(-1, 2).sum(1), rate, FRACTION + 1) for one in parts]
        done = await compute_products(engine, [*jobs, *self._member_jobs()])
        leaves, middles, lefts = done[0], done[1 : len(jobs)], done[len(jobs) :]
        if is_bounded:
            every = list_candidates(self.cells.layout).directions
            leaves = await bound_leaves(engine, leaves, middles, self.chosen, every)
        leaves = leaves.reshape(self.trees, 1, -1)
        rows = _interleave(lefts, self.members).reshape(self.trees, leaves.shape[2], -1)
        (added,) = await compute_products(engine, [Product(leaves, rows)])
        return leaves[:, 0], added[:, 0]


def _split_levels(values: Share, sizes: Sequence[int]) -> list[Share]:
    ends = np.cumsum(sizes)
    return [values[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _interleave(lefts: Sequence[Share], parent: Share) -> Share:
    """Left and right children in turn along axis 1: right = parent − left.

    Args:
        lefts: blocks of the left children's values, which follow each other along axis 2.
        parent: (…, nodes, values).
    """

    def fill_words(parts: Sequence[U64], whole: U64) -> U64:
        kinds, nodes, values = whole.shape
        found = np.empty((kinds, nodes, 2, values), np.uint64)
        start = 0
        for part in parts:
            block = slice(start, start + part.shape[2])
            found[:, :, 0, block] = part
            np.subtract(whole[..., block], part, out=found[:, :, 1, block])
            start = block.stop
        return found.reshape(kinds, 2 * nodes, values)

    return Share(
        fill_words([one.mine for one in lefts], parent.mine), fill_words([one.next for one in lefts], parent.next)
    )

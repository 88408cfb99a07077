"""Boosted trees as a model on shares: outputs of rows, tree by tree, and with the passive parties' columns averaged.

A new row's sides at all nodes are one product, two rounds; products of sides along each path, and the leaves' values,
take two to four more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from securevfl_crypto.replicated import NarrowShare, Product, Share, concatenate, stack
from securevfl_crypto.ring import FRACTION

from securevfl.errors import InputError
from securevfl.shares.dp_steps import StepNoise
from securevfl.shares.engine import ONE, Engine, compute_products, find_outside
from securevfl.shares.packed_shares import pack_share, unpack_share
from securevfl.shares.trees.growing import SharedTree
from securevfl.shares.trees.layout import CellLayout
from securevfl.shares.trees.owned_cells import NarrowCells, score_sides
from securevfl.training.state import State, as_dict, as_list, as_tensor

__all__ = ["LARGEST_LEAF", "DealtSides", "ForestShape", "KeptTree", "ScoredRows", "SharedForest", "group_trees"]

LARGEST_LEAF = 1024.0
"""Leaves and initial scores lie between minus and plus this, or nothing of the model is opened."""

_AT_ONCE = 1 << 22
"""Words of a step of scoring: rows times leaves of the trees that are scored together."""


def group_trees(count: int, rows: int, shape: ForestShape) -> list[int]:
    """How many trees are scored together, step by step: as many as fit; the trees of a round stay together.

    Args:
        count: of all trees.
        rows: that are scored.
        shape: of the trees.
    """
    width = shape.outputs
    most = max(_AT_ONCE // (rows * (shape.nodes + 1) * width), 1) * width
    return [min(most, count - start) for start in range(0, count, most)]


@dataclass(frozen=True)
class ForestShape:
    """What trees have in common.

    Attributes:
        layout: the columns and their cells.
        depth: levels of splits.
        classes: number of classes; 1 stands for a number.
        own: columns of the active party, the first ones.
    """

    layout: CellLayout
    depth: int
    classes: int
    own: int

    @property
    def is_numeric(self) -> bool:
        """Whether the trees learn a number."""
        return self.classes == 1

    @property
    def outputs(self) -> int:
        """Trees of a round."""
        return self.classes if self.classes > 2 else 1

    @property
    def nodes(self) -> int:
        """Nodes of a tree that split."""
        return (1 << self.depth) - 1


@dataclass(frozen=True, eq=False)
class KeptTree:
    """A tree of the model.

    Attributes:
        sides: of each node, level by level, the cells that go left, bytes (nodes, cells); (nodes, 0) where the splits
            were handed out.
        leaves: (2^depth,), 16 fractional bits.
    """

    sides: NarrowShare = field(repr=False)
    leaves: Share = field(repr=False)

    @classmethod
    def from_grown(cls, tree: SharedTree) -> KeptTree:
        """Keep a grown tree."""
        return cls(NarrowShare.low_words(concatenate(list(tree.sides)), 8), tree.leaves)

    def pack(self) -> State:
        """The tree as state; nothing of it changes later, so it is not copied."""
        parts = (self.sides.mine, self.sides.next)
        return {
            "sides": [torch.from_numpy(np.ascontiguousarray(part)) for part in parts],
            "leaves": pack_share(self.leaves),
        }

    def without_sides(self) -> KeptTree:
        """The tree without its splits."""
        return KeptTree(NarrowShare(self.sides.mine[:, :0], self.sides.next[:, :0]), self.leaves)

    @classmethod
    def unpack(cls, state: State, shape: ForestShape, cells: int) -> KeptTree:
        """A kept tree.

        Args:
            state: as packed.
            shape: of the trees.
            cells: of its sides.

        Raises:
            InputError: of other columns or another depth.
        """
        parts = [np.ascontiguousarray(as_tensor(part).numpy()) for part in as_list(state["sides"])]
        leaves, wanted = unpack_share(state["leaves"]), (shape.nodes, cells)
        if [part.shape for part in parts] != [wanted, wanted] or leaves.shape != (shape.nodes + 1,):
            raise InputError(
                f"the model has a tree of shares of shapes {[part.shape for part in parts]} and {leaves.shape}; this "
                f"job's have {wanted} and {(shape.nodes + 1,)}: other bins, columns or another depth"
            )
        return cls(NarrowShare(parts[0], parts[1]), leaves)


@dataclass(frozen=True, eq=False)
class DealtSides:
    """Rows of which each party with columns dealt the sides of its own splits.

    Attributes:
        rows: how many.
        parts: of the trees of each step (`group_trees`), 1 where a row goes left at a node, (n, nodes of these trees).
    """

    rows: int
    parts: Sequence[Share] = field(repr=False)


@dataclass(eq=False)
class ScoredRows:
    """Rows that were dealt once, with their outputs so far.

    Attributes:
        cells: of the rows; or their sides, where the splits were handed out.
        first: scores at which they begin beside the initial outputs, (n, outputs); None for none.
        scores: (n, outputs), of the first `trees` trees; None before any.
        trees: how many trees they include.
    """

    cells: NarrowCells | DealtSides = field(repr=False)
    first: Share | None = field(default=None, repr=False)
    scores: Share | None = field(default=None, repr=False)
    trees: int = 0


class SharedForest:
    """This computing party's part of the trees.

    Args:
        shape: what they have in common.
        engine: computes on shares.
        has_splits: whether it holds the splits as shares; otherwise they were handed out.

    Attributes:
        trees: round by round, of each round one for each output.
        start: initial outputs, (outputs,); None before targets are dealt.
        fitted: outputs of the rows that train, (outputs, n); None where a trained model predicts.
    """

    noise: StepNoise | None = None

    def __init__(self, shape: ForestShape, engine: Engine, *, has_splits: bool = True) -> None:
        self.shape, self.engine, self.has_splits = shape, engine, has_splits
        self.trees: list[KeptTree] = []
        self.start: Share | None = None
        self.fitted: Share | None = None
        self._checked = 0

    def begin(self, start: Share, rows: int) -> None:
        """Begin with the initial outputs, for so many rows that train."""
        self.start = start
        self.fitted = start[:, None].broadcast_to((len(start), rows))

    def begin_at(self, scores: Share) -> None:
        """Begin with scores of the rows that train, (n, outputs); the initial outputs are zero then."""
        self.start = self.engine.constant(np.zeros(scores.shape[1], np.uint64))
        self.fitted = scores.T

    def add_round(self, trees: Sequence[SharedTree], increments: Share) -> None:
        """Add the trees of a round, and what they add to the outputs of the rows that train, (outputs, n)."""
        self.trees += [KeptTree.from_grown(tree) for tree in trees]
        if self.fitted is not None:
            self.fitted = self.fitted + increments

    async def forward(self, inputs: ScoredRows) -> Share:
        """Outputs (n, outputs) of rows, by the trees that they do not include yet."""
        if inputs.scores is None or inputs.trees > len(self.trees):  # the model went back to an earlier round
            inputs.scores, inputs.trees = self._first_scores(inputs), 0
        for step, trees in enumerate(self._split_trees(inputs.trees, inputs.cells.rows)):
            left = await self._find_sides(inputs.cells, trees, step)
            inputs.scores = inputs.scores + await self._add_leaves(trees, left, 0)
            inputs.trees += len(trees)
        return inputs.scores

    async def _find_sides(self, cells: NarrowCells | DealtSides, trees: Sequence[KeptTree], step: int) -> Share:
        """1 where a row goes left at a node of these trees, (n, nodes)."""
        if isinstance(cells, DealtSides):
            return cells.parts[step]
        sides = NarrowShare(
            np.concatenate([tree.sides.mine for tree in trees]), np.concatenate([tree.sides.next for tree in trees])
        )
        return await score_sides(self.engine, cells, sides)

    async def sum_others(self, inputs: ScoredRows) -> tuple[int, list[Share]]:
        """How many rows these are, and for each tree how many of them the split of each node sends left, (nodes,) with
        16 fractional bits, where a passive party's column splits the node; else 0."""
        rows, found = inputs.cells.rows, []
        for trees in self._split_trees(0, rows):
            left = await score_sides(self.engine, _cells_of(inputs), self._mask_sides(trees, others=True))
            total = left.sum(axis=0) * ONE
            found += [total[k * self.shape.nodes : (k + 1) * self.shape.nodes] for k in range(len(trees))]
        return rows, found

    async def forward_averaged(self, inputs: ScoredRows, averages: Sequence[Share]) -> tuple[Share, Share]:
        """Outputs as they are, and with the passive parties' cells at their mean: a node that splits one of their
        columns then sends every row to both sides, by the means of `sum_others`; (n, outputs) each."""
        outputs, rows = await self.forward(inputs), inputs.cells.rows
        without, done = self._first_scores(inputs), 0
        for trees in self._split_trees(0, rows):
            own = await score_sides(self.engine, _cells_of(inputs), self._mask_sides(trees, others=False))
            means = concatenate(list(averages[done : done + len(trees)]))
            without = without + await self._add_leaves(trees, own * ONE + means[None], FRACTION)
            done += len(trees)
        return outputs, without

    def _first_scores(self, inputs: ScoredRows) -> Share:
        if self.start is None:
            raise ValueError("trees without their initial outputs")
        found = self.start[None].broadcast_to((inputs.cells.rows, self.shape.outputs))
        return found if inputs.first is None else found + inputs.first

    def _split_trees(self, first: int, rows: int) -> Iterator[list[KeptTree]]:
        """The trees from `first` on, so many together as fit; rounds are not split."""
        start = first
        for count in group_trees(len(self.trees) - first, rows, self.shape):
            yield self.trees[start : start + count]
            start += count

    def _mask_sides(self, trees: Sequence[KeptTree], *, others: bool) -> NarrowShare:
        """The sides of these trees' nodes, without those by the active party's columns, or with those alone."""
        starts = (*self.shape.layout.starts, self.shape.layout.cells)
        hidden = slice(None, starts[self.shape.own]) if others else slice(starts[self.shape.own], None)
        mine = np.concatenate([tree.sides.mine for tree in trees])
        after = np.concatenate([tree.sides.next for tree in trees])
        mine[:, hidden] = after[:, hidden] = 0
        return NarrowShare(mine, after)

    async def _add_leaves(self, trees: Sequence[KeptTree], left: Share, bits: int) -> Share:
        """What trees add to the outputs, (n, outputs).

        Args:
            trees: whole rounds of them.
            left: by how much each row goes left at each node, (n, nodes of all trees), with so many fractional bits.
            bits: 0 or 16.
        """
        rows, count, width = len(left), len(trees), self.shape.outputs
        by_tree = left.reshape(rows, count, self.shape.nodes)
        whole = self.engine.constant(np.full((1, 1, 1), 1 << bits, np.uint64))
        levels = []
        for level in range(self.shape.depth):
            here = by_tree[:, :, (1 << level) - 1 : (2 << level) - 1]
            levels.append(stack([here, whole - here], 3))  # (n, trees, nodes, 2)
        paths = await self._follow_paths(levels, bits)
        jobs = []
        for output in range(width):
            leaves = concatenate([tree.leaves for tree in trees[output::width]])
            jobs.append(Product(paths[:, output::width].reshape(rows, -1), leaves.reshape(-1, 1), shift=bits))
        return concatenate(await compute_products(self.engine, jobs), 1)

    async def _follow_paths(self, levels: list[Share], bits: int) -> Share:
        """Products of the sides along each path, (n, trees, leaves), in ⌈log₂ depth⌉ steps."""
        while len(levels) > 1:
            jobs, last = [], levels[-1:] if len(levels) % 2 else []
            for above, below in zip(levels[::2], levels[1::2], strict=False):
                n, trees, nodes, ways = above.shape
                into = below.reshape(n, trees, nodes, ways, below.shape[3])
                jobs.append(Product(above[..., None].broadcast_to(into.shape), into, "times", shift=bits))
            done = await compute_products(self.engine, jobs)
            levels = [one.reshape(*one.shape[:3], one.shape[3] * one.shape[4]) for one in done] + last
        return levels[0][:, :, 0]

    async def out_of_range(self) -> Share:
        """Bits that are all zero where initial outputs and leaves lie within `LARGEST_LEAF`; each tree is looked at
        once."""
        if self.start is None:
            raise ValueError("trees without their initial outputs")
        words = concatenate([self.start, *(tree.leaves for tree in self.trees[self._checked :])])
        self._checked = len(self.trees)
        return await find_outside(self.engine, words, np.full(words.size, round(LARGEST_LEAF * ONE), np.int64))

    def list_shares(self) -> list[Share]:
        """All shares that a checkpoint keeps. Bytes are widened: what they are modulo 2^8 stays so in fresh shares."""
        found = [one for one in (self.start, self.fitted) if one is not None]
        for tree in self.trees:
            found += [
                Share(tree.sides.mine.astype(np.uint64), tree.sides.next.astype(np.uint64)),
                tree.leaves,
            ]
        return found

    def replace_shares(self, fresh: Sequence[Share]) -> None:
        """Take other shares of the same values, in the order of `list_shares`."""
        taken = iter(fresh)
        self.start = None if self.start is None else next(taken)
        self.fitted = None if self.fitted is None else next(taken)
        self.trees = [KeptTree(NarrowShare.low_words(next(taken), 8), next(taken)) for _ in self.trees]

    def pack_model(self) -> State:
        """The trees and the initial outputs; empty before these are known."""
        if self.start is None:
            return {}
        return {"start": pack_share(self.start), "trees": [tree.pack() for tree in self.trees]}

    def pack_leaves(self) -> State:
        """The model without its splits."""
        if self.start is None:
            return {}
        return {"start": pack_share(self.start), "trees": [tree.without_sides().pack() for tree in self.trees]}

    def unpack_model(self, state: State) -> None:
        """Go back to a snapshot.

        Raises:
            InputError: trees of other columns, or another depth.
        """
        self._checked, self.fitted = 0, None
        self.start = unpack_share(state["start"])
        if self.start.shape != (self.shape.outputs,):
            raise InputError(f"the model has {self.start.size} initial outputs; this job's has {self.shape.outputs}")
        cells = self.shape.layout.cells if self.has_splits else 0
        self.trees = [KeptTree.unpack(as_dict(tree), self.shape, cells) for tree in as_list(state["trees"])]

    def pack_training(self) -> State:
        """The trees, and the outputs of the rows that train."""
        return {"model": self.pack_model(), "fitted": None if self.fitted is None else pack_share(self.fitted)}

    def unpack_training(self, state: State) -> None:
        """Resume from a state."""
        self.unpack_model(as_dict(state["model"]))
        self.fitted = None if state["fitted"] is None else unpack_share(state["fitted"])


def _cells_of(inputs: ScoredRows) -> NarrowCells:
    """The rows' cells.

    Raises:
        TypeError: only the sides of their splits were dealt.
    """
    if not isinstance(inputs.cells, NarrowCells):
        raise TypeError("columns are averaged in training, before splits are handed out")
    return inputs.cells

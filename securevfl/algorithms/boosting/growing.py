"""One tree, grown at the active party over the histograms of all parties.

A `SumSources` provides the sums over the rows of nodes and the side of each row at a split. So the same code grows a
vertical tree and a tree over a pooled table; tests check that the two are equal.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from securevfl.algorithms.boosting.categories import NUMBER
from securevfl.algorithms.boosting.splits import SplitRule, TreeSplit, best_split, leaf_value
from securevfl.algorithms.boosting.trees import Tree
from securevfl.errors import ProtocolError

__all__ = ["Chosen", "GrownTree", "Owned", "SumSources", "TreeLimits", "grow_tree"]


@dataclass(frozen=True, kw_only=True)
class TreeLimits:
    """Bounds on the size of a tree.

    Attributes:
        depth: most splits from the root to a leaf.
        leaves: most leaves, by the best gain; 0 for level by level.
    """

    depth: int
    leaves: int = 0


@dataclass(frozen=True)
class Chosen:
    """A chosen split.

    Attributes:
        node: number of the node in the tree.
        column: among all candidates.
        bin: as `TreeSplit.bin`.
        missing_left: as `TreeSplit.missing_left`.
        codes: as `TreeSplit.codes`.
    """

    node: int
    column: int
    bin: int
    missing_left: bool
    codes: int = NUMBER


class Owned(NamedTuple):
    """The active party's record of a split.

    Attributes:
        owner: as `Tree.owner`.
        number: as `Tree.split`.
        threshold: where the owner is the active party.
        levels: likewise, of a column of categories: the set of levels that go left.
    """

    owner: int
    number: int
    threshold: float = 0.0
    levels: int = NUMBER


class SumSources(Protocol):
    """Where a tree's sums and sides come from."""

    @property
    def code_counts(self) -> Sequence[int]:
        """Codes of all candidate columns, party by party."""
        ...

    @property
    def category_columns(self) -> np.ndarray:
        """Which of them contain categories, bool (columns,)."""
        ...

    @property
    def can_subtract_siblings(self) -> bool:
        """Whether a node's sums may be computed from those of its parent and its sibling."""
        ...

    async def node_sums(self, nodes: Sequence[int], slot: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """Sums by node and code, int64 (nodes, codes of all columns, 2).

        Args:
            nodes: their numbers in the tree.
            slot: of each row, the place of its node in `nodes`, −1 for none, int64 (n,).
            totals: sums over all rows of each node, int64 (nodes, 2).
        """
        ...

    async def goes_left(self, chosen: Sequence[Chosen]) -> tuple[np.ndarray, list[Owned]]:
        """Whether rows go left at each split, bool (splits, n); and what the active party knows of each."""
        ...


@dataclass
class GrownTree:
    """A grown tree and the leaf of each training row.

    Attributes:
        tree: without the leaves' shrinkage.
        leaf: number of each row's leaf, int64 (n,).
    """

    tree: Tree
    leaf: np.ndarray = field(repr=False)


@dataclass
class _Open:
    """A leaf that may still be split."""

    sums: np.ndarray = field(repr=False)
    depth: int
    split: TreeSplit | None = None


class _Growth:
    """A tree while it grows."""

    def __init__(
        self,
        values: np.ndarray,
        seen: np.ndarray,
        rule: SplitRule,
        limits: TreeLimits,
        sources: SumSources,
        output: int,
    ) -> None:
        self.seen = seen
        self.values, self.rule, self.limits, self.sources = values, rule, limits, sources
        self.tree, self.leaf = Tree(output), np.zeros(len(values), dtype=np.int64)
        self.tree.add_leaf()
        self.totals = {0: values.sum(axis=0)}
        self.open: dict[int, _Open] = {}
        self.allowed: np.ndarray | None = None
        self.kinds = sources.category_columns if sources.category_columns.any() else None
        self.directions: np.ndarray | None = None
        self.within: dict[int, tuple[float, float]] = {0: (-np.inf, np.inf)}

    def may_split(self, node: int, depth: int) -> bool:
        """Whether to sum a node: it is not too deep, and its sum of h is large enough for two children."""
        enough = self.totals[node][1] * self.rule.scales[1] >= 2 * self.rule.min_hessian
        return depth < self.limits.depth and bool(enough) and self.rows_seen(node) >= max(2, 2 * self.rule.least_rows)

    def rows_seen(self, node: int) -> int:
        """Number of a node's rows that the tree uses."""
        return int(np.count_nonzero(self.seen & (self.leaf == node)))

    async def ask_sums(self, nodes: Sequence[int]) -> np.ndarray:
        """Sums over the rows of these nodes that the tree sees."""
        slot = np.full(len(self.leaf), -1, dtype=np.int64)
        for place, node in enumerate(nodes):
            slot[self.seen & (self.leaf == node)] = place
        return await self.sources.node_sums(nodes, slot, np.stack([self.totals[node] for node in nodes]))

    def find_best_split(self, node: int, sums: np.ndarray, depth: int) -> None:
        """Find the best split of a node."""
        split = best_split(
            sums,
            self.sources.code_counts,
            self.totals[node],
            self.rule,
            self.allowed,
            self.directions,
            self.within[node],
            self.kinds,
            int(np.count_nonzero((self.leaf == node) & (self.values[:, 1] > 0))) if self.kinds is not None else 0,
            self.rows_seen(node),
        )
        if split is not None:
            self.open[node] = _Open(sums, depth, split)

    def next_nodes(self) -> list[int]:
        """The nodes to split next: all of a level, or the one with the largest gain."""
        if not self.limits.leaves:
            return sorted(self.open)
        if len(self.tree.owner) // 2 + 1 >= self.limits.leaves:
            return []
        gains = [(-one.split.gain, node) for node, one in self.open.items() if one.split is not None]
        return [heapq.nsmallest(1, gains)[0][1]] if gains else []

    async def split_nodes(self, nodes: Sequence[int]) -> None:
        """Split these nodes, and learn the sums of those of their children that may go on.

        Raises:
            ProtocolError: the sides of a split are not those that its sums were of.
        """
        tree, chosen = self.tree, []
        for node in nodes:
            split = self.open[node].split
            if split is not None:
                chosen.append(Chosen(node, split.column, split.bin, split.missing_left, split.codes))
        sides, owned = await self.sources.goes_left(chosen)
        pairs = []
        for one, goes_left, what in zip(chosen, sides, owned, strict=True):
            node, was = one.node, self.open.pop(one.node)
            left, right = tree.add_leaf(), tree.add_leaf()
            tree.owner[node], tree.split[node], tree.threshold[node], tree.levels[node] = what
            tree.missing_left[node], tree.left[node], tree.right[node] = one.missing_left, left, right
            tree.gain[node] = was.split.gain if was.split is not None else 0.0
            here = self.leaf == node
            self.leaf[here & goes_left], self.leaf[here & ~goes_left] = left, right
            for child in (left, right):
                self.totals[child] = self.values[self.leaf == child].sum(axis=0)
            if was.split is not None and (self.totals[left] != was.split.left).any():
                raise ProtocolError(
                    f"rows on the left of a split by passive party {what.owner} sum up to "
                    f"{self.totals[left].tolist()}, and its bins did to {was.split.left.tolist()}: its sums and its "
                    "sides are of different columns"
                )
            self.bound_children(node, one.column, left, right)
            pairs.append((left, right, was))
        await self.learn_child_sums(pairs)

    def bound_children(self, node: int, column: int, left: int, right: int) -> None:
        """Bounds on the values below two children, so that no later split undoes a monotone one: either side of the
        midpoint of the two children's values (as in XGBoost and scikit-learn)."""
        low, high = self.within[node]
        self.within[left] = self.within[right] = low, high
        direction = 0 if self.directions is None else int(self.directions[column])
        if not direction:
            return
        values = []
        for child in (left, right):
            g, h = (self.totals[child] * np.asarray(self.rule.scales)).tolist()
            values.append(min(max(leaf_value(g, h, self.rule), low), high))
        middle = sum(values) / 2
        below, above = (left, right) if direction > 0 else (right, left)
        self.within[below], self.within[above] = (low, middle), (middle, high)

    async def learn_child_sums(self, pairs: Sequence[tuple[int, int, _Open]]) -> None:
        """Learn the sums of children: of the smaller one, and of the larger by subtraction where that is possible."""
        asked: list[int] = []
        for left, right, was in pairs:
            going = [node for node in (left, right) if self.may_split(node, was.depth + 1)]
            if going and self.sources.can_subtract_siblings:
                asked.append(self.smaller_sibling(left, right))
            else:
                asked += going
        if not asked:
            return
        found = dict(zip(asked, await self.ask_sums(asked), strict=True))
        for left, right, was in pairs:
            if self.sources.can_subtract_siblings and (found.keys() & {left, right}):
                small = self.smaller_sibling(left, right)
                found[right if small == left else left] = was.sums - found[small]
            for node in (left, right):
                if node in found and self.may_split(node, was.depth + 1):
                    self.find_best_split(node, found[node], was.depth + 1)

    def smaller_sibling(self, left: int, right: int) -> int:
        """The sibling with fewer rows that the tree uses."""
        return left if self.rows_seen(left) <= self.rows_seen(right) else right


async def grow_tree(
    values: np.ndarray,
    exact: tuple[np.ndarray, np.ndarray],
    rule: SplitRule,
    limits: TreeLimits,
    sources: SumSources,
    *,
    output: int = 0,
    seen: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    directions: np.ndarray | None = None,
) -> GrownTree:
    """Grow one tree.

    Args:
        values: g and h of the training rows in fixed point, int64 (n, 2); zero for rows that this tree does not see.
        exact: g and h as they are, (n,) each: leaves' values are made of them.
        rule: what splits are judged by.
        limits: how far it grows.
        sources: of sums and sides.
        output: which output it adds to.
        seen: the rows that it sees, bool (n,); None for all. The others are put into leaves, and counted in no sum.
        allowed: which columns it may split by, bool (columns,).
        directions: of columns along which scores may only rise, 1, or fall, −1, int64 (columns,); None for none.
    """
    everyone = np.ones(len(values), dtype=bool)
    growth = _Growth(values, everyone if seen is None else seen, rule, limits, sources, output)
    growth.allowed = allowed
    growth.directions = directions if directions is not None and directions.any() else None
    if growth.may_split(0, 0):
        growth.find_best_split(0, (await growth.ask_sums([0]))[0], 0)
    while nodes := growth.next_nodes():
        await growth.split_nodes(nodes)
    size = len(growth.tree.owner)
    g, h = (np.bincount(growth.leaf, weights=one, minlength=size) for one in exact)
    for node in range(size):
        if not growth.tree.left[node]:
            low, high = growth.within[node]
            growth.tree.value[node] = min(max(leaf_value(float(g[node]), float(h[node]), rule), low), high)
    return GrownTree(growth.tree, growth.leaf)

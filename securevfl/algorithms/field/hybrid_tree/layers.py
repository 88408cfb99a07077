"""The layers of HybridTree's trees: how one party grows them, and what each party keeps of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from securevfl.algorithms.boosting.bins import Bins
from securevfl.algorithms.boosting.growing import GrownTree, TreeLimits, grow_tree
from securevfl.algorithms.boosting.histograms import to_fixed_point
from securevfl.algorithms.boosting.own_model import OwnSums
from securevfl.algorithms.boosting.trees import Tree, read_trees, write_trees
from securevfl.algorithms.field.hybrid_tree.settings import HybridSettings
from securevfl.errors import InputError
from securevfl.training.state import State, as_dict, as_tensor

__all__ = ["LowerLayers", "UpperLayers", "grow_layers"]

_BITS = 20
"""Fractional bits of the fixed-point numbers that gradients are summed in."""


async def grow_layers(
    config: HybridSettings, bins: Bins, codes: np.ndarray, g: np.ndarray, h: np.ndarray, depth: int, output: int
) -> GrownTree:
    """Grow a tree of one party's columns, its leaves shrunk.

    Args:
        config: the algorithm.
        bins: of the columns.
        codes: of the rows, int16 (n, columns).
        g: first derivatives, (n,).
        h: second derivatives, (n,).
        depth: of the tree.
        output: of the raw score that it adds to.
    """
    (whole_g, unit_g), (whole_h, unit_h) = to_fixed_point(g, _BITS), to_fixed_point(h, _BITS)
    values = np.stack([whole_g, whole_h], axis=1)
    limits, sums = TreeLimits(depth=depth, leaves=0), OwnSums(bins, codes, values)
    grown = await grow_tree(values, (g, h), config.rule((unit_g, unit_h)), limits, sums, output=output)
    grown.tree.value = [config.lr * value for value in grown.tree.value]
    return grown


@dataclass
class UpperLayers:
    """The upper layers of all trees, a part of the host's role.

    Attributes:
        outputs: width of a raw score.
        columns: of the host.
        forget: called when the trees are replaced, because cached scores of rows came from the old ones.
        trees: tree by tree.
        taught: for each tree and node, whether common rows reached it; guests have layers below it if so.
        start: initial raw score of every row, (outputs,).
    """

    outputs: int
    columns: int
    forget: Callable[[], None]
    trees: list[Tree] = field(default_factory=list)
    taught: list[np.ndarray] = field(default_factory=list, repr=False)
    start: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)

    async def setup(self) -> None:
        """See `Part.setup`."""

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        taught = np.concatenate([np.empty(0, bool), *self.taught])
        return {
            "trees": write_trees(self.trees),
            "taught": torch.from_numpy(taught),
            "start": torch.from_numpy(self.start.copy()),
        }

    def restore(self, state: object) -> None:
        """See `Part.restore`.

        Raises:
            InputError: a damaged part.
        """
        kept = as_dict(state)
        trees = read_trees(as_dict(kept["trees"]), owners=0, outputs=self.outputs, columns=self.columns)
        taught, start = as_tensor(kept["taught"]).numpy(), as_tensor(kept["start"]).numpy().copy()
        sizes = [len(tree.owner) for tree in trees]
        if taught.dtype != bool or taught.shape != (sum(sizes),) or (trees and start.shape != (self.outputs,)):
            raise InputError("a part of HybridTree whose arrays have different lengths: it is damaged")
        self.trees, self.start = trees, start
        self.taught = np.split(taught.copy(), np.cumsum(sizes)[:-1]) if sizes else []
        self.forget()

    def get_state(self) -> State:
        """See `Part.get_state`."""
        return as_dict(self.snapshot())

    def load_state(self, state: State) -> None:
        """See `Part.load_state`."""
        self.restore(state)

    def leaves_of(self, x: np.ndarray, start: int) -> np.ndarray:
        """The leaf of each row in the trees from `start`, int32 (trees, n)."""
        found = [tree.leaves_of(x, {}, len(x)) for tree in self.trees[start:]]
        return np.stack(found).astype(np.int32) if found else np.empty((0, len(x)), np.int32)


@dataclass
class LowerLayers:
    """A guest's layers of all trees, a part of its role.

    Attributes:
        outputs: width of a raw score.
        columns: of the guest.
        trees: of each tree, the leaf of the upper layers → the subtree below it.
    """

    outputs: int
    columns: int
    trees: list[Mapping[int, Tree]] = field(default_factory=list)

    async def setup(self) -> None:
        """See `Part.setup`."""

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        flat = [(number, leaf, tree) for number, each in enumerate(self.trees) for leaf, tree in each.items()]
        return {
            "trees": write_trees([tree for *_, tree in flat]),
            "places": torch.tensor([[number, leaf] for number, leaf, _ in flat], dtype=torch.int64).reshape(-1, 2),
            "count": len(self.trees),
        }

    def restore(self, state: object) -> None:
        """See `Part.restore`.

        Raises:
            InputError: a damaged part.
        """
        kept = as_dict(state)
        flat = read_trees(as_dict(kept["trees"]), owners=0, outputs=self.outputs, columns=self.columns)
        places, count = as_tensor(kept["places"]).numpy(), kept["count"]
        if not isinstance(count, int) or places.shape != (len(flat), 2) or not 0 <= count <= max(len(flat), 0):
            raise InputError("a part of HybridTree whose arrays have different lengths: it is damaged")
        found: list[dict[int, Tree]] = [{} for _ in range(count)]
        for (number, leaf), tree in zip(places.tolist(), flat, strict=True):
            if not 0 <= number < count:
                raise InputError("a part of HybridTree has a subtree that belongs to no tree: it is damaged")
            found[number][leaf] = tree
        self.trees = [*found]

    def get_state(self) -> State:
        """See `Part.get_state`."""
        return as_dict(self.snapshot())

    def load_state(self, state: State) -> None:
        """See `Part.load_state`."""
        self.restore(state)

"""Trees as arrays: the active party has the nodes and leaf values, a passive party only its own splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from securevfl.algorithms.boosting.categories import CODES, NUMBER, code_flags, pack_sets, unpack_sets
from securevfl.errors import InputError
from securevfl.training.state import State, as_tensor

__all__ = ["LEAF", "OwnSplits", "Tree", "cut_owners", "read_splits", "read_trees", "write_splits", "write_trees"]

LEAF = -1
"""The owner of a node that is a leaf. 0 is the active party, 1 and up are the passive ones in the model's order."""


@dataclass
class Tree:
    """One tree at the active party; nodes are numbered from the root, 0, and children follow their parents.

    Attributes:
        output: which output of the model it adds to.
        owner: of each node: `LEAF`, 0 for the active party, or a passive party's position, counted from 1.
        split: of each node: its column among the active party's own; or the number of its owner's split in this tree.
        threshold: of the active party's own nodes: rows up to it go left.
        levels: of its own nodes that split categories: the set of levels that go left; `NUMBER` otherwise.
        missing_left: of its own nodes: where rows without a value go.
        left: number of the left child.
        right: number of the right child.
        value: of leaves, the value added to the raw score.
        gain: of splits.
    """

    output: int
    owner: list[int] = field(default_factory=list)
    split: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    missing_left: list[bool] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    gain: list[float] = field(default_factory=list)

    def add_leaf(self) -> int:
        """Add a leaf and return its number."""
        self.owner.append(LEAF)
        for numbers in (self.split, self.left, self.right):
            numbers.append(0)
        for values in (self.threshold, self.value, self.gain):
            values.append(0.0)
        self.levels.append(NUMBER)
        self.missing_left.append(False)
        return len(self.owner) - 1

    def leaves_of(self, own: np.ndarray, sides: dict[int, np.ndarray], rows: int) -> np.ndarray:
        """The leaf of each row, int64 (rows,).

        Args:
            own: the active party's columns of these rows, float64 (rows, columns).
            sides: passive party's place → whether rows go left at each of its splits, bool (splits, rows).
            rows: number of rows.
        """
        at = np.zeros(rows, dtype=np.int64)
        for node, owner in enumerate(self.owner):
            if owner == LEAF:
                continue
            here = np.flatnonzero(at == node)
            if owner == 0:
                x = own[here, self.split[node]]
                goes = _goes_left(x, self.threshold[node], self.levels[node], missing_left=self.missing_left[node])
            else:
                goes = sides[owner][self.split[node], here]
            at[here] = np.where(goes, self.left[node], self.right[node])
        return at

    def splits_of(self, owner: int) -> int:
        """Number of nodes that a party splits."""
        return self.owner.count(owner)


@dataclass
class OwnSplits:
    """A passive party's splits of one tree, in the order in which they were chosen.

    Attributes:
        column: of its own.
        threshold: rows up to it go left.
        missing_left: where rows without a value go.
        levels: of categories, the set of levels that go left; `NUMBER` otherwise.
    """

    column: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)
    missing_left: list[bool] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.column)

    def goes_left(self, x: np.ndarray) -> np.ndarray:
        """Whether rows go left, bool (splits, n), by their columns x, float64 (n, columns)."""
        found = np.empty((len(self), len(x)), dtype=bool)
        columns = zip(self.column, self.threshold, self.missing_left, self.levels, strict=True)
        for k, (column, threshold, missing, levels) in enumerate(columns):
            found[k] = _goes_left(x[:, column], threshold, levels, missing_left=missing)
        return found


def _goes_left(x: np.ndarray, threshold: float, levels: int, *, missing_left: bool) -> np.ndarray:
    """Which rows go left by one column, bool (n,)."""
    missing = np.isnan(x)
    if levels == NUMBER:
        by_value = x <= threshold
    else:
        by_value = code_flags(levels)[np.clip(np.where(missing, 0, x), 0, CODES - 1).astype(np.int64)]
    found: np.ndarray = np.where(missing, missing_left, by_value)
    return found


def cut_owners(trees: list[Tree], places: Mapping[int, int]) -> None:
    """Number the passive parties anew. A node of a party that is not among them becomes a leaf, with the value 0.

    Args:
        trees: changed in place; what is below such a node stays, and no row gets there.
        places: a passive party's old number → its new one.
    """
    for tree in trees:
        for node, owner in enumerate(tree.owner):
            if owner > 0:
                tree.owner[node] = places.get(owner, LEAF)
                tree.gain[node] = tree.gain[node] if owner in places else 0.0


_INTEGERS = ("owner", "split", "left", "right")
_FLOATS = ("threshold", "value", "gain")


def _pack_tensor(sets: list[int]) -> torch.Tensor:
    return torch.from_numpy(pack_sets(sets).copy())


def _read_sets(tensor: object) -> list[int]:
    found = as_tensor(tensor)
    if found.dtype != torch.uint8 or found.ndim != 2 or found.shape[1] != CODES // 8:
        raise InputError("a part of a boosted model with malformed sets of levels: it is damaged")
    return unpack_sets(found.numpy())


def write_trees(trees: list[Tree]) -> State:
    """The active party's trees as tensors."""

    def all_of(name: str, kind: torch.dtype) -> torch.Tensor:
        return torch.tensor([one for tree in trees for one in getattr(tree, name)], dtype=kind)

    state: State = {name: all_of(name, torch.int64) for name in _INTEGERS}
    state |= {name: all_of(name, torch.float64) for name in _FLOATS}
    state["missing_left"] = all_of("missing_left", torch.bool)
    state["levels"] = _pack_tensor([one for tree in trees for one in tree.levels])
    state["sizes"] = torch.tensor([len(tree.owner) for tree in trees], dtype=torch.int64)
    state["outputs"] = torch.tensor([tree.output for tree in trees], dtype=torch.int64)
    return state


def read_trees(state: State, *, owners: int, outputs: int, columns: int) -> list[Tree]:
    """Read and check what `write_trees` wrote, because a part of a model may come from a file.

    Args:
        state: as written.
        owners: number of passive parties of the model.
        outputs: of the model.
        columns: of the active party.

    Raises:
        InputError: lengths differ, or a number is out of range.
    """
    whole = {name: as_tensor(state[name]).tolist() for name in (*_INTEGERS, *_FLOATS, "missing_left")}
    whole["levels"] = _read_sets(state["levels"])
    sizes, which = as_tensor(state["sizes"]).tolist(), as_tensor(state["outputs"]).tolist()
    if (
        len(sizes) != len(which)
        or min(sizes, default=0) < 0
        or {len(values) for values in whole.values()} != {sum(sizes)}
    ):
        raise InputError("a part of a boosted model whose arrays have different lengths: it is damaged")
    trees, start = [], 0
    for size, output in zip(sizes, which, strict=True):
        tree = Tree(output)
        for name, values in whole.items():
            setattr(tree, name, values[start : start + size])
        start += size
        counted = [0] * (owners + 1)
        for node in range(size):
            owner = tree.owner[node]
            if owner == LEAF:
                continue
            if not 0 <= owner <= owners or not (node < tree.left[node] < size and node < tree.right[node] < size):
                raise InputError("a part of a boosted model with a node whose child does not exist: it is damaged")
            if not 0 <= tree.split[node] < (columns if owner == 0 else size):
                raise InputError("a part of a boosted model with a split by a column that is not there: it is damaged")
            counted[owner] += 1
        if not size or not 0 <= output < outputs:
            raise InputError("a part of a boosted model with an empty tree, or one of no output: it is damaged")
        if any(tree.split[n] >= counted[o] for n, o in enumerate(tree.owner) if o > 0):
            raise InputError("a part of a boosted model with splits that are not numbered in a row: it is damaged")
        trees.append(tree)
    return trees


def write_splits(trees: list[OwnSplits]) -> State:
    """A passive party's splits as tensors."""
    return {
        "column": torch.tensor([one for tree in trees for one in tree.column], dtype=torch.int64),
        "threshold": torch.tensor([one for tree in trees for one in tree.threshold], dtype=torch.float64),
        "missing_left": torch.tensor([one for tree in trees for one in tree.missing_left], dtype=torch.bool),
        "levels": _pack_tensor([one for tree in trees for one in tree.levels]),
        "sizes": torch.tensor([len(tree) for tree in trees], dtype=torch.int64),
    }


def read_splits(state: State, *, columns: int) -> list[OwnSplits]:
    """Read and check what `write_splits` wrote.

    Args:
        state: as written.
        columns: of the party.

    Raises:
        InputError: lengths differ, or a column does not exist.
    """
    column, threshold, missing, sizes = (
        as_tensor(state[name]).tolist() for name in ("column", "threshold", "missing_left", "sizes")
    )
    levels = _read_sets(state["levels"])
    together = {len(threshold), len(missing), len(levels), sum(sizes)}
    if together != {len(column)} or min(sizes, default=0) < 0:
        raise InputError("a part of a boosted model whose arrays have different lengths: it is damaged")
    if any(not 0 <= one < columns for one in column):
        raise InputError("a part of a boosted model with a split by a column that is not there: it is damaged")
    found, start = [], 0
    for size in sizes:
        end = start + size
        found.append(OwnSplits(column[start:end], threshold[start:end], missing[start:end], levels[start:end]))
        start = end
    return found

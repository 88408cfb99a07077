"""Trees that are handed out: at the end of training each data party gets the splits of its own columns, and nobody the
leaves, which stay in shares.

A split opens to its owner as the cells that go left, one opening of all trees for each owner. Of another party's split
it gets zeros, which are also what it gets of a node without a split: it sees how many nodes are not its own, and
nothing of them. To predict, each party finds the sides of its own splits itself and deals them: two rounds fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from securevfl_crypto.replicated import NarrowShare, Opening, Share

from securevfl.errors import InputError, ProtocolError
from securevfl.shares.model_release import receive_sum, send_summand
from securevfl.shares.release_exchanges import PART
from securevfl.shares.share_party import ShareParty
from securevfl.shares.shared_model import SharedModel
from securevfl.shares.trees.forest import ForestShape, SharedForest
from securevfl.training.state import State, as_dict, as_tensor
from securevfl.training.tree_terms import SPLITS

__all__ = ["ForestModel", "ForestRelease", "find_own_sides", "list_split_openings"]

_OWN, _LEAVES = "handed out", "leaves"
_TOP = np.uint64(56)
"""Low bytes move to the top of a word before they are opened: what lies above a byte says nothing then."""


def list_split_openings(
    shape: ForestShape, owning: Sequence[str], computing: Sequence[str], trees: int
) -> dict[str, Opening]:
    """What handing out opens inside the three: the splits of each one's own columns, once, to it alone.

    Args:
        shape: of the trees.
        owning: names of the data parties that have columns.
        computing: names of the three.
        trees: most of them.
    """
    return {
        _opening_name(place): Opening(1, (computing.index(name),), trees * shape.nodes * _count_cells(shape, place))
        for place, name in enumerate(owning)
        if name in computing
    }


def _opening_name(place: int) -> str:
    return f"part {place}"


def _count_cells(shape: ForestShape, place: int) -> int:
    """Cells of a party's columns."""
    return sum(size for size, owner in zip(shape.layout.sizes, shape.layout.owners, strict=True) if owner == place)


@dataclass
class ForestRelease:
    """One party's part in handing the splits out.

    Attributes:
        member: what it deals and computes.
        shape: of the trees.
        owning: names of the data parties that have columns, in the order of their cells.
        forest: at a computing party.
        trees: most of them.
        counted: is called before anything is handed out.
    """

    member: ShareParty
    shape: ForestShape
    owning: Sequence[str]
    forest: SharedForest | None
    trees: int
    counted: Callable[[], None]

    async def hand_out(self) -> dict[str, np.ndarray]:
        """Open to each data party its own splits. This party's, uint8 (trees, nodes, own cells), 1 in cells that go
        left; nothing at a party without columns.

        Raises:
            UndeclaredOpening: splits that were not declared, or were opened before.
            ProtocolError: summands that do not fit together, or values that are no sides.
        """
        self.counted()
        found: dict[str, np.ndarray] = {}
        start = 0
        for place, name in enumerate(self.owning):
            cells = _count_cells(self.shape, place)
            words = await self._open_splits(place, name, slice(start, start + cells))
            start += cells
            if words is None or name != self.member.site.name:
                continue
            sides = (words >> _TOP).astype(np.uint8).reshape(-1, self.shape.nodes, cells)
            if sides.max(initial=0) > 1:
                raise ProtocolError(f"{name!r} was handed out sides beyond 0 and 1: these are no splits of trees")
            found[SPLITS] = sides
        return found

    async def _open_splits(self, place: int, name: str, cells: slice) -> np.ndarray | None:
        member, forest = self.member, self.forest
        if forest is None or member.engine is None:
            if name != member.site.name:
                return None
            each = self.shape.nodes * (cells.stop - cells.start)
            links = [member.site.links[one] for one in member.computing]
            return await receive_sum(links, self.trees * each, PART, "the splits of its columns", multiple_of=each)
        sides = _top_bytes([tree.sides for tree in forest.trees], cells)
        if name in member.computing:
            return await member.engine.open(_opening_name(place), sides, [member.computing.index(name)])
        await send_summand(member.site.links[name], sides, PART)
        return None


def _top_bytes(sides: Sequence[NarrowShare], cells: slice) -> Share:
    """These cells of all trees' sides, in the top bytes of words, (n,)."""
    mine = np.concatenate([np.empty(0, np.uint64), *(one.mine[:, cells].ravel().astype(np.uint64) for one in sides)])
    after = np.concatenate([np.empty(0, np.uint64), *(one.next[:, cells].ravel().astype(np.uint64) for one in sides)])
    return Share(mine << _TOP, after << _TOP)


class ForestModel(SharedModel):
    """A party's part of the trees: shares; or its own splits, and shares of the leaves where it computes.

    Attributes:
        release: hands the splits out at the end, where the job says so.
    """

    def __init__(self) -> None:
        super().__init__()
        self.release: ForestRelease | None = None

    async def hand_out(self) -> None:
        """See `SharedModel.hand_out`."""
        if self.release is not None:
            self.own = {name: torch.from_numpy(one) for name, one in (await self.release.hand_out()).items()}

    def own_splits(self, shape: ForestShape, cells: int) -> np.ndarray:
        """What was handed out to this party, uint8 (trees, nodes, cells).

        Args:
            shape: of the trees.
            cells: of this party's columns.

        Raises:
            InputError: nothing was, or splits of other trees.
        """
        own = self.own or {}
        if SPLITS not in own:
            raise InputError("this party's part of the model has no splits: take the part that training saved")
        sides = as_tensor(own[SPLITS]).numpy()
        if sides.dtype != np.uint8 or sides.ndim != 3 or sides.shape[1:] != (shape.nodes, cells) or sides.max() > 1:
            raise InputError(
                f"this party's part of the model has splits {sides.dtype} {sides.shape}; uint8 (trees, {shape.nodes}, "
                f"{cells}) was expected: take the part that training saved"
            )
        return sides

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        if self.own is None:
            return super().snapshot()
        leaves = self.network.pack_leaves() if isinstance(self.network, SharedForest) else {}
        return {_OWN: dict(self.own), _LEAVES: leaves}

    def restore(self, state: object) -> None:
        """See `Part.restore`."""
        kept = as_dict(state)
        if _OWN not in kept:
            super().restore(kept)
            return
        self.own = as_dict(kept[_OWN])
        leaves: State = as_dict(kept[_LEAVES])
        if leaves:
            super().restore(leaves)


def find_own_sides(splits: np.ndarray, codes: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """The sides of a party's own splits, 1 where a row goes left, uint64 (n, nodes of all trees).

    Args:
        splits: uint8 (trees, nodes, cells).
        codes: the cell of each row within each of its columns, uint8 (columns, n).
        sizes: cells of each column.
    """
    by_node = splits.reshape(-1, splits.shape[2])
    found = np.zeros((len(by_node), codes.shape[1]), np.uint8)
    starts = np.cumsum((0, *sizes))
    for first, last, cells in zip(starts[:-1], starts[1:], codes, strict=True):
        nodes = np.flatnonzero(by_node[:, first:last].any(axis=1))
        found[nodes] |= by_node[nodes[:, None], first + cells.astype(np.intp)[None]]
    return np.ascontiguousarray(found.T.astype(np.uint64))

"""Sums of products in memory, whose bound grows from round to round: the induction behind long multiplication.

A kernel for numbers of any length cannot know how many products a column takes: it loops over tiles of limbs, and a
round of the outer loop adds a few products to some of the columns. The bound is proved by induction over the rounds.
What is loaded in a round is at most the bound before it; each `Vec` that comes of it counts by how much it can have
grown since (`Vec.over`); what is stored may have grown by a fixed amount only, which is the bound's growth in a round.
Emission computes with the bounds of the last of the rounds that the kernel is made for, so that no column overflows in
any. A column is loaded at most once in a round, before it is stored: kernels sweep over the columns in one direction.
"""

from __future__ import annotations

from collections.abc import Callable

from securevfl_crypto.engine.emitter import BoundError, Function, Gain, Vec

__all__ = ["Columns", "accumulate_columns"]


class Columns:
    """The columns, an array of vectors, within one round.

    Args:
        f: the function into which instructions go.
        pointer: the address of the array.
        before: the bound of every column before the last round.
        growth: the most that a round may add to a column.
    """

    def __init__(self, f: Function, pointer: str, before: int, growth: int) -> None:
        self._f, self._pointer, self.before, self.growth = f, pointer, before, growth
        self._open = True

    def load(self, index: str) -> Vec:
        """A column as it was before this round."""
        self._require_open()
        value = self._f.load(self._pointer, index, self.before)
        return Vec(value.name, value.low, value.top, origin=self)

    def store(self, value: Vec, index: str) -> None:
        """A column after this round; a bias is taken off.

        Raises:
            BoundError: the value can have grown by more than a round may add, or is no column of this round.
        """
        self._require_open()
        if value.origin is not self or value.over > self.growth:
            raise BoundError(
                f"{self._f.name}: a column that gains up to {value.over:#x} in a round for {self.growth:#x}"
                if value.origin is self
                else f"{self._f.name}: a value that does not come from a column of this round"
            )
        self._f.store(self._f.set_offset(value), self._pointer, index)

    def grow_bound(self, over: int, bias: int = 0) -> Gain:
        """The bound of a column that an inner loop carries."""
        return Gain(self, self.before, over, bias or None)

    def close(self) -> None:
        """End the round; later loads and stores raise BoundError."""
        self._open = False

    def _require_open(self) -> None:
        if not self._open:
            raise BoundError(f"{self._f.name}: a column outside its round")


def accumulate_columns(
    f: Function,
    pointer: str,
    count: str | int,
    most: int,
    start: int,
    growth: int,
    body: Callable[[str, Columns], None],
) -> int:
    """`count` rounds that add to columns; returns the bound of every column after them.

    Args:
        pointer: the columns, each at most `start` now.
        count: rounds, at least one and at most `most` by the caller's contract.
        growth: the most that a round may add to a column.
        body: takes the round and the columns.

    Raises:
        BoundError: a column could overflow in `most` rounds, or grow faster.
    """
    columns = Columns(f, pointer, start + (most - 1) * growth, growth)

    def one(index: str, _: list[Vec]) -> list[Vec]:
        body(index, columns)
        return []

    f.loop(count, one)
    columns.close()
    return start + most * growth

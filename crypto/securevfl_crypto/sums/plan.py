"""What both parties of sealed sums know: how many rows, how large their integers, how they lie in a plaintext."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.paillier.public_key import MAX_BITS

__all__ = ["SumPlan", "offsets"]

LANES = 8
_MOST_ROWS = 1 << 24
_MOST_WIDTH = 62
"""Bits of a slot; sums are read as int64."""
_MOST_BINS = 1 << 15
_MOST_GROUPS = 1 << 26
"""The most sums of an answer, by node, column and bin."""


@dataclass(frozen=True, kw_only=True)
class SumPlan:
    """The layout of rows and sums in plaintexts. Nothing in it is secret; both parties must hold the same one.

    A row's integers v_s with \\|v_s\\| ≤ bounds[s] lie side by side in slots. A sum of at most `rows` rows stays within
    ± rows · bounds[s], and the slot is as wide as that and a sign: so no sum of these rows can reach the next slot,
    whatever the integers are. `nodes` such blocks of slots lie side by side; a row fills one of them, or none.

    Attributes:
        key_bits: bits of the key's modulus.
        rows: the most rows of a sum.
        bounds: the largest magnitude of each integer of a row.
        nodes: blocks in one plaintext; 1 where all rows use the same.

    Raises:
        MalformedError: a size is out of range.
        OverflowRefused: the blocks do not fit in a plaintext.
    """

    key_bits: int
    rows: int
    bounds: tuple[int, ...]
    nodes: int = 1

    def __post_init__(self) -> None:
        if not 64 <= self.key_bits <= MAX_BITS:
            raise MalformedError(f"a key of {self.key_bits} bits; 64 to {MAX_BITS} are possible")
        if not 1 <= self.rows <= _MOST_ROWS:
            raise MalformedError(f"sums of {self.rows} rows; 1 to 2^24 are possible")
        if not self.bounds or min(self.bounds) < 1:
            raise MalformedError(f"bounds {self.bounds} of a row's integers; one or more, each at least 1, are needed")
        if max(self.widths) > _MOST_WIDTH:
            raise OverflowRefused(
                f"a sum of {self.rows} rows up to {max(self.bounds)} needs {max(self.widths)} bits; {_MOST_WIDTH} fit: "
                "use fewer bits of fixed point"
            )
        if self.nodes < 1 or self.nodes * self.block > self.room:
            raise OverflowRefused(
                f"{self.nodes} nodes of {self.block} bits; a plaintext of a key of {self.key_bits} bits holds 1 to "
                f"{self.most_nodes}: use a larger key or several rounds"
            )

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Bits of each slot of a block: of the largest sum, and a sign."""
        return tuple((self.rows * bound).bit_length() + 1 for bound in self.bounds)

    @property
    def block(self) -> int:
        """Bits of a block."""
        return sum(self.widths)

    @property
    def room(self) -> int:
        """Bits of a plaintext, which is read as a signed number between −n/2 and n/2."""
        return self.key_bits - 2

    @property
    def most_nodes(self) -> int:
        """How many blocks a plaintext holds."""
        return self.room // self.block

    @property
    def places(self) -> int:
        """How many groups' sums one plaintext of an answer holds."""
        return self.room // (self.nodes * self.block)

    def packs(self, groups: int) -> int:
        """The number of ciphertexts that hold the sums of so many groups: a multiple of `LANES` where there are enough
        groups, since as many numbers are computed with side by side in the time of one."""
        least = -(-groups // self.places)
        return min(groups, -(-least // LANES) * LANES)

    def check_key(self, bits: int) -> None:
        """Check that this plan is for keys of so many bits.

        Raises:
            MalformedError: it is for others.
        """
        if bits != self.key_bits:
            raise MalformedError(f"a plan for keys of {self.key_bits} bits, and a key of {bits}: plan for this key")


def offsets(bins: Sequence[int], nodes: int) -> np.ndarray:
    """The first group of each column, and after them the number of groups of a node: int64 (columns + 1,).

    Args:
        bins: the number of bins of each column.
        nodes: the number of nodes whose sums are in an answer.

    Raises:
        MalformedError: there is no column, a column has no bin or more than 32,768, or there are more than 2^26 groups.
    """
    counts = [int(number) for number in bins]
    if not counts or min(counts) < 1 or max(counts) > _MOST_BINS:
        few, many = (min(counts), max(counts)) if counts else (0, 0)
        raise MalformedError(
            f"{len(counts)} columns of {few} to {many} bins; 1 or more of 1 to {_MOST_BINS} are possible"
        )
    if nodes < 1 or nodes * sum(counts) > _MOST_GROUPS:
        raise MalformedError(f"{nodes} nodes of {sum(counts)} bins; at least one, and at most 2^26 sums, are possible")
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

"""The parameters both parties agree on for sealed sums: row count, integer bounds and plaintext layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.paillier.public_key import MAX_BITS

__all__ = ["SumPlan", "group_offsets"]

LANES = 8
_MOST_ROWS = 1 << 24
_MOST_WIDTH = 62
"""Bits of a slot; sums are read as int64."""
_MOST_BINS = 1 << 15
_MOST_GROUPS = 1 << 26
"""The most sums of an answer, by node, column and bin."""


@dataclass(frozen=True, kw_only=True)
class SumPlan:
    """The layout of rows and sums in plaintexts. Nothing in it is secret; both parties must use the same plan.

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
            raise MalformedError(f"a key of {self.key_bits} bits; expected 64 to {MAX_BITS}")
        if not 1 <= self.rows <= _MOST_ROWS:
            raise MalformedError(f"sums of {self.rows} rows; expected 1 to 2^24")
        if not self.bounds or min(self.bounds) < 1:
            raise MalformedError(f"bounds {self.bounds} of a row's integers; expected one or more, each at least 1")
        if max(self.slot_widths) > _MOST_WIDTH:
            raise OverflowRefused(
                f"a sum of {self.rows} rows up to {max(self.bounds)} needs {max(self.slot_widths)} bits; "
                f"{_MOST_WIDTH} fit: use fewer bits of fixed point"
            )
        if self.nodes < 1 or self.nodes * self.block_bits > self.plaintext_bits:
            raise OverflowRefused(
                f"{self.nodes} nodes of {self.block_bits} bits; a plaintext of a key of {self.key_bits} bits "
                f"has room for 1 to {self.most_nodes}: use a larger key or several rounds"
            )

    @cached_property
    def slot_widths(self) -> tuple[int, ...]:
        """Bits of each slot of a block: of the largest sum, and a sign."""
        return tuple((self.rows * bound).bit_length() + 1 for bound in self.bounds)

    @property
    def block_bits(self) -> int:
        """Bits of a block."""
        return sum(self.slot_widths)

    @property
    def plaintext_bits(self) -> int:
        """Bits of a plaintext, which is read as a signed number between −n/2 and n/2."""
        return self.key_bits - 2

    @property
    def most_nodes(self) -> int:
        """Number of blocks that fit into a plaintext."""
        return self.plaintext_bits // self.block_bits

    @property
    def groups_per_plaintext(self) -> int:
        """Number of groups whose sums fit into one plaintext of an answer."""
        return self.plaintext_bits // (self.nodes * self.block_bits)

    def pack_count(self, groups: int) -> int:
        """Number of ciphertexts for the sums of `groups` groups.

        With enough groups it is a multiple of `LANES`, as the engine computes that many numbers in the time of one.
        """
        least = -(-groups // self.groups_per_plaintext)
        return min(groups, -(-least // LANES) * LANES)

    def check_key(self, bits: int) -> None:
        """Check that this plan is for keys of `bits` bits.

        Raises:
            MalformedError: the plan is for keys of another size.
        """
        if bits != self.key_bits:
            raise MalformedError(f"a plan for keys of {self.key_bits} bits, and a key of {bits}: plan for this key")


def group_offsets(bins: Sequence[int], nodes: int) -> np.ndarray:
    """Compute the first group of each column, followed by the number of groups of a node: int64 (columns + 1,).

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
            f"{len(counts)} columns of {few} to {many} bins; expected 1 or more columns of 1 to {_MOST_BINS} bins"
        )
    if nodes < 1 or nodes * sum(counts) > _MOST_GROUPS:
        raise MalformedError(f"{nodes} nodes of {sum(counts)} bins; at least one, and at most 2^26 sums, are possible")
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

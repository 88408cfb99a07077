"""One tensor behind masks: the wanted results, the randomness that they take, and the truncation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np

from securevfl_crypto.replicated.curves import Curve
from securevfl_crypto.replicated.share import U8, U64, Share

__all__ = ["LARGEST_SHIFT", "OFFSET", "Task", "column_of", "parts_of", "public_part", "truncate_opened"]

Words = TypeVar("Words", U64, U8)

LARGEST_SHIFT = 61
OFFSET = np.uint64(1 << 62)  # makes z, from −2^62 to 2^62 − 1, non-negative and below 2^63: a wrap shows in bit 63
_ONE = np.uint64(1)
_TOP = np.uint64(63)


@dataclass(frozen=True, eq=False)
class Task:
    """One tensor behind masks.

    Attributes:
        summand: this party's additive summand of z, of any shape.
        shift: bits to truncate.
        curve: a function of the truncated values, or comparisons alone.
        gate: bits that multiply the truncated values.
    """

    summand: U64 = field(repr=False)
    shift: int = 0
    curve: Curve | None = None
    gate: Share | None = field(default=None, repr=False)

    @cached_property
    def size(self) -> int:
        """The number of masks."""
        return self.summand.size

    @cached_property
    def rows(self) -> int:
        """The number of comparisons."""
        return self.size * len(self.curve.thresholds) if self.curve else 0

    @cached_property
    def has_value(self) -> bool:
        """Whether the truncated value goes into the result."""
        return self.curve is None or bool(self.curve.slopes)

    @cached_property
    def dealt_words(self) -> int:
        """Words that party 2 deals with the opening: r ≫ f and its top bit; with a gate, also both times its bits."""
        return (2 * self.has_value + 2 * (self.gate is not None)) * self.size

    @cached_property
    def answer_words(self) -> int:
        """Words that party 2 deals after the comparison: a bit, and with a value its products."""
        return self.rows * (3 if self.has_value else 1) if self.curve else 0

    @cached_property
    def result_words(self) -> int:
        """Words of the results."""
        return self.size * (self.curve.outputs if self.curve else 1)

    def opened_words(self, c: U64) -> U64:
        """The opened words of z − threshold, (T, n)."""
        thresholds = self.curve.thresholds if self.curve else ()
        return c - column_of(thresholds, self.shift)

    def result_shares(self, words: Sequence[U64]) -> list[Share]:
        """The results from their two words at this party, (results,) each."""
        shape, outputs = self.summand.shape, self.curve.outputs if self.curve else 1
        mine, after = (part.reshape(outputs, *shape) for part in words)
        if self.curve and not self.curve.slopes and not self.curve.gates:
            return [Share(mine, after)]
        return [Share(mine[k], after[k]) for k in range(outputs)]


@lru_cache
def column_of(integers: tuple[int, ...], shift: int = 0) -> U64:
    """Integers times 2^shift as a column of words."""
    column = np.array([(integer << shift) % (1 << 64) for integer in integers], np.uint64)[:, None]
    column.setflags(write=False)
    return column


def parts_of(array: Words, sizes: Sequence[int]) -> Iterator[Words]:
    """Yield consecutive pieces of an array, of these sizes."""
    start = 0
    for size in sizes:
        yield array[start : start + size]
        start += size


def truncate_opened(c: U64, r: U64, shift: int) -> U64:
    """Truncate z = c − 2^62 − r, given both c and r; equals the sum of the parties' summands, to the last bit."""
    public, wrap = public_part(c, shift)
    return public - (r >> np.uint64(shift)) + wrap * (r >> _TOP)


def public_part(c: U64, shift: int) -> tuple[U64, U64]:
    """The parts of the truncation that parties 0 and 1 compute from c: a summand, and the factor of r's top bit."""
    part = (c >> np.uint64(shift)) - np.uint64(1 << (62 - shift))
    # z + 2^62 is below 2^63, so the sum with r wrapped exactly if r's top bit is set and c's is not.
    wrap = (_ONE - (c >> _TOP)) << np.uint64(64 - shift) if shift else np.zeros_like(c)
    return part, wrap

"""What decides how trees on shares grow, and the ranges of words that follow from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from securevfl_crypto.ring import FRACTION

from securevfl.errors import InputError

__all__ = ["LEAST_L2", "MOST_DEPTH", "SCALED", "TreeRule", "choose_gradient_bits"]

LEAST_L2 = 2.0**-4
"""The least λ: with less, the denominator of an empty node would have no bits left."""
MOST_DEPTH = 7
"""Traffic doubles with each level."""
SCALED = 29
"""Sums of a node are scaled to below 2^29, so that products of two of them fit."""

_PRODUCT = 62
"""Products lie below 2^62."""
_FEWEST_BITS = 4


@dataclass(frozen=True, kw_only=True)
class TreeRule:
    """The settings of a tree, with names as in `sv.Boosting`, and the bounds of its words.

    Attributes:
        depth: levels of splits, 1 to 7; every path has this many.
        l2: penalty of the square of a leaf, λ, `LEAST_L2` at least.
        min_hessian: least sum of h on either side of a split.
        min_gain: least gain of a split, γ.
        rate: factor of each leaf.
        gradient_bits: fractional bits of g, h and |g|, 4 to 16.
        rows: number of rows that train.
        largest: bound of |g|; of h, too, if it is above one.

    Raises:
        InputError: a setting is out of its bounds, or sums of so many rows do not fit the words.
    """

    depth: int
    l2: float
    min_hessian: float
    min_gain: float
    rate: float
    gradient_bits: int
    rows: int
    largest: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.depth <= MOST_DEPTH:
            raise InputError(f"trees of depth {self.depth} on shares; choose 1 to {MOST_DEPTH}")
        if self.l2 < LEAST_L2:
            raise InputError(
                f"l2 is {self.l2:g}; on shares it has to be {LEAST_L2:g} or more, so that an empty node has a "
                "denominator"
            )
        if not _FEWEST_BITS <= self.gradient_bits <= FRACTION:
            raise InputError(f"gradients with {self.gradient_bits} bits; expected {_FEWEST_BITS} to {FRACTION}")
        if not 0 < self.rate <= 1 or self.min_gain < 0 or self.min_hessian < 0 or self.largest <= 0 or self.rows < 1:
            raise InputError(
                f"rate {self.rate:g}, min_gain {self.min_gain:g}, min_hessian {self.min_hessian:g}, largest gradient "
                f"{self.largest:g}, {self.rows} rows: expected a rate above 0 and up to 1, a positive largest "
                "gradient, one row at least, and the others not below 0"
            )
        # The numerator of a leaf is scaled by the power of two that brings its denominator to [1, 2).
        if FRACTION + 2 * self.high - self.low >= _PRODUCT:
            raise InputError(
                f"{self.rows} rows with gradients up to {self.largest:g} and l2 {self.l2:g}: sums up to "
                f"2^{self.high} do not fit words of 64 bits. Train on fewer rows, or take a smaller bound or l2"
            )

    @property
    def low(self) -> int:
        """2^low is at most every sum of h with 2 λ, and every sum of |g| with 1."""
        return min(0, math.floor(math.log2(2 * self.l2)))

    @property
    def high(self) -> int:
        """Every sum of h with 2 λ, and every sum of |g| with 1, is below 2^high."""
        largest = self.rows * max(self.largest, 1.0) + 2 * self.l2 + 1
        # Large enough that scaling a sum of few bits truncates, instead of shifting to the left.
        return max(math.ceil(math.log2(largest)), SCALED - self.gradient_bits)

    @property
    def scale_shift(self) -> int:
        """Bits to truncate after a sum is multiplied by its scale."""
        return self.high + self.gradient_bits - SCALED + 1

    def to_word(self, x: float) -> int:
        """A public number in the units of g and h."""
        return round(x * (1 << self.gradient_bits))

    def check_shift(self, shift: int) -> None:
        """Check that a sum over all rows fits the words of a histogram.

        Args:
            shift: bits by which sums of cells are shifted up, `Cells.histogram_shift`.

        Raises:
            InputError: it does not.
        """
        bits = self.gradient_bits + math.log2(self.rows * max(self.largest, 1.0))
        if bits > _PRODUCT - shift:
            raise InputError(
                f"sums over {self.rows} rows of gradients up to {self.largest:g} with {self.gradient_bits} bits do not "
                f"fit {_PRODUCT - shift} bits: take `choose_gradient_bits`, or train on fewer rows"
            )


def choose_gradient_bits(rows: int, largest: float = 1.0, *, shift: int = 32) -> int:
    """The most fractional bits of g, h and |g| with which sums over all rows fit.

    Args:
        rows: number of rows that train.
        largest: as `TreeRule.largest`.
        shift: `Cells.histogram_shift`.

    Raises:
        InputError: too few bits are left.
    """
    bits = min(FRACTION, math.floor(_PRODUCT - shift - math.log2(rows * max(largest, 1.0))))
    if bits < _FEWEST_BITS:
        raise InputError(
            f"{rows} rows with gradients up to {largest:g} leave {bits} bits for a gradient; {_FEWEST_BITS} are "
            "needed: train on fewer rows"
        )
    return bits

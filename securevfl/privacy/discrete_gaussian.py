"""Discrete Gaussian noise, exact: integers from the operating system's random bytes, without a floating-point number.

The sampler of Canonne, Kamath and Steinke 2020 (arXiv 2004.00010, algorithms 1 to 3): a discrete Laplace draw is kept
with a probability that is itself drawn with integers alone. Sums of several draws, one of each party, are close to a
discrete Gaussian of the summed variance: with σ above 2²⁰ units the gap is far below any δ (Kairouz, Liu and Steinke
2021). Draws beyond 8.2 σ are drawn again, which changes a draw's distribution by less than 3·10⁻¹⁶.
"""

from __future__ import annotations

import math
import os

import numpy as np

from securevfl.errors import InputError
from securevfl.privacy.noise import Entropy

__all__ = ["TAIL", "draw_discrete_gaussian"]

TAIL = 8.2
"""Draws are at most this many σ."""

_MOST_SIGMA = 1 << 56
"""Then a draw, and the sum of a few draws, fits in 64 bits."""


def draw_discrete_gaussian(shape: tuple[int, ...], sigma: int, entropy: Entropy = os.urandom) -> np.ndarray:
    """Independent discrete Gaussian integers, int64: integer k with probability in proportion to ``e^(−k²/2σ²)``.

    Args:
        shape: of the result.
        sigma: σ, a whole number of units; at least 1.
        entropy: source of random bytes.

    Raises:
        InputError: σ is out of range.
    """
    if not 1 <= sigma <= _MOST_SIGMA:
        raise InputError(f"σ of discrete noise is {sigma} units; 1 to 2^56 are possible")
    source = _Bits(entropy)
    count = math.prod(shape)
    return np.array([_draw_one(sigma, source) for _ in range(count)], dtype=np.int64).reshape(shape)


class _Bits:
    """Uniform integers from random bytes, drawn some at a time.

    Args:
        entropy: source of random bytes.
    """

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._pool = b""
        self._at = 0

    def below(self, bound: int) -> int:
        """A uniform integer from 0 to bound − 1, by rejection."""
        bits = (bound - 1).bit_length()
        while True:
            found = int.from_bytes(self._take((bits + 7) // 8), "little") & ((1 << bits) - 1)
            if found < bound:
                return found

    def _take(self, count: int) -> bytes:
        if self._at + count > len(self._pool):
            self._pool, self._at = self._entropy(max(4096, count)), 0
        self._at += count
        return self._pool[self._at - count : self._at]


def _draw_one(sigma: int, source: _Bits) -> int:
    scale = sigma + 1
    square, most = sigma * sigma, math.floor(TAIL * sigma)
    while True:
        found = _draw_laplace(scale, source)
        # Keep with probability exp(−(|k| − σ²/t)² / 2σ²), in integers: the numerator times t², over 2 σ² t².
        gap = abs(found) * scale - square
        if _accepts_exponential(gap * gap, 2 * square * scale * scale, source) and abs(found) <= most:
            return found


def _draw_laplace(scale: int, source: _Bits) -> int:
    """A discrete Laplace integer: k with probability in proportion to ``e^(−|k|/scale)``."""
    while True:
        low = source.below(scale)
        if not _accepts_fraction(low, scale, source):
            continue
        high = 0
        while _accepts_fraction(1, 1, source):
            high += 1
        found = low + scale * high
        negative = source.below(2) == 1
        if negative and not found:
            continue
        return -found if negative else found


def _accepts_exponential(numerator: int, denominator: int, source: _Bits) -> bool:
    """True with probability ``e^(−numerator/denominator)``."""
    while numerator > denominator:
        if not _accepts_fraction(1, 1, source):
            return False
        numerator -= denominator
    return _accepts_fraction(numerator, denominator, source)


def _accepts_fraction(numerator: int, denominator: int, source: _Bits) -> bool:
    """True with probability ``e^(−γ)``, γ = numerator/denominator ≤ 1 (von Neumann)."""
    k = 1
    while source.below(denominator * k) < numerator:
        k += 1
    return k % 2 == 1

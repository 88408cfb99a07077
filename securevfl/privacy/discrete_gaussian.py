"""Draws from the discrete Gaussian distribution, exact, from the operating system's random bytes.

P(x) ∝ exp(−x² / 2σ²) over the integers (Canonne, Kamath and Steinke 2020, "The discrete Gaussian for differential
privacy", algorithms 1 to 3). Everything is computed in integers: no float rounds a probability.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import isqrt

import numpy as np

from securevfl.privacy.noise import Entropy

__all__ = ["draw_discrete_gaussian"]

_Below = Callable[[int], int]


def draw_discrete_gaussian(shape: tuple[int, ...], variance: int, entropy: Entropy = os.urandom) -> np.ndarray:
    """Independent draws, int64.

    Args:
        shape: of the result.
        variance: σ², a positive integer below 2¹¹⁰.
        entropy: source of random bytes.

    Raises:
        ValueError: a variance outside these bounds.
    """
    if not 0 < variance < 1 << 110:
        raise ValueError(f"a variance of {variance}; 1 to 2^110 are possible")
    below = _uniform_below(entropy)
    count = int(np.prod(shape))
    return np.array([_draw_one(variance, below) for _ in range(count)], dtype=np.int64).reshape(shape)


def _uniform_below(entropy: Entropy) -> _Below:
    def draw(bound: int) -> int:
        """A uniform integer from 0 to bound − 1."""
        bits = (bound - 1).bit_length()
        octets = (bits + 7) // 8
        while True:
            found = int.from_bytes(entropy(octets), "little") & ((1 << bits) - 1)
            if found < bound:
                return found

    return draw


def _draw_one(variance: int, below: _Below) -> int:
    scale = isqrt(variance) + 1
    while True:
        size = _draw_laplace(scale, below)
        gap = abs(size) * scale - variance
        if _draw_exponential_bit(gap * gap, 2 * variance * scale * scale, below):
            return size


def _draw_laplace(scale: int, below: _Below) -> int:
    """A draw from the discrete Laplace distribution, P(x) ∝ exp(−|x| / scale)."""
    while True:
        rest = below(scale)
        if not _draw_exponential_bit(rest, scale, below):
            continue
        whole = 0
        while _draw_exponential_bit(1, 1, below):
            whole += 1
        size = rest + scale * whole
        if below(2) == 0:
            return size
        if size:
            return -size


def _draw_exponential_bit(numerator: int, denominator: int, below: _Below) -> bool:
    """True with probability exp(−numerator / denominator)."""
    while numerator > denominator:
        if not _draw_exponential_bit(1, 1, below):
            return False
        numerator -= denominator
    step = 1
    while below(denominator * step) < numerator:
        step += 1
    return step % 2 == 1

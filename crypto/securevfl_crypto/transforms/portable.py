"""The inner loops in numpy, for machines without a compiled path and as the reference of the others.

A product modulo the prime needs no 128-bit words: the quotient is estimated in doubles, off by at most a few, and the
rest is computed modulo 2^64, where it fits. Sums stay unreduced: 12 or 13 levels of butterflies make an entry less than
64 times the prime, of 2^13 times that an int64 holds.
"""

from __future__ import annotations

import numpy as np

from securevfl_crypto.transforms.base import TransformLoops
from securevfl_crypto.transforms.roots import Roots

__all__ = ["PortableTransformLoops"]

_KEPT_LEVELS = 4
"""Levels of the inverse transform after which sums, which double in each, are reduced."""


def _times(a: np.ndarray, factor: np.ndarray | np.int64, prime: int) -> np.ndarray:
    """a · factor less a multiple of the prime, at most a few times the prime in size; both int64."""
    quotient = np.rint(a * (factor / prime)).astype(np.int64)
    return np.asarray(a * factor - quotient * np.int64(prime))


def _reduce(a: np.ndarray, prime: int) -> np.ndarray:
    return np.asarray(a - np.rint(a * (1 / prime)).astype(np.int64) * np.int64(prime))


def _canonical(a: np.ndarray, prime: int) -> np.ndarray:
    return (a % np.int64(prime)).view(np.uint64)


class PortableTransformLoops(TransformLoops):
    """See `TransformLoops`."""

    name = "numpy"

    def forward(self, out: np.ndarray, values: np.ndarray, roots: Roots) -> None:
        """See `TransformLoops.forward`."""
        n, prime, degree = len(values), roots.prime, roots.degree
        work = np.ascontiguousarray(values)
        count, factors = 1, roots.forward.astype(np.int64)
        while count < degree:
            pairs = work.reshape(n, count, 2, -1)
            product = _times(pairs[:, :, 1], factors[count : 2 * count, None], prime)
            work = np.stack([pairs[:, :, 0] + product, pairs[:, :, 0] - product], axis=2)
            count *= 2
        out[:] = _canonical(work.reshape(n, degree), prime)

    def inverse(self, out: np.ndarray, values: np.ndarray, roots: Roots) -> None:
        """See `TransformLoops.inverse`."""
        n, prime, degree = len(values), roots.prime, roots.degree
        work = np.ascontiguousarray(values).view(np.int64)
        count, factors, level = degree // 2, roots.inverse.astype(np.int64), 0
        while count:
            pairs = work.reshape(n, count, 2, -1)
            first, second = pairs[:, :, 0], pairs[:, :, 1]
            total, level = first + second, level + 1
            if not level % _KEPT_LEVELS:
                total = _reduce(total, prime)
            work = np.stack([total, _times(first - second, factors[count : 2 * count, None], prime)], axis=2)
            count //= 2
        out[:] = _canonical(_times(work.reshape(n, degree), np.int64(roots.scale), prime), prime)

    def add_products(self, total: np.ndarray, a: np.ndarray, b: np.ndarray, roots: Roots) -> None:
        """See `TransformLoops.add_products`."""
        found = total.view(np.int64)
        for left, right in zip(a.view(np.int64), b.view(np.int64), strict=True):
            found = found + _reduce(_times(left, right, roots.prime), roots.prime)
        total[:] = _canonical(found, roots.prime)

"""Polynomials modulo X^N + 1 and several primes: what callers of the transforms compute with."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from securevfl_crypto.transforms.base import TransformLoops
from securevfl_crypto.transforms.paths import transform_loops
from securevfl_crypto.transforms.roots import Roots, roots_of

__all__ = ["TransformRing"]


class TransformRing:
    """Arithmetic on polynomials as residues modulo each prime, (…, primes, N).

    Args:
        primes: below 2^50, 1 modulo 2N, all different.
        degree: N, a power of two from 64 on.
        loops: the path; None: the fastest that works here, chosen at first use.

    Raises:
        EngineError: a prime or N does not suit.
    """

    def __init__(self, primes: tuple[int, ...], degree: int, loops: TransformLoops | None = None) -> None:
        self.primes, self.degree = primes, degree
        self._roots: list[Roots] = [roots_of(prime, degree) for prime in primes]
        self._given = loops

    @cached_property
    def loops(self) -> TransformLoops:
        """The path that computes."""
        return transform_loops() if self._given is None else self._given

    def forward(self, values: np.ndarray) -> np.ndarray:
        """Transform polynomials.

        Args:
            values: int64 or uint64 (n, primes, N), or int64 (n, N) for all primes; at most 2^50 in size.

        Returns:
            uint64 (n, primes, N), below the primes.
        """
        signed, out = values.view(np.int64), self._empty(len(values))
        for index, roots in enumerate(self._roots):
            self.loops.forward(out[:, index], signed if signed.ndim == 2 else signed[:, index], roots)
        return out

    def inverse(self, values: np.ndarray) -> np.ndarray:
        """The inverse of `forward`, uint64 (n, primes, N) to coefficients below the primes."""
        out = self._empty(len(values))
        for index, roots in enumerate(self._roots):
            self.loops.inverse(out[:, index], values[:, index], roots)
        return out

    def add_products(self, total: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        """``total += Σ a[k] · b[k]`` for transformed polynomials: (primes, N), (k, primes, N) twice."""
        for index, roots in enumerate(self._roots):
            self.loops.add_products(total[index], a[:, index], b[:, index], roots)

    def _empty(self, count: int) -> np.ndarray:
        return np.empty((count, len(self.primes), self.degree), dtype=np.uint64)

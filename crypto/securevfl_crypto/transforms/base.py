"""The interface of the inner loops. All paths return the same numbers; callers check shapes and ranges.

No branch and no address depends on the polynomials.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from securevfl_crypto.transforms.roots import Roots

__all__ = ["TransformLoops"]


class TransformLoops(ABC):
    """One path. Arrays are polynomials, one a row, with N words next to each other; rows may lie apart.

    Attributes:
        name: one of `engine.PATHS`, or ``"numpy"``.
    """

    name: str

    @abstractmethod
    def forward(self, out: np.ndarray, values: np.ndarray, roots: Roots) -> None:
        """Transform polynomials.

        Args:
            out: uint64 (n, N), receives numbers below the prime, in bit-reversed order.
            values: int64 (n, N) of either sign, at most 2^50 in size.
            roots: the constants.
        """

    @abstractmethod
    def inverse(self, out: np.ndarray, values: np.ndarray, roots: Roots) -> None:
        """The inverse of `forward`.

        Args:
            out: uint64 (n, N), receives coefficients below the prime.
            values: uint64 (n, N), below the prime.
            roots: the constants.
        """

    @abstractmethod
    def add_products(self, total: np.ndarray, a: np.ndarray, b: np.ndarray, roots: Roots) -> None:
        """``total += Σ a[k] · b[k]``, entry by entry, modulo the prime.

        Args:
            total: uint64 (N,), below the prime.
            a, b: uint64 (k, N), below the prime.
            roots: the constants.
        """

"""The interface of the inner loops. All paths give the same bytes; callers check shapes and types."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

__all__ = ["COLUMNS", "MODULUS", "RingLoops"]

MODULUS = 67
"""The least prime above 64 + 1, the largest sum."""
COLUMNS = 64
"""Octets of a row."""


class RingLoops(ABC):
    """One path.

    Attributes:
        name: one of `engine.PATHS`, or ``"numpy"``.
    """

    name: str

    @abstractmethod
    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """(m, k) times (k, n) modulo 2^64, both uint64 and in any order in memory."""

    @abstractmethod
    def residues(self, raw: np.ndarray, modulus: int, out: np.ndarray) -> int:
        """The octets of `raw` below the largest multiple of the modulus (2 to 256), in their order, modulo it.

        Args:
            raw: uint8, a multiple of 64.
            modulus: of the residues.
            out: takes them, uint8, as long as `raw` or longer; what follows them has no meaning.

        Returns:
            How many there are.
        """

    @abstractmethod
    def deal_bits(self, r: np.ndarray, first: np.ndarray) -> np.ndarray:
        """See `kernels.deal_bits`."""

    @abstractmethod
    def mask_comparison(
        self,
        c: np.ndarray,
        bits: np.ndarray,
        factors: np.ndarray,
        zeros: np.ndarray,
        turns: np.ndarray,
        *,
        first: bool,
    ) -> np.ndarray:
        """See `kernels.mask_comparison`; len(c) is a multiple of len(bits)."""

    @abstractmethod
    def count_zeros(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """How many zeros each row of the sum has, uint64 (m,); the numbers are below 67."""

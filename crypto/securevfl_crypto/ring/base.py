"""The interface of the inner loops. All paths return the same bytes; callers check shapes and types.

The compiled kernels have no branch and no memory address that depends on data, with two exceptions.
`RingLoops.residues`: its addresses and its running time reveal which octets it drops, but nothing about the values of
those that it keeps. `RingLoops.sum_by_bin`: its addresses are the bins of rows, which the party that calls it knows.
"""

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
        """Reduce the octets of `raw` modulo `modulus` (2 to 256), in order, by rejection sampling.

        Octets from the largest multiple of the modulus on are dropped, so that residues of uniform octets are uniform.

        Args:
            raw: uint8, its length a multiple of 64.
            modulus: the modulus.
            out: receives the residues, uint8, at least as long as `raw`; what follows them has no meaning.

        Returns:
            The number of residues.
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
        """Count the zeros in each row of (one + other) mod 67, uint64 (m,); both are uint8 (m, 64) below 67."""

    @abstractmethod
    def sum_words(self, z: np.ndarray, v: np.ndarray) -> np.ndarray:
        """(cells, width) times the transpose of (k, width) modulo 2^32, all uint32 in C order.

        The width is a multiple of 64.
        """

    @abstractmethod
    def combine_octets(self, factors: np.ndarray, panels: np.ndarray) -> np.ndarray:
        """(k, cells) times (cells, 64 p) modulo 2^8, the latter in panels (p, cells, 64), all uint8 in C order."""

    @abstractmethod
    def sum_by_bin(self, codes: np.ndarray, starts: np.ndarray, values: np.ndarray, cells: int) -> np.ndarray:
        """Add each row of `values` to cell ``starts[c] + codes[c, row]`` for each column c. Addresses depend on codes.

        Args:
            codes: uint8 (columns, n).
            starts: uint64 (columns,); no cell is beyond `cells`.
            values: uint32 or uint64 (n, k), rows of a multiple of 16 bytes.
            cells: how many there are.

        Returns:
            (cells, k) of the values' type, modulo 2^32 or 2^64.
        """

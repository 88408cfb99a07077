"""Arithmetic modulo one odd number on many numbers at once: what packed Paillier is made of.

Numbers live in `Batch`es, in whatever form the path at hand computes with (on vector paths: limbs in Montgomery form,
eight or four numbers side by side), and leave it only to go on the wire or to be decoded: converting one costs more
than multiplying it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from gmpy2 import mpz

__all__ = ["Batch", "FixedBase", "Modulus"]


class Batch(ABC):
    """Some numbers modulo one modulus. Immutable."""

    @abstractmethod
    def __len__(self) -> int: ...


class FixedBase(ABC):
    """Powers of one base by table look-up.

    Attributes:
        bits: longest exponent that the table serves.
    """

    bits: int

    @abstractmethod
    def powers(self, exponents: np.ndarray) -> Batch:
        """base^e for each row of little-endian bytes, uint8 (n, ⌈bits/8⌉)."""


class Modulus(ABC):
    """Arithmetic modulo m.

    Attributes:
        m: the modulus, odd, from 1024 to 16384 bits.
        width: bytes of a number below m.
    """

    m: mpz
    width: int

    @abstractmethod
    def load(self, numbers: np.ndarray) -> Batch:
        """Numbers below m from little-endian bytes, uint8 (n, width).

        Raises:
            MalformedError: another type or shape, or a number that is not below m.
        """

    @abstractmethod
    def store(self, batch: Batch) -> np.ndarray:
        """The numbers, reduced, as little-endian bytes, uint8 (n, width)."""

    @abstractmethod
    def from_ints(self, numbers: Sequence[int | mpz]) -> Batch:
        """Integers, reduced modulo m."""

    @abstractmethod
    def to_ints(self, batch: Batch) -> list[mpz]:
        """The numbers, from 0 to m − 1."""

    @abstractmethod
    def mul(self, a: Batch, b: Batch) -> Batch:
        """Products, one by one; a batch of one number multiplies all of the other."""

    @abstractmethod
    def take(self, batch: Batch, rows: np.ndarray) -> Batch:
        """The numbers at these places, int64 (n,), none or several times."""

    @abstractmethod
    def concat(self, batches: Sequence[Batch]) -> Batch:
        """All numbers of these batches, in order."""

    @abstractmethod
    def invert(self, batch: Batch) -> Batch:
        """Inverses, with one inversion for all (Montgomery's trick).

        Raises:
            MalformedError: a number that has none.
        """

    @abstractmethod
    def power(self, batch: Batch, exponent: int | mpz) -> Batch:
        """Each number to one secret exponent: neither branches nor addresses depend on it, but for its length."""

    @abstractmethod
    def fixed_base(self, base: int | mpz, bits: int, *, scan: bool = False) -> FixedBase:
        """Tables of the powers of `base` for exponents of up to `bits` bits.

        Args:
            scan: whether every entry of a table is read for each digit, so that no address depends on the exponents;
                without, a digit is an address, which those who share the machine's caches can learn about.
        """

    @abstractmethod
    def power_products(self, bases: Batch, exponents: np.ndarray) -> Batch:
        """``out[i] = Π_j bases[j]^exponents[i, j]`` for exponents (rows, len(bases)), int64, any sign.

        The method is chosen by cost: tables shared by all rows (Straus 1964) where there are many rows for few bases,
        buckets (Pippenger 1976) where there are many bases for few rows. Time depends on the exponents' digits: see
        the caller's documentation.
        """

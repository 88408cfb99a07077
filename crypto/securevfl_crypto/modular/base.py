"""The interface of arithmetic modulo one odd number, on many numbers at once. Packed Paillier uses it.

A `Batch` stores numbers in the implementation's form: GMP integers, or limbs in Montgomery form, four or eight numbers
side by side. Callers convert numbers only to send or decode them, since a conversion costs more than a product. Each
method's description states whether its running time or memory addresses depend on its arguments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from gmpy2 import mpz

__all__ = ["Batch", "FixedBase", "Modulus"]


class Batch(ABC):
    """Numbers modulo one modulus. Immutable."""

    @abstractmethod
    def __len__(self) -> int: ...


class FixedBase(ABC):
    """Powers of one base.

    Attributes:
        bits: the longest exponent.
    """

    bits: int

    @abstractmethod
    def raise_to(self, exponents: np.ndarray) -> Batch:
        """base^e for each exponent.

        Args:
            exponents: little-endian bytes, uint8 (n, ⌈bits/8⌉).

        Raises:
            MalformedError: the exponents have another type or shape.
        """


class Modulus(ABC):
    """Arithmetic modulo m.

    Attributes:
        m: the modulus, odd, from 1024 to 16384 bits.
        width: bytes of a number below m.
    """

    m: mpz
    width: int

    @abstractmethod
    def load_bytes(self, numbers: np.ndarray) -> Batch:
        """Read numbers below m from little-endian bytes, uint8 (n, width).

        Raises:
            MalformedError: the type or shape differs, or a number is not below m.
        """

    @abstractmethod
    def store_bytes(self, batch: Batch) -> np.ndarray:
        """Write the numbers, reduced, as little-endian bytes, uint8 (n, width).

        Raises:
            MalformedError: the batch belongs to another modulus or path. All methods below raise this.
        """

    @abstractmethod
    def from_ints(self, numbers: Sequence[int | mpz]) -> Batch:
        """The batch of these integers, reduced modulo m."""

    @abstractmethod
    def to_ints(self, batch: Batch) -> list[mpz]:
        """The numbers as integers from 0 to m − 1."""

    @abstractmethod
    def mul(self, a: Batch, b: Batch) -> Batch:
        """Elementwise products; a batch of one number multiplies every number of the other.

        Raises:
            MalformedError: the lengths differ and neither is 1.
        """

    @abstractmethod
    def take(self, batch: Batch, rows: np.ndarray) -> Batch:
        """The numbers at these places.

        Args:
            rows: int64 (n,); a place may occur several times or not at all.

        Raises:
            MalformedError: the type or shape differs, or a place does not exist.
        """

    @abstractmethod
    def concat(self, batches: Sequence[Batch]) -> Batch:
        """The numbers of all these batches, in order."""

    @abstractmethod
    def invert(self, batch: Batch) -> Batch:
        """Inverses, with one inversion for all (Montgomery's trick).

        Raises:
            MalformedError: a number has no inverse.
        """

    @abstractmethod
    def power(self, batch: Batch, exponent: int | mpz) -> Batch:
        """Each number to the power of one secret exponent.

        Branches and memory addresses depend only on the length of the exponent.

        Raises:
            MalformedError: the exponent is negative.
        """

    @abstractmethod
    def fixed_base(self, base: int | mpz, bits: int, *, scan: bool = False, window: int | None = None) -> FixedBase:
        """Prepare powers of `base` for exponents of up to `bits` bits.

        Args:
            base: any integer.
            bits: 1 or more.
            window: bits of a digit that is an address, 4 to 14: wider ones take fewer products and larger tables. A
                path without kernels, and tables that would take more than 128 MiB, have narrower ones. None begins
                with 8; with four lanes, tables grow with use, to 160 MiB at most, so that many powers are fast and few
                begin soon.
            scan: whether no memory address depends on the exponents (whole tables are read for each digit). Otherwise
                digits are addresses, which a process that shares the machine's caches can observe.

        Raises:
            MalformedError: bits is below 1, or the window out of range.
        """

    @abstractmethod
    def subset_products(self, numbers: Batch, *, window: int | None = None) -> FixedBase:
        """Prepare products of subsets of these numbers: bit i of an exponent says whether numbers[i] is a factor.

        Digits of the exponents are memory addresses, which a process that shares the machine's caches can observe.

        Args:
            numbers: one or more.
            window: as for `fixed_base`.

        Raises:
            MalformedError: there is no number, or the window is out of range.
        """

    @abstractmethod
    def group_products(self, batch: Batch, groups: np.ndarray, count: int) -> Batch:
        """``out[k] = Π batch[i]`` over all places (i, j) with ``groups[i, j] = k``; 1 for a group without a place.

        Memory addresses and the running time depend on the groups.

        Args:
            groups: int64 (len(batch), columns), from 0 to count − 1, or −1 for a place that belongs to no group.
            count: the number of groups.

        Raises:
            MalformedError: the groups have another type, shape or range.
        """

    @abstractmethod
    def horner(self, batch: Batch, parts: int, bits: int) -> Batch:
        """``out[i] = Π_k batch[k n + i]^(2^(bits k))`` for the n numbers of each of the `parts` equal parts of a batch.

        Raises:
            MalformedError: the batch cannot be divided into `parts` equal parts, or bits is below 1.
        """

    @abstractmethod
    def power_products(self, bases: Batch, exponents: np.ndarray) -> Batch:
        """``out[i] = Π_j bases[j]^exponents[i, j]``.

        The method is chosen by cost: tables shared by all rows (Straus 1964) for many rows and few bases, buckets
        (Pippenger 1976) for many bases and few rows. The running time depends on the digits of the exponents.

        Args:
            bases: units modulo m.
            exponents: (rows, len(bases)) int64 of either sign, above −2^63.

        Raises:
            MalformedError: the exponents have another type or shape, or a base has no inverse and needs one.
        """

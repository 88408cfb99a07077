"""Arithmetic modulo primes below 2^62 in numpy's 64-bit words, and residues as bytes.

The upper half of a product of words is computed from half words. With it, a product by a constant modulo a prime takes
three multiplications (Shoup's method, in Harvey, "Faster arithmetic for number-theoretic transforms", J. Symbolic
Computation 60 (2014), section 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from securevfl_crypto.errors import MalformedError

__all__ = [
    "Basis",
    "divide_residues",
    "divide_words",
    "lift_words",
    "lower_words",
    "multiply_high",
    "multiply_words",
    "read_residues",
    "write_residues",
]

_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def multiply_high(a: np.ndarray, b: int) -> np.ndarray:
    """``⌊a b / 2^64⌋`` for words a and one word b."""
    a1, a0 = a >> _HALF, a & _LOW
    b1, b0 = np.uint64(b >> 32), np.uint64(b & 0xFFFFFFFF)
    middle = a1 * b0
    carry = ((a0 * b0) >> _HALF) + (middle & _LOW) + a0 * b1  # at most 2^64 − 1: (2^32 − 1)² + 2 (2^32 − 1)
    return np.asarray(a1 * b1 + (middle >> _HALF) + (carry >> _HALF))


def multiply_words(a: np.ndarray, factor: int, prime: int) -> np.ndarray:
    """``a · factor`` modulo a prime, for any words a."""
    factor %= prime
    estimate = multiply_high(a, (factor << 64) // prime)
    # Words wrap, which is exact here: the true difference is below twice the prime, so below 2^64.
    product = a * np.uint64(factor) - estimate * np.uint64(prime)
    return np.where(product >= np.uint64(prime), product - np.uint64(prime), product)


def divide_words(a: np.ndarray, prime: int) -> tuple[np.ndarray, np.ndarray]:
    """``2^64 a / prime`` for words a below the prime: the whole part, and the rest as a float from 0 to 1."""
    whole, rest = divmod(1 << 64, prime)
    found = a * np.uint64(whole) + multiply_high(a, (rest << 64) // prime)
    left = np.negative(found * np.uint64(prime))  # 2^64 a − found · prime, below twice the prime
    over = left >= np.uint64(prime)
    found, left = found + over, np.where(over, left - np.uint64(prime), left)
    return found, left.astype(np.float64) / float(prime)


@dataclass(frozen=True)
class Basis:
    """Integers modulo a product of primes, as an array of residues with one row for each prime.

    Attributes:
        primes: below 2^62, all different.
    """

    primes: tuple[int, ...]

    @property
    def modulus(self) -> int:
        """Their product."""
        product = 1
        for prime in self.primes:
            product *= prime
        return product

    def to_residues(self, values: np.ndarray) -> np.ndarray:
        """The residues of an int64, uint64 or object array of either sign: uint64 (primes, *shape)."""
        if values.dtype == np.uint64:
            return np.stack([values % np.uint64(prime) for prime in self.primes])
        return np.stack([(values % prime).astype(np.uint64) for prime in self.primes])

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The sum of residues."""
        column = self._prime_column(a.ndim)
        total = a + b  # primes are below 2^62, so the sum of two residues fits a word
        return np.asarray(np.where(total >= column, total - column, total))

    def scale(self, a: np.ndarray, factor: int) -> np.ndarray:
        """Residues times an integer."""
        return np.stack([multiply_words(row, factor, prime) for row, prime in zip(a, self.primes, strict=True)])

    def reduce(self, words: np.ndarray) -> np.ndarray:
        """Residues (primes, n) of long numbers, uint64 (n, words), the first word the most significant."""
        total = np.zeros((len(self.primes), len(words)), dtype=np.uint64)
        for column in words.T:
            total = self.add(self.scale(total, 1 << 64), self.to_residues(column))
        return total

    def negate(self, a: np.ndarray, where: np.ndarray) -> np.ndarray:
        """Residues, negated where `where` is true."""
        return np.asarray(np.where(where & (a != 0), self._prime_column(a.ndim) - a, a))

    def crt_terms(self, a: np.ndarray) -> np.ndarray:
        """Residues y_i with ``a / modulus = Σ y_i / prime_i`` modulo 1: each term of the Chinese remainder theorem."""
        modulus = self.modulus
        return np.stack([multiply_words(r, pow(modulus // p, -1, p), p) for r, p in zip(a, self.primes, strict=True)])

    def to_integers(self, a: np.ndarray) -> np.ndarray:
        """The integers from 0 to modulus − 1 with these residues, an object array."""
        modulus = self.modulus
        total = np.zeros(a.shape[1:], dtype=object)
        for term, prime in zip(self.crt_terms(a), self.primes, strict=True):
            total = total + term.astype(object) * (modulus // prime)
        return np.asarray(total % modulus, dtype=object)

    def _prime_column(self, ndim: int) -> np.ndarray:
        return np.array(self.primes, dtype=np.uint64).reshape(-1, *[1] * (ndim - 1))


def lift_words(basis: Basis, words: np.ndarray) -> np.ndarray:
    """``round(q w / 2^64)`` modulo each prime, for words w (n,) and q the modulus of the basis: (primes, n)."""
    # (q w − r) / 2^64 with r = q w modulo 2^64, centred at zero; and q is 0 modulo each prime.
    rest = (words * np.uint64(basis.modulus % (1 << 64))).view(np.int64)
    return divide_residues(basis, rest, 1 << 64)


def lower_words(basis: Basis, phases: np.ndarray) -> np.ndarray:
    """``round(2^64 v / q)`` modulo 2^64, for v given by residues (primes, n): uint64 (n,)."""
    total, left = np.zeros(phases.shape[1], dtype=np.uint64), np.zeros(phases.shape[1])
    for term, prime in zip(basis.crt_terms(phases), basis.primes, strict=True):
        whole, part = divide_words(term, prime)
        total += whole
        left += part
    return total + np.rint(left).astype(np.uint64)


def divide_residues(basis: Basis, rest: np.ndarray, modulus: int) -> np.ndarray:
    """``−rest / modulus`` modulo each prime."""
    factors = [-pow(modulus, -1, prime) % prime for prime in basis.primes]
    rows = zip(basis.to_residues(rest), basis.primes, factors, strict=True)
    return np.stack([multiply_words(row, factor, prime) for row, prime, factor in rows])


def write_residues(residues: np.ndarray, widths: tuple[int, ...]) -> bytes:
    """Serialise residues (primes, n), little-endian, prime by prime, with `widths` bytes for each residue."""
    rows = np.ascontiguousarray(residues).astype("<u8", copy=False).view(np.uint8).reshape(*residues.shape, 8)
    return b"".join(row[:, :width].tobytes() for row, width in zip(rows, widths, strict=True))


def read_residues(data: memoryview, primes: tuple[int, ...], widths: tuple[int, ...], count: int) -> np.ndarray:
    """Read the residues (primes, count) that `write_residues` wrote.

    Raises:
        MalformedError: the length differs, or a residue is not below its prime.
    """
    if len(data) != count * sum(widths):
        raise MalformedError(f"residues of {len(data)} bytes; expected {count * sum(widths)}")
    rows = np.zeros((len(primes), count, 8), dtype=np.uint8)
    start = 0
    for row, width in zip(rows, widths, strict=True):
        stop = start + count * width
        row[:, :width] = np.frombuffer(data[start:stop], dtype=np.uint8).reshape(count, width)
        start = stop
    found = rows.view("<u8").reshape(len(primes), count).astype(np.uint64, copy=False)
    # The arithmetic above is only correct below the prime, so unreduced bytes of a peer stop here.
    if count and (found >= np.array(primes, dtype=np.uint64)[:, None]).any():
        raise MalformedError("a residue is not below its prime: this is not a ring element")
    return found

"""The constants of a transform: powers of a root of X^N + 1 modulo a prime, in the order in which loops use them.

The transform is the one of Longa and Naehrig (Speeding up the Number Theoretic Transform, CANS 2016, algorithms 1 and
2): the powers of the 2N-th root of unity are merged into the butterflies, so multiplication modulo X^N + 1 needs no
separate scaling. Transformed values are in bit-reversed order, on every path.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from securevfl_crypto.errors import EngineError

__all__ = ["LEAST_DEGREE", "MOST_BITS", "Roots", "roots_of"]

MOST_BITS = 50
"""Primes are below 2^MOST_BITS: eight times a prime is then an exact double."""
LEAST_DEGREE = 64
"""N is a power of two from here on, so that the widest vectors have whole blocks."""


@dataclass(frozen=True, eq=False)
class Roots:
    """The constants for one prime and one N.

    Attributes:
        prime: below 2^50, 1 modulo 2N.
        degree: N.
        forward: float64 (N,): ψ to the bit-reversed index, for ψ a primitive 2N-th root of unity; between −prime/2 and
            prime/2.
        inverse: float64 (N,): likewise of 1/ψ.
        scale: 1/N modulo the prime, between −prime/2 and prime/2.
    """

    prime: int
    degree: int
    forward: np.ndarray = field(repr=False)
    inverse: np.ndarray = field(repr=False)
    scale: int


@lru_cache(maxsize=64)
def roots_of(prime: int, degree: int) -> Roots:
    """The constants for a prime and N; every process finds the same root.

    Raises:
        EngineError: the prime is too large or not 1 modulo 2N, or N is not a power of two.
    """
    if degree < LEAST_DEGREE or degree & (degree - 1):
        raise EngineError(f"transforms of {degree} coefficients; expected a power of two from {LEAST_DEGREE}")
    if prime >> MOST_BITS or prime % (2 * degree) != 1:
        raise EngineError(f"a transform modulo {prime}; expected a prime below 2^{MOST_BITS} that is 1 modulo 2N")
    root = _find_root(prime, degree)
    forward = _powers(root, prime, degree)
    inverse = _powers(pow(root, -1, prime), prime, degree)
    scale = _centre(pow(degree, -1, prime), prime)
    return Roots(prime, degree, forward, inverse, scale)


def _find_root(prime: int, degree: int) -> int:
    for base in range(2, 1000):
        root = pow(base, (prime - 1) // (2 * degree), prime)
        if pow(root, degree, prime) == prime - 1:  # so its order is 2N exactly
            return root
    raise EngineError(f"no root of unity modulo {prime} was found; it is not a prime")


def _powers(root: int, prime: int, degree: int) -> np.ndarray:
    bits = degree.bit_length() - 1
    powers, value = [1] * degree, 1
    for exponent in range(degree):
        powers[int(f"{exponent:0{bits}b}"[::-1], 2)] = _centre(value, prime)
        value = value * root % prime
    return np.array(powers, dtype=np.float64)


def _centre(value: int, prime: int) -> int:
    return value - prime if value > prime // 2 else value

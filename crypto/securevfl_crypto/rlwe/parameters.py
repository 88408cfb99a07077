"""Moduli of the lattice schemes. Every chain has at least 128 bits of security.

A ring element has N coefficients modulo q, a product of primes that are 1 modulo 2N, which SEAL's transforms need.
Answers are sent modulo q', the product of the *kept* primes; the *dropped* prime P divides the noise. SEAL also demands
a *special* prime for key switching. Nothing here uses it, but it counts towards the security estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

from securevfl_crypto.errors import WeakKeyError

__all__ = ["DEGREE", "MOST_HOLDERS", "SECURITY", "Chain"]

DEGREE = 8192
"""N: coefficients of a ring element."""
SECURITY = 128
"""Bits, by the tables of the Homomorphic Encryption Standard (Albrecht et al., 2018), ternary secrets, classical."""
MOST_HOLDERS = 16
"""The most answers that one owner may add up, as their noise also adds up. Set-up refuses more holders."""
_MOST_BITS = 218  # of the whole modulus, at N = 8192 and 128 bits, in the standard's table 1


@dataclass(frozen=True)
class Chain:
    """The sizes of the primes, in bits.

    Attributes:
        kept: the primes of q', the modulus of answers.
        dropped: P; uploads are modulo q = q' P.
        special: SEAL's special prime.

    Raises:
        WeakKeyError: the primes together leave less than 128 bits of security.
    """

    kept: tuple[int, ...]
    dropped: int
    special: int = 20

    def __post_init__(self) -> None:
        if sum(self.sizes) > _MOST_BITS:
            raise WeakKeyError(
                f"a modulus of {sum(self.sizes)} bits; {_MOST_BITS} leave {SECURITY} bits of security at N = {DEGREE}: "
                "take smaller primes"
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """All primes, in SEAL's order."""
        return (*self.kept, self.dropped, self.special)

    @property
    def data_bits(self) -> int:
        """log₂ q, rounded up."""
        return sum(self.kept) + self.dropped

    @property
    def widths(self) -> tuple[int, ...]:
        """Bytes of a serialised residue modulo each prime of an upload."""
        return tuple((bits + 7) // 8 for bits in (*self.kept, self.dropped))

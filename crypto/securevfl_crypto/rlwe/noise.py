"""How large the noise of an answer can be, by the worst case of every term, and how much of it drowns what tells of x.

Three things add up in a holder's answer before its modulus is lowered:

- Σ x e, where e is the noise of the owner's fresh encryptions, which the owner knows: it would confirm a guess of x.
  |e| ≤ 21 (SEAL's centred binomial distribution of 42 bits) and ½ for rounding.
- The noise of the fresh encryption of zero under the public key, ``u e + e_1 s``, which makes c1 pseudorandom: nothing
  of x in it.
- The *flood*, uniform and 2^sigma times wider than the bound of the first: their sum is within 2^-sigma of a uniform
  that does not depend on x, coefficient by coefficient.

Lowering the modulus divides all that by P and adds rounding: ½ for c0 and ½ ‖s‖₁ ≤ N/2 for c1. It happens to values
that may be published already.
"""

from __future__ import annotations

from dataclasses import dataclass

from securevfl_crypto.rlwe.parameters import DEGREE, Chain

__all__ = ["FRESH", "Noise"]

FRESH = 22
"""Bound of the noise of a fresh symmetric encryption, with the rounding of what it carries."""


@dataclass(frozen=True)
class Noise:
    """Bounds for one kind of answer.

    Attributes:
        chain: its moduli.
        x_bits: \\|x\\| < 2^x_bits.
        terms: values of x in one coefficient of the result.
        sigma: bits by which the flood is wider than what it hides.
    """

    chain: Chain
    x_bits: int
    terms: int
    sigma: int

    @property
    def telling(self) -> int:
        """Bound of Σ x e."""
        return self.terms * FRESH << self.x_bits

    @property
    def flood_bits(self) -> int:
        """The flood is uniform from −2^flood_bits to below 2^flood_bits."""
        return (self.telling - 1).bit_length() + self.sigma

    @property
    def blinding(self) -> int:
        """Bound of the noise of an encryption of zero, for ternary u and s."""
        return 2 * DEGREE * FRESH

    @property
    def sent(self) -> int:
        """Bound of the noise of one answer as it travels."""
        total = self.telling + (1 << self.flood_bits) + self.blinding
        return (total >> (self.chain.dropped - 1)) + DEGREE // 2 + 2

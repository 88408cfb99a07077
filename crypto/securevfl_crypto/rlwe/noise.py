"""Worst-case bounds on the noise of an answer, and the flood that drowns the part that depends on x.

The noise of a holder's answer, before its modulus is lowered, has three parts:

- Σ x e, where e is the noise of the owner's fresh encryptions. The owner knows e, so Σ x e would confirm a guess of x.
  |e| ≤ 21 (SEAL's centred binomial distribution of 42 bits) and ½ for rounding.
- ``u e + e_1 s``, the noise of the fresh encryption of zero that makes c1 pseudorandom. It does not depend on x.
- The *flood*, uniform and 2^sigma times wider than the bound of the first part. In each coefficient their sum is within
  a statistical distance of 2^-sigma of a uniform number that does not depend on x.

Lowering the modulus divides the sum by P and adds a rounding error: ½ for c0 and ½ ‖s‖₁ ≤ N/2 for c1. It reveals
nothing: its input could already be published.
"""

from __future__ import annotations

from dataclasses import dataclass

from securevfl_crypto.rlwe.parameters import DEGREE, Chain

__all__ = ["FRESH", "Noise"]

FRESH = 22
"""Bound of the noise of a fresh symmetric encryption: 21 of SEAL's binomial, and ½ for rounding the message."""


@dataclass(frozen=True)
class Noise:
    """Bounds for one kind of answer.

    Attributes:
        chain: the moduli.
        x_bits: \\|x\\| < 2^x_bits.
        terms: the number of values of x in one coefficient of the result.
        sigma: the bits by which the flood is wider than Σ x e.
    """

    chain: Chain
    x_bits: int
    terms: int
    sigma: int

    @property
    def data_bound(self) -> int:
        """Bound of Σ x e."""
        # Worst case, not typical: the flood hides Σ x e by its width alone, so a bound exceeded once would show x.
        return self.terms * FRESH << self.x_bits

    @property
    def flood_bits(self) -> int:
        """The flood is uniform from −2^flood_bits to below 2^flood_bits."""
        return (self.data_bound - 1).bit_length() + self.sigma

    @property
    def zero_bound(self) -> int:
        """Bound of the noise of an encryption of zero, for ternary u and s."""
        # u e and e_1 s are sums of N products of a ternary coefficient with one of noise.
        return 2 * DEGREE * FRESH

    @property
    def answer_bound(self) -> int:
        """Bound of the noise of one answer when it is sent, modulo q'."""
        total = self.data_bound + (1 << self.flood_bits) + self.zero_bound
        # A prime of b bits is above 2^(b − 1), so dividing by P is bounded by a shift of one bit less.
        return (total >> (self.chain.dropped - 1)) + DEGREE // 2 + 2

"""CKKS at a sealed cut: approximate, with shorter moduli than BFV's.

Cheon, Kim, Kim and Song (ASIACRYPT 2017): the message and the noise share the phase. Here m modulo q' is encoded as
``P m`` modulo q = q' P. A product with x keeps that form, and one division by P ("rescaling") leaves ``x m`` and the
noise divided by P. This single level suffices: everything at a cut is linear in the encrypted values.

Messages are the integer coefficients themselves, not numbers in slots. The canonical embedding, CKKS's usual encoding,
computes with doubles. Their 53 bits cannot hold shares and masks that are 40 bits wider than the weights: a mask
rounded to 53 bits would leave the lower bits of the values unmasked, and the key's owner would read them. Masks here
are uniform integers modulo q' and hide perfectly.

An opened number is its message plus noise. Whoever knows both has a linear equation in the owner's secrets, and enough
equations reveal the key (Li and Micciancio, EUROCRYPT 2021, eprint 2020/1533). Nothing that `Owner` opens returns to
the holder: z stays with the owner, and the gradient share returns only inside a fresh encryption of V. Numbers computed
from z (scores, losses) must be rounded before they are published: units `sigma` bits above `product_error` hide the
noise from a holder who can predict everything else. The holder's flood does not protect the owner, since the holder
knows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from securevfl_crypto.block import Block
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.rlwe.base import RlweScheme
from securevfl_crypto.rlwe.encoding import Encoding, overflow_error
from securevfl_crypto.rlwe.noise import Noise
from securevfl_crypto.rlwe.parameters import MOST_HOLDERS, Chain
from securevfl_crypto.rlwe.plan import Demand
from securevfl_crypto.rlwe.residues import multiply_words
from securevfl_crypto.rlwe.seal import seal_context

__all__ = ["CKKS"]

_LIMB = 30  # half of a 60-bit prime, so that a residue has two limbs


class _Residues(Encoding):
    """Modulo q': messages are residues, uint64 (kept primes, …)."""

    def __init__(self, noise: Noise) -> None:
        super().__init__(noise, seal_context(noise.chain).kept.modulus)
        self.error = noise.answer_bound
        self._dropped = self.seal.data.primes[-1]

    def encode_integers(self, integers: np.ndarray) -> np.ndarray:
        return self.seal.kept.to_residues(integers)

    def mask_product(self, x: np.ndarray, share: np.ndarray, extra: np.ndarray | None, zero: ZeroShares) -> np.ndarray:
        basis, messages = self.seal.kept, self.encode_integers(share)
        total = np.stack([_multiply_residues(x, row, prime) for row, prime in zip(messages, basis.primes, strict=True)])
        if extra is not None:
            total = basis.add(total, self.encode_integers(extra))
        if zero:
            count = total[0].size
            # Many more bits than q' has, so that the reduced masks are nearly uniform.
            for sign, block in zero.draw_blocks(count, 2 * len(basis.primes) + 1):
                mask = basis.reduce(block).reshape(total.shape)
                total = basis.add(total, mask if sign > 0 else basis.negate(mask, np.ones(total.shape[1:], dtype=bool)))
        return total

    def lift_messages(self, messages: np.ndarray) -> np.ndarray:
        scaled = self.seal.kept.scale(messages, self._dropped)
        return np.concatenate([scaled, np.zeros_like(scaled[:1])])  # P m is zero modulo the dropped prime P

    def lower_phases(self, phases: np.ndarray) -> np.ndarray:
        return phases

    def to_numbers(self, messages: np.ndarray) -> np.ndarray:
        return messages[0].astype(object) if len(messages) == 1 else self.seal.kept.to_integers(messages)

    def to_integers(self, messages: np.ndarray) -> np.ndarray:
        if len(messages) > 1:
            return super().to_integers(messages)
        found = messages[0].astype(np.int64)  # a prime of 60 bits
        return np.asarray(np.where(found > self.modulus // 2, found - self.modulus, found))


def _multiply_residues(x: np.ndarray, weights: np.ndarray, prime: int) -> np.ndarray:
    """``x W`` modulo a prime below 2^60, for \\|x\\| < 2^30 and residues W; sums of products stay below 2^63."""
    step = ((1 << 62) >> _LIMB) // max(int(np.abs(x).max()), 1)  # rows of W whose products a word has room for
    total = np.zeros((len(x), weights.shape[1]), dtype=np.uint64)
    low, top = (weights & np.uint64((1 << _LIMB) - 1)).astype(np.int64), (weights >> np.uint64(_LIMB)).astype(np.int64)
    for start in range(0, len(weights), step):
        part = slice(start, start + step)
        upper = ((x[:, part] @ top[part]) % prime).astype(np.uint64)
        lower = ((x[:, part] @ low[part]) % prime).astype(np.uint64)
        total = (total + multiply_words(upper, 1 << _LIMB, prime) + lower) % np.uint64(prime)
    return total


@dataclass(frozen=True)
class CKKS(RlweScheme):
    """CKKS with N = 8192, integer coefficients and 128 bits of security; the modulus is chosen for each block."""

    name: ClassVar[str] = "ckks"
    exact: ClassVar[bool] = False
    number: ClassVar[int] = 2
    chains: ClassVar[tuple[Chain, ...]] = (Chain((60,), 60), Chain((48, 48), 56))

    def choose_encodings(self, block: Block, product: Demand, gradient: Demand) -> tuple[Encoding, Encoding]:
        """See `RlweScheme.choose_encodings`."""
        z = 3 << max(block.z_bits - 3, 0)  # room to detect a product beyond a quarter of 2^z_bits
        if block.integer_shares:
            phi = (1 << block.phi_bits) + (1 << block.gradient_bits)
            return self._choose_encoding("a product", (product, z)), self._choose_encoding(
                "a masked gradient", (gradient, phi)
            )
        common = self._choose_encoding("a product", (product, z), (gradient, 1 << block.gradient_bits)).noise.chain
        return _Residues(product.noise_bounds(common)), _Residues(gradient.noise_bounds(common))

    def _choose_encoding(self, what: str, *demands: tuple[Demand, int]) -> Encoding:
        """Choose the first chain where signed numbers below each bound fit, with the errors of all holders."""
        for chain in self.chains:
            modulus = seal_context(chain).kept.modulus
            if all(
                2 * (bound + MOST_HOLDERS * demand.noise_bounds(chain).answer_bound) < modulus
                for demand, bound in demands
            ):
                return _Residues(demands[0][0].noise_bounds(chain))
        raise overflow_error(what, max(bound.bit_length() + 1 for _, bound in demands))

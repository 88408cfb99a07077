"""BFV at a sealed cut: exact, with plaintexts modulo a power of two.

Brakerski (CRYPTO 2012), Fan and Vercauteren (eprint 2012/144): a message m modulo t is encoded as ``round(q m / t)``
and decoded as ``round(t phase / q')``. Rounding the product instead of multiplying by ``⌊q / t⌋`` limits the rounding
noise of ``x · [[m]]`` to x/2, however often ``x m`` wraps (Kim, Polyakov and Zucca, eprint 2021/204, section 3).

With t = 2^64, messages are machine words and shares of zero are words of a stream. Integer shares need a larger t.
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
from securevfl_crypto.rlwe.residues import divide_residues, lift_words, lower_words

__all__ = ["BFV"]

_WORD = 64


class _Words(Encoding):
    """Modulo 2^64: messages are uint64 arrays."""

    def __init__(self, noise: Noise) -> None:
        super().__init__(noise, 1 << _WORD)

    def encode_integers(self, integers: np.ndarray) -> np.ndarray:
        if integers.dtype == np.int64:
            return integers.view(np.uint64)
        return (integers & (self.modulus - 1)).astype(np.uint64)

    def mask_product(self, x: np.ndarray, share: np.ndarray, extra: np.ndarray | None, zero: ZeroShares) -> np.ndarray:
        total = x.view(np.uint64) @ self.encode_integers(share)
        if extra is not None:
            total += extra.view(np.uint64)
        if zero:
            total += zero.draw_words(total.size, _WORD).reshape(total.shape)
        return np.asarray(total)

    def lift_messages(self, messages: np.ndarray) -> np.ndarray:
        return lift_words(self.seal.data, messages)

    def lower_phases(self, phases: np.ndarray) -> np.ndarray:
        return lower_words(self.seal.kept, phases)

    def to_numbers(self, messages: np.ndarray) -> np.ndarray:
        return messages.astype(object)

    def to_integers(self, messages: np.ndarray) -> np.ndarray:
        return messages.view(np.int64)


class _Wide(Encoding):
    """Modulo 2^bits for more than 64 bits: messages are object arrays."""

    def __init__(self, noise: Noise, bits: int) -> None:
        super().__init__(noise, 1 << bits)

    def encode_integers(self, integers: np.ndarray) -> np.ndarray:
        return np.asarray(integers.astype(object) & (self.modulus - 1), dtype=object)

    def mask_product(self, x: np.ndarray, share: np.ndarray, extra: np.ndarray | None, zero: ZeroShares) -> np.ndarray:
        total = x.astype(object) @ share
        if extra is not None:
            total = total + extra.astype(object)
        if zero:
            shares = np.empty(total.size, dtype=object)
            shares[:] = [int(part) for part in zero.draw_shares(total.size, self.modulus)]
            total = total + shares.reshape(total.shape)
        return self.encode_integers(total)

    def lift_messages(self, messages: np.ndarray) -> np.ndarray:
        half = self.modulus // 2
        rest = ((messages * self.seal.data.modulus + half) & (self.modulus - 1)) - half
        return divide_residues(self.seal.data, rest, self.modulus)

    def lower_phases(self, phases: np.ndarray) -> np.ndarray:
        basis = self.seal.kept
        scaled = basis.to_integers(phases) * self.modulus + basis.modulus // 2
        return self.encode_integers(scaled // basis.modulus)

    def to_numbers(self, messages: np.ndarray) -> np.ndarray:
        return messages


@dataclass(frozen=True)
class BFV(RlweScheme):
    """BFV with N = 8192 and 128 bits of security; each block uses the shorter of two moduli that has room for it."""

    name: ClassVar[str] = "bfv"
    exact: ClassVar[bool] = True
    number: ClassVar[int] = 1
    chains: ClassVar[tuple[Chain, ...]] = (Chain((48, 40), 56), Chain((56, 56), 56))

    def choose_encodings(self, block: Block, product: Demand, gradient: Demand) -> tuple[Encoding, Encoding]:
        """See `RlweScheme.choose_encodings`."""
        if block.integer_shares:
            return self._choose_encoding(product, block.z_bits, "a product"), self._choose_encoding(
                gradient, block.phi_bits + 2, "a masked gradient"
            )
        bits = max(block.z_bits, block.gradient_bits + 2)
        return self._choose_encoding(product, bits, "a product"), self._choose_encoding(gradient, bits, "a gradient")

    def _choose_encoding(self, demand: Demand, bits: int, what: str) -> Encoding:
        bits = max(bits, _WORD)
        for chain in self.chains:
            noise = demand.noise_bounds(chain)
            # These primes are above 2^(b − 0.01), so the product of the kept ones is above 2^(their bits − 1).
            if (2 * MOST_HOLDERS * noise.answer_bound) << bits < 1 << (sum(chain.kept) - 1):
                return _Words(noise) if bits == _WORD else _Wide(noise, bits)
        largest = demand.noise_bounds(self.chains[-1])
        raise overflow_error(f"{what} of {bits} bits with its noise", bits + 6 + largest.answer_bound.bit_length())

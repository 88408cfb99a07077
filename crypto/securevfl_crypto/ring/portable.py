"""The inner loops in numpy, for machines without a compiled path and as the reference of the others."""

from __future__ import annotations

import numpy as np

from securevfl_crypto.ring.base import COLUMNS, MODULUS, Loops
from securevfl_crypto.ring.limbs import limb_product, word_product

__all__ = ["Portable"]

_SMALL = 1 << 15
"""Multiplications up to which numpy's own product is faster than cutting limbs."""
_ONE = np.uint64(1)
_USED = np.uint64((1 << 63) - 1)


def _bits(words: np.ndarray) -> np.ndarray:
    """Bits 0 to 63, uint8 (n, 64), by shifts: `np.unpackbits` reads a table at addresses that depend on secrets."""
    return np.asarray((words[:, None] >> np.arange(COLUMNS, dtype=np.uint64)) & _ONE).astype(np.uint8)


class Portable(Loops):
    """See `Loops`."""

    name = "numpy"

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """See `Loops.product`."""
        return word_product(a, b) if a.size * b.shape[1] <= _SMALL else limb_product(a, b)

    def residues(self, raw: np.ndarray, modulus: int, out: np.ndarray) -> int:
        """See `Loops.residues`."""
        limit = 256 - 256 % modulus
        kept = raw[raw < limit] if limit < 256 else raw
        out[: len(kept)] = kept % np.uint8(modulus) if modulus < 256 else kept
        return len(kept)

    def deal_bits(self, r: np.ndarray, first: np.ndarray) -> np.ndarray:
        """See `Loops.deal_bits`."""
        bits = _bits((r << _ONE) & _USED)
        return np.asarray((bits + np.uint8(MODULUS) - first) % np.uint8(MODULUS))

    def masked_comparison(
        self,
        c: np.ndarray,
        bits: np.ndarray,
        factors: np.ndarray,
        zeros: np.ndarray,
        turns: np.ndarray,
        *,
        first: bool,
    ) -> np.ndarray:
        """See `Loops.masked_comparison`."""
        one = np.int16(first)
        y = _bits(((c << _ONE) | _ONE) & _USED).astype(np.int16)
        x = np.tile(bits, (len(c) // max(1, len(bits)), 1)).astype(np.int16)
        x[:, -1] = 0
        differs = x + y * (one - 2 * x)
        before = np.cumsum(differs[:, ::-1], axis=1, dtype=np.int16)[:, ::-1] - differs
        sign = np.where(turns[:, None] & np.uint8(64), np.int16(-1), np.int16(1))
        e = (sign * (y * one - x) + one + before) % np.int16(MODULUS)
        product = e * (factors.astype(np.int16) + 1) % np.int16(MODULUS)
        places = (np.arange(COLUMNS, dtype=np.uint8) + turns[:, None]) & np.uint8(COLUMNS - 1)
        turned = np.take_along_axis(product, places.astype(np.intp), axis=1)
        shift = zeros.astype(np.int16)
        return np.asarray((turned + (shift if first else MODULUS - shift)) % MODULUS).astype(np.uint8)

    def found_zeros(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """See `Loops.found_zeros`."""
        total = one + other
        return np.asarray(((total == 0) | (total == MODULUS)).sum(axis=1, dtype=np.uint64))

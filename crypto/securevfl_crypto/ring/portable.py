"""The inner loops in numpy, for machines without a compiled path and as the reference of the others."""

from __future__ import annotations

import numpy as np

from securevfl_crypto.ring.base import COLUMNS, MODULUS, RingLoops
from securevfl_crypto.ring.limbs import limb_product, octet_product, word_product, word_sums

__all__ = ["PortableRingLoops"]

_SMALL = 1 << 15
"""Multiplications up to which numpy's own product is faster than cutting limbs."""
_ONE = np.uint64(1)
_USED = np.uint64((1 << 63) - 1)
_MODULUS = np.uint8(MODULUS)


def _split_bits(words: np.ndarray) -> np.ndarray:
    """Bits 0 to 63, uint8 (n, 64), by shifts: `np.unpackbits` reads a table at addresses that depend on secrets."""
    octets = words.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8, 1)
    return np.asarray((octets >> np.arange(8, dtype=np.uint8)) & np.uint8(1)).reshape(-1, COLUMNS)


def _reduce_once(numbers: np.ndarray, by: int = MODULUS) -> np.ndarray:
    """Numbers minus `by` where they are at least that: the difference wraps exactly where it would be negative."""
    return np.asarray(np.minimum(numbers, numbers - numbers.dtype.type(by)))


def _multiply_modular(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Modulo 67, where 64 is −3: the lower 6 bits minus three times those above, plus 4 · 67."""
    product = a.astype(np.uint16) * b
    sums = (product & np.uint16(63)) + np.uint16(4 * MODULUS) - np.uint16(3) * (product >> np.uint16(6))
    return _reduce_once(_reduce_once(_reduce_once(sums, 4 * MODULUS), 2 * MODULUS)).astype(np.uint8)


def _select(bits: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a where the bit is 1, b where it is 0, without a branch; `np.where` takes several times as long."""
    return np.asarray(b ^ ((a ^ b) & (np.uint8(0) - bits)))


class PortableRingLoops(RingLoops):
    """See `RingLoops`. Numbers modulo 67 stay in octets, as in the kernels."""

    name = "numpy"

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """See `RingLoops.product`."""
        return word_product(a, b) if a.size * b.shape[1] <= _SMALL else limb_product(a, b)

    def residues(self, raw: np.ndarray, modulus: int, out: np.ndarray) -> int:
        """See `RingLoops.residues`."""
        limit = 256 - 256 % modulus
        kept = np.compress(raw < limit, raw) if limit < 256 else raw
        for power in range(7, -1, -1):
            if modulus << power < limit:
                kept = _reduce_once(kept, modulus << power)
        out[: len(kept)] = kept
        return len(kept)

    def deal_bits(self, r: np.ndarray, first: np.ndarray) -> np.ndarray:
        """See `RingLoops.deal_bits`."""
        return _reduce_once(_split_bits((r << _ONE) & _USED) + (_MODULUS - first))

    def mask_comparison(
        self,
        c: np.ndarray,
        bits: np.ndarray,
        factors: np.ndarray,
        zeros: np.ndarray,
        turns: np.ndarray,
        *,
        first: bool,
    ) -> np.ndarray:
        """See `RingLoops.mask_comparison`."""
        one = np.uint8(first)
        y = _split_bits(((c << _ONE) | _ONE) & _USED)
        x = np.tile(bits, (len(c) // max(1, len(bits)), 1))
        x[:, -1] = 0
        less = _reduce_once(_MODULUS + one - x)  # 1 − x at P0, −x at P1
        before = np.zeros_like(x)
        before[:, :-1] = _select(y, less, x)[:, 1:]
        for step in (1, 2, 4, 8, 16, 32):
            before[:, :-step] = _reduce_once(before[:, :-step] + before[:, step:])
        difference = _select(y, less, _reduce_once(_MODULUS - x))  # y − x
        coin = (turns >> np.uint8(6)) & np.uint8(1)
        sign = _select(coin[:, None], _reduce_once(_MODULUS - difference), difference)
        product = _multiply_modular(_reduce_once(sign + before + one), factors + np.uint8(1))
        for step in range(6):
            bit = (turns >> np.uint8(step)) & np.uint8(1)
            product = _select(bit[:, None], np.roll(product, -(1 << step), axis=1), product)
        return _reduce_once(product + (zeros if first else _MODULUS - zeros))

    def count_zeros(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """See `RingLoops.count_zeros`."""
        total = one + other
        return np.asarray(np.count_nonzero((total == 0) | (total == _MODULUS), axis=1)).astype(np.uint64)

    def sum_words(self, z: np.ndarray, v: np.ndarray) -> np.ndarray:
        """See `RingLoops.sum_words`."""
        return word_sums(z, v)

    def combine_octets(self, factors: np.ndarray, panels: np.ndarray) -> np.ndarray:
        """See `RingLoops.combine_octets`."""
        return octet_product(factors, panels)

    def sum_by_bin(self, codes: np.ndarray, starts: np.ndarray, values: np.ndarray, cells: int) -> np.ndarray:
        """See `RingLoops.sum_by_bin`."""
        out = np.zeros((cells, values.shape[1]), values.dtype)
        for start, column in zip(starts, codes, strict=True):
            np.add.at(out, column.astype(np.intp) + int(start), values)
        return out

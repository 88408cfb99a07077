"""Pack many small integers into one large one, in slots of any number of bits, for complete arrays at once.

Unlike `paillier.packing`, whose slots are whole bytes, slots here follow each other bit by bit: a plaintext of 2046
bits has room for 39 blocks of 52 bits, or 31 of 64. A signed integer is stored with half its slot added; the sum of all
halves, a constant, is subtracted at the end, so the encrypted number is ``Σ_s v_s 2^(place of s)`` itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from gmpy2 import mpz

from securevfl_crypto.errors import OverflowRefused

__all__ = ["pack_slots", "unpack_slots"]


@lru_cache(maxsize=256)
def _half_ranges(widths: tuple[int, ...]) -> mpz:
    """The number with half of each slot's range in every slot."""
    total, place = mpz(0), 0
    for width in widths:
        total += mpz(1) << (place + width - 1)
        place += width
    return total


def pack_slots(values: np.ndarray, widths: tuple[int, ...]) -> list[mpz]:
    """Pack each row i into the number ``Σ_s values[i, s] 2^(Σ_{r<s} widths[r])``.

    Args:
        values: int64 (n, slots), each below half of its slot's range in magnitude.
        widths: bits of each slot, 1 to 62.
    """
    words = np.zeros((len(values), -(-sum(widths) // 64) + 1), dtype="<u8")
    place = 0
    for column, width in zip(values.T, widths, strict=True):
        raw = (column + (1 << (width - 1))).astype(np.uint64)
        word, shift = divmod(place, 64)
        words[:, word] |= raw << np.uint64(shift)
        if shift + width > 64:
            words[:, word + 1] |= raw >> np.uint64(64 - shift)
        place += width
    data, size, half = words.tobytes(), 8 * words.shape[1], _half_ranges(widths)
    return [mpz.from_bytes(data[at : at + size], "little") - half for at in range(0, len(data), size)]


def unpack_slots(numbers: Sequence[mpz], widths: tuple[int, ...]) -> np.ndarray:
    """Unpack the integers that `pack_slots` packed, int64 (n, slots).

    Raises:
        OverflowRefused: a number has content beyond its last slot.
    """
    total, half = sum(widths), _half_ranges(widths)
    shifted = [number + half for number in numbers]
    if any(number < 0 or number.bit_length() > total for number in shifted):
        most = max(abs(number).bit_length() for number in numbers)
        raise OverflowRefused(
            f"a sum of {most} bits in a plaintext with room for {total - 1}: a party did not follow the protocol, or "
            "the parties use different plans"
        )
    size = 8 * (-(-total // 64) + 1)
    data = b"".join([number.to_bytes(size, "little") for number in shifted])
    words = np.frombuffer(data, dtype="<u8").reshape(len(shifted), size // 8)
    out = np.empty((len(shifted), len(widths)), dtype=np.int64)
    place = 0
    for slot, width in enumerate(widths):
        word, shift = divmod(place, 64)
        raw = words[:, word] >> np.uint64(shift)
        if shift + width > 64:
            raw = raw | words[:, word + 1] << np.uint64(64 - shift)
        out[:, slot] = (raw & np.uint64((1 << width) - 1)).astype(np.int64) - (1 << (width - 1))
        place += width
    return out

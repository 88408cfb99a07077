"""Arrays of big integers: bytes on the wire, uniform masks, and signed slots packed into one plaintext."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
from gmpy2 import mpz

from securevfl_crypto.errors import MalformedError, OverflowRefused

__all__ = ["bigints_from_bytes", "bigints_to_bytes", "pack", "uniform_masks", "unpack"]


def bigints_to_bytes(values: np.ndarray, width: int) -> np.ndarray:
    """An object array of integers as two's complement little-endian bytes, uint8 of shape (*values.shape, width).

    Raises:
        OverflowRefused: a value needs more than `width` bytes.
    """
    bound = 1 << (8 * width - 1)
    flat = [int(value) for value in values.flat]
    for value in flat:
        if not -bound <= value < bound:
            raise OverflowRefused(
                f"an integer of {value.bit_length()} bits; {8 * width - 1} fit: widen the range of the job"
            )
    raw = b"".join(value.to_bytes(width, "little", signed=True) for value in flat)
    return np.frombuffer(raw, dtype=np.uint8).reshape(*values.shape, width)


def bigints_from_bytes(array: np.ndarray, shape: tuple[int, ...], width: int) -> np.ndarray:
    """The object array of this shape that `bigints_to_bytes` wrote.

    Raises:
        MalformedError: another type or shape.
    """
    if array.dtype != np.uint8 or array.shape != (*shape, width):
        raise MalformedError(f"integers as {array.dtype} {array.shape}; uint8 {(*shape, width)} was expected")
    raw = array.tobytes()
    values = [int.from_bytes(raw[i : i + width], "little", signed=True) for i in range(0, len(raw), width)]
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result.reshape(shape)


def uniform_masks(shape: tuple[int, ...], bits: int) -> np.ndarray:
    """Integers uniform in [−2^bits, 2^bits), an object array, from the operating system's randomness."""
    count = int(np.prod(shape))
    width = (bits + 8) // 8
    raw = secrets.token_bytes(width * count)
    keep, half = (1 << (bits + 1)) - 1, 1 << bits
    result = np.empty(count, dtype=object)
    result[:] = [(int.from_bytes(raw[i : i + width], "little") & keep) - half for i in range(0, width * count, width)]
    return result.reshape(shape)


def pack(values: Sequence[int] | np.ndarray, slot_bits: int) -> mpz:
    """``Σ_k values[k] 2^(k·slot_bits)``: linear, so packed plaintexts add and scale slot by slot.

    Slots are signed; a negative one borrows from the next, and `unpack` gives it back.
    """
    packed = mpz(0)
    for value in reversed(values):
        packed = (packed << slot_bits) + int(value)
    return packed


def unpack(packed: mpz, slot_bits: int, count: int) -> list[int]:
    """The `count` slots of a packed integer, all of them within ±2^(slot_bits − 1).

    Raises:
        OverflowRefused: something is left beyond the last slot: a slot overflowed, or masks did not cancel.
    """
    half, mask = 1 << (slot_bits - 1), (1 << slot_bits) - 1
    rest = int(packed)
    values = []
    for _ in range(count):
        slot = ((rest & mask) ^ half) - half
        values.append(slot)
        rest = (rest - slot) >> slot_bits
    if rest:
        raise OverflowRefused(
            f"a plaintext of {int(packed).bit_length()} bits; {count} slots of {slot_bits} fit: a value left its "
            "range, or the masks of the parties do not cancel (they have to call in step)"
        )
    return values

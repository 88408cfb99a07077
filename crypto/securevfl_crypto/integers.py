"""Arrays of big integers: conversion to bytes, uniform masks, exact matrix products."""

from __future__ import annotations

import secrets

import numpy as np

from securevfl_crypto.errors import MalformedError, OverflowRefused

__all__ = ["bigints_from_bytes", "bigints_to_bytes", "exact_product", "uniform_masks"]


def bigints_to_bytes(values: np.ndarray, width: int) -> np.ndarray:
    """Encode integers as little-endian two's complement.

    Args:
        values: an object array of integers.
        width: bytes of one integer.

    Returns:
        uint8 (*values.shape, width).

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
    """Decode what `bigints_to_bytes` wrote.

    Returns:
        An object array of this shape.

    Raises:
        MalformedError: the bytes have another type or shape.
    """
    if array.dtype != np.uint8 or array.shape != (*shape, width):
        raise MalformedError(f"the integers are {array.dtype} {array.shape}; expected uint8 {(*shape, width)}")
    raw = array.tobytes()
    values = [int.from_bytes(raw[i : i + width], "little", signed=True) for i in range(0, len(raw), width)]
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result.reshape(shape)


def uniform_masks(shape: tuple[int, ...], bits: int) -> np.ndarray:
    """Integers uniform in [−2^bits, 2^bits), an object array of this shape, from the operating system's randomness."""
    count = int(np.prod(shape))
    width = (bits + 8) // 8
    raw = secrets.token_bytes(width * count)
    keep, half = (1 << (bits + 1)) - 1, 1 << bits
    result = np.empty(count, dtype=object)
    result[:] = [(int.from_bytes(raw[i : i + width], "little") & keep) - half for i in range(0, width * count, width)]
    return result.reshape(shape)


def exact_product(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The matrix product ``x u`` in exact integers.

    u is split into limbs of 32, 16 or 8 bits: the widest for which sums of d products stay below 2^62. Each limb takes
    one matrix product in int64; carries run over all entries at once. If no limb is narrow enough, Python's integers
    compute the product. The running time depends on the magnitudes of x and u.

    Args:
        x: (rows, d) int64.
        u: (d, h) integers of any size, an object array.

    Returns:
        (rows, h), an object array.

    Raises:
        MalformedError: x has another type, or the shapes do not fit.
    """
    if x.dtype != np.int64 or x.ndim != 2 or u.ndim != 2 or len(u) != x.shape[1]:
        raise MalformedError(f"{x.dtype} {x.shape} times {u.shape}; expected int64 (rows, d) times (d, h)")
    rows, (d, h) = len(x), u.shape
    if not rows * d * h:
        return np.full((rows, h), 0, dtype=object)
    bits = max(int(x.max()), -int(x.min())).bit_length() + d.bit_length()
    limb = next((size for size in (4, 2, 1) if bits + 8 * size <= 62), 0)
    if not limb:
        return np.asarray(x.astype(object) @ u.astype(object), dtype=object)
    width = -(-(max(int(u.max()).bit_length(), int(u.min()).bit_length()) + 1) // (8 * limb)) * limb
    digits = bigints_to_bytes(u, width).view(f"<u{limb}").astype(np.int64)
    digits[:, :, -1] -= (digits[:, :, -1] >> (8 * limb - 1)) << (8 * limb)  # the highest limb is signed
    limbs = width // limb
    sums = np.zeros((rows, h, limbs + 8 // limb), dtype=np.int64)
    sums[:, :, :limbs] = (x @ digits.reshape(d, h * limbs)).reshape(rows, h, limbs)
    low = np.empty(sums.shape, dtype=f"<u{limb}")
    carry = np.zeros((rows, h), dtype=np.int64)
    for k in range(sums.shape[2]):
        carry += sums[:, :, k]
        low[:, :, k] = carry & ((1 << (8 * limb)) - 1)
        carry >>= 8 * limb
    return bigints_from_bytes(low.view(np.uint8), (rows, h), width + 8)

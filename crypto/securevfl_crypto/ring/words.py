"""Fixed point: a real number v is the word round(v · 2^bits) modulo 2^64, negative ones in two's complement."""

from __future__ import annotations

import numpy as np

from securevfl_crypto.errors import MalformedError

__all__ = ["FRACTION", "LARGEST", "check_words", "decode_words", "encode_words"]

FRACTION = 16
"""Bits behind the binary point."""
LARGEST = 62
"""Encoded numbers are below 2^62 in size: comparison and truncation need the bit above."""


def encode_words(values: np.ndarray, bits: int = FRACTION, *, bound: float | None = None) -> np.ndarray:
    """Real numbers as words, rounded to nearest, ties to even.

    Args:
        values: of any shape; floats, or integers, which stay exact.
        bits: behind the binary point, 0 to 62.
        bound: the largest size that a value may have; at most, and by default, just below 2^(62 − bits).

    Returns:
        uint64 of the same shape, C order.

    Raises:
        MalformedError: a value is NaN, infinite or larger than the bound; the values are no numbers; or bits or bound
            are out of range.
    """
    places = _checked_bits(bits)
    limit = float(np.nextafter(2.0 ** (LARGEST - places), 0.0))
    if bound is not None:
        if not 0 < bound <= limit:
            raise MalformedError(
                f"a bound of {bound}; with {places} fractional bits it lies above 0, up to {limit:.6g}"
            )
        limit = float(bound)
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise MalformedError(f"values of type {array.dtype}; real numbers are needed")
    if array.size:
        least, most = array.min().item(), array.max().item()  # NaN if any value is
        if not (-limit <= least and most <= limit):
            worst = least if least < -limit else most
            raise MalformedError(
                f"a value is {worst}; with {places} fractional bits values lie from {-limit:.6g} to {limit:.6g}: scale "
                "the data"
            )
    if array.dtype.kind != "f":
        words = np.left_shift(array.astype(np.int64, order="C"), places)
    else:
        words = np.rint(np.ldexp(array.astype(np.float64), places)).astype(np.int64, order="C")
    return np.asarray(words).view(np.uint64).reshape(array.shape)


def decode_words(words: np.ndarray, bits: int = FRACTION) -> np.ndarray:
    """The real numbers that words encode, float64 of the same shape; from 2^53 on they are rounded to nearest.

    Raises:
        MalformedError: the words are not uint64, or bits are out of range.
    """
    places = _checked_bits(bits)
    return np.asarray(np.ldexp(check_words(words).view(np.int64).astype(np.float64), -places))


def check_words(words: np.ndarray, what: str = "words", shape: tuple[int, ...] | None = None) -> np.ndarray:
    """The words, C-contiguous.

    Args:
        words: uint64.
        what: names them in the error.
        shape: that they must have; None allows any.

    Raises:
        MalformedError: they are no array, of another type, or of another shape.
    """
    if not isinstance(words, np.ndarray) or words.dtype != np.uint64:
        kind = words.dtype if isinstance(words, np.ndarray) else type(words).__name__
        raise MalformedError(f"{what} are {kind}; uint64 was expected, a share of the ring modulo 2^64")
    if shape is not None and words.shape != shape:
        raise MalformedError(f"{what} are {words.shape}; {shape} was expected")
    return np.ascontiguousarray(words).reshape(words.shape)  # numpy makes a scalar array one-dimensional


def _checked_bits(bits: int) -> int:
    if isinstance(bits, bool) or not isinstance(bits, int) or not 0 <= bits <= LARGEST:
        raise MalformedError(f"{bits!r} fractional bits; 0 to {LARGEST} are possible")
    return bits

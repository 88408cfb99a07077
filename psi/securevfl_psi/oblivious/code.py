"""The linear code of the OT extension: 80 bits to 512, with minimum distance 128.

It is the narrow-sense primitive BCH code of length 511 with designed distance 127, which has dimension 85, extended by
a parity bit. The generator polynomial g is the least one with the zeros α, α², …, α^126, where α is a zero of
x⁹ + x⁴ + 1; by the BCH bound, a multiple of it that is not zero has 127 ones at least (MacWilliams and Sloane, The
Theory of Error-Correcting Codes, chapter 7, theorem 8, and chapter 9). With the parity the weight is even, so 128. Of
the 85 shifts of g that generate the code, 80 are used: a word is 10 bytes.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from securevfl_crypto.bits import CODE_BYTES, COLUMNS, byte_tables

__all__ = ["DISTANCE", "code_tables", "generator_polynomial", "generator_rows"]

DISTANCE = 128
_FIELD = 0b1000010001  # x⁹ + x⁴ + 1
_ORDER = 511


def _alpha_powers() -> list[int]:
    """α^0, …, α^510 in GF(2^9)."""
    found, element = [], 1
    for _ in range(_ORDER):
        found.append(element)
        element <<= 1
        if element >> 9:
            element ^= _FIELD
    return found


def generator_polynomial() -> np.ndarray:
    """g's coefficients over GF(2), the constant one first: uint8 (427,)."""
    powers = _alpha_powers()
    logarithm = {element: number for number, element in enumerate(powers)}
    zeros = {exponent * (1 << k) % _ORDER for exponent in range(1, DISTANCE - 1) for k in range(9)}
    polynomial = [1]
    for exponent in sorted(zeros):  # times (x − α^exponent)
        shifted = [0, *polynomial]
        for place, coefficient in enumerate(polynomial):
            if coefficient:
                shifted[place] ^= powers[(logarithm[coefficient] + exponent) % _ORDER]
        polynomial = shifted
    return np.array(polynomial, dtype=np.uint8)


def generator_rows() -> np.ndarray:
    """The rows that generate the code, bit 0 of a byte first: uint8 (80, 64)."""
    g = generator_polynomial()
    rows = np.zeros((8 * CODE_BYTES, COLUMNS), dtype=np.uint8)
    for shift, row in enumerate(rows):
        row[shift : shift + len(g)] = g
        row[_ORDER] = row[:_ORDER].sum() & 1
    return np.packbits(rows, axis=1, bitorder="little")


@lru_cache(maxsize=1)
def code_tables() -> np.ndarray:
    """For `Loops.encode`: uint8 (10, 256, 64)."""
    return byte_tables(generator_rows())

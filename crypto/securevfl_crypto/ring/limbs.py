"""Matrix products modulo 2^64, 2^32 and 2^8 without kernels, exact for all inputs.

Two ways that give the same words. `limb_product` cuts words into three limbs of 22, 22 and 20 bits and multiplies them
as float64 with BLAS; `word_product` is numpy's own product of integers, without BLAS.

Exactness of the limbs: a product of two limbs is below 2^44, so a sum of up to 512 of them is at most
512 · (2^22 − 1)^2 < 2^53. Every partial sum is therefore an integer that float64 represents, in whatever order BLAS
adds and whether or not it fuses multiplications with additions. Longer inner dimensions are cut into pieces of 512,
which are added as integers. Six products of limbs count; the other three are multiples of 2^66.
"""

from __future__ import annotations

import numpy as np

__all__ = ["INNER", "limb_product", "octet_product", "word_product", "word_sums"]

WIDTH, LIMBS = 22, 3
INNER = 1 << (53 - 2 * WIDTH)
"""The longest inner dimension whose limb products add up exactly in float64."""


def word_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of two matrices by numpy's integers, which wrap modulo 2^64: the reference."""
    return np.asarray(a @ b)


def limb_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of two matrices through float64 BLAS; see the module's proof that it is exact."""
    out = np.zeros((a.shape[0], b.shape[1]), dtype=np.uint64)
    for start in range(0, a.shape[1], INNER):
        left, right = _split_limbs(a[:, start : start + INNER]), _split_limbs(b[start : start + INNER])
        for shift in range(LIMBS):
            for i in range(shift + 1):
                part = (left[i] @ right[shift - i]).astype(np.int64).view(np.uint64)
                out += part << np.uint64(WIDTH * shift)
    return out


def _split_limbs(words: np.ndarray) -> list[np.ndarray]:
    mask = np.uint64((1 << WIDTH) - 1)
    return [((words >> np.uint64(WIDTH * i)) & mask).astype(np.float64) for i in range(LIMBS)]


def word_sums(z: np.ndarray, v: np.ndarray) -> np.ndarray:
    """(cells, n) times the transpose of (k, n) modulo 2^32, uint32: numpy's own for few columns, else float64 BLAS.

    Exact: a product of two limbs of 16 bits is below 2^32, so that a sum over a piece of 4,096 rows is below 2^44.
    """
    if len(v) <= _FEW:
        return np.asarray(z @ v.T)
    out = np.zeros((len(z), len(v)), np.uint32)
    for start in range(0, z.shape[1], _ROWS):
        left, right = (_split_half_words(part[:, start : start + _ROWS]) for part in (z, v))
        low = (left[0] @ right[0].T).astype(np.uint64)
        high = (left[0] @ right[1].T + left[1] @ right[0].T).astype(np.uint64)
        out += (low + (high << np.uint64(16))).astype(np.uint32)
    return out


def _split_half_words(words: np.ndarray) -> list[np.ndarray]:
    return [(words & np.uint32(0xFFFF)).astype(np.float64), (words >> np.uint32(16)).astype(np.float64)]


def octet_product(factors: np.ndarray, panels: np.ndarray) -> np.ndarray:
    """(k, cells) times panels (p, cells, w) modulo 2^8, uint8 (k, p w), through float32 BLAS.

    Exact: octets with a sign are at most 2^7 in size, so that a sum over a piece of 1,024 cells is at most 2^24, and
    float32 represents every partial sum.
    """
    count, cells, width = panels.shape
    out = np.zeros((count, len(factors), width), np.uint8)
    signed = factors.view(np.int8)
    for start in range(0, cells, _CELLS):
        left = signed[:, start : start + _CELLS].astype(np.float32)
        for number, panel in enumerate(panels.view(np.int8)):
            product = left @ panel[start : start + _CELLS].astype(np.float32)
            out[number] += product.astype(np.int32).astype(np.uint8)
    return np.ascontiguousarray(out.transpose(1, 0, 2)).reshape(len(factors), count * width)


_FEW = 6
"""Columns up to which cutting words takes longer than numpy's integers."""
_ROWS = 4096
_CELLS = 1024

"""Matrix products modulo 2^64 without kernels, exact for all inputs.

Two ways that give the same words. `limb_product` cuts words into three limbs of 22, 22 and 20 bits and multiplies them
as float64 with BLAS; `word_product` is numpy's own product of integers, without BLAS.

Exactness of the limbs: a product of two limbs is below 2^44, so a sum of up to 512 of them is at most
512 · (2^22 − 1)^2 < 2^53. Every partial sum is therefore an integer that float64 represents, in whatever order BLAS
adds and whether or not it fuses multiplications with additions. Longer inner dimensions are cut into pieces of 512,
which are added as integers. Six products of limbs count; the other three are multiples of 2^66.
"""

from __future__ import annotations

import numpy as np

__all__ = ["INNER", "limb_product", "word_product"]

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

"""Matrix products modulo 2^64, exact for all inputs.

Two ways that give the same words. `limb_product` cuts words into three limbs of 22, 22 and 20 bits and multiplies them
as float64 with BLAS; `word_product` is numpy's own product of integers, without BLAS.

Exactness of the limbs: a product of two limbs is below 2^44, so a sum of up to 512 of them is at most
512 · (2^22 − 1)^2 < 2^53. Every partial sum is therefore an integer that float64 represents, in whatever order BLAS
adds and whether or not it fuses multiplications with additions. Longer inner dimensions are cut into pieces of 512,
which are added as integers. Six products of limbs count; the other three are multiples of 2^66.
"""

from __future__ import annotations

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.ring.words import checked_words

__all__ = ["INNER", "limb_product", "matmul", "word_product"]

WIDTH, LIMBS = 22, 3
INNER = 1 << (53 - 2 * WIDTH)
"""The longest inner dimension whose limb products add up exactly in float64."""
_SMALL = 1 << 14
"""Multiplications up to which numpy's own product is faster than cutting limbs."""


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a · b modulo 2^64.

    Args:
        a: uint64 (m, k), or a stack (s, m, k).
        b: uint64 (k, n), or (s, k, n); one matrix may face a stack.

    Returns:
        uint64 (m, n), or (s, m, n).

    Raises:
        MalformedError: another type, or shapes that do not match.
    """
    left, right = _checked(a, b)
    if left.ndim == 3 or right.ndim == 3:
        count = max(len(x) for x in (left, right) if x.ndim == 3)
        parts = [
            _one(left if left.ndim == 2 else left[i], right if right.ndim == 2 else right[i]) for i in range(count)
        ]
        return np.stack(parts) if parts else np.zeros((0, left.shape[-2], right.shape[-1]), dtype=np.uint64)
    return _one(left, right)


def word_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of two matrices by numpy's integers, which wrap modulo 2^64: the reference."""
    return np.asarray(a @ b)


def limb_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of two matrices through float64 BLAS; see the module's proof that it is exact."""
    out = np.zeros((a.shape[0], b.shape[1]), dtype=np.uint64)
    for start in range(0, a.shape[1], INNER):
        left, right = _limbs(a[:, start : start + INNER]), _limbs(b[start : start + INNER])
        for shift in range(LIMBS):
            for i in range(shift + 1):
                part = (left[i] @ right[shift - i]).astype(np.int64).view(np.uint64)
                out += part << np.uint64(WIDTH * shift)
    return out


def _limbs(words: np.ndarray) -> list[np.ndarray]:
    mask = np.uint64((1 << WIDTH) - 1)
    return [((words >> np.uint64(WIDTH * i)) & mask).astype(np.float64) for i in range(LIMBS)]


def _one(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return word_product(a, b) if a.size * b.shape[1] <= _SMALL else limb_product(a, b)


def _checked(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    for words, what in ((a, "the left factor"), (b, "the right factor")):
        if not isinstance(words, np.ndarray) or words.dtype != np.uint64:
            checked_words(words, what)
        if words.ndim not in (2, 3):
            raise MalformedError(f"{what} has the shape {words.shape}; a matrix, or a stack of them, is needed")
    stacked = [len(x) for x in (a, b) if x.ndim == 3]
    if a.shape[-1] != b.shape[-2] or len(set(stacked)) > 1:
        raise MalformedError(f"factors {a.shape} and {b.shape} do not match: (m, k) times (k, n) is possible")
    return a, b

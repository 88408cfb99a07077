"""Matrix products modulo 2^64, exact for all inputs, the same words on every path (`paths`)."""

from __future__ import annotations

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.ring.paths import product_function
from securevfl_crypto.ring.words import check_words

__all__ = ["matmul"]


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
    left, right = _check_factors(a, b)
    if left.ndim == right.ndim == 2 and len(left) == right.shape[1] == 1:
        # The kernels pad one column to a whole vector.
        single: np.ndarray = np.dot(left[0], right[:, 0]).reshape(1, 1)
        return single
    product = product_function(left.shape[-2] * left.shape[-1] * right.shape[-1])
    if left.ndim == 3 or right.ndim == 3:
        count = max(len(x) for x in (left, right) if x.ndim == 3)
        parts = [
            product(left if left.ndim == 2 else left[i], right if right.ndim == 2 else right[i]) for i in range(count)
        ]
        return np.stack(parts) if parts else np.zeros((0, left.shape[-2], right.shape[-1]), dtype=np.uint64)
    return product(left, right)


def _check_factors(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    for words, what in ((a, "the left factor"), (b, "the right factor")):
        if not isinstance(words, np.ndarray) or words.dtype != np.uint64:
            check_words(words, what)
        if words.ndim not in (2, 3):
            raise MalformedError(f"{what} has the shape {words.shape}; a matrix, or a stack of them, is needed")
    stacked = [len(x) for x in (a, b) if x.ndim == 3]
    if a.shape[-1] != b.shape[-2] or len(set(stacked)) > 1:
        raise MalformedError(f"factors {a.shape} and {b.shape} do not match: (m, k) times (k, n) is possible")
    return a, b

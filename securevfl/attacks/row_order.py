"""Row order: whether the numbers that all parties give to rows follow a column of the party that numbered them."""

from __future__ import annotations

import numpy as np

__all__ = ["correlation", "strongest"]


def _ranks(values: np.ndarray) -> np.ndarray:
    """Mid-ranks, (n,)."""
    _, at, counts = np.unique(values, return_inverse=True, return_counts=True)
    found: np.ndarray = (np.cumsum(counts) - (counts - 1) / 2)[at]
    return found


def correlation(values: np.ndarray) -> float:
    """Spearman's rank correlation of values (n,) with their places; 0 where they do not vary."""
    if len(values) < 3 or np.ptp(values) == 0:
        return 0.0
    return float(np.corrcoef(_ranks(values), np.arange(len(values)))[0, 1])


def strongest(columns: np.ndarray) -> tuple[int, float]:
    """The column of rows in the order of their numbers, (n, d), that follows it most, and its |Spearman|."""
    found = [abs(correlation(columns[:, j])) for j in range(columns.shape[1])]
    best = int(np.argmax(found)) if found else 0
    return best, found[best] if found else 0.0

"""Row order: does the shared row numbering follow a column of the party that assigned it?"""

from __future__ import annotations

import numpy as np

__all__ = ["correlation", "strongest"]


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return mid-ranks, (n,)."""
    _, at, counts = np.unique(values, return_inverse=True, return_counts=True)
    found: np.ndarray = (np.cumsum(counts) - (counts - 1) / 2)[at]
    return found


def correlation(values: np.ndarray) -> float:
    """Return Spearman's rank correlation of values (n,) with their positions; 0 if they are constant."""
    if len(values) < 3 or np.ptp(values) == 0:
        return 0.0
    return float(np.corrcoef(_ranks(values), np.arange(len(values)))[0, 1])


def strongest(columns: np.ndarray) -> tuple[int, float]:
    """Return the column that follows the row order most and its |Spearman|; `columns` (n, d) are in the order of row
    numbers.
    """
    found = [abs(correlation(columns[:, j])) for j in range(columns.shape[1])]
    best = int(np.argmax(found)) if found else 0
    return best, found[best] if found else 0.0

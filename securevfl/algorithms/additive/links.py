"""From the sum of all shapes to what a program makes probabilities of."""

from __future__ import annotations

import numpy as np

__all__ = ["CLIP", "to_logits"]

CLIP = 0.005
"""Sums of shapes are read as probabilities between this and one less this."""


def to_logits(sums: np.ndarray, *, numeric: bool) -> np.ndarray:
    """Logits of sums of shapes, float64 (n, outputs).

    A sum is a probability, or a number between 0 and 1 of the target's range. Beyond the clipped range, log-odds go on
    with a slope of one: probabilities stay about at the clip, and rows keep their order.

    Args:
        sums: (n, outputs), with the start.
        numeric: whether the target is a number; then between −1 and 1, as `Regression` scales a range.
    """
    if numeric:
        return 2 * sums - 1
    clipped = np.clip(sums, CLIP, 1 - CLIP)
    beyond = sums - clipped
    if sums.shape[1] == 1:
        found: np.ndarray = np.log(clipped / (1 - clipped)) + beyond
        return found
    found = np.log(clipped) + beyond
    return found

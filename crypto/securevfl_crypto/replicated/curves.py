"""Piecewise linear functions whose comparisons run behind the mask of one truncation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from securevfl_crypto.errors import MalformedError

__all__ = ["Curve", "bits_of", "relu6_curve", "relu_curve"]


@dataclass(frozen=True)
class Curve:
    """A function of y: ``start + Σ slopes[k] · [y ≥ thresholds[k]] · (y − thresholds[k])``, all integers.

    Attributes:
        thresholds: in units of y's last place.
        slopes: change of slope at each threshold; empty if only bits are wanted.
        gates: if not empty, ``Σ gates[k] · [y ≥ thresholds[k]]`` is a second result.
        start: the value left of the first threshold.

    Raises:
        MalformedError: there is no threshold, or their number differs from that of slopes or gates.
    """

    thresholds: tuple[int, ...]
    slopes: tuple[int, ...] = ()
    gates: tuple[int, ...] = ()
    start: int = 0

    def __post_init__(self) -> None:
        if not self.thresholds:
            raise MalformedError("a curve has no thresholds; it needs at least one")
        for what in (self.slopes, self.gates):
            if what and len(what) != len(self.thresholds):
                raise MalformedError(f"{len(what)} slopes or gates for {len(self.thresholds)} thresholds; one each")

    @property
    def outputs(self) -> int:
        """Number of words that the curve returns for one value."""
        return bool(self.slopes) + bool(self.gates) or len(self.thresholds)

    def __call__(self, y: np.ndarray) -> np.ndarray:
        """Evaluate the function on integers, int64, in the clear."""
        total = np.full(y.shape, self.start, np.int64)
        for threshold, slope in zip(self.thresholds, self.slopes, strict=True):
            total += slope * np.maximum(y - threshold, 0)
        return total


@lru_cache
def relu_curve(fraction: int = 0) -> Curve:
    """max(y, 0), and its derivative."""
    return Curve((0,), (1,), (1,))


@lru_cache
def relu6_curve(fraction: int) -> Curve:
    """min(max(y, 0), 6), and its derivative: two thresholds behind one mask."""
    return Curve((0, 6 << fraction), (1, -1), (1, -1))


def bits_of(thresholds: tuple[int, ...]) -> Curve:
    """[y ≥ t] for each threshold t, no function."""
    return Curve(thresholds)

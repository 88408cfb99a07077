"""Scale the numbers of a column for a network, fitted on training rows.

``"standard"``: (x − mean) / deviation. ``"quantile"``: the normal score of the rank among the training rows, as by
`sklearn.preprocessing.QuantileTransformer`, but with mid-ranks for ties and with knots that are fitted once.
``"robust"``: (x − median) / (interquartile range / 1.349), which is the deviation of a normal distribution. ``"none"``:
unchanged. ``"auto"``: standard, or quantile if a few large values dominate the deviation, so that the middle 90 % span
less than three quarters of their width in a normal distribution.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

__all__ = ["Linear", "Scores", "fit_scaling", "normal_scores"]

_KNOTS = 257
_IQR = 1.3489795003921634
"""Interquartile range of a normal distribution, in deviations."""
_MIDDLE = 3.289707253902945
"""From the 5th to the 95th percentile of a normal distribution, in deviations."""
_SQUEEZED = 0.75
_DISTINCT = 12
"""Minimum number of different values for judging the shape of a column."""


@dataclass(frozen=True)
class Linear:
    """(x − centre) / spread; zero if the spread is zero."""

    centre: float = field(repr=False)
    spread: float = field(repr=False)
    kind: str = "standard"

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Scaled numbers (n,) of numbers (n,); NaN stays."""
        scaled: np.ndarray = (values - self.centre) / self.spread if self.spread else values * 0.0
        return scaled


@dataclass(frozen=True)
class Scores:
    """Normal scores of ranks, interpolated between knots and constant beyond the outermost ones."""

    values: np.ndarray = field(repr=False)
    scores: np.ndarray = field(repr=False)
    kind: str = "quantile"

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Scores (n,) of numbers (n,); NaN stays."""
        scores: np.ndarray = np.interp(values, self.values, self.scores)
        return scores


def fit_scaling(values: np.ndarray, how: str) -> Linear | Scores:
    """Fit a scaling on finite numbers, float64 (n,), at least one.

    Args:
        values: numbers of the training rows, or of a random sample of them.
        how: see above.
    """
    if how == "none":
        return Linear(0.0, 1.0, "none")
    mean, deviation = float(values.mean()), float(values.std())
    if values.min() == values.max():
        return Linear(mean, 0.0, "standard" if how == "auto" else how)
    if how == "robust":
        low, middle, high = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
        return Linear(middle, (high - low) / _IQR or deviation, "robust")
    if how == "quantile" or (how == "auto" and _is_squeezed(values, deviation)):
        return Scores(*normal_scores(values))
    return Linear(mean, deviation)


def _is_squeezed(values: np.ndarray, deviation: float) -> bool:
    """Return True if standardising would squeeze the bulk of the values and there are enough values to rank."""
    low, high = np.quantile(values, (0.05, 0.95))
    squeezed = (high - low) < _SQUEEZED * _MIDDLE * deviation
    return bool(squeezed) and len(np.unique(values[:4096])) >= _DISTINCT


def normal_scores(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return at most 257 different values, ascending, and their scores: Φ⁻¹ of the mid-rank, with mean 0 and deviation
    1 over all values.
    """
    from scipy.special import ndtri

    ordered = np.sort(values)
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    distinct = ordered[starts]
    counts = np.diff(np.append(starts, len(ordered)))
    scores = ndtri(np.clip((starts + counts / 2) / len(ordered), 1e-6, 1 - 1e-6))
    mean = float(np.average(scores, weights=counts))
    deviation = float(np.sqrt(np.average((scores - mean) ** 2, weights=counts)))
    scores = (scores - mean) / deviation if deviation > 0 else np.zeros_like(scores)
    if len(distinct) > _KNOTS:
        keep = np.unique(np.linspace(0, len(distinct) - 1, _KNOTS).round().astype(int))
        distinct, scores = distinct[keep], scores[keep]
    return distinct, scores

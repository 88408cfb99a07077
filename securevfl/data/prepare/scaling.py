"""How numbers of a column are scaled for a network, fitted on training rows.

``"standard"``: (x − mean) / deviation. ``"quantile"``: the normal score of the rank among the training rows, as by
`sklearn.preprocessing.QuantileTransformer`, but with middle ranks for ties and by knots that are fitted once.
``"robust"``: (x − median) / (interquartile range / 1.349), which is the deviation of a normal distribution. ``"none"``:
as it is. ``"auto"``: standard where that gives the bulk of the column its due; quantile where few large values take so
much of the deviation that the middle 90 % lie in less than three quarters of the width that a normal distribution has.
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
"""Fewest different values of a column whose shape says something."""


@dataclass(frozen=True)
class Linear:
    """(x − centre) / spread; zero where there is no spread."""

    centre: float = field(repr=False)
    spread: float = field(repr=False)
    kind: str = "standard"

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Scaled numbers (n,) of numbers (n,); NaN stays."""
        scaled: np.ndarray = (values - self.centre) / self.spread if self.spread else values * 0.0
        return scaled


@dataclass(frozen=True)
class Scores:
    """Normal scores of ranks: between knots by interpolation, and beyond the outermost those of the outermost."""

    values: np.ndarray = field(repr=False)
    scores: np.ndarray = field(repr=False)
    kind: str = "quantile"

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Scores (n,) of numbers (n,); NaN stays."""
        scores: np.ndarray = np.interp(values, self.values, self.scores)
        return scores


def fit_scaling(values: np.ndarray, how: str) -> Linear | Scores:
    """Scaling fitted on these numbers, finite float64 (n,), at least one.

    Args:
        values: of the training rows, or of a random part of them.
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
    """Whether standardising leaves the bulk of the values too little room, and there are values enough to rank."""
    low, high = np.quantile(values, (0.05, 0.95))
    squeezed = (high - low) < _SQUEEZED * _MIDDLE * deviation
    return bool(squeezed) and len(np.unique(values[:4096])) >= _DISTINCT


def normal_scores(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most 257 different values, rising, and their scores: Φ⁻¹ of the middle rank, with mean 0 and deviation 1 over
    all values."""
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

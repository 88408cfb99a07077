"""Scores in bins: how they rank, how they are calibrated, how far they moved; curves thinned to be stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.export.drift import one_score, stability_index
from securevfl.report.evaluation import LiftRow, ReliabilityBin, StabilityBin
from securevfl.training.calibration import FEWEST_TO_CHOOSE
from securevfl.training.metrics import RecallCurve, RocCurve, wilson_interval

__all__ = [
    "BINS",
    "lift_rows",
    "measure_stability",
    "population_stability",
    "reliability_bins",
    "thin_curve",
    "thin_recall",
]

BINS = 10
_POINTS = 101


def population_stability(
    expected: np.ndarray, actual: np.ndarray, bins: int = BINS
) -> tuple[float, list[StabilityBin]]:
    """The population stability index of scores, and the shares that it is made from; see `Evaluation`.

    Args:
        expected: scores (n,), whose quantiles are the bounds.
        actual: scores (m,).
        bins: how many; those that fall together, where many scores are the same, are one.
    """
    inner = np.unique(np.quantile(expected, np.linspace(0, 1, bins + 1)[1:-1]))
    places = [np.searchsorted(inner, scores, side="right") for scores in (expected, actual)]
    was, now = (np.bincount(place, minlength=len(inner) + 1) / len(place) for place in places)
    low, high = min(expected.min(), actual.min()), max(expected.max(), actual.max())
    edges = [float(low), *inner.tolist(), float(high)]
    return stability_index(was, now), [
        StabilityBin(low=edges[i], high=edges[i + 1], expected=float(was[i]), actual=float(now[i]))
        for i in range(len(was))
    ]


def measure_stability(actual: np.ndarray, expected: np.ndarray | None) -> dict[str, Any]:
    """The stability of scores, by the names of `Evaluation`; empty with too few scores to compare with."""
    if expected is None or len(expected) < FEWEST_TO_CHOOSE:
        return {}
    value, bins = population_stability(expected, actual)
    return {"psi": value, "stability": bins}


def thin_curve(curve: RocCurve) -> list[tuple[float, float]]:
    """Thin a curve to at most `_POINTS` points, including both ends."""
    at = np.unique(np.linspace(0, len(curve.true_rate) - 1, _POINTS).round().astype(int))
    return [(round(float(curve.false_rate[i]), 5), round(float(curve.true_rate[i]), 5)) for i in at]


def thin_recall(curve: RecallCurve) -> list[tuple[float, float]]:
    """Thin a curve to at most `_POINTS` points, including both ends."""
    at = np.unique(np.linspace(0, len(curve.recall) - 1, _POINTS).round().astype(int))
    return [(round(float(curve.recall[i]), 5), round(float(curve.precision[i]), 5)) for i in at]


def reliability_bins(scores: np.ndarray, labels: np.ndarray) -> list[ReliabilityBin]:
    """Bins between quantiles of the scores, as scikit-learn's calibration_curve(strategy="quantile")."""
    confidence = one_score(scores)
    right = labels == 1 if scores.shape[1] == 2 else scores.argmax(axis=1) == labels
    edges = np.quantile(confidence, np.linspace(0, 1, BINS + 1))
    place = np.searchsorted(edges[1:-1], confidence)
    found = []
    for k in range(BINS):
        there = place == k
        if not there.any():
            continue
        least, most = wilson_interval(int(right[there].sum()), int(there.sum()))
        found.append(
            ReliabilityBin(
                low=float(edges[k]),
                high=float(edges[k + 1]),
                rows=int(there.sum()),
                confidence=float(confidence[there].mean()),
                observed=float(right[there].mean()),
                least=least,
                most=most,
            )
        )
    return found


def lift_rows(hits: np.ndarray, scores: np.ndarray) -> list[LiftRow]:
    """The class's rows among those that score highest, by tenths.

    Rows of the same score share their hits evenly, so that their order in the table changes nothing.
    """
    order = np.argsort(-scores, kind="stable")
    _, group, sizes = np.unique(-scores[order], return_inverse=True, return_counts=True)
    even = (np.bincount(group, weights=hits[order].astype(float)) / sizes)[group]
    total, found = int(hits.sum()), []
    summed = np.cumsum(even)
    for k in range(1, BINS + 1):
        rows = max(round(len(hits) * k / BINS), 1)
        gain = float(summed[rows - 1]) / total
        found.append(
            LiftRow(
                share=rows / len(hits),
                rows=rows,
                hits=round(float(summed[rows - 1])),
                gain=gain,
                lift=gain * len(hits) / rows,
                score=float(scores[order[rows - 1]]),
            )
        )
    return found

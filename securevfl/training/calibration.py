"""Temperature scaling (Guo et al. 2017, arXiv 1706.04599): match a model's confidence to how often it is right.

The active party fits one number T on its validation rows, without any message. The probabilities become
``softmax(logits / T)``; this is ``p^(1/T)`` normalised, so no logits are needed. T changes no row's predicted class.
Scores from all parties' columns and scores from the active party's own have separate temperatures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = [
    "ALONE",
    "FEWEST_TO_CHOOSE",
    "WHOLE",
    "Calibration",
    "apply_temperature",
    "expected_calibration_error",
    "fit_temperatures",
    "temperature_of",
]

FEWEST_TO_CHOOSE = 50
"""Fewest validation rows on which a choice among epochs, or a temperature, beats chance."""

WHOLE, ALONE = "whole", "alone"
"""Which columns scores come from: those of all parties, or of the active party alone."""

_LARGEST = 10.0
"""The largest T, and the largest 1/T, that is tried."""
_STEPS = 60
_GOLDEN = (5**0.5 - 1) / 2
_TINY = 1e-12


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A fitted temperature and its effect on the test rows.

    Attributes:
        temperature: T; above 1 if the model was overconfident.
        rows: number of validation rows that it was fitted on.
        before: expected calibration error on the test rows without it.
        after: with it.
    """

    temperature: float
    rows: int
    before: float
    after: float


def apply_temperature(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """``p^(1/T)``, rows normalised: ``softmax(logits / T)``.

    Args:
        probabilities: (n, classes), rows sum to one.
        temperature: T > 0; 1 changes nothing.
    """
    if temperature == 1.0 or not len(probabilities):
        return probabilities
    logs = np.log(np.maximum(probabilities, _TINY)) / temperature
    wide = np.exp(logs - logs.max(axis=1, keepdims=True))
    scaled: np.ndarray = wide / wide.sum(axis=1, keepdims=True)
    return scaled


def expected_calibration_error(probabilities: np.ndarray, labels: np.ndarray, bins: int = 15) -> float:
    """``Σ_m |B_m|/n · |accuracy(B_m) − confidence(B_m)|`` over bins of equal width of the confidence in the likeliest
    class (equation 3).

    Args:
        probabilities: (n, classes).
        labels: classes (n,).
        bins: M, as in the paper's figures.
    """
    if not len(labels):
        return 0.0
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    place = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(place, weights=right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))


def fit_temperatures(
    valid: np.ndarray, valid_labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray
) -> Calibration | None:
    """The temperature with the least log-loss on the validation rows (section 4.2).

    None with fewer than `FEWEST_TO_CHOOSE` rows, or if the log-loss falls up to the end of the range, which happens
    when all rows are classified correctly.

    Args:
        valid: probabilities of the validation rows, (n, classes).
        valid_labels: their classes.
        test: probabilities of the test rows, on which the error is measured.
        test_labels: their classes.
    """
    if len(valid) < FEWEST_TO_CHOOSE:
        return None
    logs = np.log(np.maximum(valid, _TINY))
    own = logs[np.arange(len(logs)), valid_labels]

    def compute_loss(beta: float) -> float:
        scaled = logs * beta
        most = scaled.max(axis=1)
        return float((most + np.log(np.exp(scaled - most[:, None]).sum(axis=1)) - own * beta).mean())

    low, high = 1 / _LARGEST, _LARGEST  # the loss is convex in 1/T
    for _ in range(_STEPS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, right) if compute_loss(left) <= compute_loss(right) else (left, high)
    beta = (low + high) / 2
    if not 1.01 / _LARGEST < beta < _LARGEST / 1.01:
        return None
    found = 1 / beta
    return Calibration(
        temperature=found,
        rows=len(valid),
        before=expected_calibration_error(test, test_labels),
        after=expected_calibration_error(apply_temperature(test, found), test_labels),
    )


def temperature_of(model: Mapping[str, object], whose: str) -> float:
    """T for scores from these columns, from the active party's part of a model; 1 if none was fitted."""
    temperatures = model.get("temperature")
    found = temperatures.get(whose, 1.0) if isinstance(temperatures, Mapping) else 1.0
    return float(found)

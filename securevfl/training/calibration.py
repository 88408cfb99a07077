"""Calibration of probabilities: match a model's confidence to how often it is right.

The active party fits it on its validation rows, without any message: a temperature T (Guo et al. 2017, arXiv
1706.04599), and with it an intercept b for each class (Alexandari et al. 2020, arXiv 1901.06852). The probabilities
become ``softmax(logits / T + b)``, which is ``p^(1/T) · exp(b)`` normalised, so no logits are needed. Both are used
only where cross-validation over these rows says that they help. What is fitted is applied before anything is measured:
the report's figures are of the probabilities that `predict` and `serve` give.

Scores from all parties' columns and scores from the active party's own are calibrated separately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np

__all__ = [
    "ALONE",
    "FEWEST_TO_CHOOSE",
    "WHOLE",
    "Calibration",
    "Correction",
    "calibrate",
    "correction_of",
    "expected_calibration_error",
    "fit_correction",
]

FEWEST_TO_CHOOSE = 50
"""Fewest validation rows on which a choice among epochs, or a temperature, beats chance."""

WHOLE, ALONE = "whole", "alone"
"""Which columns scores come from: those of all parties, or of the active party alone."""

_LARGEST = 10.0
"""The largest T, and the largest 1/T, that is tried."""
_FOLDS = 5
_SEARCHES = 60
_NEWTON = 50
_GOLDEN = (5**0.5 - 1) / 2
_TINY = 1e-12


@dataclass(frozen=True)
class Correction:
    """What is done to probabilities.

    Attributes:
        temperature: T > 0; above 1 if the model was overconfident.
        intercept: b, one number for each class with mean zero; empty for none.
    """

    temperature: float = 1.0
    intercept: tuple[float, ...] = ()

    def apply(self, probabilities: np.ndarray) -> np.ndarray:
        """``softmax(logits / T + b)`` of probabilities (n, classes) whose rows sum to one."""
        if (self.temperature == 1.0 and not self.intercept) or not len(probabilities):
            return probabilities
        return _softmax(np.log(np.maximum(probabilities, _TINY)) / self.temperature + (self.intercept or 0.0))

    def undo_odds(self, odds: np.ndarray) -> np.ndarray:
        """Log-odds of the second of two classes before `apply`, of those after it."""
        shift = self.intercept[1] - self.intercept[0] if self.intercept else 0.0
        found: np.ndarray = (odds - shift) * self.temperature
        return found


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A fitted correction and its effect.

    Attributes:
        correction: what is done to each row's probabilities.
        rows: number of validation rows that it was fitted on.
        gain: how much it lowered the log-loss of validation rows that it was not fitted on, by cross-validation.
        before: expected calibration error on the test rows without it.
        after: with it.
    """

    correction: Correction
    rows: int
    gain: float
    before: float
    after: float

    def describe(self) -> dict[str, int | float | list[float]]:
        """Its figures by name, as a report stores them."""
        found = asdict(self)
        correction = found.pop("correction")
        return {"temperature": correction["temperature"], "intercept": list(correction["intercept"]), **found}


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


def calibrate(
    valid: np.ndarray,
    valid_labels: np.ndarray,
    test: np.ndarray,
    test_labels: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    intercept: bool = True,
) -> Calibration | None:
    """The correction that the validation rows ask for: `fit_correction`, and what it does to the test rows.

    Args:
        valid: probabilities of the validation rows, (n, classes).
        valid_labels: their classes.
        test: probabilities of the test rows, on which the error is measured.
        test_labels: their classes.
        weight: how much the validation rows count, (n,); equal unless given.
        intercept: whether an intercept may be fitted.
    """
    found = fit_correction(valid, valid_labels, weight=weight, intercept=intercept)
    if found is None:
        return None
    correction, gain = found
    return Calibration(
        correction=correction,
        rows=len(valid),
        gain=gain,
        before=expected_calibration_error(test, test_labels),
        after=expected_calibration_error(correction.apply(test), test_labels),
    )


def fit_correction(
    valid: np.ndarray, labels: np.ndarray, *, weight: np.ndarray | None = None, intercept: bool = True
) -> tuple[Correction, float] | None:
    """The correction with the least log-loss on rows that it was not fitted on, and how much lower that is.

    Each kind is fitted on four fifths of the rows and judged on the last fifth, five times. The best kind is then
    fitted on all rows. None with fewer than `FEWEST_TO_CHOOSE` rows, if no kind gains more than one standard error of
    its gain, or if the log-loss falls up to the end of the range, which happens when all rows are classified correctly.

    Args:
        valid: probabilities of the rows, (n, classes).
        labels: their classes.
        weight: how much the rows count, (n,); equal unless given.
        intercept: whether an intercept may be fitted, too.
    """
    if len(valid) < FEWEST_TO_CHOOSE:
        return None
    each = np.ones(len(valid)) if weight is None else weight / weight.mean()
    logs = np.log(np.maximum(valid, _TINY))
    kinds: list[_Fit] = [_fit_temperature, *([_fit_both] if intercept else [])]
    before = _row_losses(valid, labels)
    best: tuple[Correction, float] | None = None
    for kind in kinds:
        whole = kind(logs, labels, each)
        if not 1.01 / _LARGEST < whole.temperature < _LARGEST / 1.01:
            continue
        after = np.empty(len(valid))
        for fold in range(_FOLDS):
            rest = np.arange(len(valid)) % _FOLDS != fold
            after[~rest] = _row_losses(kind(logs[rest], labels[rest], each[rest]).apply(valid[~rest]), labels[~rest])
        gained = each * (before - after)
        gain, deviation = float(gained.mean()), float(gained.std() / len(gained) ** 0.5)
        if gain > deviation and (best is None or gain > best[1]):
            best = whole, gain
    return best


def correction_of(model: Mapping[str, object], whose: str) -> Correction:
    """The correction of scores from these columns, from the active party's part of a model; one that changes nothing
    if none was fitted."""
    fitted = model.get("calibration", model.get("temperature"))  # older models have a temperature alone
    one = fitted.get(whose, 1.0) if isinstance(fitted, Mapping) else 1.0
    if not isinstance(one, Mapping):
        return Correction(float(one))
    return Correction(float(one["temperature"]), tuple(float(value) for value in one["intercept"]))


_Fit = Callable[[np.ndarray, np.ndarray, np.ndarray], Correction]
"""Of log-probabilities (n, classes), classes (n,) and weights (n,)."""


def _fit_temperature(logs: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> Correction:
    """The temperature with the least log-loss (Guo et al., section 4.2); the loss is convex in 1/T."""
    own = logs[np.arange(len(logs)), labels]

    def compute_loss(beta: float) -> float:
        scaled = logs * beta
        most = scaled.max(axis=1)
        losses = most + np.log(np.exp(scaled - most[:, None]).sum(axis=1)) - own * beta
        return float(np.dot(weight, losses))

    low, high = 1 / _LARGEST, _LARGEST
    for _ in range(_SEARCHES):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, right) if compute_loss(left) <= compute_loss(right) else (left, high)
    return Correction(2 / (low + high))


def _fit_both(logs: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> Correction:
    """Temperature and intercepts with the least log-loss, by Newton's method; a loss of ``b²/2`` for each intercept
    keeps that of a class without rows finite."""
    rows, classes = logs.shape
    wanted = np.zeros((rows, classes))
    wanted[np.arange(rows), labels] = 1
    found = np.array([1.0, *np.zeros(classes)])  # 1/T, b

    def compute_loss(values: np.ndarray) -> float:
        losses = _row_losses(_softmax(logs * values[0] + values[1:]), labels)
        return float(np.dot(weight, losses) + (values[1:] ** 2).sum() / 2)

    loss = compute_loss(found)
    for _ in range(_NEWTON):
        p = _softmax(logs * found[0] + found[1:])
        wrong = weight[:, None] * (p - wanted)
        slope = np.array([(wrong * logs).sum(), *(wrong.sum(axis=0) + found[1:])])
        centred = p * (logs - (p * logs).sum(axis=1, keepdims=True))
        curve = np.empty((classes + 1, classes + 1))
        curve[0, 0] = np.dot(weight, (centred * logs).sum(axis=1)) + _TINY
        curve[0, 1:] = curve[1:, 0] = weight @ centred
        curve[1:, 1:] = np.diag(weight @ p + 1) - (p * weight[:, None]).T @ p
        step = np.linalg.solve(curve, slope)
        size = 1.0
        while size > _TINY and not (better := compute_loss(found - size * step)) <= loss:
            size /= 2
        if size <= _TINY or loss - better < 1e-10 * rows:
            break
        found, loss = found - size * step, better
    beta = float(np.clip(found[0], 1 / _LARGEST, _LARGEST))
    return Correction(1 / beta, tuple((found[1:] - found[1:].mean()).tolist()))


def _row_losses(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The log-loss of each row, (n,)."""
    losses: np.ndarray = -np.log(np.maximum(probabilities[np.arange(len(labels)), labels], _TINY))
    return losses


def _softmax(logits: np.ndarray) -> np.ndarray:
    wide = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: np.ndarray = wide / wide.sum(axis=1, keepdims=True)
    return found

"""Metrics of predictions, in numpy, with scikit-learn's values.

Each is a few lines here, while importing scikit-learn takes 2 CPU-seconds, more than many jobs train. The tests compare
all of them with scikit-learn's functions of the same names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

__all__ = [
    "SURE",
    "PrecisionRecall",
    "RecallCurve",
    "RocCurve",
    "count_confusion",
    "measure_labels",
    "measure_r2",
    "recall_curve",
    "roc_curve",
    "wilson_interval",
]

SURE = 1.959963984540054
"""Standard deviations of a normal distribution that hold 95 % of it."""


@dataclass(frozen=True)
class RocCurve:
    """A receiver operating characteristic, from (0, 0) to (1, 1).

    Attributes:
        false_rate: share of the other rows at or above a threshold, ascending, (k,).
        true_rate: share of the positive rows there, (k,).
        cutoffs: these thresholds, falling, (k,); the first is above all scores.
    """

    false_rate: np.ndarray = field(repr=False)
    true_rate: np.ndarray = field(repr=False)
    cutoffs: np.ndarray = field(repr=False)

    @property
    def auc(self) -> float:
        """The area under the curve, by the trapezoidal rule."""
        return float(np.trapezoid(self.true_rate, self.false_rate))

    @property
    def ks(self) -> float:
        """The largest distance of the two rates: the Kolmogorov–Smirnov statistic."""
        return float((self.true_rate - self.false_rate).max())

    @property
    def ks_cutoff(self) -> float:
        """The score at or above which the rates differ most."""
        return float(self.cutoffs[(self.true_rate - self.false_rate).argmax()])


def _rank_rows(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows from the highest score to the lowest, and the places in that order after which the score changes."""
    order = np.argsort(-scores, kind="stable")
    last_of_ties = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    return order, last_of_ties


def roc_curve(hits: np.ndarray, scores: np.ndarray, weight: np.ndarray | None = None) -> RocCurve | None:
    """Compute the curve of one class against the rest; None if the rows with a weight are all of it, or none is.

    Points on a straight line between two others are left out, as in scikit-learn; this changes no area.

    Args:
        hits: whether the row is of the class, bool (n,).
        scores: finite, (n,).
        weight: of the rows, (n,); equal unless given.
    """
    if weight is not None:
        counted = weight != 0
        hits, scores, weight = hits[counted], scores[counted], weight[counted]
    if hits.all() or not hits.any():
        return None
    order, last_of_ties = _rank_rows(scores)
    right = hits[order].astype(np.float64)
    if weight is None:
        true = np.cumsum(right)[last_of_ties]
        false = 1 + last_of_ties.astype(np.float64) - true
    else:
        true = np.cumsum(right * weight[order])[last_of_ties]
        false = np.cumsum((1 - right) * weight[order])[last_of_ties]
    cutoffs = scores[order][last_of_ties].astype(np.float64)
    if len(false) > 2:
        corner = np.concatenate([[True], (np.diff(false, 2) != 0) | (np.diff(true, 2) != 0), [True]])
        true, false, cutoffs = true[corner], false[corner], cutoffs[corner]
    true, false = np.concatenate([[0.0], true]), np.concatenate([[0.0], false])
    return RocCurve(false / false[-1], true / true[-1], np.concatenate([[np.inf], cutoffs]))


@dataclass(frozen=True)
class RecallCurve:
    """Precision over recall, as the threshold falls.

    Attributes:
        recall: share of the class's rows at or above a threshold, ascending, (k,).
        precision: share of the rows there that are of the class, (k,).
    """

    recall: np.ndarray = field(repr=False)
    precision: np.ndarray = field(repr=False)

    @property
    def average_precision(self) -> float:
        """Precision averaged over the steps of recall: the area under the curve (PR-AUC), without interpolation."""
        return float((np.diff(self.recall, prepend=0.0) * self.precision).sum())


def recall_curve(hits: np.ndarray, scores: np.ndarray, weight: np.ndarray | None = None) -> RecallCurve | None:
    """Compute precision and recall of one class against the rest; None if no row with a weight is of it.

    Args:
        hits: whether the row is of the class, bool (n,).
        scores: finite, (n,).
        weight: of the rows, (n,); equal unless given.
    """
    each = np.ones(len(scores)) if weight is None else np.asarray(weight, np.float64)
    order, last_of_ties = _rank_rows(scores)
    found = np.cumsum((hits * each)[order])[last_of_ties]
    flagged = np.cumsum(each[order])[last_of_ties]
    if not len(scores) or not found[-1] > 0:
        return None
    counted = flagged > 0
    return RecallCurve(found[counted] / found[-1], found[counted] / flagged[counted])


def wilson_interval(count: float, rows: int) -> tuple[float, float]:
    """The 95 % interval of a share by Wilson's score (1927, J. Am. Stat. Assoc. 22); (0, 1) without rows.

    Args:
        count: rows that have it.
        rows: all rows.
    """
    if not rows:
        return 0.0, 1.0
    share, square = count / rows, SURE**2
    middle = (share + square / (2 * rows)) / (1 + square / rows)
    half = SURE * np.sqrt(share * (1 - share) / rows + square / (4 * rows**2)) / (1 + square / rows)
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))


def count_confusion(labels: np.ndarray, given: np.ndarray, count: int) -> np.ndarray:
    """Count rows by class and predicted class, int64 (count, count), each row of the matrix a class."""
    return np.asarray(np.bincount(labels * count + given, minlength=count * count).reshape(count, count))


@dataclass(frozen=True)
class PrecisionRecall:
    """Precision, recall and F1, where 0/0 counts as 0.

    Attributes:
        both: rows that have the label and were given it, by label, (k,); rows count by their weights.
        given: rows that were given it, (k,).
        true: rows that have it, (k,).
    """

    both: np.ndarray = field(repr=False)
    given: np.ndarray = field(repr=False)
    true: np.ndarray = field(repr=False)

    @classmethod
    def from_classes(
        cls, labels: np.ndarray, given: np.ndarray, count: int, weight: np.ndarray | None = None
    ) -> PrecisionRecall:
        """Count classes of rows, int (n,) each, from 0 to `count` - 1."""

        def add(chosen: np.ndarray, classes: np.ndarray) -> np.ndarray:
            return np.bincount(classes[chosen], None if weight is None else weight[chosen], minlength=count)

        every = np.ones(len(labels), dtype=bool)
        return cls(add(labels == given, labels), add(every, given), add(every, labels))

    @classmethod
    def from_labels(cls, labels: np.ndarray, given: np.ndarray, weight: np.ndarray | None = None) -> PrecisionRecall:
        """Count labels of rows, zeros and ones, (n, k) each."""
        counted = np.ones(len(labels)) if weight is None else weight

        def add(chosen: np.ndarray) -> np.ndarray:
            return np.asarray(np.where(chosen != 0, counted[:, None], 0.0).sum(axis=0))

        return cls(add(labels * given), add(given), add(labels))

    def pool_labels(self) -> PrecisionRecall:
        """Add all labels up, for micro-averages, (1,)."""
        return PrecisionRecall(*(np.array([part.sum()]) for part in (self.both, self.given, self.true)))

    @property
    def precision(self) -> np.ndarray:
        """Share of the rows given the label that have it, (k,)."""
        return _divide_counts(self.both, self.given)

    @property
    def recall(self) -> np.ndarray:
        """Share of the rows with the label that were given it, (k,)."""
        return _divide_counts(self.both, self.true)

    @property
    def f1(self) -> np.ndarray:
        """The harmonic mean of both, (k,)."""
        return _divide_counts(2.0 * self.both, np.asarray(self.true + self.given, dtype=np.float64))


def _divide_counts(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.asarray(above / np.where(below == 0, 1, below))


def measure_labels(labels: np.ndarray, given: np.ndarray, weight: np.ndarray | None = None) -> dict[str, float]:
    """Compute precision, recall and F1 of labels (n, k), averaged over labels (macro) and over all pairs (micro)."""
    counts = PrecisionRecall.from_labels(labels, given, weight)
    return {
        f"{average}_{name}": float(getattr(part, name).mean())
        for average, part in (("macro", counts), ("micro", counts.pool_labels()))
        for name in ("precision", "recall", "f1")
    }


def measure_r2(y: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Compute the coefficient of determination of a target that varies, (n,)."""
    counted = 1.0 if weight is None else weight
    rest = (counted * (y - predicted) ** 2).sum()
    return float(1 - rest / (counted * (y - np.average(y, weights=weight)) ** 2).sum())

"""Compute an `Evaluation` from the active party's scores and labels of its test rows.

This sends nothing: the active party already has the scores and the labels. Figures that scikit-learn offers have its
values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.export.drift import one_score, stability_index
from securevfl.report.evaluation import (
    ClassFigures,
    Evaluation,
    LiftRow,
    ReliabilityBin,
    ResidualBin,
    StabilityBin,
)
from securevfl.training import Trained
from securevfl.training.calibration import FEWEST_TO_CHOOSE, expected_calibration_error
from securevfl.training.metrics import (
    PrecisionRecall,
    RocCurve,
    count_confusion,
    measure_labels,
    measure_r2,
    roc_curve,
)
from securevfl.training.multilabel import HALF, Labels

__all__ = ["evaluate", "evaluate_classes", "evaluate_labels", "evaluate_numbers", "population_stability"]

_BINS = 10
_POINTS = 101


def evaluate(trained: Trained) -> Evaluation | None:
    """Evaluate what a party trained; None at a party without labels or without scores of its test rows."""
    scores, labels = trained.scores, trained.labels
    if not len(scores) or len(scores) != len(labels):
        return None
    if not trained.classes:
        found = evaluate_numbers(
            scores[:, 0],
            labels,
            expected=trained.valid_scores.ravel(),
            weight=trained.weight,
            target=trained.target,
            more=trained.test,
        )
        return found
    evaluate = evaluate_labels if labels.ndim == 2 else evaluate_classes
    return evaluate(
        scores,
        labels,
        trained.classes,
        expected=trained.valid_scores,
        weight=trained.weight,
        target=trained.target,
    )


def evaluate_classes(
    scores: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    *,
    expected: np.ndarray | None = None,
    weight: np.ndarray | None = None,
    target: str = "",
) -> Evaluation:
    """Evaluate a classification.

    Args:
        scores: probabilities (n, classes), rows sum to one.
        labels: classes of the rows, (n,).
        classes: their names.
        expected: probabilities of the validation rows; the stability index compares the test rows' with them.
        weight: of the rows in the metrics, (n,); equal unless given.
        target: the label's column.
    """
    count = len(classes)
    given = scores.argmax(axis=1)
    which = range(count)
    counts = PrecisionRecall.from_classes(labels, given, count, weight)
    precision, recall, f1 = counts.precision, counts.recall, counts.f1
    curves = {k: roc_curve(labels == k, scores[:, k], weight) for k in which}
    aucs = {k: None if curve is None else curve.auc for k, curve in curves.items()}
    rows = np.bincount(labels, minlength=count)
    shown = which[-1:] if count == 2 else which
    return Evaluation(
        task="classification",
        target=target,
        rows=len(labels),
        weighted=weight is not None,
        classes=list(classes),
        metrics=_average_metrics(scores, labels, recall, precision, f1, aucs, curves, weight),
        per_class=[
            ClassFigures(
                name=classes[k],
                rows=int(rows[k]),
                precision=float(precision[k]),
                recall=float(recall[k]),
                f1=float(f1[k]),
                auc=aucs[k],
            )
            for k in which
        ],
        confusion=count_confusion(labels, given, count).tolist(),
        reliability=_reliability_bins(scores, labels),
        lift={classes[k]: _lift_rows(labels == k, scores[:, k]) for k in shown if rows[k]},
        roc={classes[k]: _thin_curve(curve) for k in shown if (curve := curves[k]) is not None},
        **_measure_stability(one_score(scores), None if expected is None else one_score(expected)),
    )


def evaluate_labels(
    scores: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    *,
    expected: np.ndarray | None = None,
    weight: np.ndarray | None = None,
    target: str = "",
) -> Evaluation:
    """Evaluate a task in which a row can have several labels.

    Args:
        scores: probabilities (n, labels), one for each label independently.
        labels: zeros and ones, (n, labels).
        classes: names of the labels.
        expected: probabilities of the validation rows; the stability index compares each row's largest one with the
            test rows'.
        weight: of the rows in the metrics, (n,); equal unless given.
        target: the labels in a few words.
    """
    given = (scores >= HALF).astype(np.int64)
    which = range(len(classes))
    counts = PrecisionRecall.from_labels(labels, given, weight)
    precision, recall, f1 = counts.precision, counts.recall, counts.f1
    curves = {k: roc_curve(labels[:, k] == 1, scores[:, k], weight) for k in which}
    aucs = {k: None if curve is None else curve.auc for k, curve in curves.items()}
    metrics = Labels(len(classes)).compute_metrics(scores, labels, weight)
    metrics["hamming_loss"] = 1 - metrics["accuracy"]
    metrics["subset_accuracy"] = float(np.average((labels == given).all(axis=1), weights=weight))
    metrics |= measure_labels(labels, given, weight)
    metrics["brier"] = float(np.average(((scores - labels) ** 2).mean(axis=1), weights=weight))
    every = None if weight is None else np.repeat(weight, len(classes))
    micro = roc_curve(labels.ravel() == 1, scores.ravel(), every)
    if micro is not None:
        metrics["micro_auc"] = micro.auc
    return Evaluation(
        task="multilabel",
        target=target,
        rows=len(labels),
        weighted=weight is not None,
        classes=list(classes),
        metrics=metrics,
        per_class=[
            ClassFigures(
                name=classes[k],
                rows=int(labels[:, k].sum()),
                precision=float(precision[k]),
                recall=float(recall[k]),
                f1=float(f1[k]),
                auc=aucs[k],
            )
            for k in which
        ],
        lift={classes[k]: _lift_rows(labels[:, k] == 1, scores[:, k]) for k in which if labels[:, k].any()},
        roc={classes[k]: _thin_curve(curve) for k in which if (curve := curves[k]) is not None},
        **_measure_stability(
            scores.max(axis=1), None if expected is None or not expected.size else expected.max(axis=1)
        ),
    )


def evaluate_numbers(
    predicted: np.ndarray,
    y: np.ndarray,
    *,
    expected: np.ndarray | None = None,
    weight: np.ndarray | None = None,
    target: str = "",
    more: Mapping[str, float] | None = None,
) -> Evaluation:
    """Evaluate a regression.

    Args:
        predicted: (n,), in the target's units.
        y: the target, (n,).
        expected: predictions of the validation rows.
        weight: of the rows, (n,); equal unless given.
        target: its column.
        more: metrics of the run's own, such as the deviance of its loss.
    """
    found = {
        "rmse": float(np.sqrt(np.average((y - predicted) ** 2, weights=weight))),
        "mae": float(np.average(np.abs(y - predicted), weights=weight)),
        "bias": float(np.average(predicted - y, weights=weight)),
    }
    if y.min() < y.max():
        found["r2"] = measure_r2(y, predicted, weight)
    order = np.argsort(predicted, kind="stable")
    residuals = [
        ResidualBin(
            low=float(predicted[part].min()),
            high=float(predicted[part].max()),
            rows=len(part),
            predicted=float(predicted[part].mean()),
            observed=float(y[part].mean()),
            error=float(np.sqrt(np.mean((predicted[part] - y[part]) ** 2))),
        )
        for part in np.array_split(order, _BINS)
        if len(part)
    ]
    return Evaluation(
        task="regression",
        target=target,
        rows=len(y),
        weighted=weight is not None,
        metrics=dict(more or {}) | found,
        residuals=residuals,
        **_measure_stability(predicted, expected),
    )


def population_stability(
    expected: np.ndarray, actual: np.ndarray, bins: int = _BINS
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


def _measure_stability(actual: np.ndarray, expected: np.ndarray | None) -> dict[str, Any]:
    if expected is None or len(expected) < FEWEST_TO_CHOOSE:
        return {}
    value, bins = population_stability(expected, actual)
    return {"psi": value, "stability": bins}


def _average_metrics(
    scores: np.ndarray,
    labels: np.ndarray,
    recall: np.ndarray,
    precision: np.ndarray,
    f1: np.ndarray,
    aucs: Mapping[int, float | None],
    curves: Mapping[int, RocCurve | None],
    weight: np.ndarray | None,
) -> dict[str, float]:
    count = scores.shape[1]
    edge = np.finfo(scores.dtype).eps
    right = np.clip(scores[np.arange(len(labels)), labels], edge, 1 - edge)
    present = np.unique(labels)
    squares = ((scores - np.eye(count)[labels]) ** 2).sum(axis=1)
    found = {
        "accuracy": float(np.average(scores.argmax(axis=1) == labels, weights=weight)),
        "balanced_accuracy": float(recall[present].mean()),
        "macro_precision": float(precision.mean()),
        "macro_recall": float(recall.mean()),
        "macro_f1": float(f1.mean()),
        "log_loss": float(np.average(-np.log(right), weights=weight)),
        "brier": float(np.average(squares, weights=weight)) / (2 if count == 2 else 1),
        "ece": expected_calibration_error(scores, labels),
    }
    known = [auc for auc in aucs.values() if auc is not None]
    if len(known) == count:
        found["auc"] = known[-1] if count == 2 else float(np.mean(known))
        found["gini"] = 2 * found["auc"] - 1
    last = curves[count - 1]
    if count == 2 and last is not None:
        found["ks"] = last.ks
    return found


def _thin_curve(curve: RocCurve) -> list[tuple[float, float]]:
    """Thin a curve to at most `_POINTS` points, including both ends."""
    at = np.unique(np.linspace(0, len(curve.true_rate) - 1, _POINTS).round().astype(int))
    return [(round(float(curve.false_rate[i]), 5), round(float(curve.true_rate[i]), 5)) for i in at]


def _reliability_bins(scores: np.ndarray, labels: np.ndarray) -> list[ReliabilityBin]:
    confidence = one_score(scores)
    right = labels == 1 if scores.shape[1] == 2 else scores.argmax(axis=1) == labels
    place = np.searchsorted(np.linspace(0, 1, _BINS + 1)[1:-1], confidence)  # as scikit-learn's calibration_curve
    return [
        ReliabilityBin(
            low=k / _BINS,
            high=(k + 1) / _BINS,
            rows=int(there.sum()),
            confidence=float(confidence[there].mean()),
            observed=float(right[there].mean()),
        )
        for k in range(_BINS)
        if (there := place == k).any()
    ]


def _lift_rows(hits: np.ndarray, scores: np.ndarray) -> list[LiftRow]:
    """Rows of the same score share their hits evenly, so that their order in the table changes nothing."""
    order = np.argsort(-scores, kind="stable")
    _, group, sizes = np.unique(-scores[order], return_inverse=True, return_counts=True)
    even = (np.bincount(group, weights=hits[order].astype(float)) / sizes)[group]
    total, found = int(hits.sum()), []
    summed = np.cumsum(even)
    for k in range(1, _BINS + 1):
        rows = max(round(len(hits) * k / _BINS), 1)
        gain = float(summed[rows - 1]) / total
        found.append(
            LiftRow(
                share=rows / len(hits),
                rows=rows,
                hits=round(float(summed[rows - 1])),
                gain=gain,
                lift=gain * len(hits) / rows,
            )
        )
    return found

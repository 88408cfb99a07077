"""Compute an `Evaluation` from the active party's scores and labels of its test rows.

This sends nothing: the active party already has the scores and the labels. Figures that scikit-learn offers have its
values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from securevfl.export.drift import one_score
from securevfl.party.report_options import Costs, ReportOptions
from securevfl.report.evaluation import ClassFigures, ErrorQuantile, Evaluation, ResidualBin
from securevfl.run.decisions import cutoff_rows, make_decision
from securevfl.run.grouping import Grouping, measure_groups
from securevfl.run.score_bins import (
    BINS,
    lift_rows,
    measure_stability,
    reliability_bins,
    thin_curve,
    thin_recall,
)
from securevfl.training import Trained
from securevfl.training.calibration import FEWEST_TO_CHOOSE, expected_calibration_error
from securevfl.training.metrics import (
    PrecisionRecall,
    RocCurve,
    count_confusion,
    measure_labels,
    measure_r2,
    recall_curve,
    roc_curve,
)
from securevfl.training.multilabel import HALF, Labels

__all__ = ["evaluate", "evaluate_classes", "evaluate_labels", "evaluate_numbers"]

_QUANTILES = (0.5, 0.8, 0.9, 0.95, 0.99)


def evaluate(
    trained: Trained, options: ReportOptions | None = None, grouping: Grouping | None = None
) -> Evaluation | None:
    """Evaluate what a party trained; None at a party without labels or without scores of its test rows.

    Args:
        trained: what its program returned.
        options: costs of wrong decisions, if any.
        grouping: the group of each test row, if any.
    """
    scores, labels = trained.scores, trained.labels
    if not len(scores) or len(scores) != len(labels):
        return None
    options = options or ReportOptions()
    if not trained.classes:
        found = evaluate_numbers(
            scores[:, 0],
            labels,
            expected=trained.valid_scores.ravel(),
            weight=trained.weight,
            target=trained.target,
            more=trained.test,
            grouping=grouping,
        )
    elif labels.ndim == 2:
        found = evaluate_labels(
            scores,
            labels,
            trained.classes,
            expected=trained.valid_scores,
            weight=trained.weight,
            target=trained.target,
            grouping=grouping,
        )
    else:
        found = evaluate_classes(
            scores,
            labels,
            trained.classes,
            expected=trained.valid_scores,
            expected_labels=trained.valid_labels,
            weight=trained.weight,
            target=trained.target,
            costs=options.costs,
            grouping=grouping,
            only_classes=bool(trained.test) and "log_loss" not in trained.test,
        )
    return msgspec.structs.replace(found, missing=_list_missing(trained, found, options))


def _list_missing(trained: Trained, found: Evaluation, options: ReportOptions) -> list[str]:
    """Sentences on figures that this run has not, and why."""
    said = []
    if trained.test and "log_loss" not in trained.test and found.task == "classification":
        said.append(
            "Of each test row only its likeliest class was opened, no probability: so there are no curves, no "
            "calibration and no cut-offs."
        )
    elif len(trained.split.valid) >= FEWEST_TO_CHOOSE and not len(trained.valid_scores):
        said.append(
            "No scores of the validation rows were opened, so these figures are of test rows alone: scores are not "
            "calibrated, and their stability is unknown."
        )
    if options.costs is not None and not found.binary:
        kind = "a number" if found.task == "regression" else f"{len(found.classes)} {_KINDS[found.task]}"
        said.append(
            f"The costs of the report are for a target of two classes, and this one is {kind}: they are unused."
        )
    return said


_KINDS = {"classification": "classes", "multilabel": "labels"}


def evaluate_classes(
    scores: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    *,
    expected: np.ndarray | None = None,
    expected_labels: np.ndarray | None = None,
    weight: np.ndarray | None = None,
    target: str = "",
    costs: Costs | None = None,
    cutoff: float | None = None,
    grouping: Grouping | None = None,
    only_classes: bool = False,
) -> Evaluation:
    """Evaluate a classification.

    Args:
        scores: probabilities (n, classes), rows sum to one.
        labels: classes of the rows, (n,).
        classes: their names.
        expected: probabilities of the validation rows; the stability index compares the test rows' with them.
        expected_labels: the classes of these, (m,); the cheapest cut-off is chosen on them.
        weight: of the rows in the metrics, (n,); equal unless given. Cut-offs and groups count rows.
        target: the label's column.
        costs: of wrong decisions about two classes.
        cutoff: with costs, one that was chosen before, to use in the place of the cheapest one.
        grouping: the group of each row.
        only_classes: whether `scores` give each row one class for certain, because nothing else is known.
    """
    count = len(classes)
    given = scores.argmax(axis=1)
    which = range(count)
    counts = PrecisionRecall.from_classes(labels, given, count, weight)
    precision, recall, f1 = counts.precision, counts.recall, counts.f1
    curves = {k: None if only_classes else roc_curve(labels == k, scores[:, k], weight) for k in which}
    recalls = {k: None if only_classes else recall_curve(labels == k, scores[:, k], weight) for k in which}
    aucs = {k: None if curve is None else curve.auc for k, curve in curves.items()}
    rows = np.bincount(labels, minlength=count)
    shown = which[:0] if only_classes else which[-1:] if count == 2 else which
    metrics = _average_metrics(scores, labels, recall, precision, f1, aucs, curves, weight)
    if only_classes:
        metrics = {name: value for name, value in metrics.items() if name not in _OF_PROBABILITIES}
    elif len(known := [curve.average_precision for curve in recalls.values() if curve is not None]) == count:
        metrics["average_precision"] = known[-1] if count == 2 else float(np.mean(known))
    decided = {} if only_classes or count != 2 else _decide(scores, labels, expected, expected_labels, costs, cutoff)
    at = 0.5 if (decision := decided.get("decision")) is None else decision.cutoff
    last = curves[count - 1]
    return Evaluation(
        task="classification",
        target=target,
        rows=len(labels),
        weighted=weight is not None,
        classes=list(classes),
        metrics=metrics,
        per_class=[
            ClassFigures(
                name=classes[k],
                rows=int(rows[k]),
                precision=float(precision[k]),
                recall=float(recall[k]),
                f1=float(f1[k]),
                auc=aucs[k],
                average_precision=None if (one := recalls[k]) is None else one.average_precision,
            )
            for k in which
        ],
        confusion=count_confusion(labels, given, count).tolist(),
        reliability=[] if only_classes else reliability_bins(scores, labels),
        lift={classes[k]: lift_rows(labels == k, scores[:, k]) for k in shown if rows[k]},
        roc={classes[k]: thin_curve(curve) for k in shown if (curve := curves[k]) is not None},
        recall={classes[k]: thin_recall(one) for k in shown if (one := recalls[k]) is not None},
        ks_cutoff=last.ks_cutoff if count == 2 and last is not None else None,
        groups=None
        if grouping is None
        else measure_groups(
            grouping,
            scores,
            labels,
            cutoff=at,
            classes=count,
            weight=weight,
            only_classes=only_classes,
            titles=classes if count > 2 else (),
        ),
        **decided,
        **({} if only_classes else measure_stability(one_score(scores), _first_scores(expected))),
    )


_OF_PROBABILITIES = ("auc", "gini", "ks", "log_loss", "brier", "ece")


def _first_scores(expected: np.ndarray | None) -> np.ndarray | None:
    return None if expected is None else one_score(expected)


def _decide(
    scores: np.ndarray,
    labels: np.ndarray,
    expected: np.ndarray | None,
    expected_labels: np.ndarray | None,
    costs: Costs | None,
    cutoff: float | None,
) -> dict[str, Any]:
    """Cut-offs of two classes, and the cheapest; see `evaluate_classes`."""
    hits, score = labels == 1, scores[:, 1].astype(np.float64)
    decision, more = None, list[float]()
    if costs is not None:
        before = None
        if expected is not None and expected_labels is not None and 0 < len(expected) == len(expected_labels):
            before = (expected_labels == 1, expected[:, 1].astype(np.float64))
        decision = make_decision(hits, score, costs, before, cutoff)
        more = [decision.cutoff]
    return {"cutoffs": cutoff_rows(hits, score, costs, more), "decision": decision}


def evaluate_labels(
    scores: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    *,
    expected: np.ndarray | None = None,
    weight: np.ndarray | None = None,
    target: str = "",
    grouping: Grouping | None = None,
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
        grouping: the group of each row, if any.
    """
    given = (scores >= HALF).astype(np.int64)
    which = range(len(classes))
    counts = PrecisionRecall.from_labels(labels, given, weight)
    precision, recall, f1 = counts.precision, counts.recall, counts.f1
    curves = {k: roc_curve(labels[:, k] == 1, scores[:, k], weight) for k in which}
    recalls = {k: recall_curve(labels[:, k] == 1, scores[:, k], weight) for k in which}
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
                average_precision=None if (one := recalls[k]) is None else one.average_precision,
            )
            for k in which
        ],
        recall={classes[k]: thin_recall(one) for k in which if (one := recalls[k]) is not None},
        lift={classes[k]: lift_rows(labels[:, k] == 1, scores[:, k]) for k in which if labels[:, k].any()},
        roc={classes[k]: thin_curve(curve) for k in which if (curve := curves[k]) is not None},
        groups=None
        if grouping is None
        else measure_groups(grouping, scores, labels, classes=len(classes), weight=weight, titles=classes),
        **measure_stability(
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
    grouping: Grouping | None = None,
) -> Evaluation:
    """Evaluate a regression.

    Args:
        predicted: (n,), in the target's units.
        y: the target, (n,).
        expected: predictions of the validation rows.
        weight: of the rows, (n,); equal unless given.
        target: its column.
        more: metrics of the run's own, such as the deviance of its loss.
        grouping: the group of each row.
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
            low_error=float(np.quantile(predicted[part] - y[part], 0.1)),
            high_error=float(np.quantile(predicted[part] - y[part], 0.9)),
        )
        for part in np.array_split(order, BINS)
        if len(part)
    ]
    return Evaluation(
        task="regression",
        target=target,
        rows=len(y),
        weighted=weight is not None,
        metrics=dict(more or {}) | found,
        residuals=residuals,
        errors=[
            ErrorQuantile(share=share, error=float(np.quantile(np.abs(predicted - y), share))) for share in _QUANTILES
        ],
        groups=None if grouping is None else measure_groups(grouping, predicted[:, None], y, classes=0, weight=weight),
        **measure_stability(predicted, expected),
    )


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

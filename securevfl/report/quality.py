"""How good the scores of each run are, as pictures: ranking, calibration, lift, learning."""

from __future__ import annotations

from collections.abc import Sequence

from securevfl.report.chart import Chart, ChartCurve
from securevfl.report.decision_words import format_cutoff
from securevfl.report.derived import find_run
from securevfl.report.evaluation import Evaluation
from securevfl.report.picture import Picture
from securevfl.report.plots import mark_epochs
from securevfl.report.record import Record, RunRecord
from securevfl.report.score_pictures import draw_residuals, draw_stability
from securevfl.report.svg_shapes import shorten_text

__all__ = [
    "METRIC_NAMES",
    "calibration_chart",
    "calibration_curve",
    "calibration_points",
    "choosing_metric",
    "describe_target",
    "lift_chart",
    "lift_curves",
    "make_pictures",
    "recall_chart",
    "roc_chart",
]

_COLORS = ("var(--accent)", "#c05621", "#0f8a6d", "#7b4fa3", "#b7791f", "#c53083")
_MANY = len(_COLORS)
"""Number of classes up to which each has a colour."""
_NAME = 28  # characters of a class name in a caption


def describe_target(record: Record) -> tuple[str, str]:
    """What the runs of a record predict, and what their ranking is about, from the target's name and classes.

    Returns:
        A sentence such as "Predicts subscribes (no or yes)." and a heading such as "How well each run ranks yes
        above no"; without a record of the target, words that fit any.
    """
    found = next((run.evaluation for run in record.runs if run.evaluation is not None), None)
    if found is None:
        return "", "How well each run does"
    target = found.target or "the target"
    if found.task == "regression":
        return f"Predicts {target}, a number.", f"How near each run comes to {target}"
    if found.task == "multilabel":
        return (
            f"Predicts {len(found.classes)} labels, of which a row can have several: {shorten_text(target, 80)}.",
            "How well each run ranks rows by each label",
        )
    if len(found.classes) == 2:
        return (
            f"Predicts {target} ({found.classes[0]} or {found.classes[1]}).",
            f"How well each run ranks {shorten_text(found.classes[1], _NAME)} "
            f"above {shorten_text(found.classes[0], _NAME)}",
        )
    return (
        f"Predicts {target}, one of {len(found.classes)} classes.",
        f"How well each run tells classes of {shorten_text(target, _NAME)} apart",
    )


def make_pictures(record: Record, run: RunRecord) -> list[Picture]:
    """The figures of one run, those that its evaluation defines."""
    found, drawn = run.evaluation, []
    if found is not None:
        drawn += [
            _draw_roc(record, run, found),
            _draw_recall(found),
            _draw_lift(found),
            _draw_reliability(found),
            *draw_residuals(found),
            draw_stability(found),
        ]
    drawn.append(_draw_learning(run, chooses=record.job.get("keep") != "last"))
    return [one for one in drawn if one is not None]


_UNIT = (0.0, 1.0)


def roc_chart(curves: Sequence[ChartCurve]) -> Chart:
    """ROC curves: share of the class that is found, against the share of other rows found with it."""
    return Chart(
        curves=curves,
        x="false positive rate",
        y="true positive rate",
        label="ROC curve",
        x_span=_UNIT,
        y_span=_UNIT,
        diagonal=True,
    )


def recall_chart(curves: Sequence[ChartCurve], base_rate: float | None = None) -> Chart:
    """Share of the flagged rows that are of the class, against the share of the class that is flagged."""
    return Chart(
        curves=curves,
        x="recall",
        y="precision",
        label="Precision over recall",
        x_span=_UNIT,
        y_span=(0.0, 1.02),
        level=base_rate,
    )


def lift_chart(curves: Sequence[ChartCurve]) -> Chart:
    """How many times more of the class than among all rows, in the rows that score highest."""
    most = max((y for curve in curves for _, y in curve.points), default=1.0)
    return Chart(
        curves=curves,
        x="share of the rows, highest scores first",
        y="lift",
        label="Lift",
        x_span=(0.0, 1.02),
        y_span=(0.0, 1.08 * max(most, 1.0)),
        level=1.0,
    )


def calibration_chart(curves: Sequence[ChartCurve]) -> Chart:
    """How often scores were right, against the scores."""
    return Chart(
        curves=curves,
        x="mean score",
        y="share that was right",
        label="Calibration",
        x_span=_UNIT,
        y_span=_UNIT,
        diagonal=True,
    )


def lift_curves(found: Evaluation) -> dict[str, list[tuple[float, float]]]:
    """Class → (share of the rows, lift)."""
    return {name: [(row.share, row.lift) for row in rows] for name, rows in found.lift.items()}


def calibration_points(found: Evaluation) -> list[tuple[float, float]]:
    """(mean score, share that was right) of each bin."""
    return [(part.confidence, part.observed) for part in found.reliability]


def calibration_curve(found: Evaluation, title: str = "") -> ChartCurve:
    """The bins as a curve with the interval of each."""
    bars = [(part.least, part.most) for part in found.reliability]
    return ChartCurve(points=calibration_points(found), intervals=bars, title=title, marker="o")


def _draw_roc(record: Record, run: RunRecord, found: Evaluation) -> Picture | None:
    if not found.roc:
        return None
    curves = []
    if len(found.roc) == 1:
        for key, color in (("alone", "#8b95a1"), ("pooled", "var(--muted)")):
            other = find_run(record, key)
            if other is not None and other is not run and other.evaluation is not None:
                curves += [
                    ChartCurve(points=points, color=color, dash="6 3", title=other.title)
                    for points in other.evaluation.roc.values()
                ]
    baselines = len(curves)
    curves += _class_curves(found, found.roc)
    if found.binary and found.ks_cutoff is not None:
        x, y = max(next(iter(found.roc.values())), key=lambda point: point[1] - point[0])
        curves.append(ChartCurve(points=[(x, x), (x, y)], color="#c05621", width=1.4, dash="2 2", title="KS"))
    says = f"share of rows {_phrase_with(found)} that are found, against the share of other rows found with them"
    says += "; dashed: baselines" if baselines else ""
    if found.binary and found.ks_cutoff is not None:
        says += f". Dotted: KS {found.metrics['ks']:.3f}, at a score of {format_cutoff(found.ks_cutoff)}"
    return Picture("ROC" + _name_positives(found), says + _describe_colors(found), roc_chart(curves))


def _draw_recall(found: Evaluation) -> Picture | None:
    if not found.recall:
        return None
    says = (
        f"share of the flagged rows that are {_phrase_with(found)}, against the share of all these rows that is flagged"
    )
    average, base = found.metrics.get("average_precision"), None
    if found.binary:
        base = found.per_class[-1].rows / found.rows
        says += f"; dashed: by chance, {base:.3f}"
    if average is not None:
        says += f". PR-AUC {average:.3f}" + ("" if found.binary else ", mean of the classes")
    return Picture(
        "Precision and recall" + _name_positives(found),
        says + _describe_colors(found),
        recall_chart(_class_curves(found, found.recall), base),
    )


def _draw_lift(found: Evaluation) -> Picture | None:
    if not found.lift:
        return None
    top = next(iter(found.lift.values()))[0]
    says = f"how many times more rows {_phrase_with(found)} than among all, in the rows that score highest; "
    says += "dashed: by chance"
    if len(found.lift) == 1:
        says += f". The best tenth has {top.lift:.2g} times as many as all rows"
    return Picture(
        "Lift" + _name_positives(found),
        says + _describe_colors(found),
        lift_chart(_class_curves(found, lift_curves(found), marker="o")),
    )


def _draw_reliability(found: Evaluation) -> Picture | None:
    if not found.reliability:
        return None
    which = f"of {shorten_text(found.classes[-1], _NAME)}" if found.binary else "of the likeliest class"
    ece = found.metrics.get("ece")
    return Picture(
        "Calibration",
        f"score {which}, against how often it was right; on the diagonal, scores are probabilities"
        + "; bins of equally many rows, with 95 % intervals"
        + ("" if ece is None else f". Expected calibration error {ece:.3f}"),
        calibration_chart([calibration_curve(found)]),
    )


def choosing_metric(run: RunRecord) -> str:
    """The metric of the validation rows that chose the checkpoint: the first that its epochs hold of those that tasks
    choose by; empty where they hold none."""
    held = next((epoch.valid for epoch in run.epochs if epoch.valid), {})
    ranked = run.evaluation is None or run.evaluation.task == "multilabel"
    several = not ranked and run.evaluation is not None and len(run.evaluation.classes) > 2
    order = ("deviance", "huber", "rmse", "accuracy" if several else "auc", "log_loss")
    return next((name for name in order if name in held), "")


METRIC_NAMES = {"auc": "AUC", "r2": "R²", "log_loss": "log-loss", "rmse": "RMSE", "huber": "Huber loss"}
"""Metrics whose name in prose differs from the name in records."""


def _draw_learning(run: RunRecord, *, chooses: bool) -> Picture | None:
    """What chose the checkpoint, epoch by epoch; or what would have, where the job keeps the last one."""
    name = choosing_metric(run)
    points = [(float(epoch.epoch), epoch.valid[name]) for epoch in run.epochs if name in epoch.valid] if name else []
    if len(points) < 2:
        return None
    curves = [ChartCurve(points=points)]
    best = [point for point in points if point[0] == run.best_epoch]
    title = METRIC_NAMES.get(name, name)
    says = f"{title} of the validation rows" + (", which chooses the checkpoint" if chooses else "")
    if best and chooses:
        curves.append(ChartCurve(points=best, color="#c05621", marker="o", joined=False, title="kept"))
        says += f"; marked: epoch {run.best_epoch}, which was kept"
    chart = Chart(
        curves=curves, x="epoch", y=title, label="Validation by epoch", x_marks=mark_epochs(int(points[-1][0]))
    )
    return Picture("What chose the checkpoint" if chooses else "Learning", says, chart)


def _class_curves(
    found: Evaluation, curves: dict[str, list[tuple[float, float]]], marker: str = ""
) -> list[ChartCurve]:
    """A curve for each class; of more than six, all but the best and the worst are thin and grey."""
    if len(curves) <= _MANY:
        return [
            ChartCurve(points=points, color=color, title=name, marker=marker)
            for (name, points), color in zip(curves.items(), _COLORS, strict=False)
        ]
    best, worst = _extreme_classes(found)
    back = [
        ChartCurve(points=points, color="var(--muted)", width=1.0, opacity=0.45, title=name)
        for name, points in curves.items()
    ]
    return back + [
        ChartCurve(points=curves[name], color=color, title=name, marker=marker)
        for name, color in ((best, _COLORS[2]), (worst, _COLORS[1]))
        if name in curves
    ]


def _extreme_classes(found: Evaluation) -> tuple[str, str]:
    ranked = sorted((one.auc, one.name) for one in found.per_class if one.auc is not None)
    return (ranked[-1][1], ranked[0][1]) if ranked else ("", "")


def _describe_colors(found: Evaluation) -> str:
    if len(found.roc) <= 1:
        return ""
    if len(found.roc) > _MANY:
        best, worst = _extreme_classes(found)
        ends = (
            f". Green: {shorten_text(best, _NAME)}, which is ranked best; orange: {shorten_text(worst, _NAME)}, worst"
        )
        return f"{ends}; grey: the others"
    names = ("blue", "orange", "green", "violet", "ochre", "pink")
    return ". " + ", ".join(
        f"{color}: {shorten_text(name, _NAME)}" for name, color in zip(found.roc, names, strict=False)
    )


def _name_positives(found: Evaluation) -> str:
    if found.task == "multilabel":
        return ", each label by itself"
    return f" of {shorten_text(found.classes[-1], _NAME)}" if found.binary else ", each class against the rest"


def _phrase_with(found: Evaluation) -> str:
    return "with the label" if found.task == "multilabel" else "of the class"

"""How good the scores of each run are, as pictures: ranking, calibration, lift, residuals, learning, and the price of
privacy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from securevfl.report.chart import Chart, ChartCurve, chart_svg
from securevfl.report.derived import epsilon_of, find_run, metrics_of
from securevfl.report.evaluation import Evaluation
from securevfl.report.plots import mark_epochs
from securevfl.report.record import Record, RunRecord
from securevfl.report.svg_shapes import shorten_text

__all__ = [
    "METRIC_NAMES",
    "Picture",
    "calibration_chart",
    "calibration_points",
    "choosing_metric",
    "describe_target",
    "lift_chart",
    "lift_curves",
    "make_pictures",
    "make_price_picture",
    "roc_chart",
]

_COLORS = ("var(--accent)", "#c05621", "#0f8a6d", "#7b4fa3", "#b7791f", "#c53083")
_MANY = len(_COLORS)
"""Number of classes up to which each has a colour."""
_NAME = 28  # characters of a class name in a caption


@dataclass(frozen=True)
class Picture:
    """One figure of the page.

    Attributes:
        title: above it.
        says: below the title: how to read it.
        chart: the figure.
    """

    title: str
    says: str
    chart: Chart

    @property
    def svg(self) -> Markup:
        """The figure as the page shows it."""
        return chart_svg(self.chart)


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
            _draw_lift(found),
            _draw_reliability(found),
            *_draw_residuals(found),
            _draw_stability(found),
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
    curves += _class_curves(found, found.roc)
    says = f"share of rows {_phrase_with(found)} that are found, against the share of other rows found with them"
    says += "; dashed: baselines" if len(curves) > len(found.roc) else ""
    return Picture("ROC" + _name_positives(found), says + _describe_colors(found), roc_chart(curves))


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
        + ("" if ece is None else f". Expected calibration error {ece:.3f}"),
        calibration_chart([ChartCurve(points=calibration_points(found), marker="o")]),
    )


def _draw_residuals(found: Evaluation) -> list[Picture | None]:
    if not found.residuals:
        return []
    tenths = [(i + 1.0, bin_) for i, bin_ in enumerate(found.residuals)]
    name = found.target or "the target"
    by_tenth, marks = "tenth of the predictions", [(i, f"{i:.0f}") for i, _ in tenths]
    means = [(b.predicted, b.observed) for _, b in tenths]
    residuals = [(i, b.predicted - b.observed) for i, b in tenths]
    errors = [(i, b.error) for i, b in tenths]
    return [
        Picture(
            "Predicted against true",
            f"mean of {name} in each tenth of the test rows, from the lowest prediction to the highest",
            Chart(
                curves=[ChartCurve(points=means, marker="o", joined=False)],
                x="predicted",
                y="true",
                label="Predicted against true",
                diagonal=True,
            ),
        ),
        Picture(
            "Residuals",
            "mean of predicted minus true, by tenth of the predictions; above the line, predictions are too high",
            Chart(
                curves=[ChartCurve(points=residuals, marker="o")],
                y="residual",
                label="Residuals",
                level=0.0,
                x=by_tenth,
                x_marks=marks,
            ),
        ),
        Picture(
            "Error by tenth",
            "root of the mean squared error, by tenth of the predictions",
            Chart(
                curves=[ChartCurve(points=errors, marker="o")],
                y="RMSE",
                label="Error by tenth",
                y_span=(0.0, 1.05 * max(b.error for _, b in tenths) or 1.0),
                x=by_tenth,
                x_marks=marks,
            ),
        ),
    ]


def _draw_stability(found: Evaluation) -> Picture | None:
    if not found.stability or found.psi is None:
        return None
    places = [i + 1.0 for i in range(len(found.stability))]
    expected = [(i, b.expected) for i, b in zip(places, found.stability, strict=True)]
    actual = [(i, b.actual) for i, b in zip(places, found.stability, strict=True)]
    return Picture(
        "Stability of the scores",
        f"share of the test rows in each tenth of the validation rows' scores (dashed). Population stability index "
        f"{found.psi:.3f}: below 0.1 little has moved, above 0.25 much has",
        Chart(
            curves=[
                ChartCurve(points=expected, color="var(--muted)", dash="6 3", title="validation rows"),
                ChartCurve(points=actual, marker="o", title="test rows"),
            ],
            x="tenth of the scores",
            y="share of rows",
            label="Stability",
            y_span=(0.0, 1.1 * max(y for _, y in expected + actual)),
            x_marks=[(i, f"{i:.0f}") for i in places],
        ),
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


_EPSILON = re.compile(r",? ?ε = [0-9.]+")
_GROUPS = (("blue", "var(--accent)"), ("orange", "#c2571a"), ("green", "#138a6b"), ("purple", "#7a4ea3"))
_MOST_MARKS = 6


def make_price_picture(record: Record) -> Picture | None:
    """Quality against ε, where two runs or more have one; with the deviation where runs were repeated."""
    entries = metrics_of(record)
    if not entries:
        return None
    name, title, _ = entries[0]
    groups: dict[str, list[tuple[float, float, float | None]]] = {}
    for run in record.runs:
        epsilon = epsilon_of(run)
        if epsilon is not None and name in run.test:
            kind = _EPSILON.sub("", run.title)
            groups.setdefault(kind, []).append((epsilon, run.test[name], run.deviation.get(name)))
    points = [point for group in groups.values() for point in group]
    if len(points) < 2:
        return None
    alone = find_run(record, "alone")
    level = None if alone is None else alone.test.get(name)
    says = f"{title} on the test rows of each run with differential privacy, by the largest ε of any party"
    if len(groups) > 1:
        says += "; " + ", ".join(
            f"{word}: {kind}" for (word, _), kind in zip(_GROUPS, list(groups)[: len(_GROUPS)], strict=False)
        )
    says += "; dashed: the active party alone" if level is not None else ""
    if any(deviation for *_, deviation in points):
        says += "; bars: one standard deviation over repeated runs"
    curves = []
    for place, (kind, group) in enumerate(groups.items()):
        ordered = sorted(group, key=lambda point: point[0])
        curves.append(
            ChartCurve(
                points=[(epsilon, value) for epsilon, value, _ in ordered],
                deviations=[deviation or 0.0 for *_, deviation in ordered],
                marker="o",
                color=_GROUPS[place][1] if place < len(_GROUPS) else "var(--muted)",
                title=kind,
            )
        )
    values = sorted({round(epsilon, 2) for epsilon, *_ in points})
    low, high = values[0], values[-1]
    chart = Chart(
        curves=curves,
        x="ε",
        y=title,
        label="Quality against ε",
        level=level,
        x_span=(low - 1, high + 1) if high - low < 0.05 * high else None,  # budgets that are all but the same
        x_marks=[(value, f"{value:g}") for value in values] if len(values) <= _MOST_MARKS else None,
    )
    return Picture("Quality against ε", says, chart)


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

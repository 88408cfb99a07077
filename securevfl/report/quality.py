"""How good the scores of each run are, as pictures: ranking, calibration, lift, residuals, learning, and the price of
privacy."""

from __future__ import annotations

import re
from dataclasses import dataclass

from markupsafe import Markup

from securevfl.report.derived import baseline, epsilon_of, metrics_of
from securevfl.report.drawing import Line, chart
from securevfl.report.evaluation import Evaluation
from securevfl.report.record import Record, RunRecord

__all__ = ["Picture", "chosen_by", "pictures_of", "privacy_price", "target_words"]

_COLORS = ("var(--accent)", "#c05621", "#0f8a6d", "#7b4fa3", "#b7791f", "#c53083")
_MANY = len(_COLORS)
"""Classes up to which each has a colour of its own."""


@dataclass(frozen=True)
class Picture:
    """One figure of the page.

    Attributes:
        title: above it.
        says: below the title: how to read it.
        svg: the drawing.
    """

    title: str
    says: str
    svg: Markup


def target_words(record: Record) -> tuple[str, str]:
    """What the runs of a record foretell, in words, and how their scores rank, from the target's name and classes.

    Returns:
        A sentence such as "Foretold is `subscribes`: no or yes." and a heading such as "How well each run ranks yes
        above no"; without a record of the target, words that fit any.
    """
    found = next((run.evaluation for run in record.runs if run.evaluation is not None), None)
    if found is None:
        return "", "How well each run does"
    target = found.target or "the target"
    if found.task == "regression":
        return f"Foretold is {target}, a number.", f"How near each run comes to {target}"
    if found.task == "multilabel":
        return (
            f"Foretold are {len(found.classes)} labels, of which a row can have several: {_cut(target, 80)}.",
            "How well each run ranks rows by each label",
        )
    if len(found.classes) == 2:
        return (
            f"Foretold is {target}: {found.classes[0]} or {found.classes[1]}.",
            f"How well each run ranks {_cut(found.classes[1])} above {_cut(found.classes[0])}",
        )
    return (
        f"Foretold is {target}, one of {len(found.classes)} classes.",
        f"How well each run tells {_cut(target)} apart",
    )


def pictures_of(record: Record, run: RunRecord) -> list[Picture]:
    """The figures of one run, those that its evaluation defines."""
    found, drawn = run.evaluation, []
    if found is not None:
        drawn += [_roc(record, run, found), _lift(found), _reliability(found), *_residuals(found), _stability(found)]
    drawn.append(_learning(run, chooses=record.job.get("keep") != "last"))
    return [one for one in drawn if one is not None]


def _roc(record: Record, run: RunRecord, found: Evaluation) -> Picture | None:
    if not found.roc:
        return None
    lines = []
    if len(found.roc) == 1:
        for key, color in (("alone", "#8b95a1"), ("pooled", "var(--muted)")):
            other = baseline(record, key)
            if other is not None and other is not run and other.evaluation is not None:
                lines += [
                    Line(points=p, color=color, dashed=True, title=other.title) for p in other.evaluation.roc.values()
                ]
    lines += _classes(found, found.roc)
    says = f"share of rows {_with(found)} that are found, against the share of other rows found with them"
    says += "; dashed: baselines" if len(lines) > len(found.roc) else ""
    return Picture(
        "ROC" + _of(found),
        says + _key(found),
        chart(
            lines, x="false positives", y="true positives", label="ROC curve", x_span=_UNIT, y_span=_UNIT, diagonal=True
        ),
    )


_UNIT = (0.0, 1.0)


def _lift(found: Evaluation) -> Picture | None:
    if not found.lift:
        return None
    curves = {name: [(0.0, 0.0), *((row.share, row.gain) for row in rows)] for name, rows in found.lift.items()}
    top = next(iter(found.lift.values()))[0]
    says = f"share of the rows {_with(found)} among those that score highest; dashed: by chance"
    if len(curves) == 1:
        says += f". The best tenth has {top.lift:.2g} times as many as all rows"
    return Picture(
        "Lift" + _of(found),
        says,
        chart(
            _classes(found, curves),
            x="share of rows, best first",
            y="share of the class",
            label="Gain",
            x_span=_UNIT,
            y_span=_UNIT,
            diagonal=True,
        ),
    )


def _reliability(found: Evaluation) -> Picture | None:
    if not found.reliability:
        return None
    points = [(bin_.confidence, bin_.observed) for bin_ in found.reliability]
    which = f"of {_cut(found.classes[-1])}" if found.binary else "of the likeliest class"
    ece = found.metrics.get("ece")
    return Picture(
        "Calibration",
        f"score {which}, against how often it was right; on the diagonal scores are probabilities"
        + ("" if ece is None else f". Expected calibration error {ece:.3f}"),
        chart(
            [Line(points=points, dots=True)],
            x="score",
            y="observed",
            label="Calibration",
            x_span=_UNIT,
            y_span=_UNIT,
            diagonal=True,
        ),
    )


def _residuals(found: Evaluation) -> list[Picture | None]:
    if not found.residuals:
        return []
    tenths = [(i + 1.0, bin_) for i, bin_ in enumerate(found.residuals)]
    marks = [(i, f"{i:.0f}") for i, _ in tenths]
    name = found.target or "the target"
    return [
        Picture(
            "Foretold against true",
            f"mean of {name} in each tenth of the test rows, from the lowest prediction to the highest",
            chart(
                [Line(points=[(b.predicted, b.observed) for _, b in tenths], dots=True, joined=False)],
                x="foretold",
                y="true",
                label="Predicted against true",
                diagonal=True,
            ),
        ),
        Picture(
            "Residuals",
            "mean of foretold minus true, by tenth of the predictions; above the line is too much",
            chart(
                [Line(points=[(i, b.predicted - b.observed) for i, b in tenths], dots=True)],
                x="tenth of the predictions",
                y="residual",
                label="Residuals",
                x_marks=marks,
                level=0.0,
            ),
        ),
        Picture(
            "Error by tenth",
            "root of the mean squared error, by tenth of the predictions",
            chart(
                [Line(points=[(i, b.error) for i, b in tenths], dots=True)],
                x="tenth of the predictions",
                y="RMSE",
                label="Error by tenth",
                x_marks=marks,
                y_span=(0.0, 1.05 * max(b.error for _, b in tenths) or 1.0),
            ),
        ),
    ]


def _stability(found: Evaluation) -> Picture | None:
    if not found.stability or found.psi is None:
        return None
    places = [i + 1.0 for i in range(len(found.stability))]
    top = 1.1 * max(max(b.expected, b.actual) for b in found.stability)
    lines = [
        Line(
            points=[(i, b.expected) for i, b in zip(places, found.stability, strict=True)],
            color="var(--muted)",
            dashed=True,
            title="validation rows",
        ),
        Line(
            points=[(i, b.actual) for i, b in zip(places, found.stability, strict=True)], dots=True, title="test rows"
        ),
    ]
    return Picture(
        "Stability of the scores",
        f"share of the test rows in each tenth of the validation rows' scores (dashed). Population stability index "
        f"{found.psi:.3f}: below 0.1 little moved, above 0.25 much",
        chart(
            lines,
            x="tenth of the scores",
            y="share of rows",
            label="Stability",
            y_span=(0.0, top),
            x_marks=[(i, f"{i:.0f}") for i in places],
        ),
    )


def chosen_by(run: RunRecord) -> str:
    """The metric of the validation rows that chose the checkpoint: the first that its epochs hold of those that tasks
    choose by; empty where they hold none."""
    held = next((epoch.valid for epoch in run.epochs if epoch.valid), {})
    ranked = run.evaluation is None or run.evaluation.task == "multilabel"
    several = not ranked and run.evaluation is not None and len(run.evaluation.classes) > 2
    order = ("deviance", "huber", "rmse", "accuracy" if several else "auc", "log_loss")
    return next((name for name in order if name in held), "")


_WORDS = {"auc": "AUC", "log_loss": "log-loss", "rmse": "RMSE", "huber": "Huber loss"}


def _learning(run: RunRecord, *, chooses: bool) -> Picture | None:
    """What chose the checkpoint, epoch by epoch; or what would have, where the job keeps the last one."""
    name = chosen_by(run)
    points = [(float(epoch.epoch), epoch.valid[name]) for epoch in run.epochs if name in epoch.valid] if name else []
    if len(points) < 2:
        return None
    lines = [Line(points=points)]
    best = [point for point in points if point[0] == run.best_epoch]
    says = f"{_WORDS.get(name, name)} of the validation rows" + (", which chooses the checkpoint" if chooses else "")
    if best and chooses:
        lines.append(Line(points=best, color="#c05621", dots=True, joined=False, title="kept"))
        says += f"; marked: epoch {run.best_epoch}, which was kept"
    marks = _epochs(int(points[-1][0]))
    return Picture(
        "What chose the checkpoint" if chooses else "Learning",
        says,
        chart(lines, x="epoch", y=_WORDS.get(name, name), label="Validation by epoch", x_marks=marks),
    )


def _epochs(last: int) -> list[tuple[float, str]]:
    step = max(1, -(-last // 8))
    return [(float(e), str(e)) for e in range(step if step > 1 else 1, last + 1, step)]


_EPSILON = re.compile(r",? ?ε = [0-9.]+")
_GROUPS = (("blue", "var(--accent)"), ("orange", "#c2571a"), ("green", "#138a6b"), ("purple", "#7a4ea3"))
_MOST_MARKS = 6


def privacy_price(record: Record) -> Picture | None:
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
    alone = baseline(record, "alone")
    level = None if alone is None else alone.test.get(name)
    says = f"{title} on the test rows of each run with differential privacy, by the largest ε of any party"
    if len(groups) > 1:
        says += "; " + ", ".join(
            f"{word}: {kind}" for (word, _), kind in zip(_GROUPS, list(groups)[: len(_GROUPS)], strict=False)
        )
    says += "; dashed: the active party alone" if level is not None else ""
    bars = [(epsilon, value, deviation) for epsilon, value, deviation in points if deviation]
    says += "; bars: one standard deviation over repeated runs" if bars else ""
    lines = [
        Line(
            points=[(epsilon, value) for epsilon, value, _ in sorted(group, key=lambda point: point[0])],
            dots=True,
            color=_GROUPS[place][1] if place < len(_GROUPS) else "var(--muted)",
            title=kind,
        )
        for place, (kind, group) in enumerate(groups.items())
    ]
    values = sorted({round(epsilon, 2) for epsilon, *_ in points})
    marks = [(value, f"{value:g}") for value in values] if len(values) <= _MOST_MARKS else None
    low, high = values[0], values[-1]
    span = (low - 1, high + 1) if high - low < 0.05 * high else None  # budgets that are all but the same
    svg = chart(lines, x="ε", y=title, label="Quality against ε", level=level, bars=bars, x_span=span, x_marks=marks)
    return Picture("Quality against ε", says, svg)


def _classes(found: Evaluation, curves: dict[str, list[tuple[float, float]]]) -> list[Line]:
    """A line for each class; of more than six, all but the best and the worst stand back."""
    if len(curves) <= _MANY:
        return [
            Line(points=points, color=color, title=name)
            for (name, points), color in zip(curves.items(), _COLORS, strict=False)
        ]
    best, worst = _extremes(found)
    back = [Line(points=points, color="var(--muted)", thin=True, title=name) for name, points in curves.items()]
    return back + [
        Line(points=curves[name], color=color, title=name)
        for name, color in ((best, _COLORS[2]), (worst, _COLORS[1]))
        if name in curves
    ]


def _extremes(found: Evaluation) -> tuple[str, str]:
    ranked = sorted((one.auc, one.name) for one in found.per_class if one.auc is not None)
    return (ranked[-1][1], ranked[0][1]) if ranked else ("", "")


def _key(found: Evaluation) -> str:
    if len(found.roc) <= 1:
        return ""
    if len(found.roc) > _MANY:
        best, worst = _extremes(found)
        return f". Green: {_cut(best)}, which is ranked best; orange: {_cut(worst)}, worst; grey: the others"
    names = ("blue", "orange", "green", "violet", "ochre", "pink")
    return ". " + ", ".join(f"{color}: {_cut(name)}" for name, color in zip(found.roc, names, strict=False))


def _of(found: Evaluation) -> str:
    if found.task == "multilabel":
        return ", each label by itself"
    return f" of {_cut(found.classes[-1])}" if found.binary else ", each class against the rest"


def _with(found: Evaluation) -> str:
    return "with the label" if found.task == "multilabel" else "of the class"


def _cut(text: str, most: int = 28) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"

"""The price of privacy: quality against ε."""

from __future__ import annotations

import re

from securevfl.report.chart import Chart, ChartCurve
from securevfl.report.derived import epsilon_of, find_run, metrics_of
from securevfl.report.picture import Picture
from securevfl.report.record import Record

__all__ = ["make_price_picture"]

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

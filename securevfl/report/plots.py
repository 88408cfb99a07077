"""The report's overview figures: quality, learning, time and traffic of all runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from securevfl.report.bar_chart import Bar, BarRow, bar_chart
from securevfl.report.chart import Chart, ChartCurve, chart_svg
from securevfl.report.derived import (
    bytes_per_epoch,
    cost_per_epoch,
    human_bytes,
    human_seconds,
    metric_gain,
    metrics_of,
    short_title,
)
from securevfl.report.record import Record, RunRecord, ShapeRecord

__all__ = [
    "draw_bytes",
    "draw_metric_by_epoch",
    "draw_seconds",
    "draw_shapes",
    "draw_test_metric",
    "epoch_metric",
    "run_colors",
]

COMPUTE, HE, FROM_ACTIVE, FROM_PASSIVE = "#9db8d6", "#0f8a6d", "#2b6cb0", "#c05621"
_FIXED = {
    "alone": "#8b95a1",
    "alone_boosted": "#b3a58f",
    "pooled": "#30363d",
    "pooled_boosted": "#6b5b3e",
    "plain": "#2b6cb0",
    "paillier": "#0f8a6d",
    "dp": "#c05621",
}
_SPARE = ("#7b4fa3", "#b7791f", "#c53083", "#2c7a7b", "#4a5568")  # distinct from the above without red and green
_DRAWN = 24
"""Shapes that a page draws for each party, the most important first; the table has all of them."""
_BAND = 2.0
"""Half of the band, in standard deviations of the noise."""
_LOG_FROM = 30.0  # largest over smallest: beyond it short bars vanish on a linear axis


def run_colors(runs: Sequence[RunRecord]) -> dict[str, str]:
    """A colour for each run, the same in all figures."""
    spare = iter(_SPARE * (len(runs) // len(_SPARE) + 1))
    return {run.key: _FIXED.get(run.key) or next(spare) for run in runs}


def draw_metric_by_epoch(record: Record) -> Markup | None:
    """The first metric on the validation rows after each epoch, a line a run; None where no run has two epochs."""
    name, title = _epoch_metric(record)
    runs = [run for run in record.runs if sum(name in epoch.valid for epoch in run.epochs) > 1]
    if not runs:
        return None
    palette = run_colors(record.runs)
    lines = [[(float(epoch.epoch), epoch.valid[name]) for epoch in run.epochs if name in epoch.valid] for run in runs]
    curves = []
    for i, (run, points) in enumerate(zip(runs, lines, strict=True)):
        # Parity hides a line under a later one: it is drawn wide and pale, so that it shows on both sides.
        hidden = not run.baseline and any(_covers_line(later, points) for later in lines[i + 1 :])
        curves.append(
            ChartCurve(
                points=points,
                color=palette[run.key],
                title=short_title(run, record.runs),
                dash="5 3" if run.baseline else "",
                width=5.0 if hidden else 1.8 if run.baseline else 2.2,
                opacity=0.45 if hidden else 1.0,
            )
        )
    last = int(max(points[-1][0] for points in lines))
    chart = Chart(
        curves=curves,
        x="epoch",
        y=f"{title}, validation rows",
        label=f"{title} on the validation rows after each epoch, one line a run",
        x_marks=mark_epochs(last),
        listed=True,
    )
    return chart_svg(chart, 400, 220 + 16 * len(curves))


def mark_epochs(last: int) -> list[tuple[float, str]]:
    """At most nine whole epochs as marks of an axis."""
    step = max(1, -(-last // 8))
    return [(float(e), str(e)) for e in range(step if step > 1 else 1, last + 1, step)]


def _epoch_metric(record: Record) -> tuple[str, str]:
    """Name and title of the first metric that some run has for several epochs: what `draw_metric_by_epoch` draws."""
    for name, title, _ in metrics_of(record):
        if any(sum(name in epoch.valid for epoch in run.epochs) > 1 for run in record.runs):
            return name, title
    return "auc", "AUC"


def epoch_metric(record: Record) -> str:
    """The title of what `draw_metric_by_epoch` draws."""
    return _epoch_metric(record)[1]


def _covers_line(over: Sequence[tuple[float, float]], under: Sequence[tuple[float, float]]) -> bool:
    """Whether one line would hide most of another: nearly the same value at most of the same epochs."""
    at = dict(over)
    return sum(abs(at.get(x, 1e9) - y) < 0.002 for x, y in under) > len(under) / 2


def draw_test_metric(record: Record) -> Markup | None:
    """The first metric on the test rows as bars, with the gain over the active party alone; None without test rows."""
    name, title, _ = next(iter(metrics_of(record)), ("auc", "AUC", 4))
    runs = [run for run in record.runs if name in run.test]
    if not runs:
        return None
    palette = run_colors(record.runs)
    rows = []
    for run in runs:
        better = metric_gain(record, run, name)
        note = "" if better is None else f" ({better:+.3f})".replace("-", "−")
        bar = Bar(end=run.test[name], color=palette[run.key], note=f"{run.test[name]:.3f}{note}")
        rows.append(BarRow(label=short_title(run, record.runs), bars=[bar]))
    start = min(0.5 if name == "auc" else 0.0, min(run.test[name] for run in runs) - 0.02)
    return bar_chart(rows, start=start, label=f"{title} on the test rows of each run")


def log_seconds(record: Record) -> bool:
    """Whether the seconds differ so much that their axis is logarithmic."""
    totals = [max(sum(cost_per_epoch(run)), 1e-4) for run in record.runs if run.epochs]
    return bool(totals) and max(totals) / min(totals) > _LOG_FROM


def log_bytes(record: Record) -> bool:
    """Whether the bytes differ so much that their axis is logarithmic."""
    positive = [size for run in record.runs for size in bytes_per_epoch(record, run) if size]
    return bool(positive) and max(positive) / min(positive) > _LOG_FROM


def draw_seconds(record: Record) -> Markup | None:
    """Seconds of an epoch, all parties together: own computing and homomorphic encryption; None without epochs."""
    rows, totals = [], []
    for run in record.runs:
        if not run.epochs:
            continue
        compute, he = cost_per_epoch(run)
        share = he / (compute + he) if compute + he else 0.0
        totals.append(max(compute + he, 1e-4))
        note = human_seconds(totals[-1]) + (f" ({share:.0%} HE)" if share else "")
        bar = Bar(end=totals[-1], color=COMPUTE, note=note, share=share, second=HE)
        rows.append(BarRow(label=short_title(run, record.runs), bars=[bar]))
    if not rows:
        return None
    log = log_seconds(record)
    whose = f"{record.known_to} alone" if record.known_to else "all parties together"
    return bar_chart(
        rows,
        start=min(totals) / 3 if log else 0.0,
        log=log,
        label=f"Seconds of work in an epoch, {whose}",
        mark_text=human_seconds,
    )


def draw_bytes(record: Record) -> Markup | None:
    """Bytes of an epoch in each direction; None where nothing was sent in epochs."""
    sizes = {run.key: bytes_per_epoch(record, run) for run in record.runs}
    runs = [run for run in record.runs if any(sizes[run.key])]
    if not runs:
        return None
    log = log_bytes(record)
    start = min(size for pair in sizes.values() for size in pair if size) / 4 if log else 0.0
    rows = []
    for run in runs:
        bars = [
            Bar(end=size, color=color, note=human_bytes(size))
            for size, color in zip(sizes[run.key], (FROM_ACTIVE, FROM_PASSIVE), strict=True)
            if size or not record.known_to  # a party's own record does not know what others sent in an epoch
        ]
        rows.append(BarRow(label=short_title(run, record.runs), bars=bars))
    return bar_chart(rows, start=start, log=log, label="Bytes sent in an epoch, each way", mark_text=human_bytes)


def draw_shapes(parties: Mapping[str, Sequence[ShapeRecord]]) -> dict[str, list[Markup]]:
    """Party → pictures of its shapes, the most important first."""
    return {name: [_draw_shape(name, one) for one in shapes[:_DRAWN]] for name, shapes in parties.items()}


def _draw_shape(party: str, shape: ShapeRecord) -> Markup:
    drawn = [one for one in shape.bins if one.share > 0 or one.bin != "missing"]
    outputs = len(drawn[0].values) if drawn else 0
    noisy = any(one.deviation for one in drawn)
    curves = [
        ChartCurve(
            points=[(float(place), one.values[k]) for place, one in enumerate(drawn, start=1)],
            marker="o",
            title=shape.column if outputs == 1 else f"class {k + 1}",
            deviations=[_BAND * one.deviation for one in drawn] if noisy else (),
        )
        for k in range(outputs)
    ]
    chart = Chart(
        curves=curves,
        x=f"bin of {shape.column}",
        y="adds to the score",
        label=f"shape of {shape.column} at {party}",
        x_marks=[(1.0, drawn[0].bin), (float(len(drawn)), drawn[-1].bin)] if len(drawn) > 1 else None,
        level=0.0,
        title=shape.column,
    )
    return chart_svg(chart)

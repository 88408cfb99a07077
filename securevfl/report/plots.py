"""The page's plots, as inline SVG: no scripts, nothing loaded, the same bytes for the same record."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from typing import Any

from securevfl.report.derived import (
    bytes_per_epoch,
    cost_per_epoch,
    gain,
    human_bytes,
    human_seconds,
    metrics_of,
    short,
)
from securevfl.report.record import Record, RunRecord

__all__ = ["auc_by_epoch", "bytes_by_direction", "epoch_metric", "seconds_by_phase", "test_auc"]

INK, MUTED, GRID = "#1f2933", "#66727f", "#e3e8ee"
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
_SPARE = ("#7b4fa3", "#b7791f", "#c53083", "#2c7a7b", "#4a5568")  # after those above; told apart without red and green
_LOG_FROM = 30.0
_LABEL = 36  # characters of a run's name; longer ones leave no room for the bars


def colors(runs: Sequence[RunRecord]) -> dict[str, str]:
    """A colour for each run, the same in all plots."""
    spare = iter(_SPARE * (len(runs) // len(_SPARE) + 1))
    return {run.key: _FIXED.get(run.key) or next(spare) for run in runs}


def _label(run: RunRecord, runs: Sequence[RunRecord]) -> str:
    """The run's name for an axis: one line of printable characters, not too long."""
    text = " ".join("".join(c if c.isprintable() else " " for c in short(run, runs)).split())
    return text if len(text) <= _LABEL else text[: _LABEL - 1].rstrip() + "…"


def _figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.tick_params(colors=MUTED, length=0, labelsize=9)
    axes.set_axisbelow(True)
    return figure, axes


def _svg(figure: Any, name: str, description: str) -> str:
    import matplotlib as mpl

    settings = {"svg.hashsalt": name, "svg.fonttype": "none", "font.family": "sans-serif"}
    out = io.StringIO()
    with mpl.rc_context(settings), warnings.catch_warnings():
        # Names may be in any script: the page's fonts show them, matplotlib's only measure them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<svg ([^>]*?)width="[^"]*" ?', r"<svg \1", text, count=1)
    text = re.sub(r'<svg ([^>]*?)height="[^"]*" ?', r"<svg \1", text, count=1)
    # Names inside one page have to be unique, and fonts are the page's own.
    text = re.sub(r"<[^>]*>", lambda tag: _own_names(tag[0], name), text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{description}" ', 1)


def _own_names(tag: str, name: str) -> str:
    """One SVG tag with its identifiers put under the plot's name, and without a font family."""
    tag = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', tag)
    tag = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", tag)
    tag = re.sub(r'xlink:href="#([^"]+)"', rf'xlink:href="#{name}-\1"', tag)
    return re.sub(r"font: ([^;\"]*?)'[^;\"]*", r"font: \1inherit", tag)


def auc_by_epoch(record: Record) -> str | None:
    """The first metric on the validation rows after each epoch, a line a run; None where there is nothing to draw."""
    name, title = _by_epoch(record)
    runs = [run for run in record.runs if sum(name in epoch.valid for epoch in run.epochs) > 1]
    if not runs:
        return None
    figure, axes = _figure(5.6, 3.3)
    palette = colors(record.runs)
    ends = []
    lines = [[(epoch.epoch, epoch.valid[name]) for epoch in run.epochs if name in epoch.valid] for run in runs]
    for i, (run, points) in enumerate(zip(runs, lines, strict=True)):
        xs, ys = zip(*points, strict=True)
        style = {"lw": 1.8, "ls": (0, (4, 2))} if run.baseline else {"lw": 2.2, "ls": "-"}
        if not run.baseline and any(_covers(later, points) for later in lines[i + 1 :]):
            style |= {"lw": 5.0, "alpha": 0.45}  # parity hides it under a later line: let its colour show on both sides
        axes.plot(xs, ys, color=palette[run.key], solid_capstyle="round", **style)
        axes.plot(xs[-1:], ys[-1:], "o", ms=4.5, color=palette[run.key])
        ends.append((ys[-1], xs[-1], run))
    low, high = axes.get_ylim()
    step = (high - low) / 13
    places = _spread([y for y, _, _ in sorted(ends, key=lambda e: e[0])], step)
    last = max(x for _, x, _ in ends)
    for (y, x, run), place in zip(sorted(ends, key=lambda e: e[0]), places, strict=True):
        axes.annotate(
            _label(run, record.runs),
            (x, y),
            (last + 0.03 * max(last - 1, 1) + 0.08, place),
            color=palette[run.key],
            fontsize=9.5,
            va="center",
            annotation_clip=False,
            parse_math=False,
            arrowprops={"arrowstyle": "-", "color": palette[run.key], "lw": 0.6, "alpha": 0.6, "shrinkB": 3},
        )
    axes.yaxis.grid(True, color=GRID, lw=0.8)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("epoch", color=MUTED, fontsize=9.5)
    axes.set_ylabel(f"{title}, validation rows", color=MUTED, fontsize=9.5)
    return _svg(figure, "auc-by-epoch", f"{title} on the validation rows after each epoch, one line a run")


def _by_epoch(record: Record) -> tuple[str, str]:
    """Name and title of the first metric that some run has for several epochs: what `auc_by_epoch` draws."""
    for name, title, _ in metrics_of(record):
        if any(sum(name in epoch.valid for epoch in run.epochs) > 1 for run in record.runs):
            return name, title
    return "auc", "AUC"


def epoch_metric(record: Record) -> str:
    """The title of what `auc_by_epoch` draws."""
    return _by_epoch(record)[1]


def _covers(over: Sequence[tuple[int, float]], under: Sequence[tuple[int, float]]) -> bool:
    """Whether one line would hide most of another: nearly the same value at most of the same epochs."""
    at = dict(over)
    return sum(abs(at.get(x, 1e9) - y) < 0.002 for x, y in under) > len(under) / 2


def _spread(values: Sequence[float], step: float) -> list[float]:
    """Ascending values moved apart to at least `step`, as little as that takes."""
    places = list(values)
    for _ in range(200):
        moved = False
        for i in range(len(places) - 1):
            lack = step - (places[i + 1] - places[i])
            if lack > 1e-9:
                places[i] -= lack / 2
                places[i + 1] += lack / 2
                moved = True
        if not moved:
            break
    return places


def test_auc(record: Record) -> str | None:
    """The first metric on the test rows as bars, with the gain over the active party alone."""
    name, title, _ = next(iter(metrics_of(record)), ("auc", "AUC", 4))
    runs = [run for run in record.runs if name in run.test]
    if not runs:
        return None
    figure, axes = _figure(5.6, 0.5 + 0.46 * len(runs))
    palette = colors(record.runs)
    values = [run.test[name] for run in runs]
    start = min(0.5 if name == "auc" else 0.0, min(values) - 0.02)
    axes.barh(
        range(len(runs)), [v - start for v in values], left=start, height=0.58, color=[palette[r.key] for r in runs]
    )
    for i, (run, value) in enumerate(zip(runs, values, strict=True)):
        better = gain(record, run, name)
        note = "" if better is None else f" ({better:+.3f})".replace("-", "−")
        _beside(axes, value, i, f"{value:.3f}{note}")
    _run_labels(axes, record, runs)
    axes.set_xlim(start, max(values) + 0.42 * (max(values) - start))
    axes.xaxis.grid(True, color=GRID, lw=0.8)
    return _svg(figure, "test-auc", f"{title} on the test rows of each run")


def _beside(axes: Any, x: float, y: float, text: str) -> None:
    """A bar's value, just right of its end."""
    axes.annotate(text, (x, y), (5, 0), textcoords="offset points", va="center", fontsize=9.5, color=INK)


def _run_labels(axes: Any, record: Record, runs: Sequence[RunRecord]) -> None:
    axes.set_yticks(range(len(runs)), [_label(run, record.runs) for run in runs], parse_math=False)
    axes.tick_params(axis="y", labelcolor=INK, labelsize=9.5)
    axes.invert_yaxis()


def log_seconds(record: Record) -> bool:
    """Whether the seconds differ so much that their axis is logarithmic."""
    totals = [max(sum(cost_per_epoch(run)), 1e-4) for run in record.runs if run.epochs]
    return bool(totals) and max(totals) / min(totals) > _LOG_FROM


def log_bytes(record: Record) -> bool:
    """Whether the bytes differ so much that their axis is logarithmic."""
    positive = [size for run in record.runs for size in bytes_per_epoch(record, run) if size]
    return bool(positive) and max(positive) / min(positive) > _LOG_FROM


def seconds_by_phase(record: Record) -> str | None:
    """Seconds of an epoch, all parties together: own computing and homomorphic encryption."""
    runs = [run for run in record.runs if run.epochs]
    if not runs:
        return None
    from matplotlib.ticker import FuncFormatter

    costs = [cost_per_epoch(run) for run in runs]
    totals = [max(sum(cost), 1e-4) for cost in costs]
    figure, axes = _figure(5.6, 0.75 + 0.46 * len(runs))
    log = log_seconds(record)
    start = min(totals) / 3 if log else 0.0
    for i, ((compute, he), total) in enumerate(zip(costs, totals, strict=True)):
        # On a logarithmic axis stacked lengths would lie: the bar is the total, its parts are shares of the length.
        length = total - start
        share = he / (compute + he) if compute + he else 0.0
        if log:
            split = start * (total / start) ** (1 - share)
            axes.barh(i, split - start, left=start, height=0.58, color=COMPUTE)
            axes.barh(i, total - split, left=split, height=0.58, color=HE)
        else:
            axes.barh(i, length * (1 - share), height=0.58, color=COMPUTE)
            axes.barh(i, length * share, left=length * (1 - share), height=0.58, color=HE)
        note = human_seconds(total) + (f" ({share:.0%} HE)" if share else "")
        _beside(axes, total, i, note)
    if log:
        axes.set_xscale("log")
        axes.set_xlim(start, max(totals) * (max(totals) / start) ** 0.4)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: human_seconds(value)))
    else:
        axes.set_xlim(0, max(totals) * 1.4)
    _run_labels(axes, record, runs)
    axes.xaxis.grid(True, color=GRID, lw=0.8)
    whose = f"{record.known_to} alone" if record.known_to else "all parties together"
    return _svg(figure, "seconds", f"Seconds of work in an epoch, {whose}")


def bytes_by_direction(record: Record) -> str | None:
    """Bytes of an epoch, each way."""
    runs = [run for run in record.runs if any(bytes_per_epoch(record, run))]
    if not runs:
        return None
    sizes = [bytes_per_epoch(record, run) for run in runs]
    positive = [size for pair in sizes for size in pair if size]
    log = log_bytes(record)
    figure, axes = _figure(5.6, 0.85 + 0.62 * len(runs))
    start = min(positive) / 4 if log else 0.0
    for i, pair in enumerate(sizes):
        for shift, size, color in ((-0.2, pair[0], FROM_ACTIVE), (0.2, pair[1], FROM_PASSIVE)):
            if record.known_to and not size:
                continue  # what others sent in an epoch, a party's own record does not know
            axes.barh(i + shift, max(size - start, 0), left=start, height=0.34, color=color)
            _beside(axes, max(size, start), i + shift, human_bytes(size))
    if log:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xlim(start, max(positive) * ((max(positive) / start) ** 0.25 if log else 1.25))
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if not log:
        axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: human_bytes(value)))
    _run_labels(axes, record, runs)
    axes.xaxis.grid(True, color=GRID, lw=0.8)
    return _svg(figure, "bytes", "Bytes sent in an epoch, each way")

"""A sweep's plot, a line per method with error bars: as inline SVG for the page, with the paper's figures in a second
panel, and on matplotlib's axes for notebooks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from markupsafe import escape

from securevfl.errors import InputError
from securevfl.report.axes import METRIC_NAMES, label_axes, legend_text, new_axes
from securevfl.report.plots import GRID, INK, MUTED, _spread, _svg
from securevfl.report.sweep_record import SweepRecord, methods, positions, summary, tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Style", "quality", "styles", "swatch", "sweep_axes"]

# Okabe and Ito's colours, told apart without red and green, yellow and sky blue darkened to show on white.
_PALETTE = ("#0072b2", "#d55e00", "#009e73", "#b5478a", "#2f9bd6", "#a87900", "#1f2933", "#7b4fa3")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
_DASHES = ("", "5 2", "1.5 1.5", "6 1.5 1.5 1.5")
_LABEL = 28  # characters of a method's name in a plot; the table has them whole


@dataclass(frozen=True)
class Style:
    """How one method is drawn, the same in all plots: no two of the first 32 are equal."""

    color: str
    marker: str
    """matplotlib's sign"""
    hollow: bool
    dash: str
    """lengths of dash and gap in line widths, as SVG writes them; empty: solid"""

    @property
    def line(self) -> Any:
        """matplotlib's line style."""
        return (0, tuple(float(length) for length in self.dash.split())) if self.dash else "-"


@dataclass(frozen=True)
class _Line:
    """One method's points in a panel."""

    method: str
    xs: list[float]
    means: list[float]
    stds: list[float]


def styles(record: SweepRecord) -> dict[str, Style]:
    """A style for each method that ran or that a paper names; colours repeat after eight, with another dash."""
    names = dict.fromkeys([*methods(record), *(figure.method for figure in record.paper)])
    size = len(_PALETTE)
    return {
        name: Style(
            color=_PALETTE[i % size],
            marker=_MARKERS[(i + 3 * (i // size)) % size],
            hollow=bool(i // size % 2),
            dash=_DASHES[i // size % len(_DASHES)],
        )
        for i, name in enumerate(names)
    }


def _short(name: str, most: int = _LABEL) -> str:
    """One line of printable characters, not too long."""
    text = " ".join("".join(c if c.isprintable() else " " for c in name).split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _ours(record: SweepRecord, data: str) -> list[_Line]:
    lines = []
    for method in methods(record, data):
        found = [entry for entry in summary(record) if (entry.data, entry.method) == (data, method)]
        xs, means, stds = [e.x for e in found], [e.mean for e in found], [e.std for e in found]
        lines.append(_Line(method, xs, means, stds))
    return lines


def _theirs(record: SweepRecord, data: str) -> list[_Line]:
    figures = [figure for figure in record.paper if figure.data == data]
    lines = []
    for method, source in dict.fromkeys((figure.method, figure.source) for figure in figures):
        points = sorted((f.x, f.value) for f in figures if (f.method, f.source) == (method, source))
        lines.append(_Line(method, [x for x, _ in points], [y for _, y in points], [0.0] * len(points)))
    return lines


@dataclass(frozen=True)
class _Axis:
    """Where positions lie on the horizontal axis: by rank for categories, else by value or its logarithm."""

    xs: list[float]
    ranks: bool
    log: bool

    @classmethod
    def of(cls, record: SweepRecord, xs: Sequence[float]) -> _Axis:
        found = sorted(set(xs))
        ranks = record.axis_unit == "category" or len(found) < 2
        return cls(found, ranks, not ranks and found[0] > 0 and found[-1] > 10 * found[0])

    def at(self, x: float) -> float:
        return float(self.xs.index(x)) if self.ranks else math.log10(x) if self.log else x

    @property
    def width(self) -> float:
        return self.at(self.xs[-1]) - self.at(self.xs[0]) or 1.0

    def shown(self, xs: Iterable[float]) -> list[float]:
        """The positions whose labels have room."""
        kept: list[float] = []
        for x in sorted(xs):
            if not kept or self.at(x) - self.at(kept[-1]) > 0.07 * self.width:
                kept.append(x)
        return kept


def _places(values: Sequence[float], step: float, low: float, high: float) -> list[float]:
    """Ascending values moved apart to at least `step`, inside the plot as far as there is room."""
    last = len(values) - 1
    places = [min(place, high - step * (last - i)) for i, place in enumerate(_spread(values, step))]
    return [max(place, low + step * i) for i, place in enumerate(places)]


def _dodge(axis: _Axis, i: int, n: int) -> float:
    """A shift to the side, so that error bars of one position do not hide each other."""
    if n < 2:
        return 0.0
    room = min((axis.at(b) - axis.at(a) for a, b in pairwise(axis.xs)), default=1.0)
    return (i / (n - 1) - 0.5) * min(room * 0.6, 0.08 * n if axis.ranks else 0.03 * axis.width)


def _draw(axes: Any, lines: Sequence[_Line], axis: _Axis, look: dict[str, Style]) -> list[tuple[float, float, str]]:
    """Draws the lines; returns (y, x, method) of their right ends."""
    ends = []
    for i, line in enumerate(lines):
        style = look[line.method]
        at = [axis.at(x) + _dodge(axis, i, len(lines)) for x in line.xs]
        axes.errorbar(
            at,
            line.means,
            yerr=line.stds if any(line.stds) else None,
            color=style.color,
            ls="none" if axis.ranks else style.line,
            lw=1.5,
            elinewidth=0.9,
            capsize=2,
            marker=style.marker,
            ms=4.5,
            mfc="white" if style.hollow else style.color,
            mew=1.1,
            label=legend_text(line.method),
        )
        ends.append((line.means[-1], at[-1], line.method))
    return sorted(ends)


def _mark_positions(axes: Any, record: SweepRecord, lines: Sequence[_Line], axis: _Axis) -> None:
    """The horizontal axis: positions by their names, where there is room for them."""
    shown = axis.shown({x for line in lines for x in line.xs})
    axes.set_xticks([axis.at(x) for x in shown], [_short(tick(record, x)) for x in shown], parse_math=False)
    edge = 0.4 if axis.ranks else 0.05 * axis.width
    axes.set_xlim(axis.at(axis.xs[0]) - edge, axis.at(axis.xs[-1]) + edge)


def _name(axes: Any, ends: Sequence[tuple[float, float, str]], step: float, look: dict[str, Style]) -> None:
    """Each line's name right of the panel, with its mark."""
    low, high = axes.get_ylim()
    beside = axes.get_yaxis_transform()
    for (y, x, method), place in zip(ends, _places([y for y, _, _ in ends], step, low, high), strict=True):
        style = look[method]
        axes.annotate(
            "",
            (x, y),
            (1.045, place),
            textcoords=beside,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": style.color, "lw": 0.6, "alpha": 0.6, "shrinkA": 2, "shrinkB": 3},
        )
        mark = {"marker": style.marker, "ms": 4.5, "mew": 1.1, "mfc": "white" if style.hollow else style.color}
        axes.plot([1.055], [place], transform=beside, clip_on=False, color=style.color, ls="none", **mark)
        axes.annotate(
            _short(method),
            (1.055, place),
            (6, 0),
            xycoords=beside,
            textcoords="offset points",
            color=style.color,
            fontsize=8.5,
            va="center",
            annotation_clip=False,
            parse_math=False,
        )


def quality(record: SweepRecord, data: str, number: int) -> str | None:
    """The metric against x on one data set, mean ± standard deviation; beside it the paper's figures if there are any.

    Args:
        number: tells this plot's inner names from the others' on the page.
    """
    panels = [(title, lines) for title, lines in (("this sweep", _ours(record, data)), _paper(record, data)) if lines]
    if not positions(record, data):
        return None
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    look = styles(record)
    axis = _Axis.of(record, [x for _, lines in panels for line in lines for x in line.xs])
    height = max(3.2, 1.1 + 0.2 * max(len(lines) for _, lines in panels))
    figure = Figure(figsize=(10.0, height), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False, width_ratios=[1.3, 1.0][: len(panels)])[0]
    drawn = []
    for axes, (title, lines) in zip(grid, panels, strict=True):
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(GRID)
        axes.tick_params(colors=MUTED, length=0, labelsize=8.5)
        axes.set_axisbelow(True)
        axes.yaxis.grid(True, color=GRID, lw=0.8)
        _mark_positions(axes, record, lines, axis)
        axes.set_xlabel(_short(record.axis), color=MUTED, fontsize=8.5, parse_math=False)
        axes.set_title(title, loc="left", color=INK, fontsize=9, parse_math=False)
        drawn.append(_draw(axes, lines, axis, look))
    grid[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    grid[0].tick_params(labelleft=True)
    low, high = grid[0].get_ylim()
    for axes, ends in zip(grid, drawn, strict=True):
        axes.set_ylim(low, high)
        _name(axes, ends, (high - low) * 12.5 / (72 * (height - 0.8)), look)
    what = f"Quality on {_short(data)} against {_short(record.axis)}, by method"
    return _svg(figure, f"sweep-{number}", str(escape(what)))


def sweep_axes(record: SweepRecord, ax: Axes | None = None) -> Axes:
    """Draw the first data set's metric against x on matplotlib's axes, as the page does: mean ± standard deviation.

    Args:
        record: of the sweep.
        ax: axes to draw on; new ones unless given.

    Raises:
        InputError: no cell ran.
    """
    if not record.cells:
        raise InputError("no cell of this sweep ran, so there is nothing to draw")
    lines = _ours(record, record.cells[0].data)
    axis = _Axis.of(record, [x for line in lines for x in line.xs])
    axes = new_axes(ax)
    _draw(axes, lines, axis, styles(record))
    _mark_positions(axes, record, lines, axis)
    metric = record.cells[0].metric
    return label_axes(axes, record.axis, f"{METRIC_NAMES.get(metric, metric)} on test rows", legend=len(lines) > 1)


def _paper(record: SweepRecord, data: str) -> tuple[str, list[_Line]]:
    sources = dict.fromkeys(figure.source for figure in record.paper if figure.data == data)
    return _short(f"paper: {'; '.join(sources)}", 52), _theirs(record, data)


_SHAPES = {
    "o": '<circle cx="14" cy="6" r="3.4"/>',
    "s": '<path d="M11 3h6v6h-6z"/>',
    "^": '<path d="M14 2l4 7h-8z"/>',
    "D": '<path d="M14 2l4 4-4 4-4-4z"/>',
    "v": '<path d="M14 10l4-7h-8z"/>',
    "P": '<path d="M12.7 2h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7v-2.6h2.7z"/>',
    "X": '<path d="M12 2l2 2 2-2 2 2-2 2 2 2-2 2-2-2-2 2-2-2 2-2-2-2z"/>',
    "p": '<path d="M14 2l4 3-1.5 4.7h-5L10 5z"/>',
}


def swatch(style: Style) -> str:
    """A small SVG of the method's line and mark, for tables; holds no text from outside."""
    dash = f' stroke-dasharray="{style.dash}"' if style.dash else ""
    fill = "#fff" if style.hollow else style.color
    return (
        f'<svg class="swatch" viewBox="0 0 28 12" aria-hidden="true" stroke="{style.color}" fill="{fill}">'
        f'<path d="M0 6h28" stroke-width="1.6"{dash}/>{_SHAPES[style.marker]}</svg>'
    )

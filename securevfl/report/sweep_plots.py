"""A sweep's figure: the metric by position, a curve a method, beside the figures that a paper prints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from markupsafe import Markup

from securevfl.errors import InputError
from securevfl.report.chart import Chart, ChartCurve, draw_chart, panels_svg
from securevfl.report.quality import METRIC_NAMES
from securevfl.report.svg_shapes import MARKERS, shorten_text
from securevfl.report.sweep_record import SweepRecord, format_tick, list_positions, method_names, summarise_cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Style", "draw_quality", "draw_swatch", "method_styles", "sweep_axes"]

# Okabe and Ito's colours, distinct without red and green; yellow and sky blue are darkened to show on white.
_PALETTE = ("#0072b2", "#d55e00", "#009e73", "#b5478a", "#2f9bd6", "#a87900", "#1f2933", "#7b4fa3")
_DASHES = ("", "5 2", "1.5 1.5", "6 1.5 1.5 1.5")
_LABEL = 28  # characters of an axis title or mark; the table has them whole


@dataclass(frozen=True)
class Style:
    """How one method is drawn, the same in all figures: no two of the first 32 are equal."""

    color: str
    marker: str
    """matplotlib's sign"""
    hollow: bool
    dash: str
    """lengths of dash and gap; empty: solid"""


def method_styles(record: SweepRecord) -> dict[str, Style]:
    """A style for each method that ran or that a paper names; colours repeat after eight, with another dash."""
    names = dict.fromkeys([*method_names(record), *(figure.method for figure in record.paper)])
    size, signs = len(_PALETTE), tuple(MARKERS)
    return {
        name: Style(
            color=_PALETTE[i % size],
            marker=signs[(i + 3 * (i // size)) % size],
            hollow=bool(i // size % 2),
            dash=_DASHES[i // size % len(_DASHES)],
        )
        for i, name in enumerate(names)
    }


@dataclass(frozen=True)
class _Points:
    """One method's means and standard deviations by position."""

    method: str
    xs: list[float]
    means: list[float]
    stds: list[float]


def _measured_points(record: SweepRecord, data: str) -> list[_Points]:
    lines = []
    for method in method_names(record, data):
        found = [entry for entry in summarise_cells(record) if (entry.data, entry.method) == (data, method)]
        lines.append(_Points(method, [e.x for e in found], [e.mean for e in found], [e.std for e in found]))
    return lines


def _paper_points(record: SweepRecord, data: str) -> list[_Points]:
    figures = [figure for figure in record.paper if figure.data == data]
    lines = []
    for method, source in dict.fromkeys((figure.method, figure.source) for figure in figures):
        points = sorted((f.x, f.value) for f in figures if (f.method, f.source) == (method, source))
        lines.append(_Points(method, [x for x, _ in points], [y for _, y in points], [0.0] * len(points)))
    return lines


@dataclass(frozen=True)
class _Axis:
    """Where positions lie on the horizontal axis: by rank for categories, else by value or its logarithm."""

    xs: list[float]
    ranks: bool
    log: bool

    @classmethod
    def from_record(cls, record: SweepRecord, xs: Sequence[float]) -> _Axis:
        found = sorted(set(xs))
        ranks = record.axis_unit == "category" or len(found) < 2
        return cls(found, ranks, not ranks and found[0] > 0 and found[-1] > 10 * found[0])

    def coordinate(self, x: float) -> float:
        return float(self.xs.index(x)) if self.ranks else math.log10(x) if self.log else x

    @property
    def width(self) -> float:
        return self.coordinate(self.xs[-1]) - self.coordinate(self.xs[0]) or 1.0

    def labelled_positions(self, xs: Iterable[float]) -> list[float]:
        """The positions whose labels have room."""
        kept: list[float] = []
        for x in sorted(xs):
            if not kept or self.coordinate(x) - self.coordinate(kept[-1]) > 0.07 * self.width:
                kept.append(x)
        return kept


def _dodge(axis: _Axis, i: int, n: int) -> float:
    """A shift to the side, so that error bars of one position do not hide each other."""
    if n < 2:
        return 0.0
    room = min((axis.coordinate(b) - axis.coordinate(a) for a, b in pairwise(axis.xs)), default=1.0)
    return (i / (n - 1) - 0.5) * min(room * 0.6, 0.08 * n if axis.ranks else 0.03 * axis.width)


def _build_chart(record: SweepRecord, lines: Sequence[_Points], axis: _Axis, title: str) -> Chart:
    """The chart of these methods; marks are the positions' names, where there is room for them."""
    look = method_styles(record)
    curves = []
    for i, line in enumerate(lines):
        style, aside = look[line.method], _dodge(axis, i, len(lines))
        curves.append(
            ChartCurve(
                points=[(axis.coordinate(x) + aside, mean) for x, mean in zip(line.xs, line.means, strict=True)],
                deviations=line.stds,
                title=line.method,
                color=style.color,
                marker=style.marker,
                hollow=style.hollow,
                dash=style.dash,
                joined=not axis.ranks,
                width=1.5,
            )
        )
    edge = 0.4 if axis.ranks else 0.05 * axis.width
    shown = axis.labelled_positions({x for line in lines for x in line.xs})
    return Chart(
        curves=curves,
        x=shorten_text(record.axis, _LABEL),
        y="",
        label=title,
        title=title,
        x_span=(axis.coordinate(axis.xs[0]) - edge, axis.coordinate(axis.xs[-1]) + edge),
        x_marks=[(axis.coordinate(x), shorten_text(format_tick(record, x), _LABEL)) for x in shown],
        named=True,
        percent=True,
    )


def draw_quality(record: SweepRecord, data: str) -> Markup | None:
    """The metric against x on one data set, mean ± standard deviation; beside it the paper's figures if there are any.
    None where no run of the data set ended."""
    sources = dict.fromkeys(figure.source for figure in record.paper if figure.data == data)
    groups = (
        ("this sweep", _measured_points(record, data)),
        (f"paper: {'; '.join(sources)}", _paper_points(record, data)),
    )
    panels = [(shorten_text(title, 52), lines) for title, lines in groups if lines]
    if not list_positions(record, data):
        return None
    axis = _Axis.from_record(record, [x for _, lines in panels for line in lines for x in line.xs])
    charts = [_build_chart(record, lines, axis, title) for title, lines in panels]
    spans = [chart.spans[1] for chart in charts]
    span = min(low for low, _ in spans), max(high for _, high in spans)
    shares = [1.0] if len(charts) == 1 else [0.56, 0.44]
    height = max(260, 80 + 15 * max(len(lines) for _, lines in panels))
    label = f"Quality on {data} against {record.axis}, by method"
    return panels_svg([replace(chart, y_span=span) for chart in charts], shares, 820, height, label)


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
    lines = _measured_points(record, record.cells[0].data)
    axis = _Axis.from_record(record, [x for line in lines for x in line.xs])
    metric = record.cells[0].metric
    chart = replace(
        _build_chart(record, lines, axis, ""), x=record.axis, y=f"{METRIC_NAMES.get(metric, metric)} on test rows"
    )
    return draw_chart(chart, ax, legend=len(lines) > 1)


def draw_swatch(style: Style) -> Markup:
    """A small SVG of the method's line and mark, for tables."""
    dash = Markup(' stroke-dasharray="{}"').format(style.dash) if style.dash else ""
    shape = Markup(MARKERS[style.marker])  # noqa: S704 - a constant
    return Markup(
        '<svg class="swatch" viewBox="0 0 28 12" aria-hidden="true" stroke="{0}" fill="{1}">'
        '<path d="M0 6h28" stroke-width="1.6"{2}/><g transform="translate(14 6)">{3}</g></svg>'
    ).format(style.color, "#fff" if style.hollow else style.color, dash, shape)

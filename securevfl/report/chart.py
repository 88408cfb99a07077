"""A figure with axes, as a value: the page draws it as SVG, a notebook on matplotlib's axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from securevfl.report.svg_shapes import (
    clean_text,
    draw_line,
    draw_path,
    draw_picture,
    draw_text,
    estimate_width,
    marker_shape,
    shift_shapes,
    shorten_text,
    spread_apart,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["LIGHT", "Chart", "ChartCurve", "chart_svg", "draw_chart", "new_axes", "panels_svg", "round_marks"]

LIGHT = {"accent": "#2b6cb0", "ink": "#1f2933", "muted": "#66727f", "line": "#e3e8ee"}
"""The page's palette in its light scheme, for pictures outside the page."""

WIDTH, HEIGHT = 310, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 10, 38
_NAME = 36  # characters of a curve's name beside the plot
_LISTED, _ENTRY = 48, 16  # characters of a curve's name below it, and the height of its line
_MARK_GAP = 6  # between a mark's text and the plot
_TITLED = 17  # where marks may begin: the vertical axis's title stands before, its descenders included


@dataclass(frozen=True, kw_only=True)
class ChartCurve:
    """One line of a chart.

    Attributes:
        points: (x, y).
        color: CSS, or a name of the page's palette such as ``var(--accent)``; empty: the page's accent colour, and in
            notebooks the next colour of matplotlib's cycle.
        title: in a legend, and shown where the pointer rests.
        dash: lengths of dashes and gaps; empty: solid.
        marker: matplotlib's sign of the mark at each point; empty: none.
        hollow: whether marks are not filled.
        joined: whether points are joined by a line.
        width: of the line.
        opacity: of the line.
        deviations: length of each point's error bar to either side; empty: no error bars.
        intervals: ends of each point's error bar, in place of `deviations`.
    """

    points: Sequence[tuple[float, float]]
    color: str = ""
    title: str = ""
    dash: str = ""
    marker: str = ""
    hollow: bool = False
    joined: bool = True
    width: float = 2.2
    opacity: float = 1.0
    deviations: Sequence[float] = ()
    intervals: Sequence[tuple[float, float]] = ()

    @property
    def bars(self) -> list[tuple[float, float]]:
        """Ends of the error bars, for each point or for none."""
        if self.intervals:
            return list(self.intervals)
        return [(y - one, y + one) for (_, y), one in zip(self.points, self.deviations, strict=False)]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Curves over axes.

    Attributes:
        curves: in the order in which they are drawn.
        x, y: titles of the axes.
        label: what the chart shows, for screen readers.
        x_span, y_span: ends of the axes; chosen from the points unless given.
        x_marks: (value, text) of the lower axis; some round numbers unless given.
        diagonal: whether x = y is drawn, dashed.
        level: a height at which a dashed line is drawn.
        named: whether each curve's title is written to the right of its last point.
        listed: whether titles are listed below the chart, each beside a piece of its line.
        percent: whether marks of the left axis are in per cent.
        title: above the chart.
    """

    curves: Sequence[ChartCurve]
    x: str
    y: str
    label: str
    x_span: tuple[float, float] | None = None
    y_span: tuple[float, float] | None = None
    x_marks: Sequence[tuple[float, str]] | None = None
    diagonal: bool = False
    level: float | None = None
    named: bool = False
    listed: bool = False
    percent: bool = False
    title: str = ""

    @property
    def spans(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Ends of the horizontal and of the vertical axis."""
        points = [point for curve in self.curves for point in curve.points]
        heights = [y for _, y in points] + ([] if self.level is None else [self.level])
        for curve in self.curves:
            heights += [end for bar in curve.bars for end in bar]
        return self.x_span or _padded_span([x for x, _ in points]), self.y_span or _padded_span(heights)

    @property
    def guides(self) -> list[tuple[tuple[float, float], tuple[float, float]]]:
        """Ends of the dashed lines behind the curves."""
        (x0, x1), (y0, y1) = self.spans
        found = [((max(x0, y0),) * 2, (min(x1, y1),) * 2)] if self.diagonal else []
        return found + ([] if self.level is None else [((x0, self.level), (x1, self.level))])


def chart_svg(chart: Chart, width: float = WIDTH, height: float = HEIGHT) -> Markup:
    """The chart as a picture of the page."""
    return draw_picture(width, height, _draw_shapes(chart, width, height), chart.label)


def panels_svg(charts: Sequence[Chart], shares: Sequence[float], width: float, height: float, label: str) -> Markup:
    """Charts with the same vertical axis side by side in one picture.

    Args:
        charts: from left to right.
        shares: of the width, one a chart.
        width, height: of the picture.
        label: for screen readers.
    """
    parts, left = [], 0.0
    for chart, share in zip(charts, shares, strict=True):
        parts.append(shift_shapes(left, 0, _draw_shapes(chart, width * share, height)))
        left += width * share
    return draw_picture(width, height, parts, label)


def _draw_shapes(chart: Chart, width: float, height: float) -> list[Markup]:
    (x0, x1), (y0, y1) = chart.spans
    names = [shorten_text(curve.title, _NAME) for curve in chart.curves] if chart.named else []
    right = width - _RIGHT - (22 + max(map(estimate_width, names), default=0.0) if names else 0.0)
    top, low = _TOP + (16 if chart.title else 0), height - _BOTTOM - (_ENTRY * len(chart.curves) if chart.listed else 0)
    marks = round_marks(y0, y1, percent=chart.percent)
    left = max(_LEFT, _TITLED + ceil(max((estimate_width(text) for _, text in marks), default=0.0)) + _MARK_GAP)

    def place_point(x: float, y: float) -> tuple[float, float]:
        return left + (x - x0) / (x1 - x0) * (right - left), low - (y - y0) / (y1 - y0) * (low - top)

    parts = [draw_text(left, 12, chart.title, kind="strong")] if chart.title else []
    for value, text in marks:
        _, mark = place_point(x0, value)
        parts.append(Markup('<path class="grid" d="M{} {:.1f}H{:.1f}"/>').format(left, mark, right))
        parts.append(draw_text(left - _MARK_GAP, mark + 4, text, anchor="end", kind="muted"))
    for value, text in chart.x_marks if chart.x_marks is not None else round_marks(x0, x1):
        half = 0.6 * estimate_width(text)  # half and a margin: long names of the first and last bin stay inside
        middle = max(min(place_point(value, y0)[0], width - half), half)
        parts.append(draw_text(middle, low + 16, text, anchor="middle", kind="muted"))
    for start, end in chart.guides:
        parts.append(draw_path([place_point(*start), place_point(*end)], color="var(--muted)", dash="3 3"))
    for curve in chart.curves:
        bars = [(place_point(x0, start)[1], place_point(x0, end)[1]) for start, end in curve.bars]
        parts += _draw_curve(curve, [place_point(*point) for point in curve.points], bars, named=chart.named)
    if names:
        ends = [place_point(*curve.points[-1]) for curve in chart.curves]
        parts += _write_names(chart.curves, names, ends, (right, top, low))
    if chart.listed:
        parts += _list_names(chart.curves, left, low + _BOTTOM)
    parts.append(draw_text((left + right) / 2, low + _BOTTOM - 4, chart.x, anchor="middle", kind="muted"))
    parts.append(
        Markup(
            '<text transform="translate(11 {:.1f}) rotate(-90)" text-anchor="middle" class="muted">{}</text>'
        ).format((top + low) / 2, clean_text(chart.y))
    )
    return parts


def _draw_curve(
    curve: ChartCurve, places: Sequence[tuple[float, float]], bars: Sequence[tuple[float, float]], *, named: bool
) -> list[Markup]:
    """Error bars, line and marks of one curve; `bars` are heights in the picture."""
    color, parts = curve.color or "var(--accent)", []
    title = "" if named else curve.title
    for (x, _), (start, end) in zip(places, bars, strict=False):
        if abs(start - end) > 0:
            parts.append(draw_path([(x, start), (x, end)], color=color, width=1.2))
            parts += [draw_line(x - 3, y, (x + 3, y), color=color) for y in (start, end)]
    if curve.joined:
        parts.append(
            draw_path(places, color=color, width=curve.width, dash=curve.dash, opacity=curve.opacity, title=title)
        )
    if curve.marker:
        parts += [marker_shape(x, y, curve.marker, color=color, hollow=curve.hollow, title=title) for x, y in places]
    return parts


def _write_names(
    curves: Sequence[ChartCurve],
    names: Sequence[str],
    ends: Sequence[tuple[float, float]],
    room: tuple[float, float, float],
) -> list[Markup]:
    """Each curve's name with its mark, to the right of the plot, joined to the curve's last point by a thin line."""
    right, top, low = room
    order = sorted(range(len(curves)), key=lambda i: ends[i][1])
    parts = []
    for i, y in zip(order, spread_apart([ends[i][1] for i in order], 14, top, low), strict=True):
        color = curves[i].color or "var(--accent)"
        parts.append(draw_path([ends[i], (right + 10, y)], color=color, width=0.6, opacity=0.6))
        parts.append(marker_shape(right + 14, y, curves[i].marker or "o", color=color, hollow=curves[i].hollow))
        parts.append(draw_text(right + 22, y + 4, names[i], color=color))
    return parts


def _list_names(curves: Sequence[ChartCurve], left: float, top: float) -> list[Markup]:
    """A line for each curve: a piece of it, and its title."""
    parts = []
    for i, curve in enumerate(curves):
        color, y = curve.color or "var(--accent)", top + _ENTRY * (i + 0.5)
        piece = [(left, y), (left + 22, y)]
        parts.append(draw_path(piece, color=color, width=curve.width, dash=curve.dash, opacity=curve.opacity))
        parts.append(draw_text(left + 30, y + 4, shorten_text(curve.title, _LISTED)))
    return parts


def _padded_span(values: Sequence[float]) -> tuple[float, float]:
    """From the least to the largest, a little more to both sides."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return low - room, high + room


def round_marks(low: float, high: float, *, percent: bool = False) -> list[tuple[float, str]]:
    """Three to six round numbers between two others, with their text."""
    raw = (high - low) / 4
    unit = 10.0 ** floor(log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * 0.999)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    found = [k * step for k in range(first, last + 1)]
    return [(value, f"{100 * value:.4g} %".replace("-", "−") if percent else _mark_text(value)) for value in found]


def _mark_text(value: float) -> str:
    """A mark's text: at most six characters."""
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= scale:
            return f"{value / (1e3 if letter == 'k' else scale):.4g}{letter}".replace("-", "−")
    return f"{round(value, 6):.4g}".replace("-", "−")


def draw_chart(chart: Chart, ax: Axes | None = None, *, legend: bool = True) -> Axes:
    """Draw the chart on matplotlib's axes.

    Args:
        chart: what to draw.
        ax: axes to draw on; new ones of a notebook's size unless given.
        legend: whether curves with a title are listed.

    Returns:
        The axes.
    """
    ax = new_axes(ax)
    for start, end in chart.guides:
        ax.plot(*zip(start, end, strict=True), color=LIGHT["muted"], lw=1, ls=":")
    for curve in chart.curves:
        xs, ys = zip(*curve.points, strict=True)
        style: dict[str, Any] = {
            "color": LIGHT.get(curve.color.removeprefix("var(--").removesuffix(")"), curve.color) or None,
            "ls": ((0, tuple(map(float, curve.dash.split()))) if curve.dash else "-") if curve.joined else "none",
            "lw": 1.5,
            "alpha": curve.opacity,
            "marker": curve.marker or None,
            "ms": 4.5,
            "label": _legend_text(curve.title) if curve.title else None,
        } | ({"mfc": "white"} if curve.hollow else {})
        if any(start < end for start, end in curve.bars):
            reach = [[max(0.0, y - start), max(0.0, end - y)] for y, (start, end) in zip(ys, curve.bars, strict=True)]
            ax.errorbar(xs, ys, yerr=list(zip(*reach, strict=True)), elinewidth=0.9, capsize=2, **style)
        else:
            ax.plot(xs, ys, **style)
    if chart.x_marks is not None:
        ax.set_xticks([x for x, _ in chart.x_marks], [text for _, text in chart.x_marks], parse_math=False)
    if chart.x_span is not None:
        ax.set_xlim(*chart.x_span)
    ax.set_xlabel(chart.x, parse_math=False)
    ax.set_ylabel(chart.y, parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)
    if legend and any(curve.title for curve in chart.curves):
        ax.legend(frameon=False, fontsize=9)
    return ax


def new_axes(ax: Axes | None = None) -> Axes:
    """The axes given, or new ones of a notebook's size."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    made: Axes = pyplot.subplots(figsize=(5.2, 3.8), layout="constrained")[1]
    return made


def _legend_text(name: str) -> str:
    """A name as a legend can show it: matplotlib reads a dollar sign as mathematics and hides a leading underscore."""
    return name.replace("$", r"\$").removeprefix("_") or "run"

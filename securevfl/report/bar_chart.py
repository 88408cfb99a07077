"""Horizontal bars with a label and a value each, as SVG for the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, log10

from markupsafe import Markup

from securevfl.report.chart import round_marks
from securevfl.report.svg_shapes import draw_box, draw_line, draw_picture, draw_text, estimate_width, shorten_text

__all__ = ["Bar", "BarRow", "bar_chart"]

_LABEL = 54  # characters of a row's label
_HEIGHT, _GAP, _AXIS, _LINE = 20, 12, 26, 14


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar.

    Attributes:
        end: where it ends.
        color: CSS.
        note: the text right of it.
        start: where it starts; at the axis unless given.
        share: of its length, from its end, in `second`: on a logarithmic axis lengths do not add up, so a part is a
            share of the length.
        second: CSS, the colour of this share.
        tick: a value to mark on it.
    """

    end: float
    color: str
    note: str
    start: float | None = None
    share: float = 0.0
    second: str = ""
    tick: float | None = None


@dataclass(frozen=True, kw_only=True)
class BarRow:
    """A label, and its bars below each other."""

    label: str
    bars: Sequence[Bar]


def bar_chart(
    rows: Sequence[BarRow],
    *,
    label: str,
    start: float = 0.0,
    end: float | None = None,
    log: bool = False,
    width: float = 400,
    most: int = _LABEL,
    beside: bool = False,
    mark_text: Callable[[float], str] | None = None,
) -> Markup:
    """The rows, from the top, over one axis.

    Args:
        rows: at least one.
        label: what the chart shows, for screen readers.
        start: where the axis starts; above 0 if it is logarithmic.
        end: where it ends; at the longest bar unless given.
        log: whether it is logarithmic.
        width: of the picture; a telephone shows 400 with text of 10 pixels.
        most: characters of a label.
        beside: whether labels stand left of the bars, as a wide picture has room for, rather than above them.
        mark_text: text of a number on the axis.
    """
    names = [shorten_text(row.label, most) for row in rows]
    bars = [bar for row in rows for bar in row.bars]
    end = end if end is not None else max([bar.end for bar in bars])
    end = end if end > start else start + 1.0
    left = 10 + max(map(estimate_width, names)) if beside else 2.0
    line = 0 if beside else _LINE
    right = width - 10 - max(estimate_width(bar.note) for bar in bars)

    def place_value(value: float) -> float:
        value = min(max(value, start), end)
        share = log10(value / start) / log10(end / start) if log else (value - start) / (end - start)
        return left + share * (right - left)

    heights = [max(1, len(row.bars)) * _HEIGHT + _GAP + line for row in rows]
    bottom = 4.0 + sum(heights)
    parts = []
    for value, text in _axis_marks(start, end, log=log, mark_text=mark_text, most=max(2, int((right - left) / 55))):
        parts.append(Markup('<path class="grid" d="M{:.1f} 4V{:.1f}"/>').format(place_value(value), bottom))
        half = estimate_width(text) / 2
        middle = min(max(place_value(value), half), width - half)
        parts.append(draw_text(middle, bottom + 15, text, anchor="middle", kind="muted"))
    top = 4.0
    for row, name, height in zip(rows, names, heights, strict=True):
        at = (left - 8, top + height / 2 + 4) if beside else (left, top + _GAP / 2 + line - 4)
        parts.append(draw_text(*at, name, anchor="end" if beside else "start"))
        for i, bar in enumerate(row.bars):
            parts += _draw_bar(bar, place_value, top + _GAP / 2 + line + i * _HEIGHT, start, name)
        top += height
    return draw_picture(width, bottom + _AXIS, parts, label)


def _draw_bar(bar: Bar, place: Callable[[float], float], top: float, start: float, name: str) -> list[Markup]:
    first, last = place(start if bar.start is None else bar.start), place(bar.end)
    split, height, title = last - bar.share * (last - first), _HEIGHT - 2, f"{name}: {bar.note}"
    parts = [draw_box(first, top, split - first, height, color=bar.color, title=title)]
    if bar.share:
        parts.append(draw_box(split, top, last - split, height, color=bar.second, title=title))
    if bar.tick is not None:
        parts.append(
            draw_line(place(bar.tick), top - 2, (place(bar.tick), top + height + 2), color="var(--muted)", width=2)
        )
    return [*parts, draw_text(max(first, last) + 5, top + height - 4, bar.note)]


def _axis_marks(
    start: float, end: float, *, log: bool, mark_text: Callable[[float], str] | None, most: int
) -> list[tuple[float, str]]:
    """Marks of the axis; of more than there is room for, every second or third."""
    if log:
        powers = [10.0**k for k in range(floor(log10(start)) + 1, floor(log10(end) + 1e-9) + 1)]
        found = [(power, f"{power:g}") for power in powers]
    else:
        found = round_marks(start, end)
    if mark_text is not None:
        found = [(value, mark_text(value)) for value, _ in found]
    return found[:: -(-len(found) // most)] if found else []

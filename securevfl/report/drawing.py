"""Small pictures written as SVG by hand: their text is the page's, their colours follow its light or dark scheme.

Every word goes through `markupsafe.escape`; numbers are rounded, so that the same record gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

__all__ = ["Line", "arrow", "box", "chart", "dot", "picture", "stroke", "word"]

WIDTH, HEIGHT = 360, 250
"""Of a chart, in its own units; it is shown as wide as its column."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 10, 38


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart.

    Attributes:
        points: (x, y), in the chart's own scale.
        color: as CSS has it; a name of the page's palette as ``var(--accent)``.
        title: shown where the pointer rests.
        dashed: whether it is drawn dashed.
        dots: whether each point is marked.
        joined: whether points are joined.
        thin: whether it stands back behind the others.
    """

    points: Sequence[tuple[float, float]]
    color: str = "var(--accent)"
    title: str = ""
    dashed: bool = False
    dots: bool = False
    joined: bool = True
    thin: bool = False


def picture(width: float, height: float, parts: Sequence[str], label: str) -> Markup:
    """An SVG of the page: `parts` are drawn by this module's functions.

    Args:
        width, height: of the picture's own units.
        parts: in the order in which they are drawn.
        label: what it shows, for who cannot see it.
    """
    inside = Markup("").join(Markup(part) for part in parts)  # noqa: S704 - made by the functions below, which escape
    return Markup('<svg class="drawn" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _n(width), _n(height), label, inside
    )


def word(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "") -> Markup:
    """Text at a place; `kind` is a class of the page's style: ``muted``, ``strong``."""
    return Markup('<text x="{}" y="{}" text-anchor="{}" class="{}">{}</text>').format(
        _n(x), _n(y), anchor, kind, _plain(text)
    )


def box(x: float, y: float, width: float, height: float, *, color: str, title: str = "", kind: str = "") -> Markup:
    """A filled rectangle."""
    return Markup(
        '<rect x="{}" y="{}" width="{}" height="{}" rx="2" class="{}" style="fill:{}"><title>{}</title></rect>'
    ).format(_n(x), _n(y), _n(max(width, 0)), _n(height), kind, color, _plain(title))


def dot(x: float, y: float, *, color: str, title: str = "") -> Markup:
    """A round mark, through which others are seen."""
    return Markup(
        '<circle cx="{}" cy="{}" r="4" style="fill:{}" fill-opacity="0.55"><title>{}</title></circle>'
    ).format(_n(x), _n(y), color, _plain(title))


def stroke(x: float, y: float, to: tuple[float, float], *, color: str, width: float = 1.0) -> Markup:
    """A line without a head."""
    return Markup('<line x1="{}" y1="{}" x2="{}" y2="{}" style="stroke:{};stroke-width:{}"/>').format(
        _n(x), _n(y), _n(to[0]), _n(to[1]), color, _n(width)
    )


def arrow(x: float, y: float, to: tuple[float, float], *, color: str, title: str = "") -> Markup:
    """A line with a head at its end."""
    (a, b), length = to, max(((to[0] - x) ** 2 + (to[1] - y) ** 2) ** 0.5, 1e-9)
    u, v = (a - x) / length, (b - y) / length
    head = " ".join(
        f"{_n(p)},{_n(q)}"
        for p, q in ((a, b), (a - 9 * u + 4 * v, b - 9 * v - 4 * u), (a - 9 * u - 4 * v, b - 9 * v + 4 * u))
    )
    return Markup(
        '<g style="stroke:{0};fill:{0}"><title>{1}</title><path d="M{2} {3}L{4} {5}" fill="none" stroke-width="1.6"/>'
        '<polygon points="{6}" stroke="none"/></g>'
    ).format(color, _plain(title), _n(x), _n(y), _n(a - 6 * u), _n(b - 6 * v), head)


def chart(
    lines: Sequence[Line],
    *,
    x: str,
    y: str,
    label: str,
    x_span: tuple[float, float] | None = None,
    y_span: tuple[float, float] | None = None,
    x_marks: Sequence[tuple[float, str]] | None = None,
    diagonal: bool = False,
    level: float | None = None,
    bars: Sequence[tuple[float, float, float]] = (),
) -> Markup:
    """Lines over axes.

    Args:
        lines: in the order in which they are drawn.
        x, y: titles of the axes.
        label: what it shows, for who cannot see it.
        x_span, y_span: from where to where; what the points need unless given.
        x_marks: (value, text) of the marks of the lower axis; three or so even ones unless given.
        diagonal: whether x = y is drawn, dashed.
        level: a height at which a dashed line is drawn.
        bars: (middle, y, deviation): a vertical bar of one deviation to both sides.
    """
    points = [point for line in lines for point in line.points]
    reach = [v for m, value, d in bars for v in (value - d, value + d)]
    x0, x1 = x_span or _span([p[0] for p in points])
    y0, y1 = y_span or _span([p[1] for p in points] + reach + ([] if level is None else [level]))

    def at(px: float, py: float) -> tuple[float, float]:
        across, up = (px - x0) / (x1 - x0), (py - y0) / (y1 - y0)
        return _LEFT + across * (WIDTH - _LEFT - _RIGHT), HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM)

    parts = []
    for value, text in _marks(y0, y1):
        left, height = at(x0, value)
        parts.append(Markup('<path class="grid" d="M{} {}H{}"/>').format(_n(left), _n(height), _n(WIDTH - _RIGHT)))
        parts.append(word(left - 6, height + 4, text, anchor="end", kind="muted"))
    for value, text in x_marks if x_marks is not None else _marks(x0, x1):
        across, low = at(value, y0)
        parts.append(word(across, low + 16, text, anchor="middle", kind="muted"))
    guides = [((max(x0, y0),) * 2, (min(x1, y1),) * 2)] if diagonal else []
    guides += [] if level is None else [((x0, level), (x1, level))]
    for start, end in guides:
        parts.append(_path([at(*start), at(*end)], "var(--muted)", 'stroke-dasharray="3 3" stroke-width="1"'))
    for line in lines:
        places = [at(*point) for point in line.points]
        width = 1.0 if line.thin else 2.2
        more = f'stroke-width="{width}"' + (' stroke-dasharray="6 3"' if line.dashed else "")
        more += ' opacity=".45"' if line.thin else ""
        if line.joined:
            parts.append(_path(places, line.color, more, line.title))
        if line.dots:
            parts += [
                Markup('<circle cx="{}" cy="{}" r="{}" style="fill:{}"><title>{}</title></circle>').format(
                    _n(a), _n(b), 3.4, line.color, _plain(line.title)
                )
                for a, b in places
            ]
    for middle, value, deviation in bars:
        (a, b), (_, c) = at(middle, value - deviation), at(middle, value + deviation)
        parts.append(_path([(a, b), (a, c)], "var(--ink)", 'stroke-width="1.2"'))
    parts.append(word((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 4, x, anchor="middle", kind="muted"))
    parts.append(
        Markup('<text transform="translate(11 {}) rotate(-90)" text-anchor="middle" class="muted">{}</text>').format(
            _n((_TOP + HEIGHT - _BOTTOM) / 2), _plain(y)
        )
    )
    return picture(WIDTH, HEIGHT, parts, label)


def _path(places: Sequence[tuple[float, float]], color: str, more: str, title: str = "") -> Markup:
    steps = "L".join(f"{_n(a)} {_n(b)}" for a, b in places)
    attributes = Markup(more)  # noqa: S704 - written above, of numbers alone
    return Markup('<path d="M{}" fill="none" style="stroke:{}" {}><title>{}</title></path>').format(
        steps, color, attributes, _plain(title)
    )


def _span(values: Sequence[float]) -> tuple[float, float]:
    """From the least to the largest, a little more to both sides."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return low - room, high + room


def _marks(low: float, high: float) -> list[tuple[float, str]]:
    """Round numbers between two others, three to six of them, with their text."""
    from math import ceil, floor, log10

    raw = (high - low) / 4
    unit = 10.0 ** floor(log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * 0.999)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [(k * step, _short(k * step)) for k in range(first, last + 1)]


def _short(value: float) -> str:
    """A mark's text: at most six characters."""
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= scale:
            return f"{value / (1e3 if letter == 'k' else scale):.4g}{letter}".replace("-", "−")
    return f"{round(value, 6):.4g}".replace("-", "−")


def _n(value: float) -> str:
    """A place in a picture: one digit behind the point."""
    return f"{value:.1f}".removesuffix(".0")


def _plain(text: str) -> str:
    """One line of printable characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())

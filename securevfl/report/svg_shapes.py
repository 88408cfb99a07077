"""Shapes of the page's pictures as SVG, in the page's font and its light or dark colours.

Every text goes through `markupsafe.escape`; numbers are rounded, so that the same record gives the same bytes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from markupsafe import Markup

__all__ = [
    "MARKERS",
    "clean_text",
    "draw_arrow",
    "draw_box",
    "draw_dot",
    "draw_line",
    "draw_path",
    "draw_picture",
    "draw_text",
    "estimate_width",
    "marker_shape",
    "shift_shapes",
    "shorten_text",
    "spread_apart",
]

_SIZE = 11.5  # of the page's `svg.drawn`, in a picture's units

MARKERS = {
    "o": '<circle cx="0" cy="0" r="3.4"/>',
    "s": '<path d="M-3-3h6v6h-6z"/>',
    "^": '<path d="M0-4l4 7h-8z"/>',
    "D": '<path d="M0-4l4 4-4 4-4-4z"/>',
    "v": '<path d="M0 4l4-7h-8z"/>',
    "P": '<path d="M-1.3-4h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7v-2.6h2.7z"/>',
    "X": '<path d="M-2-4l2 2 2-2 2 2-2 2 2 2-2 2-2-2-2 2-2-2 2-2-2-2z"/>',
    "p": '<path d="M0-4l4 3-1.5 4.7h-5L-4-1z"/>',
}
"""matplotlib's sign of a marker → its shape around the origin."""


def draw_picture(width: float, height: float, parts: Sequence[str], label: str) -> Markup:
    """An SVG of the page.

    Args:
        width, height: in the picture's units.
        parts: shapes of this module, in the order in which they are drawn.
        label: what the picture shows, for screen readers.
    """
    inside = Markup("").join(Markup(part) for part in parts)  # noqa: S704 - made by the functions below, which escape
    return Markup('<svg class="drawn" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _format_coordinate(width), _format_coordinate(height), clean_text(label), inside
    )


def draw_text(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "", color: str = "") -> Markup:
    """Text at a point.

    Args:
        x, y: of the base line.
        text: one line.
        anchor: ``start``, ``middle`` or ``end``: what of the text lies at x.
        kind: a class of the page's style: ``muted``, ``strong``.
        color: CSS; the style's unless given.
    """
    style = Markup(' style="fill:{}"').format(color) if color else ""
    return Markup('<text x="{}" y="{}" text-anchor="{}" class="{}"{}>{}</text>').format(
        _format_coordinate(x), _format_coordinate(y), anchor, kind, style, clean_text(text)
    )


def draw_box(x: float, y: float, width: float, height: float, *, color: str, title: str = "", kind: str = "") -> Markup:
    """A filled rectangle."""
    return Markup(
        '<rect x="{}" y="{}" width="{}" height="{}" rx="2" class="{}" style="fill:{}"><title>{}</title></rect>'
    ).format(
        _format_coordinate(x),
        _format_coordinate(y),
        _format_coordinate(max(width, 0)),
        _format_coordinate(height),
        kind,
        color,
        clean_text(title),
    )


def draw_dot(x: float, y: float, *, color: str, title: str = "") -> Markup:
    """A round, half transparent mark."""
    return Markup(
        '<circle cx="{}" cy="{}" r="4" style="fill:{}" fill-opacity="0.55"><title>{}</title></circle>'
    ).format(_format_coordinate(x), _format_coordinate(y), color, clean_text(title))


def draw_line(x: float, y: float, to: tuple[float, float], *, color: str, width: float = 1.0) -> Markup:
    """A straight line."""
    return Markup('<line x1="{}" y1="{}" x2="{}" y2="{}" style="stroke:{};stroke-width:{}"/>').format(
        _format_coordinate(x),
        _format_coordinate(y),
        _format_coordinate(to[0]),
        _format_coordinate(to[1]),
        color,
        _format_coordinate(width),
    )


def draw_arrow(x: float, y: float, to: tuple[float, float], *, color: str, title: str = "") -> Markup:
    """A straight line with a head at its end."""
    (a, b), length = to, max(((to[0] - x) ** 2 + (to[1] - y) ** 2) ** 0.5, 1e-9)
    u, v = (a - x) / length, (b - y) / length
    head = " ".join(
        f"{_format_coordinate(p)},{_format_coordinate(q)}"
        for p, q in ((a, b), (a - 9 * u + 4 * v, b - 9 * v - 4 * u), (a - 9 * u - 4 * v, b - 9 * v + 4 * u))
    )
    return Markup(
        '<g style="stroke:{0};fill:{0}"><title>{1}</title><path d="M{2} {3}L{4} {5}" fill="none" stroke-width="1.6"/>'
        '<polygon points="{6}" stroke="none"/></g>'
    ).format(
        color,
        clean_text(title),
        _format_coordinate(x),
        _format_coordinate(y),
        _format_coordinate(a - 6 * u),
        _format_coordinate(b - 6 * v),
        head,
    )


def draw_path(
    places: Sequence[tuple[float, float]],
    *,
    color: str,
    width: float = 1.0,
    dash: str = "",
    opacity: float = 1.0,
    title: str = "",
) -> Markup:
    """A line through several points; `dash` has the lengths of dash and gap."""
    steps = "L".join(f"{_format_coordinate(a)} {_format_coordinate(b)}" for a, b in places)
    dashes = Markup(' stroke-dasharray="{}"').format(dash) if dash else ""
    faint = Markup(' opacity="{:.2f}"').format(opacity) if opacity < 1 else ""
    return Markup('<path d="M{}" fill="none" style="stroke:{}" stroke-width="{}"{}{}><title>{}</title></path>').format(
        steps, color, _format_coordinate(width), dashes, faint, clean_text(title)
    )


def marker_shape(x: float, y: float, sign: str, *, color: str, hollow: bool = False, title: str = "") -> Markup:
    """A mark of `MARKERS` at a point; a hollow one shows the figure's background."""
    return Markup('<g transform="translate({} {})" style="stroke:{};fill:{}"><title>{}</title>{}</g>').format(
        _format_coordinate(x),
        _format_coordinate(y),
        color,
        "var(--panel)" if hollow else color,
        clean_text(title),
        Markup(MARKERS[sign]),  # noqa: S704 - a constant of this module
    )


def shift_shapes(x: float, y: float, parts: Sequence[str]) -> Markup:
    """Shapes, moved by (x, y)."""
    inside = Markup("").join(Markup(part) for part in parts)  # noqa: S704 - made by the functions above, which escape
    return Markup('<g transform="translate({} {})">{}</g>').format(_format_coordinate(x), _format_coordinate(y), inside)


def clean_text(text: str) -> str:
    """One line of printable characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def shorten_text(text: str, most: int) -> str:
    """One line of at most `most` printable characters."""
    text = clean_text(text)
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


_WIDE, _CAPITAL = 1.0, 0.7
"""Widths of a character in units of the font's size; names of columns are often in capitals."""


def estimate_width(text: str) -> float:
    """About how wide a text is, in a picture's units: nothing measures fonts before the page is shown."""
    return _SIZE * sum(
        _WIDE if unicodedata.east_asian_width(c) in "WF" else _CAPITAL if c.isupper() else 0.55 for c in text
    )


def spread_apart(values: Sequence[float], step: float, low: float, high: float) -> list[float]:
    """Ascending values moved apart to at least `step`, as little as that takes, and between `low` and `high` as far as
    there is room."""
    places = list(values)
    for _ in range(200):  # converges long before; a bound, because labels are not worth a hang
        moved = False
        for i in range(len(places) - 1):
            lack = step - (places[i + 1] - places[i])
            if lack > 1e-9:
                places[i] -= lack / 2
                places[i + 1] += lack / 2
                moved = True
        if not moved:
            break
    last = len(values) - 1
    places = [min(place, high - step * (last - i)) for i, place in enumerate(places)]
    return [max(place, low + step * i) for i, place in enumerate(places)]


def _format_coordinate(value: float) -> str:
    """A coordinate, with one digit after the point."""
    return f"{value:.1f}".removesuffix(".0")

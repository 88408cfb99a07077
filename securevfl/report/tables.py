"""Tables of one look, for the terminal and, as HTML, for notebooks.

Everything that comes from outside is shown as it is: rich reads no markup in it, HTML has it escaped.
"""

from __future__ import annotations

from html import escape
from itertools import zip_longest
from typing import Any

from rich import box
from rich.table import Column, Table
from rich.text import Text

__all__ = ["Shown", "make_table", "number_column", "table_html", "text_column"]

_CELL = "text-align:{};padding:2px 8px;vertical-align:top;white-space:pre-line"


def text_column(title: str, **options: Any) -> Column:
    """A column of names or sentences, which fold where there is no room; `options` are rich's."""
    return Column(Text(title), overflow="fold", **options)


def number_column(title: str, **options: Any) -> Column:
    """A column of figures: on the right, never folded; `options` are rich's."""
    return Column(Text(title), justify="right", no_wrap=True, **options)


def make_table(*columns: Column, title: str = "", boxed: bool = False, lines: bool = False) -> Table:
    """An empty table.

    Args:
        columns: from `text_column` and `number_column`.
        title: above it.
        boxed: draw a frame, for cells of several lines; otherwise a line below the header alone.
        lines: draw a line between rows.
    """
    return Table(
        *columns,
        title=Text(title, "bold") if title else None,
        title_justify="left",
        header_style="bold",
        caption_justify="left",
        box=box.HEAVY_HEAD if boxed else box.SIMPLE_HEAD,
        collapse_padding=not boxed,
        pad_edge=boxed,
        show_edge=boxed,
        show_lines=lines,
    )


class Shown(str):
    """A text whose `repr` is itself, so that a notebook or a console shows it as `print` would.

    Args:
        text: what it is.
        html: what a notebook shows in its place.
    """

    __slots__ = ("_html",)
    _html: str

    def __new__(cls, text: str, html: str) -> Shown:
        made = super().__new__(cls, text)
        made._html = html
        return made

    def __reduce__(self) -> tuple[type[Shown], tuple[str, str]]:
        return Shown, (str(self), self._html)

    def __repr__(self) -> str:
        return self.rstrip()

    def _repr_html_(self) -> str:
        return self._html


def table_html(table: Table) -> str:
    """The table with its title and caption as HTML."""
    sides = ["right" if column.justify == "right" else "left" for column in table.columns]
    head = "".join(
        f'<th style="{_CELL.format(side)}">{_escape_cell(column.header)}</th>'
        for side, column in zip(sides, table.columns, strict=True)
    )
    rows = zip_longest(*(list(column.cells) for column in table.columns), fillvalue="")
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="{_CELL.format(side)}">{_escape_cell(cell)}</td>' for side, cell in zip(sides, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    title = f"<div><b>{_escape_cell(table.title)}</b></div>" if table.title else ""
    below = f'<div style="max-width:60em">{_escape_cell(table.caption)}</div>' if table.caption else ""
    return f"<div>{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"


def _escape_cell(what: Any) -> str:
    return escape(what.plain if isinstance(what, Text) else str(what))

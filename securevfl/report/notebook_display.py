"""What a notebook shows: a rich table as HTML, and a text that prints as itself.

Everything that comes from outside is escaped; nothing is a script, and nothing is loaded.
"""

from __future__ import annotations

from html import escape
from itertools import zip_longest
from typing import Any

from rich.table import Table
from rich.text import Text

__all__ = ["Shown", "table_html"]

_CELL = "text-align:{};padding:2px 8px;vertical-align:top;white-space:pre-line"


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
        f'<th style="{_CELL.format(side)}">{_escaped(column.header)}</th>'
        for side, column in zip(sides, table.columns, strict=True)
    )
    rows = zip_longest(*(list(column.cells) for column in table.columns), fillvalue="")
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="{_CELL.format(side)}">{_escaped(cell)}</td>' for side, cell in zip(sides, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    title = f"<div><b>{_escaped(table.title)}</b></div>" if table.title else ""
    below = f'<div style="max-width:60em">{_escaped(table.caption)}</div>' if table.caption else ""
    return f"<div>{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"


def _escaped(what: Any) -> str:
    return escape(what.plain if isinstance(what, Text) else str(what))

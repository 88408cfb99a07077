"""What each table of a checked job contains, for the terminal: a few lines a party, no wider than 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.text import Text

from securevfl.data.overview import TableOverview
from securevfl.report.tables import make_table, number_column, text_column

__all__ = ["clean_name", "overview_table"]

_WIDTH = 80
_NAMED = 3
"""Columns that are named where several are constant."""
_ONE = {"numbers": "number", "categories": "category", "dates": "date", "truth values": "truth value"}


def overview_table(tables: Sequence[TableOverview]) -> RenderableType:
    """Size of each table, which columns are used, and what preparation takes them for."""
    shown = make_table(
        text_column("party", max_width=18),
        *map(number_column, ("rows", "columns", "missing")),
        text_column("which columns", ratio=1),
        title="What the tables contain",
    )
    shown.width, shown.collapse_padding = _WIDTH, False
    for one in tables:
        rows = "many" if one.rows is None else f"{one.rows:,}"
        shown.add_row(
            Text(one.party),
            Text(rows),
            Text(f"{one.columns:,}"),
            Text(_format_percent(one.missing_share)),
            Text(_describe_table(one)),
        )
    looked = max((one.looked for one in tables if one.rows is None or one.looked < one.rows), default=0)
    note = f"Column types and missing values are from the first {looked:,} rows." if looked else ""
    return Lines(shown, Text(note, "dim")) if note else shown


def _format_percent(share: float) -> str:
    """A share in per cent: never 0 % for a few, nor 100 % for most."""
    if 0 < share < 0.005:
        return "< 1 %"
    return "> 99 %" if 0.995 <= share < 1 else f"{share:.0%}".replace("%", " %")


def _describe_table(one: TableOverview) -> str:
    ids = " + ".join(map(clean_name, one.ids)) or "none found"
    classes = "" if one.classes is None else f" ({_format_count(one.classes, 'class', 'classes')})"
    roles = [f"{role} {clean_name(column)}{classes * (role == 'label')}" for role, column in one.roles.items()]
    lines = ["; ".join([f"identifier {ids}", *roles])]
    kinds = [f"{count:,} {kind if count > 1 else _ONE[kind]}" for kind, count in one.kind_counts.items()]
    if one.numeric_text_count:
        kinds[0] += f" ({one.numeric_text_count:,} in texts)"
    kinds += [f"{one.problems:,} with mistakes"] if one.problems else []
    lines.append(", ".join(kinds) or "no features")
    if one.unused:
        lines.append(f"not used: {_list_columns(one.unused)}")
    if one.partly and one.prepared:
        lines.append(f"taken as categories, though many values are numbers or dates: {_list_columns(one.partly)}")
    if one.constant_columns:
        lines.append(f"{'dropped as constant' if one.prepared else 'constant'}: {_list_columns(one.constant_columns)}")
    if one.scattered_columns:
        dropped = "dropped as names or free text" if one.prepared else "names or free text"
        lines.append(f"{dropped}: {_list_columns(one.scattered_columns)}")
    most = one.most_missing
    if most is not None and len(one.lines) > 1:
        lines.append(f"most missing: {clean_name(most.column)}, {_format_percent(most.missing)}")
    return "\n".join([*lines, *([one.written] if one.written else [])])


def _format_count(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _list_columns(columns: Sequence[str]) -> str:
    more = len(columns) - _NAMED
    return ", ".join(map(clean_name, columns[:_NAMED])) + (f" and {more:,} more" if more > 0 else "")


def clean_name(name: str) -> str:
    """A column's name without control characters, which would reach the terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name)

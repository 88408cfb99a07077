"""Notice a CSV file without a header line: its first row became the names of the columns."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from securevfl.data.dialect import DELIMITERS
from securevfl.data.prepare.numbers import parse_numbers

__all__ = ["describe_missing_header", "explain_one_column"]

_ROWS = 1_000
"""Rows whose values are compared with the names."""
_MOSTLY = 0.5
"""A file has no header if at least this share of its names are values of their own columns."""
_FEWEST = 2
"""A header may have one name that is also a value."""
_SHOWN = 4
_LONGEST = 60
_NAMED = 12
"""A header is written out for tables of at most so many columns."""


def describe_missing_header(table: Any, where: str, delimiter: str) -> str:
    """Explain that a table's names look like values, with the remedy; empty if they look like names.

    A name counts as a value if it is a number, and so are the column's values, or a text that occurs in the column.
    Numbers that count up by one are names: of pixels, or of years.

    Args:
        table: its rows, a `pyarrow.Table`.
        where: the file.
        delimiter: between its fields.
    """
    names = [str(name) for name in table.column_names]
    top = table.slice(0, _ROWS)
    if len(names) < _FEWEST or not top.num_rows:
        return ""
    numbers = [_read_number(name) for name in names]
    if _counts_up([number for number in numbers if number is not None]):
        return ""
    alike = sum(
        _is_value(name, number, column) for name, number, column in zip(names, numbers, top.columns, strict=True)
    )
    if alike < max(_FEWEST, _MOSTLY * len(names)):
        return ""
    shown = ", ".join(map(repr, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")
    return (
        f"{where} seems to have no header line: its first row, {shown}, would become the names of its columns. "
        f"Insert a first line with a name for each column{_write_header(len(names), delimiter)}"
    )


def explain_one_column(names: Sequence[str], where: str, delimiter: str) -> str:
    """Explain that a table has one column because another delimiter is in its header; empty if it is not so.

    Args:
        names: of its columns.
        where: the file.
        delimiter: between its fields, as far as one knows.
    """
    other = next((one for one in DELIMITERS if one != delimiter and len(names) == 1 and one in names[0]), None)
    if other is None:
        return ""
    return (
        f"{where} has one column, {names[0][:_LONGEST]!r}: its delimiter is {delimiter!r}, and {other!r} is in that "
        f"name; set delimiter = {other!r}, or leave it out to have it detected"
    )


def _read_number(name: str) -> float | None:
    """The number that a name is; None for other names."""
    value = float(parse_numbers([name], ".")[0])
    return None if math.isnan(value) else value


def _counts_up(numbers: Sequence[float]) -> bool:
    return len(numbers) > 1 and all(after - before == 1 for before, after in pairwise(numbers))


def _is_value(name: str, number: float | None, column: Any) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    if number is not None:
        kind = column.type
        if pa.types.is_null(kind):
            return True
        return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))
    if not name.strip() or not pa.types.is_string(column.type):
        return False
    return bool(pc.any(pc.equal(column, name)).as_py())


def _write_header(columns: int, delimiter: str) -> str:
    """A header to copy, for a table that is not wide."""
    if columns > _NAMED:
        return f", {columns} of them"
    line = io.StringIO()
    csv.writer(line, delimiter=delimiter, lineterminator="").writerow(["id", *(f"x{i}" for i in range(1, columns))])
    return f", such as {line.getvalue()}"

"""Find identifiers that end in a date, as in tables of monthly snapshots: ``A17_2026-10``, ``A17202610``, ``A17_1026``.

A person has a new identifier in each snapshot then. What may be answered about a person is counted by the identifier,
unless the table names the column of the person; so each snapshot would start the count at zero.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from securevfl.data.columns import ColumnUse, column_names
from securevfl.data.compound_ids import identifier_of
from securevfl.data.dialect import CsvForm
from securevfl.data.file_locations import place_of
from securevfl.data.lake import source_of
from securevfl.data.sample import SAMPLE, top_rows
from securevfl.errors import InputError

__all__ = ["describe_snapshots", "find_ending", "snapshot_hint"]

_MONTH = r"(?:0[1-9]|1[0-2])"
_DAY = r"(?:0[1-9]|[12][0-9]|3[01])"
_YEAR = r"20[1-4][0-9]"
_DATED = re.compile(
    rf"(?P<front>.+?)(?P<mark>[-_./: ]?)(?P<date>{_YEAR}[-_./]?{_MONTH}(?:[-_./]?{_DAY})?"
    rf"|(?<=[-_./: ]){_MONTH}[-_./]?[1-4][0-9])"
)
"""A year and a month, perhaps a day; or, after a mark, a month and the last two digits of a year."""
_MOSTLY = 0.9
_ALIKE = 3
"""Rows that must share a date on average: numbers that merely look like dates all differ."""
_FEWEST = 5


def find_ending(ids: Sequence[str], *, most: int = SAMPLE) -> str:
    """The most frequent date that identifiers end in; empty if they do not end in a few dates.

    Args:
        ids: identifiers.
        most: how many of them to look at, from the first on.
    """
    rows, dates = 0, Counter[str]()
    for text in islice(ids, most):
        rows += 1
        found = _DATED.fullmatch(text)
        if found is not None:
            dates[found["date"]] += 1
    if rows < _FEWEST or dates.total() < _MOSTLY * rows or len(dates) * _ALIKE > rows:
        return ""
    return dates.most_common(1)[0][0]


def describe_snapshots(where: str, ending: str, column: str = "") -> str:
    """The warning about a table whose identifiers end in dates.

    Args:
        where: the table.
        ending: see `find_ending`.
        column: which of its columns names the person, as far as one can see.
    """
    return (
        f"identifiers of {where} end in dates, such as {ending!r}: if each snapshot gives a person a new identifier, "
        "what may be answered about the person starts at zero with each; name the person's column beside id: "
        f'person = "{column or "COLUMN"}"'
    )


def snapshot_hint(path: str | Path, use: ColumnUse, *, form: CsvForm | None = None) -> list[str]:
    """The warning about a table, from its first rows; empty if its identifiers do not end in dates, if it names the
    person's column, or if it cannot be read.

    Args:
        path: a table, as for `read_table`.
        use: the use of its columns.
        form: the dialect of a CSV file, as far as the user gave it.
    """
    if use.person is not None or use.wrong_ids(str(path)):
        return []
    try:
        source = source_of(place_of(path), form=form, use=use)
        table = top_rows(source, use, SAMPLE)
        names = column_names(table.schema, source.location)
        if any(names.count(column) != 1 for column in use.ids):
            return []
        gathered = identifier_of(use.ids, source.location)
        for batch in table.to_batches():
            gathered.add(batch)
        ids = gathered.finish()
    except InputError:
        return []
    ending = find_ending(ids)
    return [describe_snapshots(source.location, ending, _person_column(table, ids, use))] if ending else []


def _person_column(table: Any, ids: Sequence[str], use: ColumnUse) -> str:
    """The column whose values stand before the date in the identifiers; of several identifier columns, the first."""
    if len(use.ids) > 1:
        return use.ids[0]
    fronts = [found["front"] if (found := _DATED.fullmatch(text)) is not None else "" for text in ids]
    for column, content in zip(table.column_names, table.columns, strict=True):
        if column not in use.ids:
            values = map(str, content.to_pylist())
            if sum(value == front for value, front in zip(values, fronts, strict=True)) >= _MOSTLY * len(fronts):
                return str(column)
    return ""

"""The tables of a draft: their first rows, and which of their columns join them and which is the label."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from securevfl.data.columns import ColumnUse, doubled_names
from securevfl.data.csv_rows import CsvRows
from securevfl.data.file_locations import place_of
from securevfl.data.headers import describe_missing_header
from securevfl.data.lake import RowSource, source_of
from securevfl.data.limits import DEFAULT_LIMITS
from securevfl.errors import InputError
from securevfl.jobfile.column_words import has_id_name
from securevfl.jobfile.joining import (
    counts_rows,
    describe_obstacle,
    distinct_values,
    doubt_single_ids,
    find_compound_ids,
    find_single_ids,
    identifies_rows,
    whole_numbers,
)
from securevfl.jobfile.label_guess import ColumnTable, has_label_name, offered_labels, rank_labels, sure_label
from securevfl.jobfile.named_columns import assign_columns
from securevfl.jobfile.toml_text import quote_text

__all__ = [
    "MOST_ROWS",
    "DraftTable",
    "find_ids",
    "find_labels",
    "guess_label",
    "guess_own_ids",
    "name_apart",
    "read_draft_table",
]

MOST_ROWS = 100_000
"""Rows of each table that guesses are made from."""
_WHOLE = frozenset("0123456789+- ")
"""Characters of whole numbers."""


@dataclass
class DraftTable:
    """One party's table, and what was found of it.

    Attributes:
        path: of the file.
        name: the party's.
        source: reads its rows.
        table: its first rows, a `pyarrow.Table`.
        ids: the columns that identify its rows in all tables; empty if nobody knows.
        id_reason: why that one column identifies them.
        label: the label's column; empty if it has none.
        reason: why that is guessed to be the label; empty if a user said so.
        labels: the columns of several labels.
        offered: what to ask the user about the label; empty unless the draft asks at this table.
        barred: columns that are no features → the reason.
        doubt: why a column that joins the tables was not taken as the identifier.
    """

    path: Path
    name: str
    source: RowSource
    table: Any = field(repr=False)
    ids: tuple[str, ...] = ()
    id_reason: str = "different in every row, and shared with the other tables"
    label: str = ""
    reason: str = ""
    labels: tuple[str, ...] = ()
    offered: str = ""
    doubt: str = ""
    barred: dict[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self.table.column_names)

    def with_text_numbers(self) -> Any:
        """The same rows, with whole numbers of a CSV file as the texts that they are: identifiers are read so."""
        numbers = whole_numbers(self.table) if isinstance(self.source, CsvRows) else []
        if not numbers:
            return self.table
        table, texts = (
            self.table,
            _read_top(self.source, _column_use(numbers), [one for one in self.columns if one in numbers]),
        )
        for column in numbers:
            if _WHOLE.issuperset("".join(texts[column].unique().to_pylist())):  # 12.0 is a number, and names nobody
                table = table.set_column(table.column_names.index(column), column, texts[column])
        return table

    def distinct_values(self, column: str) -> set[str]:
        """See `joining.distinct_values`."""
        return distinct_values(self.table, column)


def read_draft_table(path: Path, number: int) -> DraftTable:
    """Read a table's first rows; the party is named after the file.

    Args:
        path: of the table.
        number: its place, from 0, for a name where the file's gives none.

    Raises:
        InputError: it cannot be read, has no header or no rows.
    """
    source = source_of(place_of(path))
    table = _read_top(source, _column_use(), None)
    if not table.num_rows:
        raise InputError(f"{path} has no rows below its header: export it again, with its rows")
    name = re.sub(r"[^a-z0-9]+", "_", path.name.split(".")[0].lower()).strip("_") or f"party_{number + 1}"
    name = name if name[0].isalpha() else f"party_{name}"
    return DraftTable(path, name[:32], source, table)


def _column_use(texts: Sequence[str] = ()) -> ColumnUse:
    return ColumnUse.from_arguments(id=texts, label=None, features=(), categorical=(), classes=None, prepare="auto")


def _read_top(source: RowSource, use: ColumnUse, columns: Sequence[str] | None) -> Any:
    """The first rows of a table, a `pyarrow.Table`."""
    import pyarrow as pa

    batches, parts, rows = source.iter_batches(columns, use, DEFAULT_LIMITS), [], 0
    try:
        for batch in batches:
            parts.append(batch)
            rows += len(batch)
            if rows >= MOST_ROWS:
                break
    finally:
        batches.close()
    if not parts:
        return pa.table({})
    table = pa.Table.from_batches(parts).slice(0, MOST_ROWS)
    delimiter = source.dialect.delimiter if isinstance(source, CsvRows) else ""
    if delimiter and (lacking := describe_missing_header(table, source.location, delimiter)):
        raise InputError(lacking)
    for mistake in doubled_names(parts[0].schema.names, source.location):
        raise mistake
    return table


def name_apart(tables: list[DraftTable]) -> None:
    """Number the parties whose tables have one name."""
    seen: dict[str, int] = {}
    for one in tables:
        seen[one.name] = seen.get(one.name, 0) + 1
        if seen[one.name] > 1:
            one.name = f"{one.name}_{seen[one.name]}"


def find_ids(tables: list[DraftTable], given: tuple[str, ...], labels: tuple[str, ...]) -> str:
    """Columns that join the tables: the given ones, or one of each, or two or three; otherwise the reason why there are
    none.
    """
    if given:
        owned = assign_columns(given, {one.name: one.columns for one in tables}, "--id", everywhere=True)
        marked = assign_columns(labels, {one.name: one.columns for one in tables}, "--label", everywhere=False)
        for one in tables:
            one.ids = owned[one.name]
            doubled = [name for name in one.ids if one.ids.count(name) > 1 or name in marked[one.name]]
            if doubled:
                raise InputError(
                    f"column {doubled[0]!r} is named twice, among identifiers and labels; a column has one use"
                )
        return ""
    contents = [one.with_text_numbers() for one in tables]
    single = find_single_ids(contents)
    doubt = doubt_single_ids(contents, single) if single else ""
    if doubt:  # perhaps another column joins them, such as an e-mail address beside each table's own counter
        others = find_single_ids([one.drop_columns([name]) for one, name in zip(contents, single, strict=True)])
        if others and not doubt_single_ids(contents, others):
            single, doubt = others, ""
    if doubt:
        option = " ".join(f"--id {one.name}.{name}" for one, name in zip(tables, single, strict=True))
        for one, name in zip(tables, single, strict=True):
            one.doubt = f"perhaps {quote_text(name)}: {doubt}"
        return f"perhaps {' and '.join(dict.fromkeys(map(repr, single)))}: {doubt}; if they are the same, add {option}"
    found: list[tuple[str, ...]] = [(column,) for column in single]
    if not found:
        leave = [_no_part(one, labels) for one in tables]
        found = [tuple(columns) for columns in find_compound_ids(contents, leave)]
    for one, columns in zip(tables, found, strict=False):
        one.ids = columns
    return "" if found else describe_obstacle(contents, leave, [one.name for one in tables])


def _no_part(one: DraftTable, labels: tuple[str, ...]) -> set[str]:
    """Columns that cannot be part of an identifier: labels, and days in typed files, which have to be written as text
    first."""
    import pyarrow as pa

    typed = not isinstance(one.source, CsvRows)
    return {
        column
        for column in one.columns
        if column in labels or has_label_name(column) or (typed and pa.types.is_date(one.table[column].type))
    }


def guess_own_ids(one: DraftTable, count: int) -> list[str]:
    """Columns that may identify the rows of one table, without another to compare with: an identifier's name, another
    value in every row; the likeliest first.

    Args:
        one: the table.
        count: how many columns make an identifier; of several, none is guessed.
    """
    content = one.with_text_numbers()
    if count > 1:
        return []
    columns = [name for name in content.column_names if identifies_rows(content, name)]
    return sorted(columns, key=lambda name: (not has_id_name(name), counts_rows(content, name)))


def guess_label(tables: list[DraftTable]) -> None:
    """The label's column and party if enough speaks for them; otherwise what to ask the user for, at one table."""
    ranked = rank_labels([ColumnTable(party=one.name, table=one.table, ids=one.ids) for one in tables])
    by_name = {one.name: one for one in tables}
    if (sure := sure_label(ranked)) is not None:
        by_name[sure.party].label, by_name[sure.party].reason = sure.column, sure.why
        return
    offered = offered_labels(ranked)
    owner = by_name[offered[0].party] if offered else tables[0]
    shown = "; ".join(f"{one.column!r} of {one.party!r} ({one.why}): {one.option}" for one in offered)
    owner.offered = "which party has the label, and in which column; " + (
        f"perhaps {shown}" if shown else "name it with --label PARTY.COLUMN"
    )


def find_labels(tables: list[DraftTable], given: tuple[str, ...]) -> None:
    """The table that has the given label, or all of several labels."""
    owned = assign_columns(given, {one.name: one.columns for one in tables}, "--label", everywhere=False)
    owners = [one for one in tables if len(owned[one.name]) == len(given)]
    if len(given) == 1 and len(owners) > 1:
        names = ", ".join(str(one.path) for one in owners)
        option = f"--label {owners[0].name}.{given[0]}"
        raise InputError(
            f"{names} all have a column {given[0]!r}: name the party, {option}, and drop the others: they would be "
            "features that give the label away"
        )
    if len(owners) != 1:
        raise InputError(
            f"{len(owners)} tables have all of the labels {', '.join(given)}, which must belong to one party: "
            "rename or move the others"
        )
    names_of = owned[owners[0].name]
    owners[0].label, owners[0].labels = names_of[0], names_of if len(given) > 1 else ()

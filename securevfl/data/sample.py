"""Find all mistakes in a table's header and first rows, without reading the rest."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.data.categories import Column
from securevfl.data.column_builders import PersonColumn
from securevfl.data.columns import ColumnUse, column_names, convert_labels
from securevfl.data.compound_ids import identifier_of
from securevfl.data.csv_rows import CsvRows
from securevfl.data.dialect import CsvForm
from securevfl.data.file_locations import place_of
from securevfl.data.headers import describe_missing_header, explain_one_column
from securevfl.data.labels import Coded, check_label_column, require_classes, require_two
from securevfl.data.lake import RowSource, source_of
from securevfl.data.limits import DEFAULT_LIMITS
from securevfl.data.names import Names
from securevfl.data.prepare import fit_columns
from securevfl.data.roles import check_flags, check_target, check_weight, column_builders
from securevfl.data.table import check_ids, check_numbers
from securevfl.errors import InputError

__all__ = ["SAMPLE", "read_identifiers", "table_mistakes", "top_rows"]

SAMPLE = 1_000
"""Number of first rows examined."""


def table_mistakes(path: str | Path, use: ColumnUse, *, rows: int = SAMPLE, form: CsvForm | None = None) -> list[str]:
    """Return all mistakes in the first rows that would stop `read_table`, one after the other.

    Args:
        path: a table, as for `read_table`.
        use: the use of its columns.
        rows: number of first rows to examine.
        form: the dialect of a CSV file, as far as the user gave it.
    """
    try:
        source = source_of(place_of(path), form=form, use=use)
        file = source.location
        table = top_rows(source, use, rows)
        names = column_names(table.schema, file)
    except InputError as error:
        return [str(error)]
    found = [str(mistake) for mistake in use.find_mistakes(names, file)]
    if found and isinstance(source, CsvRows) and (joined := explain_one_column(names, file, source.dialect.delimiter)):
        return [joined]
    lacking = describe_missing_header(table, file, source.dialect.delimiter) if isinstance(source, CsvRows) else ""
    if found and lacking:
        return [lacking]
    if not table.num_rows:
        return [*found, f"{file} has no rows below its header: export it again, with its rows"]
    where = str(file) if table.num_rows < rows else f"{file}, first {rows:,} rows"
    single = {column for column in names if names.count(column) == 1}
    label = use.label
    if set(use.ids) <= single and not use.wrong_ids(where):
        found += _catch_mistake(lambda: check_ids(_read_identifiers(table, use, where), where))
    meant = {near for name in (*use.ids, label) if name and name not in names for near in _nearest_column(name, names)}
    features: dict[str, Column] = {}
    for column in use.select_features(names):
        if column in single - meant:
            found += _catch_mistake(partial(_check_feature, table[column], column, use, where, features))
    if use.preparation is not None and features:
        every = np.arange(table.num_rows)
        prepared = fit_columns(features, use.categorical, every, use.preparation, b"")
        found += [f"{where}: {problem}" for problem in prepared.problems]
        if table.num_rows < rows and prepared.lines and not any(line.width for line in prepared.lines):
            found.append(
                f"{where}: no column is left after preparation (dropped: {', '.join(features)}): give columns "
                "whose values differ between rows"
            )
    if use.person in single:
        found += _catch_mistake(lambda: _read_persons(table, use, where))
    for role, (column, gatherer) in column_builders(use.role_columns, where).items():
        if column in single:
            told = f"label {column}" if role.startswith("label ") else role
            found += _catch_mistake(partial(_check_role, table[column], told, gatherer, where))
    if label is not None and label in single and use.target == "classes":
        whole = table.num_rows < rows
        found += _catch_mistake(
            lambda: _check_labels(convert_labels(table[label], label, where), use.classes, where, whole=whole)
        )
    return found


def read_identifiers(path: str | Path, use: ColumnUse, *, most: int, form: CsvForm | None = None) -> Names | None:
    """Return all identifiers of a table; None if there are more than `most`, or if they cannot be read.

    Args:
        path: a table, as for `read_table`.
        use: the use of its columns.
        most: number of rows.
        form: the dialect of a CSV file, as far as the user gave it.
    """
    try:
        source = source_of(place_of(path), form=form, use=use)
        gathered = identifier_of(use.ids, source.location)
        batches, rows = source.iter_batches(list(use.ids), use, DEFAULT_LIMITS), 0
        try:
            for batch in batches:
                rows += len(batch)
                if rows > most:
                    return None
                gathered.add(batch)
        finally:
            batches.close()
        return gathered.finish() if rows else None
    except InputError:
        return None


def _read_identifiers(table: Any, use: ColumnUse, where: str) -> Names:
    gathered = identifier_of(use.ids, where)
    for batch in table.to_batches():
        gathered.add(batch)
    return gathered.finish()


def _read_persons(table: Any, use: ColumnUse, where: str) -> None:
    gathered = PersonColumn(str(use.person), where)
    for part in table[use.person].chunks:
        gathered.add(part)
    gathered.finish()


def _check_role(values: Any, role: str, gatherer: Any, where: str) -> None:
    for part in values.chunks:
        gatherer.add(part)
    found = gatherer.finish()
    if role.startswith("label "):
        check_flags(found, role.removeprefix("label "), where)
    if role == "label":
        check_target(found, len(found), where)
    if role == "weight":
        check_weight(found, len(found), where)


def _check_labels(values: Coded, classes: Sequence[object] | None, where: str, *, whole: bool) -> None:
    """Check the labels of the first rows; `whole` if there are no others."""
    check_label_column(values, classes, where)
    if classes is None:
        require_classes(values.values_found, len(values), where)
    if whole:
        require_two(values.values_found, where)


def _nearest_column(name: str, names: Sequence[str]) -> list[str]:
    """Return the column that a misspelled name probably means; it is then not a feature."""
    return difflib.get_close_matches(name, names, n=1, cutoff=0.5)


def top_rows(source: RowSource, use: ColumnUse, rows: int) -> Any:
    """Return the first rows of a table with all columns, as a `pyarrow.Table`.

    Raises:
        InputError: it is not a table of its format.
    """
    import pyarrow as pa

    batches = source.iter_batches(None, use, DEFAULT_LIMITS, rows)
    try:
        first = next(batches, None)
    finally:
        batches.close()
    if first is None:
        return pa.table({name: pa.array([], pa.null()) for name in source.column_names(DEFAULT_LIMITS)})
    return pa.Table.from_batches([first]).slice(0, rows)


def _check_feature(values: Any, column: str, use: ColumnUse, where: str, good: dict[str, Column]) -> None:
    feature = use.convert_feature(values, column, where)
    if column not in use.categorical:
        check_numbers(column, feature, where, prepared=use.preparation is not None)
    good[column] = feature


def _catch_mistake(check: Callable[[], None]) -> list[str]:
    try:
        check()
    except InputError as error:
        return [str(error)]
    return []

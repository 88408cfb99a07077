"""Read the columns that linkage compares, as text, separately from the features."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from securevfl.data.columns import ColumnUse
from securevfl.data.file_locations import place_of
from securevfl.data.lake import source_of
from securevfl.data.limits import TableLimits
from securevfl.errors import UnknownNameError

__all__ = ["read_texts", "table_columns"]


def table_columns(path: str | Path, limits: TableLimits) -> list[str]:
    """Return the names of a table's columns.

    Raises:
        InputError: it is not a table, or has too many columns.
    """
    return list(source_of(place_of(path, None), "").column_names(limits))


def read_texts(
    path: str | Path, columns: Mapping[str, str], limits: TableLimits, *, what: str = "linkage column"
) -> dict[str, list[object]]:
    """Read some columns: the texts of a CSV file verbatim, None for an empty field.

    Args:
        path: as for `read_table`.
        columns: field → column.
        limits: bounds on rows and bytes.
        what: they are, for messages.

    Raises:
        InputError: the file cannot be read.
        UnknownNameError: a column that does not exist.
    """
    source = source_of(place_of(path, None), "")
    names = source.column_names(limits)
    for column in columns.values():
        if column not in names:
            raise UnknownNameError(f"{what} of {source.location}:", column, names)
    wanted = [name for name in names if name in set(columns.values())]
    use = ColumnUse.from_arguments(id=wanted[0], label=None, features=wanted, categorical=wanted, classes=None)
    found: dict[str, list[object]] = {name: [] for name in wanted}
    for batch in source.iter_batches(wanted, use, limits):
        for name in wanted:
            found[name] += batch.column(name).to_pylist()
    return {field: found[column] for field, column in columns.items()}

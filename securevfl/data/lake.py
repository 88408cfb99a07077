"""Read files and folders of several formats, on disk or in object stores, as Arrow record batches.

Limits are checked first on what a file's header announces, then after each batch.
"""

from __future__ import annotations

from securevfl_net.table_formats import PARQUET

from securevfl.data.arrow_rows import ArrowRows, ParquetRows
from securevfl.data.columns import ColumnUse
from securevfl.data.csv_rows import CsvRows
from securevfl.data.databases.lakehouse import find_table_format, open_lakehouse_table
from securevfl.data.databases.query_rows import QUERY, open_query
from securevfl.data.dialect import CsvForm
from securevfl.data.file_locations import FileLocation
from securevfl.data.grouped_rows import group_rows
from securevfl.data.limits import DEFAULT_LIMITS, TableLimits
from securevfl.data.row_source import BATCH, RowSource

__all__ = ["ARROW", "BATCH", "PARQUET", "ArrowRows", "CsvRows", "ParquetRows", "RowSource", "source_of"]

ARROW = (".arrow", ".feather", ".ipc")
"""File name endings of Arrow's IPC format; files with other endings, except Parquet's, are read as CSV."""


def source_of(
    place: FileLocation,
    kind: str = "",
    form: CsvForm | None = None,
    use: ColumnUse | None = None,
    limits: TableLimits = DEFAULT_LIMITS,
) -> RowSource:
    """Return the row source of a place, by its ending.

    Args:
        place: a CSV file (compressed if it ends in .gz or .bz2), a Parquet file, a folder of Parquet files, a file
            in Arrow's IPC format, the folder of a Delta or an Iceberg table, or a query (.sql).
        kind: ``"CSV"``, ``"Parquet"`` or ``"Arrow"`` to override the ending.
        form: the dialect of a CSV file, as far as the user gave it.
        use: if it aggregates, the rows are those of `group_rows`.
        limits: bounds on what a query gives, or on what is aggregated.

    Raises:
        InputError: the place does not exist, the query fails, or the rows cannot be aggregated.
    """
    source = _open_source(place, kind, form, limits)
    return source if use is None else group_rows(source, use, limits)


def _open_source(place: FileLocation, kind: str, form: CsvForm | None, limits: TableLimits) -> RowSource:
    if not kind and place.suffix == QUERY:
        return open_query(place, limits)
    known = find_table_format(place) if not kind else ""
    if known:
        return open_lakehouse_table(place, known)
    if not kind:
        ending = place.suffix
        kind = "Parquet" if ending in PARQUET or place.is_folder else "Arrow" if ending in ARROW else "CSV"
    place.require_exists(folder=kind == "Parquet")
    if kind == "CSV":
        return CsvRows(place, form)
    return ParquetRows(place) if kind == "Parquet" else ArrowRows(place)

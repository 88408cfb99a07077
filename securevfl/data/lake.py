"""Read files and folders of several formats, on disk or in object stores, as Arrow record batches.

Limits are checked first on what a file's header announces, then after each batch.
"""

from __future__ import annotations

from securevfl_net.table_formats import PARQUET

from securevfl.data.arrow_rows import ArrowRows, ParquetRows
from securevfl.data.csv_rows import CsvRows
from securevfl.data.dialect import CsvForm
from securevfl.data.file_locations import FileLocation
from securevfl.data.row_source import BATCH, RowSource

__all__ = ["ARROW", "BATCH", "PARQUET", "ArrowRows", "CsvRows", "ParquetRows", "RowSource", "source_of"]

ARROW = (".arrow", ".feather", ".ipc")
"""File name endings of Arrow's IPC format; files with other endings, except Parquet's, are read as CSV."""


def source_of(place: FileLocation, kind: str = "", form: CsvForm | None = None) -> RowSource:
    """Return the row source of a place, by its ending.

    Args:
        place: a CSV file (compressed if it ends in .gz or .bz2), a Parquet file, a folder of Parquet files, or a file
            in Arrow's IPC format.
        kind: ``"CSV"``, ``"Parquet"`` or ``"Arrow"`` to override the ending.
        form: the dialect of a CSV file, as far as the user gave it.

    Raises:
        InputError: the place does not exist.
    """
    if not kind:
        ending = place.suffix
        kind = "Parquet" if ending in PARQUET or place.is_folder else "Arrow" if ending in ARROW else "CSV"
    place.require_exists(folder=kind == "Parquet")
    if kind == "CSV":
        return CsvRows(place, form)
    return ParquetRows(place) if kind == "Parquet" else ArrowRows(place)

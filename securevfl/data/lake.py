"""Sources of rows: files of several kinds, folders of them, on disks and in object stores, as Arrow record batches.

Limits are checked on what a source announces before anything is read, and on each batch before the next one is.
"""

from __future__ import annotations

from securevfl.data.arrow_rows import PARQUET, ArrowRows, ParquetRows
from securevfl.data.csv_rows import CsvRows
from securevfl.data.dialect import CsvForm
from securevfl.data.places import Place
from securevfl.data.row_source import BATCH, RowSource

__all__ = ["ARROW", "BATCH", "PARQUET", "ArrowRows", "CsvRows", "ParquetRows", "RowSource", "source_of"]

ARROW = (".arrow", ".feather", ".ipc")
"""Endings of files in Arrow's own format; tables that are neither these nor Parquet are CSV."""


def source_of(place: Place, kind: str = "", form: CsvForm | None = None) -> RowSource:
    """The source at a place, by its ending.

    Args:
        place: where: a CSV file (compressed ones by their ending: .gz, .bz2), a Parquet file, a folder of them, or a
            file in Arrow's own format.
        kind: ``"CSV"``, ``"Parquet"`` or ``"Arrow"`` whatever the ending is.
        form: what is said of how a CSV file is written.

    Raises:
        InputError: nothing is there.
    """
    if not kind:
        ending = place.suffix
        kind = "Parquet" if ending in PARQUET or place.is_folder else "Arrow" if ending in ARROW else "CSV"
    place.require(folder=kind == "Parquet")
    if kind == "CSV":
        return CsvRows(place, form)
    return ParquetRows(place) if kind == "Parquet" else ArrowRows(place)

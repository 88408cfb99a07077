"""Find Delta and Iceberg tables among folders, and open them with their libraries.

Their folders also contain Parquet files of rows that were deleted or replaced, so they are never read as plain folders
of Parquet files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from securevfl.data.databases.dataset_rows import DatasetRows
from securevfl.data.file_locations import FileLocation, is_address
from securevfl.errors import InputError

__all__ = ["find_table_format", "open_lakehouse_table"]

_LOG, _METADATA, _METADATA_FILE = "_delta_log", "metadata", ".metadata.json"


def find_table_format(place: FileLocation) -> str:
    """Return ``"Delta"`` or ``"Iceberg"`` if a folder is such a table; otherwise ``""``."""
    if not place.is_folder:
        return ""
    if place.with_path(f"{place.path}/{_LOG}").is_folder:
        return "Delta"
    return "Iceberg" if _list_metadata(place) else ""


def open_lakehouse_table(place: FileLocation, kind: str) -> DatasetRows:
    """Open the newest version of a Delta or an Iceberg table.

    Args:
        place: the table's folder.
        kind: ``"Delta"`` or ``"Iceberg"``.

    Raises:
        InputError: the library for it is not installed, or it cannot read the table.
    """
    return DatasetRows(place.where, kind, _open_delta(place) if kind == "Delta" else _open_iceberg(place))


def _open_delta(place: FileLocation) -> Any:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        raise _explain_missing(place, "Delta", "deltalake", "delta") from None
    try:
        return DeltaTable(_format_address(place)).to_pyarrow_dataset()
    except (DeltaError, OSError, ValueError) as error:
        raise InputError(f"{place.where} is not a Delta table that can be read: {_first_line(error)}") from None


def _open_iceberg(place: FileLocation) -> Any:
    try:
        from pyiceberg.table import StaticTable
    except ImportError:
        raise _explain_missing(place, "Iceberg", "pyiceberg", "iceberg") from None
    newest = _list_metadata(place)[-1]
    try:
        return _IcebergDataset(StaticTable.from_metadata(_format_address(place.with_path(newest))))
    except Exception as error:  # the library raises errors of many kinds, some of them plain
        raise InputError(f"{place.where} is not an Iceberg table that can be read: {_first_line(error)}") from None


@dataclass(frozen=True)
class _IcebergDataset:
    """An Iceberg table, with the interface of `ArrowDataset`."""

    table: Any

    @property
    def schema(self) -> Any:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return schema_to_pyarrow(self.table.schema())

    def count_rows(self) -> int:
        return int(self.table.scan().count())

    def to_batches(self, *, columns: list[str], batch_size: int) -> Iterable[Any]:
        for batch in self.table.scan(selected_fields=tuple(columns)).to_arrow_batch_reader():
            chosen = batch.select(columns)
            yield from (chosen.slice(start, batch_size) for start in range(0, len(chosen), batch_size))


def _list_metadata(place: FileLocation) -> list[str]:
    """Return the metadata files of an Iceberg table, the newest last: writers number them."""
    folder = place.with_path(f"{place.path}/{_METADATA}")
    if not folder.is_folder:
        return []
    return sorted(folder.list_files((_METADATA_FILE,)), key=lambda path: (_read_version(path), path))


def _read_version(path: str) -> int:
    """Return the number in ``v3.metadata.json`` or ``00003-….metadata.json``; 0 if there is none."""
    digits = path.rpartition("/")[2].removeprefix("v").partition("-")[0].partition(".")[0]
    return int(digits) if digits.isdecimal() else 0


def _format_address(place: FileLocation) -> str:
    return place.where if is_address(place.where) else place.path


def _explain_missing(place: FileLocation, kind: str, package: str, extra: str) -> InputError:
    return InputError(
        f"{place.where} is {'an' if kind[0] in 'AEIOU' else 'a'} {kind} table; the package {package} reads it: "
        f"pip install 'securevfl[{extra}]'"
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

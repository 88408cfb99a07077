"""Read rows from Parquet files, folders of Parquet files and Arrow files."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from securevfl_net.table_formats import PARQUET

from securevfl.data.arrow_numbers import TYPES
from securevfl.data.columns import ColumnUse, column_names
from securevfl.data.file_locations import FileLocation
from securevfl.data.limits import TableLimits
from securevfl.data.row_source import BATCH, Count, RowSource, bytes_each, is_text, kinds_of, translate_arrow_errors
from securevfl.errors import InputError

__all__ = ["ArrowRows", "ParquetRows"]

_AT_A_TIME = 1 << 20
"""Numbers of a wide table that are decoded at a time."""
_FEWEST = 256
"""Columns that are decoded at a time, whatever the rows."""


@dataclass(frozen=True)
class ParquetRows(RowSource):
    """A Parquet file, or all files of a folder in name order, with the columns of the first file.

    Subfolders are included; a subfolder named ``column=value`` adds that column.
    """

    place: FileLocation

    @property
    def location(self) -> str:
        return self.place.where

    @cached_property
    def _footers(self) -> dict[str, tuple[Any, Any]]:
        """Path → footer and schema of a single file: 0.1 seconds and 100 MB where a table has 30,000 columns."""
        return {}

    def _open(self, place: FileLocation, **options: Any) -> Any:
        """Open a file as Parquet; the ``with`` statement closes it."""
        known = self._footers.get(place.path)
        file = place.open_parquet(metadata=None if known is None else known[0], **options)
        if known is None and not self.place.is_folder:
            self._footers[place.path] = file.metadata, file.schema_arrow
        return file

    def _read_schema(self, place: FileLocation) -> Any:
        """The schema of a file, as a `pyarrow.Schema`."""
        if place.path in self._footers:
            return self._footers[place.path][1]
        with self._open(place) as file:
            return file.schema_arrow

    def _list_files(self) -> list[tuple[FileLocation, dict[str, Any]]]:
        """Yield each file with the columns that its folder names give."""
        import pyarrow.dataset as pa_dataset

        if not self.place.is_folder:
            return [(self.place, {})]
        files = self.place.list_files(PARQUET)
        if not files:
            raise InputError(
                f"{self.location} does not exist, or is neither a file nor a folder of Parquet files (names ending "
                f"in {' or '.join(PARQUET)}): name the party's table"
            )
        with translate_arrow_errors(self.location, "Parquet"):
            partitions = pa_dataset.partitioning(flavor="hive")
            found = pa_dataset.dataset(
                files,
                filesystem=self.place.filesystem,
                format="parquet",
                partitioning=partitions,
                partition_base_dir=self.place.path,
            )
            keys = {one.path: pa_dataset.get_partition_keys(one.partition_expression) for one in found.get_fragments()}
            return [(self.place.with_path(path), keys[path]) for path in files]

    def column_names(self, limits: TableLimits) -> list[str]:
        first, keys = self._list_files()[0]
        with translate_arrow_errors(self.location, "Parquet"):
            found = column_names(self._read_schema(first), self.location)
            limits.check(self.location, columns=len(found))
            return [*found, *(key for key in keys if key not in found)]

    def most_rows(self, columns: Sequence[str], use: ColumnUse, limits: TableLimits) -> int:
        rows = size = packed = 0
        for place, keys in self._list_files():
            with translate_arrow_errors(place.where, "Parquet"), self._open(place) as file:
                rows += file.metadata.num_rows
                limits.check(self.location, rows=rows, columns=file.metadata.num_columns)
                kinds = kinds_of(self._read_schema(place), columns, keys, place.where)
                size += file.metadata.num_rows * bytes_each(kinds)
                packed += place.size
                limits.check(self.location, size=size, packed=packed)
        return rows

    def iter_batches(
        self, columns: Sequence[str] | None, use: ColumnUse, limits: TableLimits, rows: int = BATCH
    ) -> Generator[Any]:
        count = Count(limits, self.location)
        for place, keys in self._list_files():
            count.packed += place.size
            with translate_arrow_errors(place.where, "Parquet"):
                yield from self._read_batches(place, keys, columns, count, rows)

    def number_groups(self, columns: Sequence[str], rows: int) -> list[list[str]]:
        width = max(_FEWEST, _AT_A_TIME // max(min(rows, BATCH), 1))
        if len(columns) <= 2 * width:
            return []
        place, _ = self._list_files()[0]
        with translate_arrow_errors(place.where, "Parquet"):
            schema = self._read_schema(place)
            kinds = dict(zip(schema.names, map(str, schema.types), strict=True))
        numbers = [name for name in columns if kinds.get(name) in TYPES]
        return [numbers[at : at + width] for at in range(0, len(numbers), width)]

    def iter_groups(self, groups: Sequence[Sequence[str]], limits: TableLimits) -> Generator[Any]:
        # `most_rows` has checked the announced memory of all columns; here each group must have the announced rows.
        for place, keys in self._list_files():
            with translate_arrow_errors(place.where, "Parquet"), self._open(place) as file:
                announced = file.metadata.num_rows
                _require_numbers(self._read_schema(place), [name for group in groups for name in group], keys, place)
                for group in groups:
                    rows = 0
                    for batch in file.iter_batches(BATCH, columns=list(group), use_threads=False):
                        rows += len(batch)
                        if rows > announced:
                            break
                        yield batch
                    if rows != announced:
                        raise InputError(
                            f"{place.where} announces {announced:,} rows, and column {group[0]!r} has "
                            f"{'more' if rows > announced else f'{rows:,}'}: the file is damaged; write it again"
                        )

    def _read_batches(
        self, place: FileLocation, keys: dict[str, Any], columns: Sequence[str] | None, count: Count, rows: int
    ) -> Iterator[Any]:
        import pyarrow as pa

        schema = self._read_schema(place)
        names = column_names(schema, place.where)
        there = set(names)
        wanted = [*names, *keys] if columns is None else list(columns)
        kinds = kinds_of(schema, wanted, keys, place.where) if columns is not None else {}
        own = [name for name in wanted if name in there]
        outside = [name for name in wanted if name not in there]
        texts = [name for name in own if is_text(schema.field(name).type)] if columns is not None else []
        # Keep repeated texts dictionary-encoded: a small file could expand beyond the memory before `Count` saw it.
        with self._open(place, read_dictionary=texts) as file:
            for batch in file.iter_batches(rows, columns=own if columns is not None else None):
                count.add(batch, bytes_each(kinds))
                if columns is None or batch.schema.names == wanted:
                    yield batch
                    continue
                found = {name: batch.column(batch.schema.get_field_index(name)) for name in own}
                found |= {name: pa.repeat(pa.scalar(keys[name]), len(batch)) for name in outside}
                yield pa.RecordBatch.from_arrays([found[name] for name in wanted], names=wanted)


def _require_numbers(schema: Any, columns: Sequence[str], keys: dict[str, Any], place: FileLocation) -> None:
    """Refuse texts where the first file has numbers, before they are decoded: a small file could expand beyond memory.

    Raises:
        InputError: a column holds something else than numbers, truth values or nothing; or is not there.
    """
    import pyarrow as pa

    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null, pa.types.is_decimal)
    for name, kind in kinds_of(schema, columns, keys, place.where).items():
        if not any(is_one(kind) for is_one in kinds):
            raise InputError(
                f"{place.where}: column {name!r} holds {kind}, and numbers in the first file: write all files alike, "
                "or leave the column out with features=…"
            )


@dataclass(frozen=True)
class ArrowRows(RowSource):
    """A file in Arrow's IPC format, random access or stream; Feather version 2 is the same format."""

    place: FileLocation

    @property
    def location(self) -> str:
        return self.place.where

    @contextmanager
    def _open_batches(self) -> Iterator[tuple[Any, Iterator[Any]]]:
        """Yield the schema and the batches."""
        import pyarrow as pa

        with translate_arrow_errors(self.location, "Arrow"), self.place.open_file() as file:
            try:
                reader = pa.ipc.open_file(file)
            except pa.ArrowInvalid:
                file.seek(0)
                with pa.ipc.open_stream(file) as stream:
                    yield stream.schema, iter(stream)
                return
            yield reader.schema, (reader.get_batch(i) for i in range(reader.num_record_batches))

    def column_names(self, limits: TableLimits) -> list[str]:
        with self._open_batches() as (schema, _):
            found = column_names(schema, self.location)
            limits.check(self.location, columns=len(found))
            return found

    def most_rows(self, columns: Sequence[str], use: ColumnUse, limits: TableLimits) -> int:
        import pyarrow as pa
        import pyarrow.dataset as pa_dataset

        with self._open_batches() as (schema, batches):
            each = bytes_each(kinds_of(schema, columns, {}, self.location))
            try:  # from what stands before each batch, which is not unpacked
                whole = pa_dataset.dataset(self.place.path, filesystem=self.place.filesystem, format="ipc")
                counts: Iterable[int] = [whole.count_rows()]
            except pa.ArrowInvalid:
                counts = (len(batch) for batch in batches)
            rows = 0
            for count in counts:
                rows += count
                limits.check(self.location, rows=rows, size=rows * each, packed=self.place.size)
        return rows

    def iter_batches(
        self, columns: Sequence[str] | None, use: ColumnUse, limits: TableLimits, rows: int = BATCH
    ) -> Generator[Any]:
        count = Count(limits, self.location, self.place.size)
        with self._open_batches() as (schema, batches):
            kinds = {} if columns is None else kinds_of(schema, columns, {}, self.location)
            for batch in batches:
                chosen = batch if columns is None else batch.select(columns)
                chosen.validate()  # the reader does not: buffers may be shorter than the rows that are announced
                count.add(chosen, bytes_each(kinds))
                yield from (chosen.slice(at, rows) for at in range(0, len(chosen), rows))

"""CSV and Parquet files as Arrow tables, within limits that are checked before and while they are read."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from securevfl.data.columns import ColumnUse, column_names
from securevfl.data.limits import NUMBER, TEXT, TableLimits
from securevfl.errors import InputError

__all__ = ["PARQUET", "arrow_table", "existing"]

PARQUET = (".parquet", ".pq")
"""Endings of Parquet files; tables with others are CSV."""

_BATCH = 1 << 16


def existing(path: str | Path) -> Path:
    """The path, of a file that exists.

    Raises:
        InputError: there is none.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file} does not exist or is no file: name the party's table")
    return file


def arrow_table(file: Path, use: ColumnUse, limits: TableLimits, *, parquet: bool) -> Any:
    """The columns that are used, as a `pyarrow.Table`.

    Args:
        file: CSV with a header (compressed ones by their ending: .gz, .bz2), or Parquet.
        use: which columns.
        limits: of what is read.
        parquet: which of the two it is.

    Raises:
        InputError: it cannot be read, is above a limit, or lacks a column.
    """
    import pyarrow as pa

    read, kind = (_parquet, "Parquet") if parquet else (_csv, "CSV")
    try:
        return read(file, use, limits)
    except InputError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError, MemoryError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise InputError(f"{file} is not a {kind} table: {lines[0]}") from None


def _used(use: ColumnUse, names: Sequence[str], where: str) -> list[str]:
    """The columns that are read, in the order of the file.

    Raises:
        InputError: they cannot be used as told.
    """
    for mistake in use.mistakes(names, where):
        raise mistake
    wanted = {use.id, use.label, *use.chosen(names)}
    return [name for name in names if name in wanted]


class _Counted(io.RawIOBase):
    """A CSV file, unpacked, as it is read: lines and bytes are counted, and none is passed on above a limit."""

    def __init__(self, file: Path, limits: TableLimits, texts: int) -> None:
        import pyarrow as pa

        super().__init__()
        self._stream = pa.input_stream(str(file))
        self._limits, self._where, self._packed = limits, str(file), file.stat().st_size
        self._texts = texts
        self._columns = 1
        self._in_header = True
        self._rows = self._size = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        data: bytes = self._stream.read(1 << 20 if size is None or size < 0 else size)
        if self._in_header:
            line, end, _ = data.partition(b"\n")
            self._columns += line.count(b",")
            self._in_header = not end
        self._rows += data.count(b"\n")
        self._size += len(data)
        each = NUMBER * max(self._columns - self._texts, 0) + TEXT * self._texts
        self._limits.check(
            self._where,
            rows=max(self._rows - 1, 0),
            columns=self._columns,
            size=max(self._size, each * self._rows),
            packed=self._packed,
        )
        return data

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def _csv(file: Path, use: ColumnUse, limits: TableLimits) -> Any:
    import pyarrow.csv as pa_csv

    with _Counted(file, limits, len({use.id, *use.categorical})) as stream:
        table = pa_csv.read_csv(stream, convert_options=use.csv_options())
    return table.select(_used(use, column_names(table.schema, str(file)), str(file)))


def _parquet(file: Path, use: ColumnUse, limits: TableLimits) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pa_parquet

    where, packed = str(file), file.stat().st_size
    with pa_parquet.ParquetFile(file) as source:
        schema, metadata = source.schema_arrow, source.metadata
        names = column_names(schema, where)
        limits.check(where, rows=metadata.num_rows, columns=len(names))
        wanted = _used(use, names, where)
        kinds = {name: schema.field(name).type for name in wanted}
        for name, kind in kinds.items():
            if pa.types.is_nested(kind):
                raise InputError(
                    f"{where}: column {name!r} holds {kind}; a column holds numbers or texts: take it apart, or leave "
                    "it out with features=…"
                )
        each = sum(NUMBER if _is_number(kind) else TEXT for kind in kinds.values())
        limits.check(where, size=metadata.num_rows * each, packed=packed)
    texts = [name for name, kind in kinds.items() if pa.types.is_string(kind) or pa.types.is_large_string(kind)]
    # Repeated texts stay packed, so that their size is known before they are unpacked.
    with pa_parquet.ParquetFile(file, read_dictionary=texts) as source:
        batches = list(_counted(source.iter_batches(_BATCH, columns=wanted), each, limits, where, packed))
        table = pa.Table.from_batches(batches, None if batches else source.schema_arrow).select(wanted)
    for name in texts:
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(kinds[name]))
    return table


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _counted(batches: Iterator[Any], each: int, limits: TableLimits, where: str, packed: int) -> Iterator[Any]:
    """The batches, as long as they are within the limits."""
    rows = texts = 0
    for batch in batches:
        rows += batch.num_rows
        texts += sum(_text_bytes(column) for column in batch.columns)
        limits.check(where, rows=rows, size=rows * each + texts, packed=packed)
        yield batch


def _text_bytes(column: Any) -> int:
    """Bytes of the texts of a column, unpacked; 0 for numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        lengths = pc.take(_lengths(column.dictionary), column.indices)
    elif pa.types.is_primitive(kind) or pa.types.is_null(kind):
        return 0
    else:
        lengths = _lengths(column)
    return int(pc.sum(pc.cast(lengths, pa.int64())).as_py() or 0)


def _lengths(values: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    binary = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    if any(is_one(kind) for is_one in binary):
        return pc.binary_length(values)
    return pa.array([values.nbytes // max(len(values), 1)] * len(values), pa.int64())

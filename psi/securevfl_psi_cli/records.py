"""Rows of a table as texts: CSV, plain or packed by gzip, and Parquet. No row, text or file above its limit is held."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from securevfl_psi.errors import InputError

from securevfl_psi_cli.summary import counted

__all__ = ["MAX_BYTES", "is_parquet", "records"]

MAX_BYTES = 1 << 33
"""Most bytes that are read of a table, unpacked, unless told otherwise."""

_RECORD = 1 << 24  # bytes of one row, however many lines it has
_TEXT = 1 << 17  # bytes of one field, which is the csv module's own bound
_COLUMNS = 1 << 14
_BATCH = 1 << 12
_OTHERS = {b"PK\x03\x04": "an Excel workbook or a ZIP archive", b"\xd0\xcf\x11\xe0": "an old Excel workbook"}
"""First bytes of files that are taken for CSV by mistake."""
_SEP = re.compile(r"sep=.?", re.IGNORECASE)


def is_parquet(path: Path) -> bool:
    """Whether the name says so; whatever does not is CSV."""
    return path.suffix in (".parquet", ".pq")


def records(
    path: Path, delimiter: str, most: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Header and rows, each with its place and as many fields as the header has.

    Args:
        path: the table.
        delimiter: between the fields of CSV.
        most: bytes that are read, unpacked.
        columns: of Parquet, those that are needed; None for all. CSV has all in any case.

    Yields:
        The place: of CSV the line where the row begins, from 1, of Parquet the row, from 0 (the header has -1).

    Raises:
        InputError: it cannot be read, is not what its name says, or is above a limit.
    """
    try:
        yield from (_parquet(path, most, columns) if is_parquet(path) else _csv(path, delimiter, most))
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


class _Lines:
    """The lines of a text, counted: rows, and the whole, are refused above their limits before they are held."""

    def __init__(self, stream: IO[str], path: Path, most: int) -> None:
        self._stream, self._path, self._most = stream, path, most
        self._whole = 0
        self.of_record = 0

    def __iter__(self) -> Iterator[str]:
        while line := self._stream.readline(_RECORD):
            size = len(line) if line.isascii() else len(line.encode("utf-8", "replace"))
            self._whole += size
            self.of_record += size
            if self.of_record >= _RECORD:
                raise InputError(f"{self._path}: a row has {_RECORD:,} bytes or more: is a quotation mark left open?")
            if self._whole > self._most:
                raise InputError(
                    f"{self._path} has more than {self._most:,} bytes, unpacked: raise --max-bytes if that is right"
                )
            yield line


def _csv(path: Path, delimiter: str, most: int) -> Iterator[tuple[int, list[str]]]:
    line, width, blank = 0, 0, 0
    try:
        with _opened(path) as stream:
            lines = _Lines(stream, path, most)
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            for fields in reader:
                begin, line = line + 1, reader.line_num
                lines.of_record = 0
                if begin == 1 and _SEP.fullmatch("".join(fields)):
                    raise InputError(
                        f"{path}: line 1 says {delimiter.join(fields)!r}, as spreadsheets do, and is no header: drop it"
                    )
                if not fields:  # a blank line, harmless at the end
                    blank = blank or begin
                    continue
                if blank:
                    raise InputError(f"{path}: line {blank} is blank; drop it")
                width = width or _checked(path, len(fields))
                if len(fields) != width:
                    raise InputError(
                        f"{path}: line {begin} has {counted(len(fields), 'field')}, the header {width}; "
                        "correct the line, or put fields that hold the delimiter in quotes"
                    )
                yield begin, fields
    except UnicodeDecodeError as error:
        after = f", after line {line}" if line else ""
        raise InputError(
            f"{path} is not UTF-8: byte {error.object[error.start]:#04x}{after}; save it as UTF-8"
        ) from None
    except csv.Error as error:
        raise InputError(f"{path}: line {line + 1} is not CSV: {error}") from None


def _opened(path: Path) -> IO[str]:
    first = b""
    if path.is_file():  # a pipe can be read once
        with path.open("rb") as stream:
            first = stream.read(4)
    for mark, what in _OTHERS.items():
        if first.startswith(mark):
            raise InputError(f"{path} is {what}, and no CSV: save the table as CSV in UTF-8")
    if path.suffix == ".gz":
        return gzip.open(path, "rt", newline="", encoding="utf-8-sig")
    return path.open(newline="", encoding="utf-8-sig")


def _checked(path: Path, width: int) -> int:
    if width > _COLUMNS:
        raise InputError(f"{path} has {width:,} columns; at most {_COLUMNS:,} are read: drop what is not needed")
    return width


def _parquet(path: Path, most: int, columns: Sequence[str] | None) -> Iterator[tuple[int, list[str]]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pa_parquet
    except ImportError:
        raise InputError(
            f"{path}: Parquet needs pyarrow: pip install 'securevfl-psi[parquet]', or save the table as CSV"
        ) from None
    if not path.is_file():
        raise InputError(f"{path} cannot be read: No such file or directory")
    try:
        with pa_parquet.ParquetFile(path) as source:
            schema = source.schema_arrow
        names = list(schema.names)
        _checked(path, len(names))
        yield -1, names
        wanted = list(dict.fromkeys(names if columns is None else columns))
        kinds = {name: _kind(path, schema.field(name)) for name in wanted}
        # Repeated texts stay packed until their length is known.
        texts = [name for name in wanted if pa.types.is_string(kinds[name]) or pa.types.is_large_string(kinds[name])]
        with pa_parquet.ParquetFile(path, read_dictionary=texts) as source:
            row = held = 0
            for batch in source.iter_batches(_BATCH, columns=wanted, use_threads=False):
                parts = [_texts(path, batch.column(name), row) for name in wanted]
                held += sum(len(text) for part in parts for text in part)
                if held > most:
                    raise InputError(
                        f"{path} has more than {most:,} bytes in its columns: raise --max-bytes if that is right"
                    )
                for fields in zip(*parts, strict=True):
                    yield row, list(fields)
                    row += 1
    except (pa.ArrowException, UnicodeDecodeError, KeyError, MemoryError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise InputError(f"{path} is not a Parquet table: {lines[0]}") from None


def _kind(path: Path, field: Any) -> Any:
    """The type of a column that is not nested."""
    import pyarrow as pa

    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_nested(kind):
        raise InputError(f"{path}: column {field.name!r} holds {kind}; leave it out, or take it apart")
    return kind


def _texts(path: Path, column: Any, row: int) -> list[str]:
    """The values of some rows as texts; a null is the empty one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    packed = column.dictionary if pa.types.is_dictionary(column.type) else column
    kind = packed.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        longest = pc.max(pc.binary_length(packed)).as_py() or 0
        if longest > _TEXT:
            raise InputError(f"{path}: a text from row {row} on has {longest:,} bytes; at most {_TEXT:,} are read")
    return ["" if value is None else str(value) for value in column.to_pylist()]

"""Read the rows of a table as texts: CSV, plain or compressed with gzip, and Parquet.

A row, a text or a file above its limit is refused before it is in memory. Each row comes with its place, for messages:
of CSV the line where it begins, from 1, as an editor shows it, of Parquet the row, from 0.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from securevfl_net.table_formats import GZIP, PARQUET, foreign_format
from securevfl_psi.errors import InputError

from securevfl_psi_cli.summary import format_count

__all__ = ["MAX_BYTES", "find_column", "is_parquet", "open_parquet", "read_columns", "read_rows"]

MAX_BYTES = 1 << 33
"""Most bytes that are read of a table, unpacked, unless the user gives another bound."""

_RECORD = 1 << 24  # bytes of one row, however many lines it has
_TEXT = 1 << 17  # bytes of one field, which is the csv module's own bound
_COLUMNS = 1 << 14
_BATCH = 1 << 12
_HEAD = 8  # bytes that tell a format
_SEP = re.compile(r"sep=.?", re.IGNORECASE)
_LONGEST = 60
_NAMED = 12  # columns that a message lists


def is_parquet(path: Path) -> bool:
    """Return True if the name ends as a Parquet file's; all others are CSV."""
    return path.suffix in PARQUET


def read_columns(
    path: Path, columns: Sequence[str], delimiter: str, most: int
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Read some columns.

    Args:
        path: the table.
        columns: their names.
        delimiter: between the fields of CSV.
        most: bytes that are read, unpacked.

    Yields:
        Each row's place, and its fields in the order of `columns`.

    Raises:
        InputError: it cannot be read, is empty, does not match its name, is above a limit, or lacks a column.
    """
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise InputError(f"delimiter {delimiter!r}; one character is possible, for example ';'")
    wanted = list(dict.fromkeys(columns))
    rows = read_rows(path, delimiter, most, wanted)
    _, header = next(rows, (0, None))
    if header is None:
        raise InputError(f"{path} is empty; a header and at least one row are needed")
    found = [find_column(path, header, column, delimiter) for column in columns]
    # Parquet skips the other columns itself; CSV has all of them in each row.
    places = [wanted.index(column) for column in columns] if is_parquet(path) else found
    for place, fields in rows:
        yield place, tuple([fields[i] for i in places])


def read_rows(
    path: Path, delimiter: str, most: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Read header and rows, each with its place and as many fields as the header has.

    Args:
        path: the table.
        delimiter: between the fields of CSV.
        most: bytes that are read, unpacked.
        columns: of Parquet, those that are needed; None for all. CSV has all in any case.

    Yields:
        The place (of Parquet's header -1) and the fields.

    Raises:
        InputError: it cannot be read, does not match its name, or is above a limit.
    """
    try:
        yield from (_read_parquet(path, most, columns) if is_parquet(path) else _read_csv(path, delimiter, most))
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def find_column(path: Path, header: Sequence[str], column: str, delimiter: str) -> int:
    """Return a column's place in a header.

    Raises:
        InputError: it is not there, or more than once.
    """
    if header.count(column) > 1:
        raise InputError(f"{path} has {header.count(column)} columns called {column!r}; rename all but one")
    if column in header:
        return list(header).index(column)
    other = next((mark for mark in ";\t|," if mark != delimiter and mark in header[0]), None) if header else None
    if len(header) == 1 and other is not None:
        raise InputError(f"{path} has one column, {header[0]!r}; use --delimiter {other!r} if that separates fields")
    near = difflib.get_close_matches(column, header, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    more = ", …" if len(header) > _NAMED else ""
    listed = ", ".join(repr(name[:_LONGEST]) for name in header[:_NAMED])
    raise InputError(f"{path} has no column {column!r}{hint} It has {listed}{more}".replace("' It has", "'. It has"))


@contextmanager
def open_parquet(path: Path, **options: Any) -> Iterator[Any]:
    """Open a Parquet file, a `pyarrow.parquet.ParquetFile`.

    Args:
        path: the file.
        options: of `ParquetFile`.

    Raises:
        InputError: it cannot be read, is not Parquet, or pyarrow is missing; also what reading raises in the block.
    """
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
        with pa_parquet.ParquetFile(path, **options) as file:
            yield file
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (pa.ArrowException, UnicodeDecodeError, KeyError, MemoryError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise InputError(f"{path} is not a Parquet table: {lines[0]}") from None


class _Lines:
    """The lines of a text, counted; refuses rows and whole texts above their limits before they are in memory."""

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


def _read_csv(path: Path, delimiter: str, most: int) -> Iterator[tuple[int, list[str]]]:
    line, width, blank = 0, 0, 0
    try:
        with _open_csv(path) as stream:
            lines = _Lines(stream, path, most)
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            for fields in reader:
                begin, line = line + 1, reader.line_num
                lines.of_record = 0
                if begin == 1 and _SEP.fullmatch("".join(fields)):
                    raise InputError(
                        f"{path}: line 1 is {delimiter.join(fields)!r}, which spreadsheets write before the header: "
                        "delete it"
                    )
                if not fields:  # a blank line, harmless at the end
                    blank = blank or begin
                    continue
                if blank:
                    raise InputError(f"{path}: line {blank} is blank; drop it")
                width = width or _require_width(path, len(fields))
                if len(fields) != width:
                    raise InputError(
                        f"{path}: line {begin} has {format_count(len(fields), 'field')}, the header {width}; "
                        "correct the line, or put fields that contain the delimiter in quotes"
                    )
                yield begin, fields
    except UnicodeDecodeError as error:
        after = f", after line {line}" if line else ""
        raise InputError(
            f"{path} is not UTF-8: byte {error.object[error.start]:#04x}{after}; save it as UTF-8"
        ) from None
    except csv.Error as error:
        raise InputError(f"{path}: line {line + 1} is not CSV: {error}") from None


def _open_csv(path: Path) -> IO[str]:
    first = b""
    if path.is_file():  # a pipe can be read once
        with path.open("rb") as stream:
            first = stream.read(_HEAD)
    compressed = path.suffix == ".gz" and first.startswith(GZIP)
    if not compressed and (what := foreign_format(first)):
        raise InputError(f"{path} is {what}")
    if path.suffix == ".gz":
        return gzip.open(path, "rt", newline="", encoding="utf-8-sig")
    return path.open(newline="", encoding="utf-8-sig")


def _require_width(path: Path, width: int) -> int:
    if width > _COLUMNS:
        raise InputError(f"{path} has {width:,} columns; at most {_COLUMNS:,} are read: drop what is not needed")
    return width


def _read_parquet(path: Path, most: int, columns: Sequence[str] | None) -> Iterator[tuple[int, list[str]]]:
    with open_parquet(path) as file:
        schema = file.schema_arrow
    names = list(schema.names)
    _require_width(path, len(names))
    yield -1, names
    import pyarrow as pa

    wanted = list(dict.fromkeys(names if columns is None else columns))
    kinds = {name: _flat_type(path, schema.field(name)) for name in wanted}
    # Repeated texts stay dictionary-encoded until their length is known: a small file could unpack to any size.
    texts = [name for name in wanted if pa.types.is_string(kinds[name]) or pa.types.is_large_string(kinds[name])]
    with open_parquet(path, read_dictionary=texts) as file:
        row = size = 0
        for batch in file.iter_batches(_BATCH, columns=wanted, use_threads=False):
            parts = [_as_texts(path, batch.column(name), row) for name in wanted]
            size += sum(len(text) for part in parts for text in part)
            if size > most:
                raise InputError(
                    f"{path} has more than {most:,} bytes in its columns: raise --max-bytes if that is right"
                )
            for fields in zip(*parts, strict=True):
                yield row, list(fields)
                row += 1


def _flat_type(path: Path, field: Any) -> Any:
    """Return a column's type; refuse nested ones."""
    import pyarrow as pa

    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_nested(kind):
        raise InputError(
            f"{path}: column {field.name!r} has the nested type {kind}; leave it out, or split it into flat columns"
        )
    return kind


def _as_texts(path: Path, column: Any, row: int) -> list[str]:
    """Return the values of some rows as texts; a null is the empty one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    packed = column.dictionary if pa.types.is_dictionary(column.type) else column
    kind = packed.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        longest = pc.max(pc.binary_length(packed)).as_py() or 0
        if longest > _TEXT:
            raise InputError(f"{path}: a text from row {row} on has {longest:,} bytes; at most {_TEXT:,} are read")
    return ["" if value is None else str(value) for value in column.to_pylist()]

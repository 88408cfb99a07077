"""Read rows from CSV files."""

from __future__ import annotations

import io
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from securevfl.data.columns import ColumnUse, column_names
from securevfl.data.dialect import HEAD, CsvForm, Dialect, dialect_of
from securevfl.data.file_locations import FileLocation
from securevfl.data.limits import NUMBER, TEXT, TableLimits
from securevfl.data.row_source import BATCH, RowSource, translate_arrow_errors
from securevfl.errors import InputError

__all__ = ["CsvRows", "NotConverted"]

_BLOCK = 1 << 23  # bytes that are converted at a time
_WIDE_BLOCK, _WIDE_ROWS = 1 << 25, 128
"""The same for a wide table: up to so many bytes, for so many rows."""
_LONGEST = 60
_FIELDS = re.compile(
    r"(?:Row #(?P<row>[0-9]+): )?Expected (?P<expected>[0-9]+) columns, got (?P<got>[0-9]+): ?(?P<line>.*)", re.DOTALL
)
_VALUE = re.compile(r"CSV column #(?P<column>[0-9]+).*conversion error to (?P<kind>[^:]+): invalid value (?P<value>.*)")


@contextmanager
def _translate_errors(where: str) -> Iterator[None]:
    """Raise Arrow's errors as `InputError`, with the row number if a line has too many or too few fields."""
    import pyarrow as pa

    with translate_arrow_errors(where, "CSV"):
        try:
            yield
        except pa.ArrowInvalid as error:
            explained = _explain_field_count(str(error))
            if not explained:
                raise
            raise InputError(f"{where} is not a CSV table: {explained}") from None


def _explain_field_count(words: str) -> str:
    """Rewrite Arrow's error on a line with too many or too few fields, with the remedy; "" for other errors."""
    found = _FIELDS.search(words)
    if found is None:
        return ""
    row = f"row {int(found['row']):,} (the header is row 1)" if found["row"] else "a row"
    line = found["line"].splitlines()[0] if found["line"] else ""
    shown = line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
    return (
        f"{row} has {found['got']} fields, but the header has {found['expected']}: {shown!r}; correct the line, "
        "quote fields that contain the delimiter, or set the delimiter"
    )


class NotConverted(InputError):
    """A value whose type differs from that of its column further up.

    Args:
        column: its name.
        text: the message.
    """

    def __init__(self, column: str, text: str) -> None:
        self.column = column
        super().__init__(text)


@dataclass(frozen=True)
class CsvRows(RowSource):
    """A CSV file with a header. The first 8 MiB determine the column types; whole numbers there become floats, so that
    fractions may follow.
    """

    place: FileLocation
    form: CsvForm | None = None

    @property
    def location(self) -> str:
        return self.place.where

    @cached_property
    def dialect(self) -> Dialect:
        """The file's dialect.

        Raises:
            InputError: it is not text.
        """
        with _translate_errors(self.location), self.place.open_stream() as stream:
            return dialect_of(stream.read(HEAD), self.location, self.form)

    @cached_property
    def _seen(self) -> dict[str, Any]:
        """What earlier passes over the file found: ``"kinds"``, column → the type of its first values; ``"row"``, mean
        bytes of a row.
        """
        return {}

    def _read_options(self, block: int = 0) -> dict[str, Any]:
        import pyarrow.csv as pa_csv

        return {
            "read_options": pa_csv.ReadOptions(
                block_size=block or _BLOCK, encoding=self.dialect.encoding, skip_rows=self.dialect.skip
            ),
            "parse_options": pa_csv.ParseOptions(delimiter=self.dialect.delimiter),
        }

    def _open_counted(self, limits: TableLimits, texts: int) -> _Counted:
        return _Counted(self.place, limits, texts, self.dialect.delimiter.encode())

    def _convert_options(self, types: dict[str, Any], columns: Sequence[str] | None) -> Any:
        import pyarrow.csv as pa_csv

        return pa_csv.ConvertOptions(
            column_types=types,
            strings_can_be_null=True,
            include_columns=None if columns is None else list(columns),
            decimal_point=self.dialect.decimal,
        )

    def column_names(self, limits: TableLimits) -> list[str]:
        with _translate_errors(self.location), self._open_counted(limits, 0) as stream:
            import pyarrow.csv as pa_csv

            options = self._convert_options({}, None)
            with pa_csv.open_csv(stream, convert_options=options, **self._read_options()) as reader:
                names = column_names(reader.schema, self.location)
                self._seen["kinds"] = dict(zip(names, reader.schema.types, strict=True))
                return names

    def most_rows(self, columns: Sequence[str], use: ColumnUse, limits: TableLimits) -> int:
        with _translate_errors(self.location), self._open_counted(limits, len(use.text_columns)) as stream:
            while stream.read():
                pass
            self._seen["row"] = stream.bytes_read // stream.lines_read
            return stream.lines_read

    def iter_batches(
        self, columns: Sequence[str] | None, use: ColumnUse, limits: TableLimits, rows: int = BATCH
    ) -> Generator[Any]:
        import pyarrow as pa
        import pyarrow.csv as pa_csv

        # A row of a wide table takes much of a block, and each column of a block has a fixed cost.
        options = self._read_options(max(_BLOCK, min(_WIDE_BLOCK, _WIDE_ROWS * self._seen.get("row", 0))))
        types = dict.fromkeys(use.text_columns, pa.string())
        with _translate_errors(self.location):
            if "kinds" not in self._seen:
                self.column_names(limits)
            wanted = None if columns is None else set(columns)
            for name, kind in self._seen.get("kinds", {}).items():
                if name in types or (wanted is not None and name not in wanted):
                    continue
                number = pa.types.is_integer(kind) or pa.types.is_null(kind)
                types[name] = pa.float64() if number and name not in use.inferred_columns else kind
            with (
                self._open_counted(limits, len(use.text_columns)) as stream,
                pa_csv.open_csv(stream, convert_options=self._convert_options(types, columns), **options) as reader,
            ):
                seen = 0
                try:
                    for batch in reader:
                        seen += len(batch)
                        yield batch
                except pa.ArrowInvalid as error:
                    raise self._not_converted(str(error), seen, limits) from None

    def _not_converted(self, words: str, seen: int, limits: TableLimits) -> Exception:
        """Return the error for a value further down that its column's type cannot represent; Arrow's message for
        anything else.
        """
        found = _VALUE.search(words)
        if found is None:
            return InputError(
                f"{self.location} is not a CSV table: {_explain_field_count(words) or words.splitlines()[0]}"
            )
        column = self.column_names(limits)[int(found["column"])]
        return NotConverted(
            column,
            f"{self.location}: column {column!r} contains {found['value']} below row {seen:,} and {found['kind']} "
            "above: correct it, or list it in categorical=… to read it all as text",
        )


class _Counted(io.RawIOBase):
    """A decompressed CSV stream that counts lines and bytes while it is read and stops at a limit."""

    def __init__(self, place: FileLocation, limits: TableLimits, texts: int, delimiter: bytes = b",") -> None:
        super().__init__()
        self._delimiter = delimiter
        self._stream = place.open_stream()
        self._limits, self._where, self._packed = limits, place.where, place.size
        self._texts = texts
        self._columns = 1
        self._in_header = True
        self._rows = self._size = self._returns = 0

    @property
    def bytes_read(self) -> int:
        """Number of bytes read so far."""
        return self._size

    @property
    def lines_read(self) -> int:
        """Number of lines read so far, or slightly more."""
        return max(self._rows, self._returns) + 1

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        data: bytes = self._stream.read(1 << 20 if size is None or size < 0 else size)
        if self._in_header:
            line, end, _ = data.partition(b"\n")
            self._columns += line.count(self._delimiter)
            self._in_header = not end
        self._rows += data.count(b"\n")
        self._returns += data.count(b"\r")
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

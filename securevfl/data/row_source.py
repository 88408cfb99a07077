"""The interface of row sources, and the limit checks on their batches."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from securevfl.data.columns import ColumnUse
from securevfl.data.limits import NUMBER, TEXT, TableLimits
from securevfl.errors import InputError

__all__ = [
    "BATCH",
    "OF",
    "Count",
    "RowSource",
    "bytes_each",
    "is_text",
    "kinds_of",
    "refuse_extension",
    "translate_arrow_errors",
]

OF = "give numbers, texts, dates or truth values (of a period its first day), or leave it out with features=…"
"""The supported column types, as the cure in messages about unsupported ones."""
BATCH = 1 << 16
"""Rows per batch."""


class RowSource(Protocol):
    """Reads the rows of a table, some at a time.

    Attributes:
        where: the place, for messages, without secrets.
    """

    @property
    def location(self) -> str:
        """The place, for messages."""

    def column_names(self, limits: TableLimits) -> list[str]:
        """Return the names of all columns.

        Raises:
            InputError: it is not a table of its format, or has too many columns.
        """
        ...

    def most_rows(self, columns: Sequence[str], use: ColumnUse, limits: TableLimits) -> int:
        """Return an upper bound on the number of rows, without reading them.

        Raises:
            InputError: the source announces more than the limits allow, or a column contains lists.
        """

    def iter_batches(
        self, columns: Sequence[str] | None, use: ColumnUse, limits: TableLimits, rows: int = BATCH
    ) -> Generator[Any]:
        """Yield the rows in order as `pyarrow.RecordBatch` of at most `rows` rows.

        Args:
            columns: the columns to read, in table order; all if None.
            use: the use of the columns.
            limits: bounds on all batches together.
            rows: rows per batch, if the source lets one choose.

        Raises:
            InputError: it cannot be read, or exceeds a limit.
        """

    def number_groups(self, columns: Sequence[str], rows: int) -> list[list[str]]:
        """Return the columns of numbers of a wide table in groups for `iter_groups`; none for other tables.

        A source that has columns one by one decodes some at a time, so that memory stays near that of the result.

        Args:
            columns: to choose from, in table order.
            rows: of the table, at most.
        """
        return []

    def iter_groups(self, groups: Sequence[Sequence[str]], limits: TableLimits) -> Generator[Any]:
        """Yield the rows of each group of columns in order, as `pyarrow.RecordBatch`.

        Raises:
            InputError: it cannot be read.
        """
        yield from ()


_DAMAGED = "; it is damaged, or not compressed as its name says: get it again, or rename it"
_CURES = {
    "header check": _DAMAGED,
    "truncated": _DAMAGED,
    "compressed": _DAMAGED,
    "magic bytes": " If it is a CSV file, give it a name that ends in .csv",
}
"""A part of Arrow's message, in small letters → what helps."""


@contextmanager
def translate_arrow_errors(where: str, kind: str) -> Iterator[None]:
    """Raise Arrow's errors as `InputError`."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError, MemoryError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        cure = next((text for sign, text in _CURES.items() if sign in lines[0].lower()), "")
        raise InputError(f"{where} is not a {kind} table: {lines[0]}{cure}") from None


@dataclass
class Count:
    """Counts what a source has delivered and checks it against the limits."""

    limits: TableLimits
    where: str
    packed: int = 0
    rows: int = 0
    size: int = 0

    def add(self, batch: Any, each: int) -> None:
        """Add one batch whose rows take `each` bytes of memory plus the bytes of their texts."""
        self.rows += batch.num_rows
        self.size += batch.num_rows * each + sum(_text_bytes(column) for column in batch.columns)
        self.limits.check(self.where, rows=self.rows, size=self.size, packed=self.packed)


def kinds_of(schema: Any, columns: Sequence[str], keys: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the column types; refuse lists and records."""
    import pyarrow as pa

    kinds = {}
    for name in columns:
        if schema.get_field_index(name) < 0:
            if name in keys:
                continue
            raise InputError(f"{where} has no column {name!r}, which other files of the folder have, or repeats it")
        kinds[name] = kind = schema.field(name).type
        refuse_extension(kind, name, where)
        if pa.types.is_nested(kind):
            raise InputError(
                f"{where}: column {name!r} contains {kind}; columns contain numbers or texts: split it, or "
                "leave it out with features=…"
            )
    return kinds


def refuse_extension(kind: Any, column: str, where: str) -> None:
    """Refuse extension types of a library, such as pandas' periods.

    Raises:
        InputError: the column has such a type.
    """
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        raise InputError(f"{where}: column {column!r} contains {kind}; {OF}")


def bytes_each(kinds: dict[str, Any]) -> int:
    """Return the memory of a row in bytes, without the bytes of its texts."""
    import pyarrow as pa

    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return sum(NUMBER if any(is_one(kind) for is_one in numbers) else TEXT for kind in kinds.values())


def is_text(kind: Any) -> bool:
    """Return True if an Arrow type is text."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _text_bytes(column: Any) -> int:
    """Return the bytes of a column's texts, uncompressed; 0 for numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        lengths = pc.take(_text_lengths(column.dictionary), column.indices)
    elif pa.types.is_primitive(kind) or pa.types.is_null(kind):
        return 0
    else:
        lengths = _text_lengths(column)
    return int(pc.sum(pc.cast(lengths, pa.int64())).as_py() or 0)


def _text_lengths(values: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    binary = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    if any(is_one(kind) for is_one in binary):
        return pc.binary_length(values)
    return pa.array([values.nbytes // max(len(values), 1)] * len(values), pa.int64())

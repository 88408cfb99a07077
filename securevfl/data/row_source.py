"""What every source of rows has, and how its batches are held against the limits."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from securevfl.data.columns import ColumnUse
from securevfl.data.limits import NUMBER, TEXT, TableLimits
from securevfl.errors import InputError

__all__ = ["BATCH", "OF", "Count", "RowSource", "bytes_each", "is_text", "kinds_of", "refuse_extension", "told"]

OF = "give numbers, texts, dates or truth values (of a period its first day), or leave it out with features=…"
"""What columns hold, as the cure for those that hold something else."""
BATCH = 1 << 16
"""Rows in a batch."""


class RowSource(Protocol):
    """Where the rows of a table come from, some at a time.

    Attributes:
        where: the place, for messages; it holds no secret.
    """

    @property
    def where(self) -> str:
        """The place, for messages."""

    def names(self, limits: TableLimits) -> list[str]:
        """The names of all columns.

        Raises:
            InputError: it is no table of its kind, or has too many.
        """
        ...

    def most_rows(self, columns: Sequence[str], use: ColumnUse, limits: TableLimits) -> int:
        """How many rows there are, or a few more, without reading them.

        Raises:
            InputError: more than the limits allow, by what the source announces; or a column that holds lists.
        """

    def batches(
        self, columns: Sequence[str] | None, use: ColumnUse, limits: TableLimits, rows: int = BATCH
    ) -> Generator[Any]:
        """The rows in their order, `rows` at a time or fewer, as `pyarrow.RecordBatch`.

        Args:
            columns: which are read, in the order of the table; all if None.
            use: what they are used for.
            limits: of all batches together.
            rows: in a batch, where the source lets one choose.

        Raises:
            InputError: it cannot be read, or is above a limit.
        """


@contextmanager
def told(where: str, kind: str) -> Iterator[None]:
    """What Arrow says, as a user's mistake."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError, MemoryError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise InputError(f"{where} is not a {kind} table: {lines[0]}") from None


@dataclass
class Count:
    """What came of a source so far, held against the limits."""

    limits: TableLimits
    where: str
    packed: int = 0
    rows: int = 0
    size: int = 0

    def add(self, batch: Any, each: int) -> None:
        """One batch more, with numbers and texts of `each` bytes a row, beside the texts' own."""
        self.rows += batch.num_rows
        self.size += batch.num_rows * each + sum(_text_bytes(column) for column in batch.columns)
        self.limits.check(self.where, rows=self.rows, size=self.size, packed=self.packed)


def kinds_of(schema: Any, columns: Sequence[str], keys: dict[str, Any], where: str) -> dict[str, Any]:
    """The types of columns; none holds lists or records."""
    import pyarrow as pa

    kinds = {}
    for name in columns:
        if schema.get_field_index(name) < 0:
            if name in keys:
                continue
            raise InputError(f"{where} has no column {name!r}, which other files of the folder have, or has it twice")
        kinds[name] = kind = schema.field(name).type
        refuse_extension(kind, name, where)
        if pa.types.is_nested(kind):
            raise InputError(
                f"{where}: column {name!r} holds {kind}; a column holds numbers or texts: take it apart, or leave "
                "it out with features=…"
            )
    return kinds


def refuse_extension(kind: Any, column: str, where: str) -> None:
    """A column does not hold what a library made a type of its own for, as pandas does for periods.

    Raises:
        InputError: it does.
    """
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        raise InputError(f"{where}: column {column!r} holds {kind}; {OF}")


def bytes_each(kinds: dict[str, Any]) -> int:
    """Bytes of memory that a row takes, beside its texts' own."""
    import pyarrow as pa

    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return sum(NUMBER if any(is_one(kind) for is_one in numbers) else TEXT for kind in kinds.values())


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


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

"""Build, batch by batch, a column that will be prepared later: numbers, booleans, dates or texts, with gaps."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.data.categories import Column
from securevfl.data.column_builders import CategoryColumn, NumberColumn
from securevfl.data.limits import TableLimits
from securevfl.data.storage import Storage
from securevfl.errors import InputError

__all__ = ["AnyColumn", "DateColumn"]


class DateColumn:
    """Builds a column of dates and times: `numpy.datetime64` in seconds, UTC, NaT for missing values.

    Args:
        out: buffer, datetime64[s] (rows or more,).
    """

    def __init__(self, out: np.ndarray) -> None:
        self._out, self._rows = out, 0

    def add(self, values: Any) -> None:
        """Add one batch."""
        import pyarrow as pa

        kind = values.type
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            values = values.cast(pa.timestamp(kind.unit), safe=False)
        end = self._rows + len(values)
        seconds = values.cast(pa.timestamp("s"), safe=False).to_numpy(zero_copy_only=False)
        self._out[self._rows : end] = seconds
        self._rows = end

    def finish(self) -> np.ndarray:
        """Return the column, (rows,)."""
        return self._out[: self._rows]


class AnyColumn:
    """Builds a column of any kind; the first batch with a value determines the kind.

    Args:
        column: its name.
        where: the table, for messages.
        out: buffer, 4 bytes per row.
        limits: bounds of a column of texts.
        storage: where a column that needs more is allocated.
        categories: whether to read all values as text, whatever they look like.
    """

    def __init__(
        self, column: str, where: str, out: np.ndarray, limits: TableLimits, storage: Storage, *, categories: bool
    ) -> None:
        self._column, self._where, self._out = column, where, out
        self._limits, self._storage = limits, storage
        self._is_categories = categories
        self._kind = ""
        self._gathered: NumberColumn | CategoryColumn | DateColumn | None = None
        self._nulls = 0

    def add(self, values: Any) -> None:
        """Add one batch.

        Raises:
            InputError: lists, records or bytes, not UTF-8, texts above a limit, or another kind of value than before.
        """
        import pyarrow as pa

        if pa.types.is_null(values.type):
            self._nulls_of(len(values))
            return
        kind = "text" if self._is_categories else _kind_of(values.type)
        if pa.types.is_time(values.type) or pa.types.is_duration(values.type):
            values = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
        if self._gathered is None:
            self._kind, self._gathered = kind, self._start_column(kind)
            nulls, self._nulls = self._nulls, 0
            self._nulls_of(nulls)
        if kind != self._kind:
            raise InputError(
                f"{self._where}: column {self._column!r} contains {self._kind}s above and {kind}s below "
                f"({values.type}): give it one type in all files, or list it in categorical=…"
            )
        self._gathered.add(values)

    def _start_column(self, kind: str) -> NumberColumn | CategoryColumn | DateColumn:
        if kind == "number":
            return NumberColumn(self._column, self._where, self._out, self._storage, gaps=True)
        if kind == "date":
            return DateColumn(self._storage.allocate(self._out.shape, np.dtype("datetime64[s]")))
        return CategoryColumn(self._column, self._where, self._out.view(np.int32), self._limits, gaps=True)

    def _nulls_of(self, rows: int) -> None:
        """Add `rows` rows without a value."""
        import pyarrow as pa

        if self._gathered is None:
            self._nulls += rows
        elif rows:
            types = {"number": pa.float32(), "date": pa.timestamp("s"), "text": pa.string()}
            self._gathered.add(pa.nulls(rows, types[self._kind]))

    def finish(self) -> Column:
        """Return the column as `PartyTable.columns` stores it.

        Raises:
            InputError: see `CategoryColumn.finish`.
        """
        if self._gathered is None:
            self._kind, self._gathered = "number", self._start_column("number")
            self._nulls_of(self._nulls)
        return self._gathered.finish()


def _kind_of(kind: Any) -> str:
    """``"number"``, ``"date"`` or ``"text"``; the builders refuse everything else."""
    import pyarrow as pa

    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date"
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    if any(is_one(kind) for is_one in (*numbers, pa.types.is_time, pa.types.is_duration)):
        return "number"
    return "text"

"""Read rows from what Arrow sees as a data set: results of queries, Delta and Iceberg tables, grouped rows."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from securevfl.data.columns import ColumnUse, column_names
from securevfl.data.limits import TableLimits
from securevfl.data.row_source import BATCH, Count, RowSource, bytes_each, kinds_of, translate_arrow_errors

__all__ = ["ArrowDataset", "DatasetRows"]


class ArrowDataset(Protocol):
    """The part of `pyarrow.dataset.Dataset` that is used here."""

    @property
    def schema(self) -> Any:
        """A `pyarrow.Schema`."""

    def count_rows(self) -> int:
        """Return the number of rows."""

    def to_batches(self, *, columns: list[str], batch_size: int) -> Iterable[Any]:
        """Yield the rows in order, as `pyarrow.RecordBatch`."""


@dataclass(frozen=True)
class DatasetRows(RowSource):
    """Rows of a data set.

    Attributes:
        where: the place, for messages, without secrets.
        kind: what it should be, for messages: ``"Delta"``.
        dataset: the data set.
    """

    where: str
    kind: str
    dataset: ArrowDataset = field(repr=False)

    @property
    def location(self) -> str:
        return self.where

    def column_names(self, limits: TableLimits) -> list[str]:
        found = column_names(self.dataset.schema, self.location)
        limits.check(self.location, columns=len(found))
        return found

    def most_rows(self, columns: Sequence[str], use: ColumnUse, limits: TableLimits) -> int:
        kinds = kinds_of(self.dataset.schema, columns, {}, self.location)
        with translate_arrow_errors(self.location, self.kind):
            rows = int(self.dataset.count_rows())
        limits.check(self.location, rows=rows, size=rows * bytes_each(kinds))
        return rows

    def iter_batches(
        self, columns: Sequence[str] | None, use: ColumnUse, limits: TableLimits, rows: int = BATCH
    ) -> Generator[Any]:
        wanted = self.dataset.schema.names if columns is None else list(columns)
        each = 0 if columns is None else bytes_each(kinds_of(self.dataset.schema, wanted, {}, self.location))
        count = Count(limits, self.location)
        with translate_arrow_errors(self.location, self.kind):
            for batch in self.dataset.to_batches(columns=list(wanted), batch_size=rows):
                count.add(batch, each)
                if len(batch):
                    yield batch

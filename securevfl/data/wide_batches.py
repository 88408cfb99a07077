"""Add a batch to the builders of its columns: numbers of one type some columns at a time.

A wide table has few rows in each of many columns, so that what is done for one column at a time takes longer than
reading it. Means, deviations and float32 of some hundred columns are computed together; what is not plain goes the long
way, one column at a time, and gives the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.data.arrow_numbers import plain_numbers
from securevfl.data.column_builders import NumberColumn

__all__ = ["add_columns"]

_TOGETHER = frozenset({"float", "double", "int32", "int64", "uint32", "uint64"})
"""Types whose columns are added some at a time."""
_MOST = 1 << 20
"""Numbers that are added at a time."""


def add_columns(builders: Mapping[str, Any], batch: Any) -> None:
    """Add a batch to the builders of its columns; numbers of one type some columns at a time.

    Args:
        builders: column → its builder. Columns of the batch without one are left out.
        batch: a `pyarrow.RecordBatch`.

    Raises:
        InputError: see the builders.
    """
    alike: dict[str, tuple[list[NumberColumn], list[Any]]] = {}
    for place, (name, kind) in enumerate(zip(batch.schema.names, map(str, batch.schema.types), strict=True)):
        builder = builders.get(name)
        if builder is None:
            continue
        values = batch.column(place)
        if kind not in _TOGETHER or type(builder) is not NumberColumn or values.null_count:
            builder.add(values)
            continue
        columns, arrays = alike.setdefault(kind, ([], []))
        columns.append(builder)
        arrays.append(values)
        if len(columns) * len(values) >= _MOST:
            _add_alike(columns, arrays)
            del alike[kind]
    for columns, arrays in alike.values():
        _add_alike(columns, arrays)


def _add_alike(columns: Sequence[NumberColumn], arrays: Sequence[Any]) -> None:
    """Add to columns arrays of one type without nulls. What may need float64, or holds no number, goes the long way."""
    rows = len(arrays[0])
    if len(columns) < 2 or rows == 0 or rows > _MOST // 2:
        for column, values in zip(columns, arrays, strict=True):
            column.add(values)
        return
    matrix = np.stack([plain_numbers(values) for values in arrays])
    with np.errstate(over="ignore", invalid="ignore"):
        kept = matrix.astype(np.float32, copy=False)
        exact = matrix.astype(np.float64, copy=False)
        means = exact.mean(axis=1)
        squares = np.square(exact - means[:, None]).sum(axis=1)
        finite = np.isfinite(means) & np.isfinite(kept.max(axis=1)) & np.isfinite(kept.min(axis=1))
    for place, column in enumerate(columns):
        moments = None if matrix.dtype == np.float32 else (means[place], squares[place])
        if not (finite[place] and column.take_plain(kept[place], moments)):
            column.add(arrays[place])

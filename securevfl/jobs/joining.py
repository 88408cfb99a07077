"""Which columns join tables: one whose values name the rows of each, or two or three that do so together. Guesses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["compound", "distinct", "names_rows", "single"]

_IDS = re.compile(
    r"(^|_)(id|ids|key|ref|reference|uuid|guid|nr|no|number|client|customer|patient|user|account|iban)($|_)"
)
_PARTS = re.compile(
    r"(^|_)(first|last|family|given|sur|name|surname|born|birth|dob|zip|postcode|street|year|month|day)"
)
"""Names of columns that make an identifier with others."""
_LEAST = 0.02
"""Share of common values under which one column joins nothing."""
_ROWS = 0.05
"""Share of common rows under which several columns join nothing: two values can be common by chance, three are not."""
_ALIKE = 0.3
"""Share of common values from which on two columns of other names may hold the same."""
_MOST = 12
"""Columns that combinations are made of: 66 pairs and 220 triples."""
_COMPARED = 60
"""Columns up to which those of other names are compared by their values."""


def distinct(table: pa.Table, column: str) -> set[str]:
    """Distinct values as texts, without missing ones."""
    return {str(one) for one in table[column].unique().to_pylist() if one is not None and str(one).strip()}


def names_rows(table: pa.Table, column: str) -> bool:
    """Whether every row has a value of its own, and values are no fractions."""
    import pyarrow as pa

    values = table[column]
    if pa.types.is_floating(values.type) or values.null_count:
        return False
    return len(distinct(table, column)) == len(values)


def single(tables: Sequence[pa.Table]) -> list[str]:
    """The column of each table that shares most values with a column of the first; none where none shares any."""
    candidates = [[column for column in one.column_names if names_rows(one, column)] for one in tables]
    best, chosen = 0.0, list[str]()
    for first in candidates[0]:
        mine, score, row = distinct(tables[0], first), 0.0, [first]
        for one, columns in zip(tables[1:], candidates[1:], strict=True):
            rows = min(len(mine), one.num_rows)
            shared = {column: len(mine & distinct(one, column)) / rows for column in columns}
            top = max(shared, key=lambda column: (shared[column], _likely(column)), default="")
            score += shared.get(top, 0.0) + _likely(top) / 100
            row.append(top)
        score += _likely(first) / 100
        if score > best and all(row):
            best, chosen = score, row
    return chosen if best > _LEAST * len(tables) else []


def compound(tables: Sequence[pa.Table], leave: Sequence[set[str]]) -> list[list[str]]:
    """Two or three columns of each table, in one order, that name its rows together and that the tables share.

    Columns of one name are taken to hold the same, and others that have many values in common. Of the smallest sets
    that name all rows of all tables, the one that most rows have in common, then the one with the likeliest names.

    Args:
        tables: one a party.
        leave: of each, columns that are no part of an identifier: labels.

    Returns:
        For each table its columns; empty where no such set is found.
    """
    shared = _shared(tables, leave)
    coded = {row: _codes(tables, row) for row in shared}
    for size in (2, 3):
        best, chosen = (_ROWS, 0), list[list[str]]()
        for rows in combinations(shared, size):
            joined = _joined([coded[row] for row in rows])
            if any(len(np.unique(one)) < len(one) for one in joined):
                continue
            common = len(reduce(np.intersect1d, joined)) / min(map(len, joined))
            score = common, sum(_likely(row[0]) for row in rows)
            if score > best:
                best, chosen = score, [list(columns) for columns in zip(*rows, strict=True)]
        if chosen:
            return chosen
    return []


def _likely(column: str) -> int:
    return int(_IDS.search(column.lower()) is not None or _PARTS.search(column.lower()) is not None)


def _shared(tables: Sequence[pa.Table], leave: Sequence[set[str]]) -> list[tuple[str, ...]]:
    """Columns that hold the same in all tables, the name in each; likely names first, then most values."""
    possible = [
        [column for column in one.column_names if column not in out and _part(one, column)]
        for one, out in zip(tables, leave, strict=True)
    ]
    found: list[tuple[int, tuple[str, ...]]] = []
    used: list[set[str]] = [set() for _ in tables]
    for first in possible[0]:
        values, row = distinct(tables[0], first), [first]
        if len(values) < 2:
            continue
        for number, columns in enumerate(possible[1:], 1):
            row.append(_same(first, values, tables[number], [one for one in columns if one not in used[number]]))
        if all(row):
            found.append((len(values), tuple(row)))
            for names, column in zip(used, row, strict=True):
                names.add(column)
    found.sort(key=lambda one: (-_likely(one[1][0]), -one[0]))  # as in the first table where they are alike
    return [row for _, row in found[:_MOST]]


def _part(table: pa.Table, column: str) -> bool:
    """Whether a column may be a part of an identifier: texts, whole numbers or days, one in every row."""
    from pyarrow import types

    kind = table[column].type
    fits = (types.is_integer, types.is_string, types.is_large_string, types.is_date)
    return not table[column].null_count and any(one(kind) for one in fits)


def _same(first: str, values: set[str], table: pa.Table, columns: list[str]) -> str:
    """The column of a table that holds what a column of the first does, by its name or by its values; or none."""
    for column in columns:
        if column.casefold() == first.casefold():
            return column
    if len(columns) > _COMPARED or len(values) < 3:
        return ""
    best, chosen = _ALIKE, ""
    for column in columns:
        other = distinct(table, column)
        alike = len(values & other) / max(min(len(values), len(other)), 1)
        if alike > best and len(other) > 2:
            best, chosen = alike, column
    return chosen


def _codes(tables: Sequence[pa.Table], row: Sequence[str]) -> list[np.ndarray]:
    """Of each table, one column's values as numbers, the same number for the same text in all."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [pc.cast(one[column], pa.string()).combine_chunks() for one, column in zip(tables, row, strict=True)]
    codes = pa.chunked_array(texts).combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return np.split(codes.astype(np.int64), np.cumsum([len(one) for one in texts])[:-1])


def _joined(columns: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Of each table, one number for the values of several columns. Three of 2^21 different values, those of 20
    tables of 100,000 rows, fit into 63 bits."""
    found = []
    sizes = [1 + max(int(one.max()) for one in column) for column in columns]
    for parts in zip(*columns, strict=True):
        code = np.zeros(len(parts[0]), np.int64)
        for part, size in zip(parts, sizes, strict=True):
            code = code * size + part
        found.append(code)
    return found

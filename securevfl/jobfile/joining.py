"""Guess which columns join tables: one whose values identify each table's rows, or two or three that do so together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from securevfl.jobfile.column_words import has_id_name, has_part_name, names_other_things
from securevfl.run.id_spelling import find_spellings

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "count_distinct",
    "counts_rows",
    "describe_obstacle",
    "distinct_values",
    "doubt_single_ids",
    "find_compound_ids",
    "find_single_ids",
    "identifies_rows",
    "whole_numbers",
]

_LEAST = 0.02
"""Below this share of common values, a single column does not join tables."""
_ROWS = 0.05
"""Below this share of common rows, several columns do not join tables: two values may match by chance, three do not."""
_ALIKE = 0.3
"""Two columns with different names are compared if they share at least this part of their values."""
_MOST = 12
"""The most columns to combine: 12 have 66 pairs and 220 triples."""
_COMPARED = 60
"""Columns up to which those of other names are compared by their values."""
_NUMBERS = 60
"""The most columns of whole numbers that are compared."""
_DENSE = 10
"""Whole numbers are dense if their range is at most so many times as large as their number."""
_WHOLE = re.compile(r"\s*[+-]?\d+\s*")
_SURELY = 0.5
"""Whole numbers under a generic name join tables if they share at least this part of their values."""


def distinct_values(table: pa.Table, column: str) -> set[str]:
    """Distinct values as texts, without missing ones."""
    return {str(one) for one in table[column].unique().to_pylist() if one is not None and str(one).strip()}


def count_distinct(table: pa.Table, column: str) -> int:
    """Number of distinct values in a column, without missing ones."""
    import pyarrow.compute as pc

    return int(pc.count_distinct(table[column]).as_py())


def identifies_rows(table: pa.Table, column: str) -> bool:
    """Whether every row has a different value and no value is a fraction."""
    import pyarrow as pa

    values = table[column]
    if pa.types.is_floating(values.type) or values.null_count or count_distinct(table, column) < len(values):
        return False
    return len(distinct_values(table, column)) == len(values) and (
        has_id_name(column) or not counts_rows(table, column)
    )


def whole_numbers(table: pa.Table) -> list[str]:
    """Columns of floating-point numbers without a fraction in any row; whole numbers of a CSV file are read like this.
    At most `_NUMBERS`: first those with an identifier's name, then those with most values.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    found = []
    for column in table.column_names:
        values = table[column]
        if pa.types.is_floating(values.type) and not values.null_count:
            parts = (values.slice(0, 1000), values)
            if all(bool(pc.all(pc.equal(part, pc.trunc(part))).as_py()) for part in parts):
                found.append(column)
    return sorted(found, key=lambda column: (-_rank_name(column), -count_distinct(table, column)))[:_NUMBERS]


def counts_rows(table: pa.Table, column: str) -> bool:
    """Whether a column counts the rows from 0 or 1, as programs add when they write a table: it identifies nobody."""
    first, rows = str(table[column][0]).removesuffix(".0"), len(table)
    if first not in ("0", "1"):
        return False
    counted = (str(i) for i in range(int(first), rows + int(first)))
    return all(
        str(one).removesuffix(".0") == other for one, other in zip(table[column].to_pylist(), counted, strict=True)
    )


def _are_numbers(values: set[str]) -> bool:
    return all(_WHOLE.fullmatch(one) is not None for one in values)


def find_single_ids(tables: Sequence[pa.Table]) -> list[str]:
    """The column of each table that shares most values with a column of the first; empty if none shares any."""
    candidates = [[column for column in one.column_names if identifies_rows(one, column)] for one in tables]
    best, chosen = 0.0, list[str]()
    for first in candidates[0]:
        mine, score, row = distinct_values(tables[0], first), 0.0, [first]
        for one, columns in zip(tables[1:], candidates[1:], strict=True):
            rows = min(len(mine), one.num_rows)
            shared = {
                column: _match_rate(first, mine, column, distinct_values(one, column), rows) for column in columns
            }
            top = max(shared, key=lambda column: (shared[column], _rank_name(column)), default="")
            score += shared.get(top, 0.0) + _rank_name(top) / 100
            row.append(top)
        score += _rank_name(first) / 100
        if score > best and all(row):
            best, chosen = score, row
    return chosen if best > _LEAST * len(tables) else []


def doubt_single_ids(tables: Sequence[pa.Table], ids: Sequence[str]) -> str:
    """Why columns that share values may still not mean the same people; empty where nothing speaks against it.

    Args:
        tables: one a party.
        ids: of each, the column that `find_single_ids` found.
    """
    names = " and ".join(dict.fromkeys(map(repr, ids)))
    counts = [counts_rows(one, column) for one, column in zip(tables, ids, strict=True)]
    if all(counts) and len({one.num_rows for one in tables}) > 1:
        rows = " and ".join(f"{one.num_rows:,}" for one in tables)
        return (
            f"the numbers of {names} count each table's own rows ({rows} of them), so that number 7 of one need not "
            "be number 7 of the other"
        )
    for one, column in zip(tables[1:], ids[1:], strict=True):
        values = distinct_values(one, column)
        if names_other_things(ids[0], column) and _are_numbers(values) and _are_dense(values):
            return f"{names} are whole numbers one after the other, of different things by their names: chance suffices"
    return ""


def _are_dense(values: set[str]) -> bool:
    """Whether whole numbers fill at least a tenth of their range, so that those of two tables coincide."""
    numbers = [int(one) for one in values]
    return max(numbers) - min(numbers) < _DENSE * len(numbers)


def _match_rate(first: str, mine: set[str], column: str, other: set[str], rows: int) -> float:
    """Share of common values; 0 for whole numbers whose names do not match, because amounts and counts coincide by
    chance.
    """
    share = len(mine & other) / rows
    named = has_id_name(first) and has_id_name(column)
    return share if named or not _are_numbers(other) or (_same_name(first, column) and share >= _SURELY) else 0.0


def _same_name(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()


def find_compound_ids(tables: Sequence[pa.Table], leave: Sequence[set[str]]) -> list[list[str]]:
    """Two or three columns of each table, in one order, that together identify its rows and that the tables share.

    Columns are taken to correspond if they have one name or many common values. Of the smallest sets that identify all
    rows of all tables, choose the one with most common rows, then the one with the likeliest names.

    Args:
        tables: one a party.
        leave: of each, columns that are no part of an identifier: labels.

    Returns:
        For each table its columns; empty where no such set is found.
    """
    shared = _shared_columns(tables, leave)
    coded = {row: _encode_values(tables, row) for row in shared}
    rows_most = max(map(len, tables))
    for size in (2, 3):
        best, chosen = (_ROWS, 0), list[list[str]]()
        for rows in combinations(shared, size):
            if prod(_code_count(coded[row]) for row in rows) < rows_most:
                continue  # fewer values than rows
            joined = _join_codes([coded[row] for row in rows])
            if any(len(np.unique(one)) < len(one) for one in joined):
                continue
            common = len(reduce(np.intersect1d, joined)) / min(map(len, joined))
            score = common, sum(_rank_name(row[0]) for row in rows)
            if score > best:
                best, chosen = score, [list(columns) for columns in zip(*rows, strict=True)]
        if chosen:
            return chosen
    return []


def describe_obstacle(tables: Sequence[pa.Table], leave: Sequence[set[str]], names: Sequence[str]) -> str:
    """Explain why no column and no combination of columns joins the tables, with a remedy.

    Args:
        tables: one a party.
        leave: of each, columns that are no part of an identifier: labels.
        names: what to call each.
    """
    advice = "name the columns with --id COLUMN, or --id PARTY.COLUMN where tables call them differently"
    shared = _shared_columns(tables, leave)
    apart = _explain_disjoint(tables, shared, names)
    if apart:
        return f"{apart}, or {advice}"
    if not shared:
        spoiled = _explain_repeats(tables, names) or "no column without gaps is common to all tables: give them one"
        return f"{spoiled}, or {advice}"
    listed = ", ".join(repr(row[0]) for row in shared)
    coded = [_encode_values(tables, row) for row in shared]
    for number in range(len(tables)):
        every = np.stack([column[number] for column in coded])
        doubled = every.shape[1] - np.unique(every, axis=1).shape[1]
        if doubled:
            leave_s = "leaves" if len(shared) == 1 else "leave"
            return (
                f"{listed}, which all tables have, {leave_s} {doubled:,} of {every.shape[1]:,} rows of "
                f"{names[number]!r} like another: drop duplicate rows, or add a column that distinguishes "
                f"them; then {advice}"
            )
    if len(shared) > 3 and not any(_is_unique(some) for size in (2, 3) for some in combinations(coded, size)):
        return f"no three columns name the rows, and {listed} together do: name them, or fewer of them, with --id"
    return (
        f"columns {listed} identify the rows, but hardly a row of one table is in another: are they the same "
        f"people, written alike? If so, {advice}"
    )


def _explain_disjoint(tables: Sequence[pa.Table], shared: Sequence[tuple[str, ...]], names: Sequence[str]) -> str:
    """A column that all tables have with no value in common, and the remedy; empty if there is none."""
    for row in shared:
        texts = [distinct_values(one, column) for one, column in zip(tables, row, strict=True)]
        if reduce(set.__and__, texts) or not (_rank_name(row[0]) or not _are_numbers(texts[0])):
            continue
        found = find_spellings({repr(name): some for name, some in zip(names, texts, strict=True)})
        if found:
            return f"column {row[0]!r}: {'; '.join(found)}"
        return (
            f"column {row[0]!r} has no value in common between the tables: write it alike in all of them (dates, "
            "leading zeros, upper and lower case)"
        )
    return ""


def _explain_repeats(tables: Sequence[pa.Table], names: Sequence[str]) -> str:
    """Why a column that all tables have under an identifier's name does not identify rows."""
    import pyarrow as pa

    for first in tables[0].column_names:
        row = [next((one for one in table.column_names if _same_name(one, first)), "") for table in tables]
        if not all(row) or not has_id_name(first):
            continue
        found = []
        for name, table, column in zip(names, tables, row, strict=True):
            gaps, rows = table[column].null_count, table.num_rows
            if gaps:
                found.append(f"is empty in {gaps:,} of {rows:,} rows of {name!r}: fill or drop them")
            elif pa.types.is_floating(table[column].type):
                found.append(
                    f"of {name!r} contains numbers with a point or an exponent (1000.0, 1E+11), as "
                    "spreadsheets and programs write whole numbers that they take for amounts: write them as "
                    "whole numbers"
                )
        if found:
            return f"column {first!r} {', and '.join(found)}"
    return ""


def _is_unique(columns: Sequence[Sequence[np.ndarray]]) -> bool:
    return all(len(np.unique(one)) == len(one) for one in _join_codes(columns))


def _rank_name(column: str) -> int:
    return int(has_id_name(column) or has_part_name(column))


def _shared_columns(tables: Sequence[pa.Table], leave: Sequence[set[str]]) -> list[tuple[str, ...]]:
    """Columns that correspond in all tables, the name in each; likely names first, then most values."""
    possible = [
        [column for column in one.column_names if column not in out and _may_be_part(one, column)]
        for one, out in zip(tables, leave, strict=True)
    ]
    found: list[tuple[int, tuple[str, ...]]] = []
    used: list[set[str]] = [set() for _ in tables]
    for first in possible[0]:
        many, row = count_distinct(tables[0], first), [first]
        if many < 2:
            continue
        for number, columns in enumerate(possible[1:], 1):
            row.append(
                _find_same(first, tables[0], tables[number], [one for one in columns if one not in used[number]])
            )
        if all(row):
            found.append((many, tuple(row)))
            for names, column in zip(used, row, strict=True):
                names.add(column)
    found.sort(key=lambda one: (-_rank_name(one[1][0]), -one[0]))  # ties keep the first table's order
    return [row for _, row in found[:_MOST]]


def _may_be_part(table: pa.Table, column: str) -> bool:
    """Whether a column may be a part of an identifier: texts, whole numbers or days, one in every row, and not line
    numbers.
    """
    from pyarrow import types

    kind = table[column].type
    fits = (types.is_integer, types.is_string, types.is_large_string, types.is_date)
    if table[column].null_count or not any(one(kind) for one in fits):
        return False
    return has_id_name(column) or not counts_rows(table, column)


def _find_same(first: str, own: pa.Table, table: pa.Table, columns: list[str]) -> str:
    """The column of a table that corresponds to a column of the first by its name or its values; or none. Whole numbers
    under different names are not compared, because ages and weeks coincide.
    """
    for column in columns:
        if _same_name(column, first):
            return column
    if len(columns) > _COMPARED or count_distinct(own, first) < 3:
        return ""
    values = distinct_values(own, first)
    if _are_numbers(values):
        return ""
    best, chosen = _ALIKE, ""
    for column in columns:
        other = distinct_values(table, column)
        alike = len(values & other) / max(min(len(values), len(other)), 1)
        if alike > best and len(other) > 2:
            best, chosen = alike, column
    return chosen


def _encode_values(tables: Sequence[pa.Table], row: Sequence[str]) -> list[np.ndarray]:
    """One column's values of each table as numbers, with the same number for the same text in all."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [pc.cast(one[column], pa.string()).combine_chunks() for one, column in zip(tables, row, strict=True)]
    codes = pa.chunked_array(texts).combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return np.split(codes.astype(np.int64), np.cumsum([len(one) for one in texts])[:-1])


def _code_count(column: Sequence[np.ndarray]) -> int:
    return 1 + max(int(one.max()) for one in column)


def _join_codes(columns: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """One number for the values of several columns, for each table. Three columns of 2^21 distinct values, as in 20
    tables of 100,000 rows, fit into 63 bits.
    """
    found = []
    sizes = [_code_count(column) for column in columns]
    for parts in zip(*columns, strict=True):
        code = np.zeros(len(parts[0]), np.int64)
        for part, size in zip(parts, sizes, strict=True):
            code = code * size + part
        found.append(code)
    return found

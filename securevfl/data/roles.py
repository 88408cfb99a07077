"""The active party's columns other than features and classes: a numeric target, row weights, groups of rows that stay
together in a split, and the time to split by. They never leave the active party.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from securevfl.data.prepare.numbers import decimal_marks, parse_numbers
from securevfl.data.row_source import is_text
from securevfl.errors import InputError

__all__ = [
    "FlagColumn",
    "GroupColumn",
    "NumberTarget",
    "TimeColumn",
    "WeightColumn",
    "check_flags",
    "check_several",
    "check_target",
    "check_weight",
    "column_builders",
    "name_labels",
    "several_labels",
]

_SHOWN = 3


class NumberTarget:
    """Builds a numeric target as float64. Numbers in text (``1.234,56 €``) are read if all use one decimal mark.

    Args:
        column: its name.
        where: the table, for messages.
    """

    _what = "target"
    _cure = (
        "a numeric target contains numbers: correct the column, or, if it contains classes, leave target='number' out "
        '(task = "classification" in [job])'
    )
    _texts = True

    def __init__(self, column: str, where: str) -> None:
        self._column, self._where = column, where
        self._parts: list[np.ndarray] = []
        self._words: list[Any] = []

    def add(self, values: Any) -> None:
        """Add one batch, a `pyarrow.Array`.

        Raises:
            InputError: neither numbers nor, where they are allowed, texts.
        """
        import pyarrow as pa

        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        kind = values.type
        if self._texts and not self._parts and is_text(kind):
            self._words.append(values.cast(pa.large_string()))
            return
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        if not (number or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            raise InputError(f"{self._where}: the {self._what} {self._column!r} contains {kind}; {self._cure}")
        if pa.types.is_boolean(kind):
            values = values.cast(pa.int8())
        self._parts.append(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype(np.float64))

    def finish(self) -> np.ndarray:
        """Return the column, (rows,) float64; NaN for null, which `check_target` and `check_weight` refuse.

        Raises:
            InputError: texts that are not numbers, or whose decimal mark is ambiguous.
        """
        if self._words:
            return self._read_texts()
        return np.concatenate(self._parts) if self._parts else np.empty(0)

    def _read_texts(self) -> np.ndarray:
        """Parse numbers in text."""
        import pyarrow as pa
        import pyarrow.compute as pc

        what = f"{self._where}: the {self._what} {self._column!r}"
        texts = pc.utf8_trim_whitespace(pa.concat_arrays(self._words))
        coded = pc.fill_null(texts, "").dictionary_encode()
        words = coded.dictionary.to_pylist()
        readings = {mark: parse_numbers(words, mark) for mark in sorted(decimal_marks(words)) or (".", ",")}
        least = min(readings, key=lambda mark: int(np.isnan(readings[mark]).sum()))
        found = readings.pop(least)
        unread = np.isnan(found) & np.array([bool(word) for word in words])
        if unread.any():
            first = int(np.flatnonzero(unread)[0])
            row = int(pc.index(texts, words[first]).as_py()) + 1
            more = f", and {int(unread.sum()) - 1:,} other texts that are not numbers" if unread.sum() > 1 else ""
            raise InputError(f"{what} contains {words[first]!r} in row {row}{more}; {self._cure}")
        for other in readings.values():  # 1,234 alone is either
            if not np.array_equal(found, other, equal_nan=True) and not np.isnan(other[~np.isnan(found)]).any():
                at = int(np.flatnonzero(found != other)[0])
                raise InputError(
                    f"{what} contains texts such as {words[at]!r} with an ambiguous decimal mark: write them as "
                    "numbers, such as 1234.5"
                )
        values: np.ndarray = found[coded.indices.to_numpy().astype(np.int64)]
        return values


class FlagColumn(NumberTarget):
    """Builds one of several labels: zeros and ones, or booleans; arguments as for `NumberTarget`."""

    _what = "label"
    _cure = "each of several labels is 0 or 1 in every row: correct the column"
    _texts = False


class WeightColumn(NumberTarget):
    """Builds the row weights as float64; arguments as for `NumberTarget`."""

    _what = "weight"
    _cure = "weights are numbers from 0 up: correct the column"
    _texts = False


class GroupColumn:
    """Builds the groups: rows with the same text or number stay together in a split.

    Args:
        column: its name.
        where: the table, for messages.
    """

    def __init__(self, column: str, where: str) -> None:
        self._column, self._where = column, where
        self._parts: list[Any] = []

    def add(self, values: Any) -> None:
        """Add one batch, a `pyarrow.Array`."""
        import pyarrow as pa

        kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
        if pa.types.is_nested(kind):
            raise InputError(f"{self._where}: the group {self._column!r} contains {kind}; groups are texts or numbers")
        self._parts.append(values.cast(pa.large_string()))

    def finish(self) -> np.ndarray:
        """Return the group number of each row, (rows,) int64.

        Raises:
            InputError: a group is null.
        """
        import pyarrow as pa

        texts = pa.concat_arrays(self._parts)
        _refuse_values(
            texts.is_null().to_numpy(zero_copy_only=False), f"{self._where}: the group {self._column!r}", "null"
        )
        codes: np.ndarray = texts.dictionary_encode().indices.to_numpy().astype(np.int64)
        return codes


class TimeColumn:
    """Builds the time of each row: a date, a time, a number, or a date written year first (2024-05-17).

    Args:
        column: its name.
        where: the table, for messages.
    """

    def __init__(self, column: str, where: str) -> None:
        self._column, self._where = column, where
        self._parts: list[Any] = []

    def add(self, values: Any) -> None:
        """Add one batch, a `pyarrow.Array`.

        Raises:
            InputError: neither times nor numbers.
        """
        import pyarrow as pa

        kind = values.type
        try:
            if (
                pa.types.is_string(kind)
                or pa.types.is_large_string(kind)
                or pa.types.is_date(kind)
                or pa.types.is_timestamp(kind)
            ):
                values = values.cast(pa.timestamp("us"))
            elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                raise InputError(f"{self._where}: the time {self._column!r} contains {kind}; {_DATES}")
        except pa.ArrowInvalid as error:
            raise InputError(f"{self._where}: the time {self._column!r}: {error.args[0]}; {_DATES}") from None
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.int64())
        self._parts.append(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))

    def finish(self) -> np.ndarray:
        """Return the times, (rows,) float64: microseconds since 1970, or the numbers unchanged.

        Raises:
            InputError: a time is null.
        """
        found = np.concatenate(self._parts) if self._parts else np.empty(0)
        _refuse_values(np.isnan(found), f"{self._where}: the time {self._column!r}", "null")
        return found


_DATES = "expected dates and times (2024-05-17, 2024-05-17 09:30:00) or numbers"


_LARGEST = 1e100
"""Largest magnitude of a numeric target: its square is still finite in float64."""


def check_target(target: np.ndarray, rows: int, where: str) -> None:
    """Check `PartyTable.label` of a numeric target.

    Raises:
        InputError: another number of rows, or values that are null, not finite, or too large to square.
    """
    if target.dtype != np.float64 or target.shape != (rows,):
        raise InputError(f"{where}: the target is {target.dtype} {target.shape}; float64 ({rows},) was expected")
    _refuse_values(~np.isfinite(target), f"{where}: the target", "null or not finite")
    _refuse_values(
        np.abs(target) > _LARGEST, f"{where}: the target", f"beyond {_LARGEST:g}, the largest supported number,"
    )


_LONGEST = 60


def name_labels(labels: tuple[str, ...]) -> str:
    """Name several labels in a short text."""
    whole = ", ".join(labels)
    return whole if len(whole) <= _LONGEST else f"{labels[0]} and {len(labels) - 1} more labels"


def check_flags(values: np.ndarray, name: str, where: str) -> None:
    """Check one of several labels, (n,) float64, of a full table or of some of its rows.

    Raises:
        InputError: a value other than 0 and 1.
    """
    _refuse_values(~np.isin(values, (0.0, 1.0)), f"{where}: the label {name!r}", "neither 0 nor 1")


def several_labels(columns: Mapping[str, np.ndarray], where: str) -> np.ndarray:
    """Combine several label columns, (rows, labels) int64.

    Args:
        columns: label name → its zeros and ones, (rows,) float64, in label order.
        where: the table, for messages.

    Raises:
        InputError: a value other than 0 and 1, or a label that no row or every row has.
    """
    for name, values in columns.items():
        check_flags(values, name, where)
    found = np.column_stack([*columns.values()]).astype(np.int64)
    check_several(found, tuple(columns), len(found), where)
    return found


def check_several(label: np.ndarray, names: tuple[object, ...], rows: int, where: str) -> None:
    """Check `PartyTable.label` of several labels.

    Raises:
        InputError: another shape, a value other than 0 and 1, or a label that no row or every row has.
    """
    if label.dtype != np.int64 or label.shape != (rows, len(names)) or len(names) < 2:
        raise InputError(
            f"{where}: labels are {label.dtype} {label.shape} and {len(names)} are named; int64 ({rows}, labels) with "
            "two labels or more, and their names in classes, was expected"
        )
    bad: np.ndarray = np.asarray(~np.isin(label, (0, 1)).all(axis=1))
    _refuse_values(bad, f"{where}: a label", "neither 0 nor 1")
    for place, name in enumerate(names):
        if len(np.unique(label[:, place])) < 2:
            raise InputError(
                f"{where}: the label {name!r} is {label[0, place]} in all {rows:,} rows; there is nothing to learn: "
                "leave it out"
            )


def check_weight(weight: np.ndarray, rows: int, where: str) -> None:
    """Check `PartyTable.weight`.

    Raises:
        InputError: another number of rows, weights that are null, negative or not finite, or none above 0.
    """
    if weight.dtype != np.float64 or weight.shape != (rows,):
        raise InputError(f"{where}: weights are {weight.dtype} {weight.shape}; float64 ({rows},) was expected")
    _refuse_values(~np.isfinite(weight), f"{where}: the weight", "null or not finite")
    _refuse_values(weight < 0, f"{where}: the weight", "negative")
    if not weight.max() > 0:
        raise InputError(f"{where}: all weights are 0, so no row would count: correct the column, or leave it out")


def _refuse_values(bad: np.ndarray, what: str, how: str) -> None:
    rows = np.flatnonzero(bad)
    if len(rows):
        shown = ", ".join(str(row + 1) for row in rows[:_SHOWN].tolist()) + (", …" if len(rows) > _SHOWN else "")
        raise InputError(f"{what} is {how} in {len(rows)} of {len(bad)} rows (rows {shown}); correct or drop them")


def column_builders(roles: Mapping[str, str | None], where: str) -> dict[str, tuple[str, Any]]:
    """Return the builders of the columns with a role: role → (column, builder).

    Args:
        roles: ``"label"`` of a numeric target, ``"label 0"`` and on of several labels, ``"weight"``, ``"group"``,
            ``"time"`` → column, or None.
        where: the table, for messages.
    """
    kinds = {"label": NumberTarget, "weight": WeightColumn, "group": GroupColumn, "time": TimeColumn}
    return {
        role: (column, kinds.get(role, FlagColumn)(column, where))
        for role, column in roles.items()
        if column is not None
    }

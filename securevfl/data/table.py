"""A party's table: identifiers, feature columns and, at the active party, labels. Checked once, when it is made."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np

from securevfl.errors import InputError, UnknownNameError

__all__ = ["PartyTable", "encode_labels"]

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_SHOWN = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class PartyTable:
    """What one party holds.

    Attributes:
        name: the party, a lower-case word.
        ids: identifiers of the rows, texts.
        columns: feature → values, one per row: float64 for numbers, text for categories.
        categorical: names of the columns that hold categories.
        label: class of each row, (rows,) int64 indexes into `classes`; None at a passive party.
        classes: the label's values, in the order of their indexes.
        label_name: the label's column.

    Raises:
        InputError: columns of different lengths, nulls, values that are not finite, no rows, no columns, doubled
            identifiers.
    """

    name: str
    ids: Sequence[str]
    columns: Mapping[str, np.ndarray]
    categorical: frozenset[str] = frozenset()
    label: np.ndarray | None = None
    classes: tuple[object, ...] = ()
    label_name: str = ""
    source: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(
                f"a party is called {self.name!r}; names are lower-case words of up to 32 letters, digits, - and _"
            )
        object.__setattr__(self, "ids", tuple(self.ids))
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))
        where = self.source or f"the table of {self.name!r}"
        if not self.ids:
            raise InputError(f"{where} has no rows")
        if not self.columns:
            raise InputError(f"{where} has no feature columns; name at least one in features=…")
        unknown = sorted(self.categorical - set(self.columns))
        if unknown:
            raise UnknownNameError(f"categorical column of {where}:", unknown[0], self.columns)
        _check_ids(self.ids, where)
        for column, values in self.columns.items():
            if len(values) != len(self.ids):
                raise InputError(f"{where}: column {column!r} has {len(values)} values for {len(self.ids)} rows")
            if column not in self.categorical:
                _check_numbers(column, values, where)
        if self.label is not None:
            _check_label(self.label, self.classes, len(self.ids), where)

    def __repr__(self) -> str:
        label = f", label {self.label_name!r}" if self.label is not None else ""
        return f"PartyTable({self.name!r}, {self.role}, {self.rows} rows, {len(self.columns)} columns{label})"

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.ids)

    @property
    def role(self) -> Literal["active", "passive"]:
        """Active if it owns labels."""
        return "passive" if self.label is None else "active"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the feature columns, in order."""
        return tuple(self.columns)

    def take(self, rows: np.ndarray | Sequence[int]) -> PartyTable:
        """The table of these rows, in this order."""
        index = np.asarray(rows, dtype=np.int64)
        return PartyTable(
            name=self.name,
            ids=[self.ids[row] for row in index.tolist()],
            columns={column: values[index] for column, values in self.columns.items()},
            categorical=self.categorical,
            label=None if self.label is None else self.label[index],
            classes=self.classes,
            label_name=self.label_name,
            source=self.source,
        )

    def select(self, columns: Iterable[str]) -> PartyTable:
        """The table with these feature columns only.

        Raises:
            UnknownNameError: a column that does not exist.
        """
        names = list(columns)
        for name in names:
            if name not in self.columns:
                raise UnknownNameError(f"column of {self.name!r}:", name, self.columns)
        return PartyTable(
            name=self.name,
            ids=self.ids,
            columns={name: self.columns[name] for name in names},
            categorical=self.categorical & set(names),
            label=self.label,
            classes=self.classes,
            label_name=self.label_name,
            source=self.source,
        )


def _check_ids(ids: Sequence[str], where: str) -> None:
    seen: dict[str, int] = {}
    doubled = []
    for row, text in enumerate(ids):
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{where}: the identifier in row {row + 1} is null or empty; give it one or drop the row")
        if text in seen:
            doubled.append(f"{text!r} in rows {seen[text] + 1} and {row + 1}")
        seen.setdefault(text, row)
    if doubled:
        more = f" and {len(doubled) - _SHOWN} more" if len(doubled) > _SHOWN else ""
        raise InputError(f"{where}: doubled identifiers: {'; '.join(doubled[:_SHOWN])}{more}; keep one row for each")


def _check_numbers(column: str, values: np.ndarray, where: str) -> None:
    if values.dtype.kind not in "fiub":
        raise InputError(
            f"{where}: column {column!r} holds {values.dtype}, no numbers; list it in categorical=… or drop it"
        )
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        rows = ", ".join(str(row + 1) for row in bad[:_SHOWN].tolist())
        more = ", …" if len(bad) > _SHOWN else ""
        what = "NaN" if np.isnan(values[bad[0]]) else "infinite"
        raise InputError(
            f"{where}: column {column!r} is {what} in {len(bad)} of {len(values)} rows (rows {rows}{more}); "
            "fill or drop them"
        )


def _check_label(label: np.ndarray, classes: tuple[object, ...], rows: int, where: str) -> None:
    if label.dtype != np.int64 or label.shape != (rows,):
        raise InputError(f"{where}: labels are {label.dtype} {label.shape}; int64 ({rows},) was expected")
    if len(classes) < 2:
        raise InputError(
            f"{where}: the labels have {len(classes)} class; there is nothing to tell apart with fewer than two"
        )
    if label.min() < 0 or label.max() >= len(classes):
        raise InputError(f"{where}: label indexes reach {label.max()}; there are {len(classes)} classes")


def encode_labels(
    values: Sequence[object], classes: Sequence[object] | None, where: str
) -> tuple[np.ndarray, tuple[object, ...]]:
    """Class indexes, int64, and the classes: the given ones, or those found, sorted.

    Raises:
        InputError: nulls, values outside the given classes, or a single class.
    """
    for row, value in enumerate(values):
        if value is None or (isinstance(value, float) and math.isnan(value)):
            raise InputError(f"{where}: the label in row {row + 1} is null; drop the row")
    found = set(values)
    if classes is None:
        known = tuple(sorted(found, key=lambda value: (str(type(value)), value)))
    else:
        known = tuple(classes)
        if len(set(known)) != len(known):
            raise InputError(f"{where}: classes={list(known)} names a class twice")
        for row, value in enumerate(values):
            if value not in known:
                raise InputError(f"{where}: the label in row {row + 1} is {value!r}; the classes are {list(known)}")
    if len(found) < 2:
        raise InputError(
            f"{where}: all labels are {next(iter(found), None)!r}; there is nothing to learn from one class"
        )
    index = {value: i for i, value in enumerate(known)}
    return np.array([index[value] for value in values], dtype=np.int64), known

"""A party's table: identifiers, feature columns and, at the active party, labels. Checked once, on construction."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Literal, TypeVar

import numpy as np
from securevfl_net.fields.names import explain_bad_name

from securevfl.data.categories import Categories, Column
from securevfl.data.names import Names
from securevfl.data.prepare.rules import Preparation
from securevfl.data.roles import check_several, check_target, check_weight
from securevfl.data.storage import DEFAULT_STORAGE, Storage, release_memory
from securevfl.errors import InputError, UnknownNameError

__all__ = [
    "TEST",
    "TRAIN",
    "VALID",
    "LabelBook",
    "PartyTable",
    "check_fold",
    "check_ids",
    "check_numbers",
    "explain_bad_name",
    "run_all",
]

TRAIN, VALID, TEST = 0, 1, 2
"""Values of `PartyTable.fold`."""

_SHOWN = 3
_MOST_TOLD = 20
"""Maximum number of columns whose mistakes one message lists."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class LabelBook:
    """Labels of rows for which the active party has no features.

    Attributes:
        ids: identifiers of these rows.
        label: class of each, (len(ids),) int64.
    """

    ids: tuple[str, ...]
    label: np.ndarray = field(repr=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class PartyTable:
    """The table of one party.

    Attributes:
        name: the party's name, a lower-case word.
        ids: identifiers of the rows, texts; `Names` for large tables.
        columns: feature → values, one per row: numbers, texts or `Categories`; or a block of numbers, (rows, width), or
            of images, (rows, height, width) or (rows, channels, height, width). A party that owns labels may have none.
        categorical: names of the columns that contain categories.
        label: class of each row, (rows,) int64 indexes into `classes`; for a numeric target the numbers, (rows,)
            float64; for several labels zeros and ones, (rows, labels) int64. None at a passive party.
        classes: the label's values in class-index order; empty for a numeric target; for several labels their names.
        label_name: the label's column.
        fold: at the active party, the rows for validation (`VALID`) and test (`TEST`), (rows,) int8; all others train.
            None leaves the split to the job.
        book: at the active party, labels of rows for which it has no features.
        weight: at the active party, the weight of each row in training and metrics, (rows,) float64 from 0 up; None for
            equal weights. Match scores of a linkage go here.
        group: at the active party, the group of each row, (rows,) int64; a split by group keeps the rows of a group
            together.
        time: at the active party, the time of each row, (rows,) float64: the order of a split by time.
        persons: the name of each row's person, by which what may be answered about the person is counted; empty if the
            identifiers name the persons.
        storage: where its encoded features are stored.
        preparation: how its columns are prepared; they may then contain texts, dates (`numpy.datetime64`) and missing
            values. None allows only numbers and categories without gaps.
        id_columns: the columns that its identifiers were made from, in order; empty if unknown.
        link: linkage field → values of the rows (texts, numbers, dates or None), used to link records without a common
            identifier (`securevfl.Linkage`). They are not features.
        beside: column → values of the rows, by which the party's own report can group them
            (`securevfl.ReportOptions`). They are not features either.

    Raises:
        InputError: columns of different lengths, nulls, values that are not finite, unsupported block shapes, no rows,
            no columns, repeated identifiers, or a fold or label book that does not match.
    """

    name: str
    ids: Sequence[str]
    columns: Mapping[str, Column] = field(repr=False)
    categorical: frozenset[str] = frozenset()
    label: np.ndarray | None = field(default=None, repr=False)
    classes: tuple[object, ...] = field(default=(), repr=False)
    label_name: str = ""
    fold: np.ndarray | None = None
    book: LabelBook | None = None
    weight: np.ndarray | None = field(default=None, repr=False)
    group: np.ndarray | None = field(default=None, repr=False)
    time: np.ndarray | None = field(default=None, repr=False)
    persons: Sequence[str] = field(default=(), repr=False)
    source: str = field(default="", repr=False)
    storage: Storage = field(default=DEFAULT_STORAGE, repr=False)
    preparation: Preparation | None = field(default=None, repr=False)
    id_columns: tuple[str, ...] = field(default=(), repr=False)
    link: Mapping[str, Sequence[object]] = field(default_factory=dict, repr=False)
    beside: Mapping[str, Sequence[object]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        rule = explain_bad_name(self.name)
        if rule:
            raise InputError(rule)
        object.__setattr__(self, "ids", self.ids if isinstance(self.ids, Names) else tuple(self.ids))
        if not isinstance(self.persons, Names):
            object.__setattr__(self, "persons", tuple(self.persons))
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))
        where = self.source or f"the table of {self.name!r}"
        if not len(self.ids):
            raise InputError(f"{where} has no rows")
        if not self.columns and self.label is None:
            raise InputError(f"{where} has no feature columns; name at least one in features=…")
        unknown = sorted(self.categorical - set(self.columns))
        if unknown:
            raise UnknownNameError(f"categorical column of {where}:", unknown[0], self.columns)
        check_ids(self.ids, where)
        if len(self.persons) not in (0, len(self.ids)):
            raise InputError(f"{where} names the persons of {len(self.persons)} rows; it has {len(self.ids)} rows")
        run_all([partial(self._check_column, column, where) for column in self.columns])
        if self.label is not None and self.target == "number":
            check_target(self.label, len(self.ids), where)
        elif self.label is not None and self.target == "labels":
            check_several(self.label, self.classes, len(self.ids), where)
        elif self.label is not None:
            _check_label(self.label, self.classes, len(self.ids), where)
        self._check_roles(where)
        if self.fold is not None:
            if self.label is None:
                raise InputError(
                    f"{where} has a fold and no labels; only the active party chooses validation and test rows"
                )
            check_fold(self.fold, len(self.ids), where)
        if self.book is not None:
            self._check_book(where)
        self._check_extra(where)

    def _check_extra(self, where: str) -> None:
        """Check the columns that are not features."""
        for what, columns in (("linkage field", self.link), ("column", self.beside)):
            for name, values in columns.items():
                if len(values) != self.rows:
                    raise InputError(f"{where}: {what} {name!r} has {len(values)} values for {self.rows} rows")

    def _check_roles(self, where: str) -> None:
        for role in ("weight", "group", "time"):
            values = getattr(self, role)
            if values is None:
                continue
            if self.label is None:
                raise InputError(f"{where} has a {role} and no labels; it belongs to the active party: leave it out")
            if role != "weight" and values.shape != (len(self.ids),):
                raise InputError(f"{where}: {role} has shape {values.shape}; ({len(self.ids)},) was expected")
        if self.weight is not None:
            check_weight(self.weight, len(self.ids), where)
        if self.book is not None and self.target != "classes":
            kind = "a numeric target" if self.target == "number" else "several labels"
            raise InputError(f"{where} has a label book and {kind}; books contain classes: leave one out")

    def _check_column(self, column: str, where: str) -> None:
        values = self.columns[column]
        _check_shape(column, values, len(self.ids), column in self.categorical, where)
        if column not in self.categorical:
            check_numbers(column, values, where, prepared=self.preparation is not None)
            release_memory(values)

    def _check_book(self, where: str) -> None:
        book = self.book
        if book is None or self.label is None:
            raise InputError(f"{where} has a book of labels and no labels of its own; only the active party has labels")
        if not len(book.ids):
            raise InputError(f"the label book of {self.name!r} is empty; leave it out")
        check_ids(book.ids, f"the label book of {self.name!r}")
        _check_label(book.label, self.classes, len(book.ids), f"the label book of {self.name!r}")
        both = set(book.ids) & set(self.ids)
        if both:
            raise InputError(
                f"{where}: {len(both)} rows are in the label book and in the table; keep them in the table"
            )

    def __repr__(self) -> str:
        label = f", label {self.label_name!r}" if self.label is not None else ""
        return f"PartyTable({self.name!r}, {self.role}, {self.rows} rows, {len(self.columns)} columns{label})"

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.ids)

    @property
    def target(self) -> Literal["classes", "number", "labels"]:
        """The kind of its labels."""
        if self.label is not None and self.label.ndim == 2:
            return "labels"
        numbers = self.label is not None and self.label.dtype.kind == "f" and not self.classes
        return "number" if numbers else "classes"

    @property
    def values(self) -> int:
        """Number of values per row: one per column, and all numbers of a block or an image."""
        return sum(math.prod(values.shape[1:]) for values in self.columns.values())

    @property
    def role(self) -> Literal["active", "passive"]:
        """``"active"`` if it owns labels, otherwise ``"passive"``."""
        return "passive" if self.label is None else "active"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the feature columns in order."""
        return tuple(self.columns)

    @property
    def text_columns(self) -> frozenset[str]:
        """Text columns; only prepared tables have them."""
        kinds = {name: "O" if isinstance(v, Categories) else v.dtype.kind for name, v in self.columns.items()}
        return frozenset(name for name, kind in kinds.items() if kind in "OUS")

    def ids_of(self, rows: np.ndarray) -> Sequence[str]:
        """Return the identifiers of these rows, (n,) int64, in this order."""
        return _take_texts(self.ids, rows)

    def persons_of(self, rows: np.ndarray) -> Sequence[str]:
        """Return the names of the persons of these rows, (n,) int64, in this order."""
        return _take_texts(self.persons if len(self.persons) else self.ids, rows)

    def take(self, rows: np.ndarray | Sequence[int]) -> PartyTable:
        """Return the table with these rows, in this order."""
        index = np.asarray(rows, dtype=np.int64)
        return replace(
            self,
            ids=self.ids_of(index),
            columns={column: values[index] for column, values in self.columns.items()},
            label=None if self.label is None else self.label[index],
            fold=None if self.fold is None else self.fold[index],
            link={name: [values[row] for row in index.tolist()] for name, values in self.link.items()},
            beside={name: [values[row] for row in index.tolist()] for name, values in self.beside.items()},
            weight=None if self.weight is None else self.weight[index],
            group=None if self.group is None else self.group[index],
            time=None if self.time is None else self.time[index],
            persons=_take_texts(self.persons, index) if len(self.persons) else (),
        )

    def select(self, columns: Iterable[str]) -> PartyTable:
        """Return the table with only these feature columns.

        Raises:
            UnknownNameError: a column does not exist.
        """
        names = list(columns)
        for name in names:
            if name not in self.columns:
                raise UnknownNameError(f"column of {self.name!r}:", name, self.columns)
        return replace(
            self, columns={name: self.columns[name] for name in names}, categorical=self.categorical & set(names)
        )


def _take_texts(texts: Sequence[str], rows: np.ndarray) -> Sequence[str]:
    return texts.take(rows) if isinstance(texts, Names) else tuple(texts[row] for row in rows.tolist())


def run_all(works: Sequence[Callable[[], T]]) -> list[T]:
    """Run all functions and return their results.

    Raises:
        InputError: at least one failed; lists all of their messages.
    """
    found, errors = [], []
    for work in works:
        try:
            found.append(work())
        except InputError as error:
            errors.append(error)
    if len(errors) > _MOST_TOLD:
        told = [str(error) for error in errors[:_MOST_TOLD]]
        raise InputError("\n  ".join([*told, f"and {len(errors) - _MOST_TOLD} more columns like these"]))
    if len(errors) > 1:
        raise InputError("\n  ".join(map(str, errors)))
    if errors:
        raise errors[0]
    return found


def check_ids(ids: Sequence[str], where: str) -> None:
    """Check `PartyTable.ids` of a full table or of some of its rows.

    Raises:
        InputError: an identifier is null, empty or repeated.
    """
    if isinstance(ids, Names):
        blank = ids.first_blank()
        if blank is None and ids.all_differ():
            return  # else the long way tells which
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
        raise InputError(
            f"{where}: repeated identifiers: {'; '.join(doubled[:_SHOWN])}{more}; keep one row for each, or "
            'aggregate them (aggregate = { amount = "sum" })'
        )


def check_fold(fold: np.ndarray, rows: int, where: str) -> None:
    """Check `PartyTable.fold`.

    Raises:
        InputError: another number of rows, or values other than `TRAIN`, `VALID` and `TEST`.
    """
    if fold.shape != (rows,):
        raise InputError(f"{where}: fold has shape {fold.shape}; give one value for each of {rows} rows, ({rows},)")
    wrong = fold if fold.dtype.kind not in "iu" else fold[(fold < TRAIN) | (fold > TEST)]
    if len(wrong):
        raise InputError(
            f"{where}: fold contains {fold.dtype} {wrong[0]!s}; expected 0 (trains), 1 (validates) or 2 (tests)"
        )


def _check_shape(column: str, values: Column, rows: int, categorical: bool, where: str) -> None:
    shape = values.shape if isinstance(values, Categories) else np.shape(values)
    if not shape or shape[0] != rows:
        raise InputError(f"{where}: column {column!r} has {shape[0] if shape else 'no'} values for {rows} rows")
    if categorical and len(shape) > 1:
        raise InputError(
            f"{where}: column {column!r} is a block, {shape}, and categorical; blocks contain numbers only"
        )
    if len(shape) > 4 or 0 in shape:
        raise InputError(
            f"{where}: column {column!r} has shape {shape}; (rows,), (rows, width), (rows, height, width) or "
            "(rows, channels, height, width) with none of them 0 was expected"
        )


def check_numbers(column: str, values: Column, where: str, *, prepared: bool = False) -> None:
    """Check a column other than categories, of a full table or of some of its rows.

    Args:
        column: its name.
        values: its values.
        where: the table, for messages.
        prepared: whether it is prepared, and may contain texts, dates and missing values.

    Raises:
        InputError: not numbers, or numbers that are not finite.
    """
    if prepared and values.ndim == 1:
        if isinstance(values, Categories) or values.dtype.kind in "iubMUO":
            return
    elif isinstance(values, Categories) or values.dtype.kind not in "fiub":
        raise InputError(
            f"{where}: column {column!r} contains {values.dtype}, not numbers; list it in categorical=… or drop "
            "it, or give prepare='auto'"
        )
    if values.dtype.kind in "iub":
        return
    finite = ~np.isinf(values) if prepared and values.ndim == 1 else np.isfinite(values)
    bad = np.flatnonzero(~finite.reshape(len(values), -1).all(axis=1))
    if len(bad):
        rows = ", ".join(str(row + 1) for row in bad[:_SHOWN].tolist())
        more = ", …" if len(bad) > _SHOWN else ""
        what = "NaN" if np.isnan(values[bad[0]]).any() else "infinite"
        raise InputError(
            f"{where}: column {column!r} is {what} in {len(bad)} of {len(values)} rows (rows {rows}{more}); "
            + ("correct them, or leave them empty" if prepared else "fill or drop them, or give prepare='auto'")
        )


def _check_label(label: np.ndarray, classes: tuple[object, ...], rows: int, where: str) -> None:
    if label.dtype != np.int64 or label.shape != (rows,):
        raise InputError(f"{where}: labels are {label.dtype} {label.shape}; int64 ({rows},) was expected")
    if len(classes) < 2:
        raise InputError(f"{where}: the labels have {len(classes)} class; a classification needs at least two")
    if label.min() < 0 or label.max() >= len(classes):
        raise InputError(
            f"{where}: label indexes run from {label.min()} to {label.max()}; there are {len(classes)} classes, "
            f"0 to {len(classes) - 1}"
        )

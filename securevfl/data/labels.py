"""Labels: from a column's values to indexes of classes, and what can be wrong with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np

from securevfl.errors import InputError

__all__ = ["Coded", "check_labels", "encode_labels", "require_classes"]

_MOST_FRACTIONS = 20
_MOST_CLASSES = 1_000


@dataclass(frozen=True)
class Coded:
    """A column of labels, each value once.

    Attributes:
        codes: for each row the place of its value in `values`, -1 for null, integers (n,).
        values: the values, none twice.
    """

    codes: np.ndarray = field(repr=False)
    values: tuple[object, ...]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def found(self) -> set[object]:
        """All values of which there is a row."""
        there = np.bincount(self.codes[self.codes >= 0], minlength=len(self.values)) > 0
        return {value for value, is_there in zip(self.values, there.tolist(), strict=True) if is_there}

    def first(self, bad: Sequence[object]) -> int | None:
        """The first row with one of these values, or with null where None is among them; None where there is none."""
        these = {id(value) for value in bad}  # NaN is not equal to itself
        codes = [code for code, value in enumerate(self.values) if id(value) in these]
        rows = np.flatnonzero(np.isin(self.codes, [*codes, *([-1] if None in bad else [])]))
        return int(rows[0]) if len(rows) else None


def encode_labels(labels: Coded, classes: Sequence[object] | None, where: str) -> tuple[np.ndarray, tuple[object, ...]]:
    """Class indexes, int64, and the classes: the given ones, or those found, sorted.

    Raises:
        InputError: nulls, values outside the given classes, a single class, or so many that they are no classes.
    """
    check_labels(labels, classes, where)
    found = labels.found
    if classes is None:
        require_classes(found, len(labels), where)
    known = tuple(sorted(found, key=lambda value: (str(type(value)), value)) if classes is None else classes)
    if len(found) < 2:
        raise InputError(
            f"{where}: all labels are {next(iter(found), None)!r}; there is nothing to learn from one class"
        )
    index = {value: i for i, value in enumerate(known)}
    return np.array([index.get(value, -1) for value in labels.values], dtype=np.int64)[labels.codes], known


def require_classes(found: set[object], rows: int, where: str) -> None:
    """Labels are classes, not amounts, names or numbers of rows.

    Raises:
        InputError: numbers with a fraction, of which there are many; or more classes than any method here tells apart.
    """
    broken = sum(isinstance(value, float | Decimal) and value != math.floor(value) for value in found)
    number = 'to learn the number, say target=\'number\' (task = "regression" in [job], Job(task="regression")); or '
    made = "make classes of it in the table (below and above a bound, say), or list those that are meant in classes=[…]"
    numeric = all(isinstance(value, float | int | Decimal) for value in found)
    cure = (number if numeric else "") + made
    if broken and len(found) > _MOST_FRACTIONS:
        raise InputError(
            f"{where}: the label has {len(found):,} different values in {rows:,} rows, {broken:,} of them with a "
            f"fraction: it is an amount, and a classification tells classes apart; {cure}"
        )
    if len(found) > _MOST_CLASSES:
        raise InputError(
            f"{where}: the label has {len(found):,} different values in {rows:,} rows; at most {_MOST_CLASSES:,} are "
            f"taken for classes: {cure}"
        )


def check_labels(labels: Coded, classes: Sequence[object] | None, where: str) -> None:
    """Checks labels, of a whole table or of some of its rows.

    Raises:
        InputError: nulls, infinite numbers, or values outside the given classes.
    """
    no_number = [value for value in labels.values if isinstance(value, float) and math.isnan(value)]
    infinite = [value for value in labels.values if isinstance(value, float) and math.isinf(value)]
    null = labels.first([None, *no_number])
    if null is not None:
        raise InputError(f"{where}: the label in row {null + 1} is null; drop the row")
    row = labels.first(infinite)
    if row is not None:
        raise InputError(f"{where}: the label in row {row + 1} is infinite; correct it, or drop the row")
    if classes is None:
        return
    if len(set(classes)) != len(classes):
        raise InputError(f"{where}: classes={list(classes)} names a class twice")
    known = set(classes)
    row = labels.first([value for value in labels.values if value not in known])
    if row is not None:
        value = labels.values[int(labels.codes[row])]
        raise InputError(f"{where}: the label in row {row + 1} is {value!r}; the classes are {list(classes)}")

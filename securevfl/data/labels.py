"""Labels: from a column's values to indexes of classes, and what can be wrong with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from securevfl.errors import InputError

__all__ = ["check_labels", "encode_labels", "require_classes"]

_MOST_FRACTIONS = 20
_MOST_CLASSES = 1_000


def encode_labels(
    values: Sequence[object], classes: Sequence[object] | None, where: str
) -> tuple[np.ndarray, tuple[object, ...]]:
    """Class indexes, int64, and the classes: the given ones, or those found, sorted.

    Raises:
        InputError: nulls, values outside the given classes, a single class, or so many that they are no classes.
    """
    check_labels(values, classes, where)
    found = set(values)
    if classes is None:
        require_classes(found, len(values), where)
    known = tuple(sorted(found, key=lambda value: (str(type(value)), value)) if classes is None else classes)
    if len(found) < 2:
        raise InputError(
            f"{where}: all labels are {next(iter(found), None)!r}; there is nothing to learn from one class"
        )
    index = {value: i for i, value in enumerate(known)}
    return np.array([index[value] for value in values], dtype=np.int64), known


def require_classes(found: set[object], rows: int, where: str) -> None:
    """Labels are classes, not amounts, names or numbers of rows.

    Raises:
        InputError: numbers with a fraction, of which there are many; or more classes than any method here tells apart.
    """
    broken = sum(isinstance(value, float | Decimal) and value != math.floor(value) for value in found)
    cure = "make classes of it in the table (below and above a bound, say), or list those that are meant in classes=[…]"
    if broken and len(found) > _MOST_FRACTIONS:
        raise InputError(
            f"{where}: the label has {len(found):,} different values in {rows:,} rows, {broken:,} of them with a "
            f"fraction: it is an amount, and methods here tell classes apart; {cure}"
        )
    if len(found) > _MOST_CLASSES:
        raise InputError(
            f"{where}: the label has {len(found):,} different values in {rows:,} rows; at most {_MOST_CLASSES:,} are "
            f"taken for classes: {cure}"
        )


def check_labels(values: Sequence[object], classes: Sequence[object] | None, where: str) -> None:
    """Checks labels, of a whole table or of some of its rows.

    Raises:
        InputError: nulls, infinite numbers, or values outside the given classes.
    """
    for row, value in enumerate(values):
        if value is None or (isinstance(value, float) and math.isnan(value)):
            raise InputError(f"{where}: the label in row {row + 1} is null; drop the row")
        if isinstance(value, float) and math.isinf(value):
            raise InputError(f"{where}: the label in row {row + 1} is infinite; correct it, or drop the row")
    if classes is None:
        return
    if len(set(classes)) != len(classes):
        raise InputError(f"{where}: classes={list(classes)} names a class twice")
    known = set(classes)
    for row, value in enumerate(values):
        if value not in known:
            raise InputError(f"{where}: the label in row {row + 1} is {value!r}; the classes are {list(classes)}")

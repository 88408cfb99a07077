"""Convert a label column to class indexes, and check that its values are classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np

from securevfl.data.prepare.numbers import parse_numbers
from securevfl.errors import InputError

__all__ = ["Coded", "check_label_column", "encode_labels", "require_classes", "require_two"]

_MOST_FRACTIONS = 20
_MOST_CLASSES = 1_000
_MOSTLY = 0.9
"""Share of numbers among the different texts above which a label is treated as an amount, not as classes."""
_SHOWN = 3


@dataclass(frozen=True)
class Coded:
    """A coded column of labels.

    Attributes:
        codes: for each row, the index of its value in `values`, -1 for null, integers (n,).
        values: the different values.
    """

    codes: np.ndarray = field(repr=False)
    values: tuple[object, ...]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def values_found(self) -> set[object]:
        """Return all values that occur in a row."""
        there = np.bincount(self.codes[self.codes >= 0], minlength=len(self.values)) > 0
        return {value for value, is_there in zip(self.values, there.tolist(), strict=True) if is_there}

    def rows_of(self, some: Sequence[object]) -> np.ndarray:
        """Return the rows with one of these values (None matches null), integers (rows,)."""
        these = {id(value) for value in some}  # NaN is not equal to itself
        codes = [code for code, value in enumerate(self.values) if id(value) in these]
        return np.flatnonzero(np.isin(self.codes, [*codes, *([-1] if None in some else [])]))

    def first_row_with(self, bad: Sequence[object]) -> int | None:
        """Return the first row with one of these values (None matches null), or None."""
        rows = self.rows_of(bad)
        return int(rows[0]) if len(rows) else None


def encode_labels(labels: Coded, classes: Sequence[object] | None, where: str) -> tuple[np.ndarray, tuple[object, ...]]:
    """Return class indexes, int64, and the classes: the given ones, or those found, sorted.

    Raises:
        InputError: nulls, values outside the given classes, a single class, texts that differ only by spaces or
            capitals, or too many different values to be classes.
    """
    check_label_column(labels, classes, where)
    found = labels.values_found
    if classes is None:
        require_classes(found, len(labels), where)
    known = tuple(sorted(found, key=lambda value: (str(type(value)), value)) if classes is None else classes)
    require_two(found, where)
    index = {value: i for i, value in enumerate(known)}
    return np.array([index.get(value, -1) for value in labels.values], dtype=np.int64)[labels.codes], known


def require_two(found: set[object], where: str) -> None:
    """Check that there is more than one class.

    Raises:
        InputError: there is one class or none.
    """
    if len(found) < 2:
        raise InputError(
            f"{where}: all labels are {next(iter(found), None)!r}; there is nothing to learn from one class: add "
            "rows of another"
        )


def require_classes(found: set[object], rows: int, where: str) -> None:
    """Check that labels are classes with one spelling each, not amounts, names or row numbers.

    Raises:
        InputError: texts that differ only by spaces or capitals; many different fractional numbers, also written as
            text; or more than 1,000 different values.
    """
    _require_one_spelling(found, where)
    broken = sum(isinstance(value, float | Decimal) and value != math.floor(value) for value in found)
    number = 'to learn the number, set target=\'number\' (task = "regression" in [job], Job(task="regression")); or '
    made = "make classes of it in the table (below and above a bound, say), or list those that are meant in classes=[…]"
    numeric = all(isinstance(value, float | int | Decimal) for value in found)
    cure = (number if numeric else "") + made
    _require_no_amounts_in_texts(found, rows, where, number + made)
    if broken and len(found) > _MOST_FRACTIONS:
        raise InputError(
            f"{where}: the label has {len(found):,} different values in {rows:,} rows, {broken:,} of them with "
            f"a fraction: it is an amount, and a classification needs classes; {cure}"
        )
    if len(found) > _MOST_CLASSES:
        raise InputError(
            f"{where}: the label has {len(found):,} different values in {rows:,} rows; at most "
            f"{_MOST_CLASSES:,} classes are supported: {cure}"
        )


def _require_one_spelling(found: set[object], where: str) -> None:
    """Check that each class has one spelling: ``yes`` and ``yes `` would silently become two classes."""
    spelled: dict[str, list[str]] = {}
    for value in sorted(value for value in found if isinstance(value, str)):
        spelled.setdefault(" ".join(value.split()).casefold(), []).append(value)
    several = [ways for ways in spelled.values() if len(ways) > 1]
    if several:
        shown = "; ".join(" and ".join(map(repr, ways[:_SHOWN])) for ways in several[:_SHOWN])
        raise InputError(
            f"{where}: labels differ only by spaces or capitals: {shown}. As written, the label has "
            f"{len(found):,} classes instead of {len(found) - sum(len(ways) - 1 for ways in several):,}: spell "
            "each class in one way; if they are different classes, list them in classes=[…]"
        )


def _require_no_amounts_in_texts(found: set[object], rows: int, where: str, cure: str) -> None:
    """Refuse many fractional numbers that were read as text, for example because a word is among them."""
    texts = sorted(value for value in found if isinstance(value, str))
    if len(texts) <= _MOST_FRACTIONS:
        return
    numbers = np.stack([parse_numbers(texts, mark) for mark in (".", ",")])
    known = ~np.isnan(numbers).all(axis=0)
    if known.mean() < _MOSTLY:
        return
    best = numbers[np.argmin(np.isnan(numbers).sum(axis=1))]
    broken = int((best[~np.isnan(best)] % 1 != 0).sum())
    words = [text for text, is_known in zip(texts, known.tolist(), strict=True) if not is_known]
    if words or broken:
        shown = ", ".join(map(repr, words[:_SHOWN])) + (" and others" if len(words) > _SHOWN else "")
        others = f" (others, such as {shown}, are not numbers: correct them)" if words else " written as texts"
        raise InputError(
            f"{where}: the label has {len(found):,} different values in {rows:,} rows, {int(known.sum()):,} of "
            f"them numbers{others}: it is an amount, and a classification needs classes; {cure}"
        )


def check_label_column(labels: Coded, classes: Sequence[object] | None, where: str) -> None:
    """Check labels of a full table or of some of its rows.

    Raises:
        InputError: nulls, blank texts, infinite numbers, or values outside the given classes.
    """
    no_number = [value for value in labels.values if isinstance(value, float) and math.isnan(value)]
    infinite = [value for value in labels.values if isinstance(value, float) and math.isinf(value)]
    blank = [value for value in labels.values if isinstance(value, str) and not value.strip()]
    null = labels.rows_of([None, *no_number, *(one for one in blank if classes is None or one not in classes)])
    if len(null) == 1:
        raise InputError(f"{where}: the label in row {null[0] + 1} is null; drop the row")
    if len(null):
        shown = ", ".join(str(row + 1) for row in null[:_SHOWN].tolist()) + (", …" if len(null) > _SHOWN else "")
        raise InputError(
            f"{where}: the label is null or blank in {len(null):,} of {len(labels):,} rows (rows {shown}); drop them"
        )
    row = labels.first_row_with(infinite)
    if row is not None:
        raise InputError(f"{where}: the label in row {row + 1} is infinite; correct it, or drop the row")
    if classes is None:
        return
    if len(set(classes)) != len(classes):
        raise InputError(f"{where}: classes={list(classes)} names a class twice: list each class once")
    known = set(classes)
    row = labels.first_row_with([value for value in labels.values if value not in known])
    if row is not None:
        value = labels.values[int(labels.codes[row])]
        raise InputError(f"{where}: the label in row {row + 1} is {value!r}; the classes are {list(classes)}")

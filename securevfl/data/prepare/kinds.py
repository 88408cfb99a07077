"""Detect the kind of a real-world column, and read its values as numbers in whatever format they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from securevfl.data.categories import Categories, Column
from securevfl.data.prepare.dates import ORDERS, date_orders, parse_dates
from securevfl.data.prepare.numbers import decimal_marks, parse_numbers
from securevfl.data.prepare.rules import ColumnRules

__all__ = ["ABSENT", "Reader", "as_categories", "explain_unreadable", "find_reader"]

ABSENT = frozenset(
    ["", "?", "-", "--", ".", "…", "na", "n/a", "#n/a", "#na", "nan", "null", "none", "nil", "k.a.", "nat", "missing"]
)
"""Texts for a missing number or date, in lower case without surrounding spaces. A missing category is blank."""

_PAIRS: tuple[tuple[str, str], ...] = (
    *(("true", "false"), ("yes", "no"), ("ja", "nein"), ("y", "n"), ("j", "n"), ("t", "f"), ("on", "off")),
    *(("wahr", "falsch"), ("oui", "non"), ("si", "no"), ("sì", "no"), ("sí", "no")),
)
_TRUE = frozenset(true for true, _ in _PAIRS) | {"1"}
_FALSE = frozenset(false for _, false in _PAIRS) | {"0"}
_MOSTLY = 0.9
"""If at least this share of rows are numbers or dates, the other values are treated as mistakes."""
_LOOKED = 2048
"""Number of texts examined first for the decimal mark; the others only if these do not determine it."""
_SPELLINGS = 32
"""Maximum spellings of two booleans in one column, counting capitals and spaces."""
_SHOWN = 3
_DAY = np.timedelta64(1, "D")


@dataclass(frozen=True)
class Reader:
    """Converts the values of a column to numbers.

    Attributes:
        kind: ``"number"``, ``"flag"`` or ``"date"``.
        form: the decimal mark of numbers, or a key of `ORDERS` for dates; empty for flags and for columns that were not
            text at fitting.
    """

    kind: str
    form: str = ""

    def read_numbers(self, values: np.ndarray) -> np.ndarray:
        """Convert numbers, booleans or `numpy.datetime64` to float64 (n,); NaN for missing values. Dates become days
        since 1970-01-01; a number in a date column is read as such days.
        """
        if values.dtype.kind == "M":
            days: np.ndarray = (values - np.datetime64(0, "D")) / _DAY
            return days
        found: np.ndarray = values.astype(np.float64)
        return np.where(np.isnan(found), np.nan, (found != 0).astype(np.float64)) if self.kind == "flag" else found

    def read_texts(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Convert texts to numbers, (n,) float64, NaN for missing ones; also return the unreadable ones, (n,) bool."""
        absent = _find_missing(words)
        if self.kind == "flag":
            plain = [word.strip().casefold() for word in words]
            found = np.array([1.0 if word in _TRUE else 0.0 if word in _FALSE else np.nan for word in plain])
        elif self.kind == "date":
            found = parse_dates(words, self.form if self.form in ORDERS else "iso")
        else:
            found = parse_numbers(words, self.form if self.form else ".")
        return np.where(absent, np.nan, found), np.isnan(found) & ~absent


def as_categories(values: Column) -> Categories:
    """Convert any column to texts: missing values become empty, whole numbers have no decimal point, dates are in ISO
    8601.
    """
    if isinstance(values, Categories):
        return values
    if values.dtype.kind == "O":
        values = np.array(["" if v is None or v != v else str(v) for v in values.tolist()], dtype=np.str_)  # noqa: PLR0124
    distinct, codes = np.unique(values, return_inverse=True)
    if distinct.dtype.kind == "f":
        words = ["" if np.isnan(v) else str(int(v)) if v.is_integer() else str(v) for v in distinct.tolist()]
    elif distinct.dtype.kind == "M":
        words = ["" if text == "NaT" else text for text in np.datetime_as_string(distinct).tolist()]
    else:
        words = [str(value) for value in distinct.tolist()]
    ordered = sorted(set(words))
    place = {word: i for i, word in enumerate(ordered)}
    where = np.array([place[word] for word in words], dtype=np.int32)
    return Categories(where[codes.reshape(-1)], tuple(ordered))


def find_reader(words: Sequence[str], rows: np.ndarray, rules: ColumnRules, hint: str = "") -> Reader | str | None:
    """Choose a reader for texts; None if they are categories; a sentence without the column's name if they are faulty.

    Args:
        words: the different texts.
        rows: number of training rows of each text, (len(words),).
        rules: the column's rules.
        hint: the decimal mark of the table's other columns; empty if unknown.
    """
    if rules.kind == "category":
        return None
    there = ~_find_missing(words)
    texts, counts = list(words) if there.all() else [words[i] for i in np.flatnonzero(there).tolist()], rows[there]
    if not texts:
        return Reader("number", hint or ".")
    if rules.kind == "flag" or (rules.kind == "auto" and _is_pair(texts)):
        return Reader("flag")
    if rules.kind in ("auto", "number"):
        found = _find_number_reader(texts, counts, rules, hint)
        if found is not None:
            return found
    if rules.kind in ("auto", "date"):
        found = _find_date_reader(texts, counts, rules)
        if found is not None:
            return found
    return None


def _find_missing(words: Sequence[str]) -> np.ndarray:
    """Return which texts mean a missing number or date, (n,) bool."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = pc.utf8_lower(pc.utf8_trim_whitespace(pa.array(words, pa.string())))
    found: np.ndarray = pc.is_in(plain, value_set=pa.array(sorted(ABSENT))).to_numpy(zero_copy_only=False)
    return found


def _is_pair(texts: Sequence[str]) -> bool:
    if len(texts) > _SPELLINGS:
        return False
    words = {text.strip().casefold() for text in texts}
    return any(words <= {true, false} for true, false in _PAIRS)


def _find_number_reader(texts: list[str], counts: np.ndarray, rules: ColumnRules, hint: str) -> Reader | str | None:
    step = -(-len(texts) // _LOOKED)
    marks = decimal_marks(texts[::step]) if rules.decimal == "auto" else {rules.decimal}
    readings = {mark: parse_numbers(texts, mark) for mark in (sorted(marks) or [hint or "."])}
    if step > 1 and rules.decimal == "auto" and all(np.isnan(found).any() for found in readings.values()):
        readings = {mark: parse_numbers(texts, mark) for mark in sorted(decimal_marks(texts))} or readings
    whole = [mark for mark, found in readings.items() if not np.isnan(found).any()]
    if len(whole) == 1:
        return Reader("number", whole[0])
    shares = {mark: counts[~np.isnan(found)].sum() / max(counts.sum(), 1) for mark, found in readings.items()}
    best = max(shares, key=lambda mark: shares[mark])
    if rules.kind != "number" and shares[best] < _MOSTLY:
        return _both_ways(texts, counts, readings, "numbers with a decimal point and others with a decimal comma")
    wrong = _quote_first(texts, np.isnan(readings[best]))
    mark = "point" if best == "." else "comma"
    return (
        f"contains numbers with a decimal {mark}, and {wrong}: correct it, give decimal=…, or set "
        "kind='category' for it"
    )


def _find_date_reader(texts: list[str], counts: np.ndarray, rules: ColumnRules) -> Reader | str | None:
    orders = date_orders(texts)
    if orders:
        sure = next((order for order in orders if order in ("iso", "dotted")), None)
        if sure is not None or len(orders) == 1:
            return Reader("date", sure or orders[0])
        if rules.dates != "auto":
            return Reader("date", rules.dates)
        return (
            f"contains dates such as {texts[0]!r}, where the day or the month could be first: give dates='dmy' "
            "or dates='mdy', or write them as 2024-12-31"
        )
    readings = {order: parse_dates(texts, order) for order in ORDERS}
    shares = {order: counts[~np.isnan(found)].sum() / max(counts.sum(), 1) for order, found in readings.items()}
    best = max(shares, key=lambda order: shares[order])
    if rules.kind != "date" and shares[best] < _MOSTLY:
        return _both_ways(texts, counts, readings, "dates that are written in several ways")
    wrong = _quote_first(texts, np.isnan(readings[best]))
    return f"contains dates, and {wrong}: correct it, or set kind='category' for it"


def _both_ways(texts: Sequence[str], counts: np.ndarray, readings: Mapping[str, np.ndarray], what: str) -> str | None:
    """Explain what is wrong with texts that no single format covers but all formats together do; None for others."""
    known = np.stack([~np.isnan(found) for found in readings.values()])
    if counts[known.any(axis=0)].sum() < _MOSTLY * max(counts.sum(), 1):
        return None
    left, first = known.any(axis=0), []
    while left.any():
        one = int(np.flatnonzero(left)[0])
        first.append(repr(texts[one][:40]))
        left &= ~max((way for way in known if way[one]), key=lambda way: int((way & left).sum()))
    return f"contains {what} ({', '.join(first)}): write all in one way, or set kind='category' for it"


def explain_unreadable(words: Sequence[str], reader: Reader) -> str:
    """Explain why the reader cannot read texts, in a sentence without the column's name; empty if it can."""
    _, wrong = reader.read_texts(words)
    if not wrong.any():
        return ""
    what = {"number": "numbers", "flag": "truth values", "date": "dates"}[reader.kind]
    return (
        f"contained {what} when the model was trained, but now contains {_quote_first(words, wrong)}: correct it or "
        "leave it empty"
    )


def _quote_first(texts: Sequence[str], wrong: np.ndarray) -> str:
    """Show the first faulty texts."""
    found = [repr(texts[i][:40]) for i in np.flatnonzero(wrong)[:_SHOWN].tolist()]
    more = int(wrong.sum()) - len(found)
    return ", ".join(found) + (f" and {more:,} more such texts" if more > 0 else "")

"""Values that stand for "unknown": the first of January 1900, a phone number of zeros. Two records agree in them by no
merit of their own, which no estimate from scores sees: each party looks for them in its own table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Placeholder", "find_placeholders"]

_RATIO = 5
"""How many times as frequent as the fifth most frequent value of its field."""
_FEWEST = 20
"""Rows that have it, at least."""
_SHARE = 0.02
"""Of the rows that have any value, at least."""
_KINDS = 50
"""Different values of a field; with fewer, one may well be frequent: a country, a sex."""


@dataclass(frozen=True)
class Placeholder:
    """A value that may stand for "unknown".

    Attributes:
        field: of the schema.
        value: as it appears in the table.
        rows: how many have it.
        filled: how many have any.
    """

    field: str
    value: str
    rows: int
    filled: int

    def __str__(self) -> str:
        shown = self.value if len(self.value) <= 40 else f"{self.value[:39]}…"
        return (
            f"{self.field}: {self.rows:,} of {self.filled:,} values are {shown!r}, more than {_RATIO} times as many as "
            "of others; if that stands for 'unknown', leave it empty: else records agree in it that are of different "
            "people, and the estimated precision is too high"
        )


def find_placeholders(table: Mapping[str, Sequence[object]], fields: Sequence[str]) -> list[Placeholder]:
    """Values that are far more frequent than the others of their field, at most four of each field.

    Args:
        table: columns by name; None and blanks are no values.
        fields: the columns to look at, in this order.
    """
    found = []
    for field in fields:
        counts = Counter(text for value in table[field] if value is not None and (text := str(value).strip()))
        filled, commonest = sum(counts.values()), counts.most_common(5)
        if len(counts) < _KINDS:
            continue
        usual = commonest[-1][1]
        for value, rows in commonest[:-1]:
            if rows >= max(_FEWEST, _SHARE * filled) and rows > _RATIO * usual:
                found.append(Placeholder(field, value, rows, filled))
    return found

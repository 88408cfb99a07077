"""Encode columns for trees: numbers unchanged, NaN for missing values, categories as codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl.data.prepare.dates import date_parts
from securevfl.data.prepare.kinds import Reader

__all__ = ["CODES", "CodedDate", "CodedLevels", "CodedNumber", "fit_codes"]

CODES = 255
"""Maximum codes of a column, including the shared code of all other levels; with missing values they fit in a byte."""


@dataclass(frozen=True)
class CodedNumber:
    """Numbers and booleans, unchanged.

    Attributes:
        reader: how values become numbers.
    """

    reader: Reader

    @property
    def width(self) -> int:
        """Numbers that a row becomes."""
        return 1

    def encoded_names(self, column: str) -> list[str]:
        """Names of these numbers."""
        return [column]

    def encode(self, numbers: np.ndarray, out: np.ndarray) -> None:
        """Numbers of what `Reader.read_numbers` gives, (n,), into `out`, (n, 1)."""
        out[:, 0] = numbers


@dataclass(frozen=True)
class CodedDate:
    """Dates: days since a reference, plus year, month, weekday and hour if they vary among the training rows.

    Attributes:
        reader: how values become days since 1970-01-01.
        reference: the first training day, in days since 1970-01-01.
        parts: the parts that vary.
    """

    reader: Reader
    reference: float = field(repr=False)
    parts: tuple[str, ...]

    @property
    def width(self) -> int:
        """Numbers that a row becomes."""
        return 1 + len(self.parts)

    def encoded_names(self, column: str) -> list[str]:
        """Names of these numbers."""
        return [f"{column} days", *(f"{column} {part}" for part in self.parts)]

    def encode(self, numbers: np.ndarray, out: np.ndarray) -> None:
        """Numbers of what `Reader.read_numbers` gives, (n,), into `out`, (n, width)."""
        out[:, 0] = numbers - self.reference
        found = date_parts(numbers)
        for at, part in enumerate(self.parts, start=1):
            out[:, at] = found[part]


@dataclass(frozen=True)
class CodedLevels:
    """Categories as codes 0, 1, …, the most frequent level first; NaN for a missing value.

    Attributes:
        levels: levels with separate codes; all rare and new levels share the code after the last.
    """

    levels: tuple[str, ...] = field(repr=False)

    @property
    def width(self) -> int:
        """Numbers that a row becomes."""
        return 1

    @property
    def code_count(self) -> int:
        """Number of codes."""
        return len(self.levels) + 1

    def encoded_names(self, column: str) -> list[str]:
        """Names of these numbers."""
        return [column]

    def encode_levels(self, words: Sequence[str]) -> np.ndarray:
        """Return the codes of levels, (n, 1) float32."""
        place = {level: i for i, level in enumerate(self.levels)} | {"": np.nan}
        return np.array([[place.get(word, len(self.levels))] for word in words], dtype=np.float32).reshape(-1, 1)


def fit_codes(words: Sequence[str], rows: np.ndarray, least: int) -> tuple[CodedLevels | None, str]:
    """Fit codes on training rows; returns them with a description, or None if they would not distinguish rows.

    Args:
        words: the different texts; the empty text is a missing value.
        rows: number of training rows of each text, (len(words),), at least 1.
        least: minimum rows for a separate code; 2 if no level has that many.
    """
    if len(words) == 1:
        return None, f"all training rows have the same level{'' if words[0] else ', no value'}"
    order = sorted((i for i, word in enumerate(words) if word), key=lambda i: (-int(rows[i]), words[i]))
    least = least if any(rows[i] >= least for i in order) else 2
    kept = tuple(words[i] for i in order if rows[i] >= least)[: CODES - 1]
    if not kept:
        return None, f"none of its {len(words):,} levels has {least} training rows or more"
    grouped = len(order) - len(kept)
    return CodedLevels(kept), f"{len(kept)} codes" + (f", {grouped:,} rare levels grouped" if grouped else "")

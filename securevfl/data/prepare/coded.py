"""Columns as a tree takes them: numbers as they are, with NaN where one is missing, and categories as codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl.data.prepare.dates import parts_of
from securevfl.data.prepare.kinds import Reader

__all__ = ["CODES", "CodedDate", "CodedLevels", "CodedNumber", "fit_codes"]

CODES = 255
"""Most codes of a column, the one of all other levels included: with missing values they fit a byte."""


@dataclass(frozen=True)
class CodedNumber:
    """Numbers and truth values, as they are.

    Attributes:
        reader: how values become numbers.
    """

    reader: Reader

    @property
    def width(self) -> int:
        """Numbers that a row becomes."""
        return 1

    def names(self, column: str) -> list[str]:
        """Names of these numbers."""
        return [column]

    def encode(self, numbers: np.ndarray, out: np.ndarray) -> None:
        """Numbers of what `Reader.numbers` gives, (n,), into `out`, (n, 1)."""
        out[:, 0] = numbers


@dataclass(frozen=True)
class CodedDate:
    """Dates: days since a reference, and those of year, month, weekday and hour that differ among the training rows.

    Attributes:
        reader: how values become days since 1970-01-01.
        reference: the first training day, as such days.
        parts: which of them.
    """

    reader: Reader
    reference: float = field(repr=False)
    parts: tuple[str, ...]

    @property
    def width(self) -> int:
        """Numbers that a row becomes."""
        return 1 + len(self.parts)

    def names(self, column: str) -> list[str]:
        """Names of these numbers."""
        return [f"{column} days", *(f"{column} {part}" for part in self.parts)]

    def encode(self, numbers: np.ndarray, out: np.ndarray) -> None:
        """Numbers of what `Reader.numbers` gives, (n,), into `out`, (n, width)."""
        out[:, 0] = numbers - self.reference
        found = parts_of(numbers)
        for at, part in enumerate(self.parts, start=1):
            out[:, at] = found[part]


@dataclass(frozen=True)
class CodedLevels:
    """Categories as codes from 0 on, the most frequent level first; NaN for a missing value.

    Attributes:
        levels: with a code of their own; all others, rare ones and new ones, share the code after the last.
    """

    levels: tuple[str, ...] = field(repr=False)

    @property
    def width(self) -> int:
        """Numbers that a row becomes."""
        return 1

    @property
    def codes(self) -> int:
        """Number of codes."""
        return len(self.levels) + 1

    def names(self, column: str) -> list[str]:
        """Names of these numbers."""
        return [column]

    def of(self, words: Sequence[str]) -> np.ndarray:
        """Codes (n, 1) float32 of levels."""
        place = {level: i for i, level in enumerate(self.levels)} | {"": np.nan}
        return np.array([[place.get(word, len(self.levels))] for word in words], dtype=np.float32).reshape(-1, 1)


def fit_codes(words: Sequence[str], rows: np.ndarray, least: int) -> tuple[CodedLevels | None, str]:
    """Codes fitted on training rows, and how they were, in words; None where nothing of them tells rows apart.

    Args:
        words: different texts, the empty one for a missing value.
        rows: in how many training rows each is, (len(words),), at least 1.
        least: rows from which on a level has a code of its own; 2 where no level has so many.
    """
    if len(words) == 1:
        return None, f"all training rows hold the same level{'' if words[0] else ', no value'}"
    order = sorted((i for i, word in enumerate(words) if word), key=lambda i: (-int(rows[i]), words[i]))
    least = least if any(rows[i] >= least for i in order) else 2
    kept = tuple(words[i] for i in order if rows[i] >= least)[: CODES - 1]
    if not kept:
        return None, f"none of its {len(words):,} levels has {least} training rows or more"
    grouped = len(order) - len(kept)
    return CodedLevels(kept), f"{len(kept)} codes" + (f", {grouped:,} rare levels grouped" if grouped else "")

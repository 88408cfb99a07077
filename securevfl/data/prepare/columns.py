"""A prepared column: its kind, its fitted encoding, and the encoding of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl.data.categories import Categories, Column
from securevfl.data.prepare.coded import CodedDate, CodedLevels, CodedNumber
from securevfl.data.prepare.dates import date_parts
from securevfl.data.prepare.kinds import Reader, as_categories, explain_unreadable
from securevfl.data.prepare.levels import Levels
from securevfl.data.prepare.scaling import Linear, Scores

__all__ = ["PreparedCategory", "PreparedColumn", "PreparedDate", "PreparedNumber", "Writer"]

Writer = Callable[[Column, np.ndarray], None]
"""Writes the numbers of some rows of a column, (n,), into an array, (n, width)."""

_CYCLES = {"month": (12.0, 1.0), "weekday": (7.0, 0.0), "hour": (24.0, 0.0)}


@dataclass(frozen=True)
class PreparedNumber:
    """Numbers and booleans.

    Attributes:
        reader: how values become numbers.
        scaling: applied to these numbers.
        fill: replacement of a missing value, before scaling.
        indicator: whether an additional number is 1 if the value was missing.
    """

    reader: Reader
    scaling: Linear | Scores
    fill: float = field(repr=False)
    indicator: bool

    @property
    def width(self) -> int:
        """Numbers that a row becomes."""
        return 1 + self.indicator

    def encoded_names(self, column: str) -> list[str]:
        """Names of these numbers."""
        return [column, f"{column} missing"] if self.indicator else [column]

    def encode(self, numbers: np.ndarray, out: np.ndarray) -> None:
        """Numbers of what `Reader.read_numbers` gives, (n,), into `out`, (n, width)."""
        missing = np.isnan(numbers)
        if missing.any():
            numbers = np.where(missing, self.fill, numbers)
        out[:, 0] = self.scaling(numbers)
        if self.indicator:
            out[:, 1] = missing


@dataclass(frozen=True)
class PreparedDate:
    """Dates: days since a reference, the year, and, if they vary, month, weekday and hour as sine and cosine.

    Attributes:
        reader: how values become days since 1970-01-01.
        reference: the first training day, in days since 1970-01-01.
        days: scaling of days since the reference.
        year: scaling of the year; None if all training rows have the same year.
        cycles: those of month, weekday and hour that vary among the training rows.
        fill: replacement of a missing date, in days since 1970-01-01; its sines and cosines are 0.
        indicator: whether an additional number is 1 if the date was missing.
    """

    reader: Reader
    reference: float = field(repr=False)
    days: Linear | Scores
    year: Linear | None
    cycles: tuple[str, ...]
    fill: float = field(repr=False)
    indicator: bool

    @property
    def width(self) -> int:
        """Numbers that a row becomes."""
        return 1 + (self.year is not None) + 2 * len(self.cycles) + self.indicator

    def encoded_names(self, column: str) -> list[str]:
        """Names of these numbers."""
        found = [f"{column} days"] + ([f"{column} year"] if self.year is not None else [])
        found += [f"{column} {cycle} {part}" for cycle in self.cycles for part in ("sin", "cos")]
        return found + ([f"{column} missing"] if self.indicator else [])

    def encode(self, numbers: np.ndarray, out: np.ndarray) -> None:
        """Numbers of what `Reader.read_numbers` gives, (n,), into `out`, (n, width)."""
        missing = np.isnan(numbers)
        parts = date_parts(np.where(missing, self.fill, numbers))
        out[:, 0] = self.days(np.where(missing, self.fill, numbers) - self.reference)
        at = 1
        if self.year is not None:
            out[:, at] = self.year(parts["year"])
            at += 1
        for cycle in self.cycles:
            length, first = _CYCLES[cycle]
            angle = (parts[cycle] - first) * (2 * np.pi / length)
            out[:, at] = np.where(missing, 0, np.sin(angle))
            out[:, at + 1] = np.where(missing, 0, np.cos(angle))
            at += 2
        if self.indicator:
            out[:, at] = missing


@dataclass(frozen=True)
class PreparedCategory:
    """Categories.

    Attributes:
        levels: the encoding of the levels.
    """

    levels: Levels | CodedLevels

    @property
    def width(self) -> int:
        """Numbers that a row becomes."""
        return self.levels.width

    def encoded_names(self, column: str) -> list[str]:
        """Names of these numbers."""
        return self.levels.encoded_names(column)


@dataclass(frozen=True)
class PreparedColumn:
    """One column of a party's table.

    Attributes:
        how: its kind and its encoding.
    """

    how: PreparedNumber | PreparedDate | PreparedCategory | CodedNumber | CodedDate

    @property
    def width(self) -> int:
        """Numbers that a row becomes."""
        return self.how.width

    def encoded_names(self, column: str) -> list[str]:
        """Names of these numbers."""
        return self.how.encoded_names(column)

    @property
    def code_counts(self) -> list[int]:
        """For each of these numbers, its number of codes; 0 if it is not a code."""
        coded = isinstance(self.how, PreparedCategory) and isinstance(self.how.levels, CodedLevels)
        return [self.how.levels.code_count] if coded else [0] * self.width  # type: ignore[union-attr]

    def explain_mistake(self, values: Column) -> str:
        """Explain why values cannot be encoded, in a sentence without the column's name; empty if they can."""
        if values.ndim != 1:
            return f"has values of shape {values.shape[1:]}, but had one value per row when the model was trained"
        if isinstance(self.how, PreparedCategory):
            return ""
        if isinstance(values, Categories):
            return explain_unreadable(values.words, self.how.reader)
        if values.dtype.kind in "OUS":
            return explain_unreadable(as_categories(values).words, self.how.reader)
        return ""

    def build_encoder(self, values: Column) -> Writer:
        """Return the function that encodes some rows of a column.

        Args:
            values: the full column; each different text is encoded once.
        """
        if isinstance(values, Categories):
            table = self.of_words(values.words)

            def looked_up(part: Column, out: np.ndarray) -> None:
                out[...] = table[as_categories(part).codes]

            return looked_up
        return self._encode_part

    def of_words(self, words: Sequence[str]) -> np.ndarray:
        """Encode texts, (n, width)."""
        if isinstance(self.how, PreparedCategory):
            return self.how.levels.encode_levels(words)
        found = np.empty((len(words), self.width))
        self.how.encode(self.how.reader.read_texts(words)[0], found)
        return found

    def _encode_part(self, part: Column, out: np.ndarray) -> None:
        if isinstance(self.how, PreparedCategory) or isinstance(part, Categories) or part.dtype.kind in "OUS":
            texts = as_categories(part)
            out[...] = self.of_words(texts.words)[texts.codes]
        else:
            self.how.encode(self.how.reader.read_numbers(part), out)

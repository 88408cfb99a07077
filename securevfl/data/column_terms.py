"""A model that is a sum of terms, one for each column: what each term of a row adds, at the party that owns its column.

Such a model explains its scores exactly, and each party can do so for its own columns from its own part of the model,
without any message. A column's term is shown less its mean, so that zero means "as an average row".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from securevfl.data.categories import Column
from securevfl.data.features import FeatureEncoder
from securevfl.data.table import PartyTable

__all__ = ["ColumnTerms", "Direction", "PartyTerms", "Reason", "find_reasons", "multiply_columns"]

Direction: TypeAlias = Literal["down", "up", "both"]
"""Which terms are reasons: those that lower the score, those that raise it, or the largest of both."""


@dataclass(frozen=True)
class Reason:
    """One column's term in the score of a row.

    Attributes:
        column: its name in the party's table.
        value: the row's value in it, as text; empty for a block of numbers.
        term: what the column adds to the score, less the column's mean, in the model's unit.
    """

    column: str
    value: str
    term: float


@dataclass(frozen=True, kw_only=True)
class ColumnTerms:
    """What each encoded column of a party adds to the sum of some rows, as the model has it.

    Attributes:
        values: float64 (n, encoded columns, outputs).
        start: what every row begins with at this party, (outputs,).
        unit: of the sum, for people.
        means: of each encoded column over the training rows, (encoded columns, outputs), where the model has them.
        points: how many points one unit is, where the model counts in points; 0 elsewhere.
    """

    values: np.ndarray = field(repr=False)
    start: np.ndarray = field(repr=False)
    unit: str
    means: np.ndarray | None = field(default=None, repr=False)
    points: float = 0.0


@dataclass(frozen=True, kw_only=True)
class PartyTerms:
    """The terms of a party's columns in the scores of some rows of its table.

    The sum of all parties' `start` and of a row's `values` is what the model computes for the row.

    Attributes:
        party: whose columns these are.
        columns: names in the party's table.
        values: float64 (n, columns, outputs): each column's term, less its mean.
        start: the means' sum, and at the active party what every row begins with, (outputs,).
        unit: of all these numbers.
        points: how many points one unit is; 0 where the model has no points.
        texts: of each row, its values in the columns.
    """

    party: str
    columns: tuple[str, ...]
    values: np.ndarray = field(repr=False)
    start: np.ndarray = field(repr=False)
    unit: str
    points: float
    texts: Sequence[Sequence[str]] = field(repr=False)

    @classmethod
    def of_rows(
        cls, table: PartyTable, encoder: FeatureEncoder, terms: ColumnTerms, means: np.ndarray, rows: np.ndarray
    ) -> PartyTerms:
        """Put encoded columns together by the column that they come from, and subtract means.

        Args:
            table: the party's.
            encoder: of its part of the model.
            terms: of the rows to explain.
            means: of each encoded column, (encoded columns, outputs).
            rows: numbers of the rows to explain, (n,).
        """
        names, source = list(encoder.columns), np.array(encoder.source_columns, dtype=np.int64)
        values = np.zeros((len(rows), len(names), terms.values.shape[2]))
        for place in range(len(names)):
            values[:, place] = (terms.values - means)[:, source == place].sum(axis=1)
        return cls(
            party=table.name,
            columns=tuple(names),
            values=values,
            start=terms.start + means.sum(axis=0),
            unit=terms.unit,
            points=terms.points,
            texts=[*zip(*(_describe_values(table.columns[name], rows) for name in names), strict=True)]
            or [()] * len(rows),
        )

    @property
    def totals(self) -> np.ndarray:
        """The sum of the party's terms in each row, float64 (n, outputs)."""
        found: np.ndarray = self.values.sum(axis=1)
        return found

    def flip(self) -> PartyTerms:
        """The terms of the other of two classes."""
        return replace(self, values=-self.values, points=-self.points)

    def importance(self, output: int) -> dict[str, float]:
        """Column → the mean of its term's magnitude over these rows, the largest first."""
        sizes = np.abs(self.values[:, :, output]).mean(axis=0) if len(self.values) else np.zeros(len(self.columns))
        return dict(sorted(zip(self.columns, sizes.tolist(), strict=True), key=lambda one: -one[1]))


def find_reasons(
    terms: PartyTerms, row: int, *, most: int, direction: Direction = "down", output: int = 0
) -> list[Reason]:
    """The columns that move a row's score most, the strongest first; terms of zero are no reasons.

    Args:
        terms: of one party.
        row: position of the row among those of `terms`.
        most: how many.
        direction: see `Direction`.
        output: of which class, where there are several.
    """
    found = [
        Reason(*one) for one in zip(terms.columns, terms.texts[row], terms.values[row, :, output].tolist(), strict=True)
    ]
    sign = {"down": -1.0, "up": 1.0}.get(direction)
    kept = [one for one in found if (one.term * sign > 0 if sign else one.term)]
    return sorted(kept, key=lambda one: -abs(one.term))[:most]


def multiply_columns(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Each column's term of a linear model, float64 (n, columns, outputs).

    Args:
        x: encoded columns, (n, columns).
        weights: (columns, outputs).
    """
    found: np.ndarray = np.asarray(x, np.float64)[:, :, None] * weights[None]
    return found


def _describe_values(values: Column, rows: np.ndarray) -> list[str]:
    if values.ndim > 1:
        return [""] * len(rows)
    taken = values[rows]
    return [f"{one:.6g}" if isinstance(one, float) else str(one) for one in taken.tolist()]

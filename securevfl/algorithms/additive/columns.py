"""A column as the additive model has it: bins with masses, and the codes of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl.errors import InputError
from securevfl.training.state import State, as_dict, as_list

__all__ = ["INTERCEPT", "BinnedColumn", "bin_offsets", "code_rows", "read_columns", "write_columns"]

INTERCEPT = "(intercept)"


@dataclass(frozen=True)
class BinnedColumn:
    """One column's bins. The last bin is that of missing values.

    A value x is in bin b if ``edges[b−1] < x ≤ edges[b]``. The intercept is a column with a single bin.

    Attributes:
        name: as encoded.
        edges: ascending float64, one fewer than the bins of values.
        masses: share of the rows in each bin, float64; declared, noisy, or counted where no budget is spent.
        is_category: whether values are codes of levels.
        direction: 1 where the shape may only rise, −1 where it may only fall, else 0.
        low: lowest value of the stated range; −∞ if none is stated.
        high: highest, likewise.
        levels: names of a category's levels, for reports.
    """

    name: str
    edges: np.ndarray = field(repr=False)
    masses: np.ndarray = field(repr=False)
    is_category: bool = False
    direction: int = 0
    low: float = -np.inf
    high: float = np.inf
    levels: tuple[str, ...] = ()

    @classmethod
    def intercept(cls) -> BinnedColumn:
        """The column that is one for every row."""
        return cls(INTERCEPT, np.empty(0), np.ones(1))

    @property
    def bins(self) -> int:
        """Number of bins, the one of missing values included."""
        return len(self.masses)

    @property
    def is_intercept(self) -> bool:
        """Whether it is one for every row."""
        return self.bins == 1

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Bins of values, int64 (n,); NaN is missing."""
        if self.is_intercept:
            return np.zeros(len(values), dtype=np.int64)
        found = np.searchsorted(self.edges, values, side="left")
        return np.where(np.isnan(values), self.bins - 1, found).astype(np.int64)

    def with_masses(self, counts: np.ndarray) -> BinnedColumn:
        """The column with masses in proportion to these counts; equal ones if no count is positive."""
        positive = np.maximum(counts.astype(np.float64), 0)
        total = positive.sum()
        masses = positive / total if total > 0 else np.full(len(counts), 1 / len(counts))
        return BinnedColumn(
            self.name, self.edges, masses, self.is_category, self.direction, self.low, self.high, self.levels
        )


def bin_offsets(columns: Sequence[BinnedColumn]) -> np.ndarray:
    """Place of each column's first bin among all bins, int64 (columns + 1,)."""
    return np.concatenate([[0], np.cumsum([one.bins for one in columns], dtype=np.int64)]).astype(np.int64)


def code_rows(columns: Sequence[BinnedColumn], x: np.ndarray) -> np.ndarray:
    """Places of rows' bins among all bins, int32 (n, columns).

    Args:
        columns: the party's; the intercept takes no column of `x`.
        x: float64 (n, columns without the intercept), NaN where missing.
    """
    found = np.empty((len(x), len(columns)), dtype=np.int32)
    offsets, taken = bin_offsets(columns), 0
    for j, column in enumerate(columns):
        if column.is_intercept:
            found[:, j] = offsets[j]
            continue
        found[:, j] = column.encode(x[:, taken]) + offsets[j]
        taken += 1
    if taken != x.shape[1]:
        raise InputError(f"rows have {x.shape[1]} columns, and the model's shapes have {taken}")
    return found


def write_columns(columns: Sequence[BinnedColumn]) -> list[object]:
    """Columns as plain values, for a checkpoint or a model."""
    return [
        {
            "name": one.name,
            "edges": one.edges.tolist(),
            "masses": one.masses.tolist(),
            "category": one.is_category,
            "direction": one.direction,
            "range": [one.low, one.high],
            "levels": list(one.levels),
        }
        for one in columns
    ]


def read_columns(state: object) -> list[BinnedColumn]:
    """Read what `write_columns` wrote.

    Raises:
        InputError: it is damaged.
    """
    found = []
    for item in as_list(state):
        kept: State = as_dict(item)
        edges = np.array(as_list(kept["edges"]), dtype=np.float64)
        masses = np.array(as_list(kept["masses"]), dtype=np.float64)
        low, high = (float(str(value)) for value in as_list(kept["range"]))
        whole = len(masses) == 1 and not len(edges)
        if (len(masses) != len(edges) + 2 and not whole) or (np.diff(edges) <= 0).any():
            raise InputError(f"a stored column has {len(edges)} edges and {len(masses)} bins: the model is damaged")
        levels = tuple(str(level) for level in as_list(kept["levels"]))
        found.append(
            BinnedColumn(
                str(kept["name"]), edges, masses, bool(kept["category"]), int(str(kept["direction"])), low, high, levels
            )
        )
    return found

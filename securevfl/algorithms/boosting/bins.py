"""Quantile bins of a party's columns, the bins of all histograms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl.algorithms.boosting.categories import NUMBER, code_flags, in_levels

__all__ = ["Bins", "fit_bins"]


@dataclass(frozen=True)
class Bins:
    """Bin edges of a party's columns.

    A value x has code b if edges[b−1] < x ≤ edges[b], so "code ≤ b" is the same as "x ≤ edges[b]". A missing value
    (NaN) has the last code of its column.

    Attributes:
        edges: of each column, ascending float64, one fewer than its bins of values.
        levels: number of levels of each column of categories, whose values are level numbers; 0 for a column of
            numbers. Empty if all columns contain numbers.
    """

    edges: tuple[np.ndarray, ...] = field(repr=False)
    levels: tuple[int, ...] = ()

    @property
    def category_columns(self) -> np.ndarray:
        """Which columns contain categories, bool (columns,)."""
        return np.asarray(self.levels, dtype=np.int64) > 0 if self.levels else np.zeros(len(self.edges), dtype=bool)

    @property
    def code_counts(self) -> tuple[int, ...]:
        """Number of codes of each column, including the code of missing values."""
        return tuple(len(one) + 2 for one in self.edges)

    def encode_rows(self, x: np.ndarray) -> np.ndarray:
        """Codes of rows, int64 (n, columns).

        Args:
            x: float64 (n, columns); NaN where missing.
        """
        found = np.empty(x.shape, dtype=np.int64)
        for j, edges in enumerate(self.edges):
            column = x[:, j]
            found[:, j] = np.searchsorted(edges, column, side="left")
            found[np.isnan(column), j] = len(edges) + 1
        return found

    def goes_left(
        self, codes: np.ndarray, column: int, bin_: int, *, missing_left: bool, left: int = NUMBER
    ) -> np.ndarray:
        """Which rows go left at a split, bool (n,).

        Args:
            codes: of rows, (n, columns).
            column: of the split.
            bin_: rows with a code up to this one go left.
            missing_left: whether rows without a value go left.
            left: at a split of categories, the set of codes that go left, instead of `bin_` and `missing_left`.
        """
        code = codes[:, column]
        if left != NUMBER:
            inside: np.ndarray = code_flags(left)[code]
            return inside
        missing = code == self.code_counts[column] - 1
        found: np.ndarray = np.where(missing, missing_left, code <= bin_)
        return found

    def threshold(self, column: int, bin_: int) -> float:
        """Largest value with a code up to `bin_`; infinite for the last bin."""
        edges = self.edges[column]
        return float(edges[bin_]) if bin_ < len(edges) else float("inf")

    def levels_of(self, column: int, left: int) -> int:
        """The set of levels of a column whose codes are in a set; `NUMBER` for numbers."""
        if left == NUMBER:
            return NUMBER
        numbers = np.arange(self.levels[column], dtype=np.float64)
        return in_levels(left, np.searchsorted(self.edges[column], numbers, side="left").tolist())


def fit_bins(x: np.ndarray, most: int, levels: Sequence[int] = ()) -> Bins:
    """Fit bins with about equal numbers of rows; a column with few distinct values gets one bin per value.

    Edges are those of scikit-learn's histogram boosting: midpoints if there are few values, quantiles otherwise.

    Args:
        x: training rows, float64 (n, columns); NaN where missing.
        most: bins of values in a column, from 2 to 255.
        levels: as `Bins.levels`. If there are more than `most` levels, levels of similar frequency share a bin.
    """
    edges = []
    for j in range(x.shape[1]):
        column = x[:, j]
        values = np.unique(column[~np.isnan(column)])
        if len(values) <= most:
            found = (values[:-1] + values[1:]) / 2
        else:
            shares = np.linspace(0, 100, num=most + 1)[1:-1]
            found = np.unique(np.percentile(column[~np.isnan(column)], shares, method="averaged_inverted_cdf"))
        edges.append(np.ascontiguousarray(found, dtype=np.float64))
    return Bins(tuple(edges), tuple(levels))

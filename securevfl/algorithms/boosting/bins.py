"""Bins of a party's columns, the bins of all histograms: frequent values get a bin each, quantiles cut the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

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

    @cached_property
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
    """Fit the bins of all columns.

    A column with few distinct values gets one bin per value, with edges at the midpoints. In another one, each value
    with the share 1 / `most` of the rows or more gets a bin, as in LightGBM, and quantiles cut the others into bins of
    about equal numbers of rows: a column with 92 % zeros does not lose 92 % of its bins to them. Without such values
    the edges are those of scikit-learn's histogram boosting.

    Args:
        x: training rows, float64 (n, columns); NaN where missing.
        most: bins of values in a column, from 2 to 255.
        levels: as `Bins.levels`. If there are more than `most` levels, levels of similar frequency share a bin.
    """
    edges = []
    for j in range(x.shape[1]):
        column = x[:, j]
        values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
        found = (values[:-1] + values[1:]) / 2 if len(values) <= most else _cut_values(values, counts, most)
        edges.append(np.ascontiguousarray(found, dtype=np.float64))
    return Bins(tuple(edges), tuple(levels))


def _cut_values(values: np.ndarray, counts: np.ndarray, most: int) -> np.ndarray:
    """Cut a column with more than `most` distinct values: its edges, at most `most` − 1, ascending.

    Args:
        values: the distinct values, ascending, (n,).
        counts: rows of each, (n,).
        most: bins.
    """
    frequent = np.flatnonzero(counts * most >= counts.sum())
    frequent = frequent[np.argsort(-counts[frequent], kind="stable")]
    middles = (values[:-1] + values[1:]) / 2
    while len(apart := _gaps_around(frequent, len(values))) >= most:
        frequent = frequent[:-1]  # the least frequent of them shares a bin
    rest = np.ones(len(values), dtype=bool)
    rest[frequent] = False
    others, parts = np.repeat(values[rest], counts[rest]), most - len(apart)
    found: np.ndarray = middles[apart]
    while parts > 1:
        shares = np.linspace(0, 100, num=parts + 1)[1:-1]
        cuts = np.percentile(others, shares, method="averaged_inverted_cdf")
        # A gap has one edge, and no edge lies above all values: else a bin would be empty.
        gaps, first = np.unique(np.searchsorted(values, cuts, side="right") - 1, return_index=True)
        new = ~np.isin(gaps, apart) & (gaps < len(values) - 1)
        edges = np.union1d(middles[apart], cuts[first[new]])
        if len(edges) >= most:
            break
        found, spare = edges, most - 1 - len(edges)
        if not len(frequent) or not spare:
            break
        parts += spare  # some cuts fell on gaps beside frequent values
    return found


def _gaps_around(apart: np.ndarray, count: int) -> np.ndarray:
    """The gaps below and above some of the values; gap k lies between the values k and k + 1.

    Args:
        apart: places of the values that get a bin each.
        count: of all values.
    """
    gaps = np.union1d(apart - 1, apart)
    found: np.ndarray = gaps[(gaps >= 0) & (gaps < count - 1)]
    return found

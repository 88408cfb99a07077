"""What training boosted trees on shares has to know of an algorithm and of its roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from securevfl.party_context import derive_seed

__all__ = [
    "CELLS",
    "SPLITS",
    "CodedColumns",
    "ColumnBins",
    "OwnScores",
    "TreeTerms",
    "count_sets",
    "draw_columns",
    "draw_rows",
    "fit_bin_count",
    "fit_leaf_bounds",
    "fit_least_hessian",
    "fits_sets",
]

CELLS = "shares/cells"
"""The step that tells which bins each column has."""

SPLITS = "splits"
"""In a party's part of trees that were handed out: of each tree, node and own cell, whether it goes left, uint8."""


_FEW_BINS, _MANY_BINS = 32, 255
_ROWS_OF_BIN = 10
"""Rows of a bin on average, from which on more than `_FEW_BINS` help."""
_ROWS_OF_LEAF = 20
_LEAST_SUM = 1e-3
_PART_OF_LEAF = 10
"""A leaf needs at most this part of the rows."""


def fit_bin_count(rows: int, *, costly: bool) -> int:
    """The most bins of a column where the job states no number: 32, or up to 255 where sums cost little.

    Args:
        rows: that train.
        costly: whether each bin costs work under encryption or on shares.
    """
    return _FEW_BINS if costly else min(max(rows // _ROWS_OF_BIN, _FEW_BINS), _MANY_BINS)


def fit_leaf_bounds(rows: int, min_hessian: float | None) -> tuple[float, float]:
    """The least sum of second derivatives and the fewest rows of a leaf.

    Where the job states no sum, a leaf has 20 rows or more, as in scikit-learn and LightGBM, or a tenth of all if that
    is less, and a sum of 0.001. A sum of 1 instead, as in XGBoost, is twenty rows and more of a class that is nearly
    certain, and training many classes ends too early.

    Args:
        rows: that train.
        min_hessian: as the job states it.
    """
    return (_LEAST_SUM, _count_leaf_rows(rows)) if min_hessian is None else (min_hessian, 0.0)


def fit_least_hessian(rows: int, *, counts_rows: bool) -> float:
    """The least sum of second derivatives of a leaf on shares, where nobody counts a node's rows and the job states
    none: 1, as in XGBoost; where a row's is 1, the rows of `fit_leaf_bounds`.

    Args:
        rows: that train.
        counts_rows: whether a row's second derivative is 1, or not far from it.
    """
    return _count_leaf_rows(rows) if counts_rows else 1.0


def _count_leaf_rows(rows: int) -> float:
    return float(min(_ROWS_OF_LEAF, max(rows // _PART_OF_LEAF, 1)))


@dataclass(frozen=True, kw_only=True)
class TreeTerms:
    """The settings of trees on shares, named as in `sv.Boosting`.

    Attributes:
        depth: levels of splits.
        bins: most bins of values of a column.
        l2: penalty of a leaf's square.
        min_gain: least gain of a split.
        min_hessian: least sum of second derivatives on either side of a split; None for `fit_least_hessian`.
        rate: shrinkage of each tree.
        rows: share of the training rows that the trees of a round use.
        columns: share of the columns that they may split by.
        own_start: whether rows begin at scores that the active party deals, and not at a constant.
    """

    depth: int
    bins: int
    l2: float
    min_gain: float
    min_hessian: float | None
    rate: float
    rows: float
    columns: float
    own_start: bool = False


@dataclass(frozen=True)
class ColumnBins:
    """A party's columns, as all parties know them.

    Attributes:
        bins: of each column, its bins of values.
        missing: of each column, whether training rows lack values in it.
        directions: of each column: 1 if scores may only rise with it, −1 if they may only fall, 0 otherwise.
        parted: of each column, whether a split may part its cells into any two sets: a category with few levels.
    """

    bins: tuple[int, ...]
    missing: tuple[bool, ...]
    directions: tuple[int, ...]
    parted: tuple[bool, ...]


def count_sets(cells: int) -> int:
    """The ways to part so many cells into two sets, neither of them empty."""
    return (1 << (cells - 1)) - 1


def fits_sets(cells: int, bins: int) -> bool:
    """Whether a category with so many cells is split into any two sets of them: where that makes no more candidates
    than a number with missing values has.

    Args:
        cells: of its levels, and one for missing values.
        bins: most bins of a number.
    """
    return cells <= bins.bit_length() + 1 and count_sets(cells) < 2 * bins


class CodedColumns(Protocol):
    """What a role offers beside the hooks of its base, so that its trees can grow on shares."""

    def column_bins(self) -> ColumnBins:
        """This party's columns."""
        ...

    def encode_cells(self, rows: np.ndarray) -> np.ndarray:
        """The cell of each numbered row within each of this party's columns, uint8 (columns, n)."""
        ...


class OwnScores(Protocol):
    """What a role offers beside, where rows begin at scores of the active party's own model."""

    async def fit_own_model(self) -> None:
        """Fit the own model, unless that was done."""
        ...

    def own_scores(self, rows: np.ndarray, *, train: bool) -> np.ndarray:
        """Raw scores at which numbered rows begin, float64 (n, outputs).

        Args:
            rows: their numbers.
            train: whether they are the rows that train.
        """
        ...


def draw_rows(seed: int, number: int, rows: int, share: float) -> np.ndarray:
    """Draw the training rows of a tree from the job's seed: all parties draw the same rows, independently of labels.

    Args:
        seed: the job's.
        number: of the tree, from 0.
        rows: number of training rows.
        share: of the rows that a tree uses.

    Returns:
        Their positions among the training rows, ascending, int64 (n,): at least 2 if there are that many.
    """
    if share == 1:
        return np.arange(rows)
    generator = np.random.default_rng(derive_seed(seed, "rows of a tree", number))
    return np.sort(generator.permutation(rows)[: max(2, round(share * rows))])


def draw_columns(seed: int, number: int, usable: Sequence[bool], share: float) -> np.ndarray | None:
    """Draw which of all parties' columns the trees of a round may split on, from the job's seed: bool (columns,), or
    None for all.

    Args:
        seed: the job's.
        number: of the round, from 0.
        usable: whether a column has a candidate split; one of those at least is drawn.
        share: of the columns.
    """
    places = np.flatnonzero(np.asarray(usable, bool))
    if share == 1 or not len(places):
        return None
    generator = np.random.default_rng(derive_seed(seed, "columns of a round", number))
    allowed = np.zeros(len(usable), dtype=bool)
    allowed[generator.permutation(places)[: max(1, round(share * len(places)))]] = True
    return allowed

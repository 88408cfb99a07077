"""Where the bins of a party's columns come from: what the job declares, noisy counts, or the common rows themselves.

*Declared*: edges and levels stand in the job, and all bins of a column count alike. Nothing of any row moves them.

*Private*: over a stated range, on a grid of 256 cells of the signed logarithm, a tree of noisy counts gives quantiles
and masses. Replacing a row moves two counts in each of the tree's nine levels by one, so counts have the sensitivity
√18; of a category with declared levels √2. The columns of a party share its budget alike.

*Common*: quantiles and counts of the common rows, exact. They release something of these rows, so a budget excludes
them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence

import numpy as np

from securevfl.algorithms.additive.columns import BinnedColumn
from securevfl.privacy.noise import Entropy, draw_gaussian

__all__ = [
    "CELLS",
    "LEVELS",
    "category_column",
    "common_column",
    "count_bins",
    "declared_column",
    "noisy_category",
    "noisy_column",
    "signed_log",
]

CELLS = 256
LEVELS = int(math.log2(CELLS)) + 1
_TREE_SENSITIVITY = math.sqrt(2 * LEVELS)
_COUNTS_SENSITIVITY = math.sqrt(2)


def signed_log(values: np.ndarray | float) -> np.ndarray:
    """``sign(x) · log(1 + |x|)``, on whose scale the cells of a range have equal width."""
    found: np.ndarray = np.sign(values) * np.log1p(np.abs(values))
    return found


def count_bins(column: BinnedColumn, values: np.ndarray) -> np.ndarray:
    """How many values are in each bin, int64 (bins,)."""
    return np.bincount(column.encode(values), minlength=column.bins)


def declared_column(name: str, edges: Sequence[float]) -> BinnedColumn:
    """A column of numbers with declared edges; its bins of values count alike."""
    masses = np.append(np.ones(len(edges) + 1), 0.0)
    found = BinnedColumn(name, np.asarray(edges, dtype=np.float64), masses)
    return found.with_masses(masses)


def category_column(name: str, codes: int, levels: Sequence[str] = ()) -> BinnedColumn:
    """A column of categories with one bin for each code, which count alike.

    Args:
        name: of the column.
        codes: number of codes.
        levels: their names; the last code is that of all other levels.
    """
    masses = np.append(np.ones(codes), 0.0)
    found = BinnedColumn(name, np.arange(codes - 1) + 0.5, masses, is_category=True, levels=tuple(levels))
    return found.with_masses(masses)


def common_column(name: str, values: np.ndarray, bins: int) -> BinnedColumn:
    """A column of numbers, cut at quantiles of its values; a value with a mass of 1/bins or more gets its own bin.

    Args:
        name: of the column.
        values: float64 (n,), NaN where missing.
        bins: most bins of values.
    """
    there = values[~np.isnan(values)]
    distinct, counts = np.unique(there, return_counts=True)
    middles = (distinct[:-1] + distinct[1:]) / 2
    if len(distinct) <= bins:
        edges = middles
    else:
        heavy = np.flatnonzero(counts >= len(there) / bins)
        cuts = {at for place in heavy.tolist() for at in (place - 1, place) if 0 <= at < len(middles)}
        rest, left = there[~np.isin(there, distinct[heavy])], bins - len(heavy)
        quantiles = np.quantile(rest, np.linspace(0, 1, left + 1)[1:-1]) if len(rest) and left > 1 else np.empty(0)
        edges = np.unique(np.concatenate([middles[sorted(cuts)], quantiles]))
    made = BinnedColumn(name, np.asarray(edges, dtype=np.float64), np.ones(len(edges) + 2))
    return made.with_masses(count_bins(made, values))


def noisy_category(column: BinnedColumn, values: np.ndarray, mu: float, entropy: Entropy = os.urandom) -> BinnedColumn:
    """A column of declared levels with noisy masses.

    Args:
        column: with its bins.
        values: codes, float64 (n,).
        mu: what the counts spend.
        entropy: source of random bytes.
    """
    counts = count_bins(column, values)
    noise = draw_gaussian((len(counts),), _COUNTS_SENSITIVITY / mu, entropy).numpy()
    # A rounded sum of an integer and a Gaussian is post-processing of the Gaussian mechanism.
    return column.with_masses(np.rint((counts + noise) * _FINE) / _FINE)


_FINE = 1024.0
"""Noisy counts are rounded to this part of a row, so that low bits of floats show nothing."""


def noisy_column(
    name: str,
    values: np.ndarray,
    bins: int,
    low: float,
    high: float,
    mu: float,
    entropy: Entropy = os.urandom,
) -> BinnedColumn:
    """A column of numbers, cut by noisy counts over a stated range, with masses from the same counts.

    Args:
        name: of the column.
        values: float64 (n,), NaN where missing; values outside the range count at its ends.
        bins: most bins of values.
        low: of the range.
        high: of the range, above `low`.
        mu: what the counts spend.
        entropy: source of random bytes.
    """
    first, last = signed_log(low), signed_log(high)
    missing = np.isnan(values)
    place = (np.clip(signed_log(values[~missing]), first, last) - first) / (last - first)
    cells = np.bincount(np.minimum((place * CELLS).astype(np.int64), CELLS - 1), minlength=CELLS)
    sd = _TREE_SENSITIVITY / mu
    counts = _count_tree(cells, sd, lambda shape: draw_gaussian(shape, sd, entropy).numpy())
    # Where a row's value is missing it moves one count in the place of nine, which the tree's sensitivity covers.
    gaps = float(np.rint((int(missing.sum()) + float(draw_gaussian((1,), sd, entropy)[0])) * _FINE) / _FINE)
    cuts = _choose_cuts(counts, bins, sd)
    edges = _expand(first + (last - first) * cuts / CELLS)
    ends = np.concatenate([[0], cuts, [CELLS]]).astype(np.int64)
    masses = np.append(np.add.reduceat(counts, ends[:-1]), max(gaps, 0.0))
    return BinnedColumn(name, edges, masses, low=low, high=high).with_masses(masses)


def _expand(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.sign(values) * np.expm1(np.abs(values))
    return found


def _count_tree(cells: np.ndarray, sd: float, draw: Callable[[tuple[int, ...]], np.ndarray]) -> np.ndarray:
    """Noisy counts of cells, not negative, consistent with the noisy counts of all dyadic intervals (Hay et al. 2010).

    Args:
        cells: exact counts, (CELLS,).
        sd: of the noise on each count.
        draw: draws noise.
    """
    noisy = []
    for level in range(LEVELS):
        sums = cells.reshape(1 << level, -1).sum(axis=1).astype(np.float64)
        noisy.append(np.rint((sums + draw(sums.shape)) * _FINE) / _FINE)
    best = list(noisy)
    for level in range(LEVELS - 2, -1, -1):
        height = LEVELS - level
        own = (2.0**height - 2.0 ** (height - 1)) / (2.0**height - 1)
        best[level] = own * noisy[level] + (1 - own) * best[level + 1].reshape(-1, 2).sum(axis=1)
    for level in range(LEVELS - 1):
        gap = (best[level] - best[level + 1].reshape(-1, 2).sum(axis=1)) / 2
        best[level + 1] = best[level + 1] + np.repeat(gap, 2)
    found: np.ndarray = np.maximum(best[-1], 0.0)
    return found


def _choose_cuts(counts: np.ndarray, bins: int, sd: float) -> np.ndarray:
    """Cells at which bins begin, int64 ascending: quantiles, and a heavy cell is a bin of its own."""
    total = counts.sum()
    heavy = np.flatnonzero(counts >= max(total / bins, 6 * sd))
    cuts = {at for cell in heavy.tolist() for at in (cell, cell + 1)}
    rest = counts.copy()
    rest[heavy] = 0
    left = bins - len(heavy)
    if rest.sum() > 2 * sd and left > 1:
        shares = np.cumsum(rest) / rest.sum()
        cuts |= set((np.searchsorted(shares, np.linspace(0, 1, left + 1)[1:-1]) + 1).tolist())
    return np.array(sorted(cut for cut in cuts if 0 < cut < CELLS), dtype=np.int64)

"""Contrasts: each epoch splits each column's bins in two, at random and from what is public.

Numbers are split at one random edge, categories into two random sets, missing values go to a random side. The rarer
side, of mass a, gets s = 1, the other −a/(1 − a), so that ``|s| ≤ 1`` and, if masses are right, the contrast adds up to
zero. Values are rounded to units of 2⁻⁸ and stay within one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl.algorithms.additive.columns import BinnedColumn
from securevfl.algorithms.additive.units import CONTRAST_ONE
from securevfl.party_context import derive_seed

__all__ = ["Contrasts", "draw_contrasts"]


@dataclass(frozen=True)
class Contrasts:
    """One epoch's contrasts of a party's columns.

    Attributes:
        values: of each bin, int64 (all bins,), in units of 2⁻⁸.
        curvature: ``Σ m s²`` of each column, (columns,).
    """

    values: np.ndarray = field(repr=False)
    curvature: np.ndarray = field(repr=False)


def draw_contrasts(columns: Sequence[BinnedColumn], seed: int, party: str, epoch: int) -> Contrasts:
    """Draw an epoch's contrasts from the job's seed.

    Args:
        columns: the party's.
        seed: the job's.
        party: whose columns these are.
        epoch: from 1.
    """
    generator = np.random.default_rng(derive_seed(seed, "contrasts", party, epoch))
    values, curvature = [], np.empty(len(columns))
    for j, column in enumerate(columns):
        units = _contrast_units(column, _draw_side(column, generator))
        curvature[j] = float((column.masses * (units / CONTRAST_ONE) ** 2).sum())
        values.append(units)
    return Contrasts(np.concatenate([np.empty(0, dtype=np.int64), *values]), curvature)


def _draw_side(column: BinnedColumn, generator: np.random.Generator) -> np.ndarray:
    """Which bins are on one side, bool (bins,)."""
    bins = column.bins
    side = np.zeros(bins, dtype=bool)
    if column.is_category:
        side[generator.permutation(bins)[: generator.integers(1, max(2, bins // 2 + 1))]] = True
    elif bins < 3:  # a single bin of values, beside the one of missing values
        side[-1] = True
    else:
        side[generator.integers(1, bins - 1) :] = True
        side[-1] = generator.random() < 0.5
    return side


def _contrast_units(column: BinnedColumn, side: np.ndarray) -> np.ndarray:
    if column.is_intercept:
        return np.full(1, CONTRAST_ONE, dtype=np.int64)
    mass, other = float(column.masses[side].sum()), float(column.masses[~side].sum())
    if mass > other:
        side, mass, other = ~side, other, mass
    share = min(mass / other, 1.0) if other > 0 else 0.0
    return np.where(side, CONTRAST_ONE, -round(share * CONTRAST_ONE)).astype(np.int64)

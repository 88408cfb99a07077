"""Merging the bins of a column on shares until the share of the second class only rises or only falls. Nobody sees
which are merged: every bin keeps its place, and gets the counts of all bins that are merged with it.

Isotonic regression without an order of steps: the boundary between two bins stays if the share of every run of bins
that ends before it is below that of every run that begins behind it. Shares p/w are compared by exact products of
counts. So the bins are those that pooling adjacent violators gives (Barlow, Bartholomew, Bremner and Brunk 1972,
chapter 1).

Of both directions, the one that changes the shares less is taken, as in the plain path: the one with the larger
Σ (P − r W)² / W over the merged bins, for any r; here r is the rate of all rows, so that the terms are small. Quotients
are right to one in ten thousand: where the two directions are as close as that, the other one may be taken.

About forty rounds, whatever the number of rows, columns and bins; B³/3 comparisons for each column of B bins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from securevfl_crypto.replicated import Product, Share, concatenate, stack
from securevfl_crypto.ring import FRACTION

from securevfl.shares.engine import ONE, Engine, compute_products, scaling_job
from securevfl.shares.scorecard.layout import CardLayout
from securevfl.training.binned import MOST_MERGED

__all__ = ["merge_bins"]

_FEWEST = 3
"""Two bins only rise or only fall."""
_ABOVE = 1 / ONE
"""The threshold of whole numbers above zero: one unit of the last place."""
_AT_ONCE = 1 << 20
"""Comparisons that run together."""
_FINER = 8
_ROOM = 60


@dataclass(frozen=True)
class _Places:
    """Where the cells of the columns that may be merged are.

    Attributes:
        cells: cells by column and bin; those beyond a column's last bin repeat it, (m, B).
        there: 1 where a column has the bin, else 0, (m, B).
    """

    cells: np.ndarray = field(repr=False)
    there: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, layout: CardLayout) -> _Places:
        """Those of a card."""
        columns = np.flatnonzero(layout.sizes >= _FEWEST)
        sizes = layout.sizes[columns][:, None]
        place = np.arange(sizes.max(initial=0))[None, :]
        cells = layout.starts[columns][:, None] + np.minimum(place, np.maximum(sizes - 1, 0))
        return cls(cells, (place < sizes).astype(np.int64))

    @property
    def sizes(self) -> np.ndarray:
        """Bins of each column, (m,)."""
        found: np.ndarray = self.there.sum(axis=1)
        return found

    def list_runs(self) -> np.ndarray:
        """All pairs of runs of bins that meet at a boundary: column, first bin, first bin behind the boundary, and the
        end, int64 (4, pairs), ordered by column and boundary."""
        found = [np.empty((4, 0), np.int64)]
        for column, size in enumerate(self.sizes.tolist()):
            middle, first, end = np.meshgrid(np.arange(1, size), np.arange(size), np.arange(1, size + 1), indexing="ij")
            meets = (first < middle) & (middle < end)
            found.append(np.stack([np.full(meets.sum(), column), first[meets], middle[meets], end[meets]]))
        return np.concatenate(found, axis=1)


async def merge_bins(
    engine: Engine, rows: Share, positives: Share, total: Share, trained: int, layout: CardLayout
) -> tuple[Share, Share]:
    """Rows of each cell and those of the second class, with what is merged with it, (cells,) each.

    Args:
        engine: computes on shares.
        rows: of each cell, one at least.
        positives: those of the second class, with 16 fractional bits.
        total: all rows of the second class, likewise, (1,).
        trained: how many rows train.
        layout: the columns' bins.
    """
    places = _Places.of(layout)
    if not len(places.cells):
        return rows, positives
    shift = FRACTION + math.ceil(math.log2(max(trained, 2)))
    jobs = [scaling_job(engine, positives, 1, FRACTION)]  # whole numbers, which lose no bit by truncation
    jobs.append(scaling_job(engine, total, round(2.0**shift / trained), shift))
    whole, rate = await compute_products(engine, jobs)
    w, p = (one[places.cells] * places.there for one in (rows, whole))
    runs = places.list_runs()
    lower, upper, expected = await _cross_shares(engine, w, p, runs, rate)
    above = p * ONE - expected  # P − r W, 16 fractional bits
    stays = await _find_boundaries(engine, lower - upper, runs)
    same = await _find_merged(engine, stays, runs, places)
    pooled = await _pool(engine, same, stack([w, p, above], 2))
    rises = await _choose_direction(engine, pooled, above, places, trained)
    up, down = pooled[0][:, :, :2], pooled[1][:, :, :2]
    difference = up - down
    chosen = rises.reshape(-1, 1, 1).broadcast_to(difference.shape)
    (moved,) = await compute_products(engine, [Product(chosen, difference, "times")])
    merged = down + moved
    here = places.there.astype(bool)
    order = np.arange(rows.size)
    order[places.cells[here]] = rows.size + np.flatnonzero(here.reshape(-1))
    return (
        concatenate([rows, merged[:, :, 0].reshape(-1)])[order],
        concatenate([positives, merged[:, :, 1].reshape(-1) * ONE])[order],
    )


async def _cross_shares(
    engine: Engine, w: Share, p: Share, runs: np.ndarray, rate: Share
) -> tuple[Share, Share, Share]:
    """Of each pair of runs, the later one's rows of the second class times the rows of the earlier one, and the
    reverse; and r w of each cell. One round."""
    column, first, middle, end = runs
    sums = []
    for one in (w, p):
        until = [one[:, 0] * 0]
        for place in range(one.shape[1]):
            until.append(until[-1] + one[:, place])
        ends = stack(until, 1)
        sums += [ends[column, middle] - ends[column, first], ends[column, end] - ends[column, middle]]
    left_w, right_w, left_p, right_p = sums
    jobs = [Product(right_p, left_w, "times"), Product(left_p, right_w, "times")]
    jobs.append(Product(rate.reshape(1, 1).broadcast_to(w.shape), w, "times"))
    lower, upper, expected = await compute_products(engine, jobs)
    return lower, upper, expected


async def _compare(engine: Engine, x: Share, least: float) -> Share:
    """[x ≥ least] of words (…), in groups."""
    flat = x.reshape(-1)
    parts = [flat[start : start + _AT_ONCE] for start in range(0, flat.size, _AT_ONCE)]
    return concatenate([(await engine.compare(part, (least,))).reshape(-1) for part in parts]).reshape(*x.shape)


async def _find_boundaries(engine: Engine, rises: Share, runs: np.ndarray) -> Share:
    """Whether each boundary stays, where shares rise and where they fall, (2, boundaries): eight rounds.

    Args:
        engine: computes on shares.
        rises: of each pair of runs, above zero if the later one has the larger share, (pairs,).
        runs: of these pairs.
    """
    bits = await _compare(engine, stack([rises, -rises], 0), _ABOVE)
    _, begins, counts = np.unique(runs[0] * (MOST_MERGED + 1) + runs[2], return_index=True, return_counts=True)
    held = _sum_groups(bits, begins, counts)
    short = held - engine.constant(np.broadcast_to(counts.astype(np.uint64), held.shape).copy())
    return await _compare(engine, short, 0.0)


def _sum_groups(x: Share, begins: np.ndarray, counts: np.ndarray) -> Share:
    """Sums over groups of the last of two axes, (k, groups)."""
    place = np.arange(counts.max())[None, :]
    there = place < counts[:, None]
    picked = x[:, np.where(there, begins[:, None] + place, 0)]
    return (picked * there.astype(np.int64)[None]).sum(axis=2)


async def _find_merged(engine: Engine, stays: Share, runs: np.ndarray, places: _Places) -> Share:
    """Whether two bins of a column are merged, (2, m, B, B), bits: four rounds.

    Args:
        engine: computes on shares.
        stays: whether each boundary stays, (2, boundaries), by column.
        runs: whose boundaries these are.
        places: of the cells.
    """
    (m, most), sizes = places.there.shape, places.sizes
    firsts = np.cumsum(sizes - 1) - (sizes - 1)
    groups = [stays[:, firsts] * 0]  # how many boundaries lie before each bin
    for place in range(1, most):
        there = (place < sizes).astype(np.int64)
        groups.append(groups[-1] + stays[:, firsts + np.minimum(place, sizes - 1) - 1] * there)
    group = stack(groups, 2)
    pairs = np.array(list(combinations(range(most), 2)))
    apart = await _compare(engine, group[:, :, pairs[:, 1]] - group[:, :, pairs[:, 0]], _ABOVE)
    one = engine.constant(np.ones((2, m, 1), np.uint64))
    table = concatenate([one.broadcast_to(apart.shape) - apart, one], axis=2)
    which = np.full((most, most), len(pairs))
    which[pairs[:, 0], pairs[:, 1]] = which[pairs[:, 1], pairs[:, 0]] = np.arange(len(pairs))
    return table[:, :, which]


async def _pool(engine: Engine, same: Share, values: Share) -> Share:
    """Sums over all bins that are merged with each, (2, m, B, values): one round.

    Args:
        engine: computes on shares.
        same: whether two bins are merged, (2, m, B, B).
        values: of each bin; zero where a column has none, (m, B, values).
    """
    _, m, most, kinds = *same.shape[:3], values.shape[2]
    every = values.reshape(1, m, most, kinds).broadcast_to((2, m, most, kinds))
    (found,) = await compute_products(
        engine, [Product(same.reshape(2 * m, most, most), every.reshape(2 * m, most, kinds))]
    )
    return found.reshape(2, m, most, kinds)


async def _choose_direction(engine: Engine, pooled: Share, above: Share, places: _Places, trained: int) -> Share:
    """Whether merging to rising shares changes them as little as merging to falling ones, (m,): bits.

    Args:
        engine: computes on shares.
        pooled: rows, those of the second class, and P − r W of what each bin is merged to, (2, m, B, 3).
        above: P − r W of each bin, (m, B).
        places: of the cells.
        trained: how many rows train.
    """
    log_rows = math.ceil(math.log2(max(trained, 2)))
    finer = min(_FINER, _ROOM - 2 * FRACTION - log_rows)
    here = places.there.astype(bool)
    # Where a column has no such bin, its last one is divided again, and counts nothing.
    last = np.where(here, np.arange(here.shape[1])[None, :], places.sizes[:, None] - 1)
    rows, over = (pooled[:, np.arange(len(last))[:, None], last, kind] for kind in (0, 2))
    quotient = await engine.divide(over * (1 << finer), rows * ONE, least=1.0, most=2.0 ** (log_rows + finer))
    (terms,) = await compute_products(
        engine, [Product(quotient, above.reshape(1, *above.shape).broadcast_to(quotient.shape), "times")]
    )
    change = (terms * places.there[None]).sum(axis=2)
    return await _compare(engine, change[0] - change[1], 0.0)

"""Counts by bin and weights of evidence on shares.

With p rows of the second class and q of the first in a bin, and P and Q overall, a weight of evidence is
``ln(2p + 1) − ln(2q + 1) − ln(2P + 1) + ln(2Q + 1)``, clipped at ±6: the same halves as in the plain path. The
logarithm of an odd integer is one curve of chords between integers: exact up to 41, and at most `LOG_ERROR` below the
logarithm beyond, so that a weight is right to twice that.

Rounds: the counts 1, the logarithms 4, their difference, truncated and clipped, 4; and 2 for the check that no bin is
too small.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from itertools import pairwise

import numpy as np
from securevfl_crypto.replicated import Curve, Product, Share, Task, concatenate
from securevfl_crypto.ring import FRACTION

from securevfl.shares.engine import ONE, Engine, compute_products
from securevfl.shares.scorecard.layout import CardLayout

__all__ = ["LOG_ERROR", "MOST_EVIDENCE", "compute_evidence", "count_positives", "logarithm_of_integers", "look_up"]

LOG_ERROR = 3.0e-4
"""A chord between v and 1.05 v is at most ln(1.05)² / 8 below the logarithm."""

MOST_EVIDENCE = 6
"""Largest size of a weight of evidence, as in the plain path."""

_LOG_BITS = 40
_RATIO = 20
_AT_ONCE = 1 << 21
"""Comparisons that run together: 64 residues each."""


@lru_cache
def logarithm_of_integers(most: int) -> Curve:
    """ln(v) for odd integers 1 ≤ v ≤ most, with 40 fractional bits more than v has.

    Decimal logarithms are rounded alike on every machine, so the three parties have the same integers.
    """
    context = Context(prec=40)

    def height(v: int) -> int:
        scaled = context.multiply(context.ln(Decimal(v)), Decimal(1 << _LOG_BITS))
        return int(scaled.to_integral_value(ROUND_HALF_EVEN))

    knots = [1]
    while knots[-1] < max(most, 3):
        knots.append(knots[-1] + max(2, knots[-1] // _RATIO))
    slopes, reached = [], 0
    for left, right in pairwise(knots):
        slope = round((height(right) - reached) / (right - left))  # what rounding leaves goes to the next chord
        slopes.append(slope)
        reached += slope * (right - left)
    changes = [slopes[0], *(after - before for before, after in pairwise(slopes))]
    return Curve(tuple(knots[:-1]), tuple(changes))


async def count_positives(engine: Engine, cells: list[Share], targets: list[Share]) -> Share:
    """Σ of the targets of the rows in each cell, with their fractional bits, (cells,): one round.

    Args:
        engine: computes on shares.
        cells: of some rows each, words 0 or 1, (n, cells).
        targets: of these rows, (n, 1).
    """
    jobs = [Product(y.T, part) for part, y in zip(cells, targets, strict=True)]
    found = await compute_products(engine, jobs)
    total = found[0]
    for one in found[1:]:
        total = total + one
    return total.reshape(-1)


async def compute_evidence(
    engine: Engine,
    rows: Share,
    positives: Share,
    total: Share,
    trained: int,
    least: int,
    *,
    dealt: Share | None = None,
) -> tuple[Share, Share]:
    """Weights of evidence of each cell with 16 fractional bits; and words that are zero where each has enough rows.

    Args:
        engine: computes on shares.
        rows: of each cell, (cells,).
        positives: those of the second class, with 16 fractional bits.
        total: all rows of the second class, likewise, (1,).
        trained: how many rows train.
        least: the fewest rows of a cell.
        dealt: rows of each cell as they are counted, where `rows` are those of merged cells; the same unless given.
    """
    every = engine.constant(np.full(1, trained * ONE, np.uint64))
    counts = concatenate([positives, rows * ONE - positives, total, every - total])
    doubled = counts * 2 + engine.constant(np.full(counts.shape, ONE, np.uint64))
    curve = logarithm_of_integers(2 * trained + 1)
    most = max(_AT_ONCE // len(curve.thresholds), 1)
    parts = [doubled[start : start + most] for start in range(0, doubled.size, most)]
    tasks = [Task(engine.additive_summand(part), FRACTION, curve=curve) for part in parts]
    enough = Task(engine.additive_summand(rows if dealt is None else dealt), curve=Curve((least,)))
    found = []
    for first, task in enumerate(tasks):  # cut off bits are all zero here, so that the truncation is exact
        done = await engine.run_masked([task] if first else [task, enough])
        found.append(done[0][0])
        if not first:
            bits = done[1][0].reshape(-1)
    logs, cells = concatenate(found), rows.size
    overall = (logs[2 * cells : 2 * cells + 1] - logs[2 * cells + 1 :]).broadcast_to((cells,))
    difference = logs[:cells] - logs[cells : 2 * cells] - overall
    bound = MOST_EVIDENCE * ONE
    clip = Curve((-bound, bound), (1, -1), start=-bound)
    ((woe,),) = await engine.run_masked([Task(engine.additive_summand(difference), _LOG_BITS - FRACTION, curve=clip)])
    return woe, engine.constant(np.ones(cells, np.uint64)) - bits


async def look_up(engine: Engine, cells: list[Share], values: Share, layout: CardLayout) -> list[Share]:
    """For each row the value of its bin in each column, (n, columns): one round for all parts.

    Args:
        engine: computes on shares.
        cells: of some rows each, words 0 or 1, (n, cells).
        values: of the cells, (cells,).
        layout: which cells belong to a column.
    """
    groups = layout.groups()
    if not groups:
        return [part[:, :0] for part in cells]
    jobs = []
    for part in cells:
        across = part.T
        jobs += [Product(values[where][:, None, :], across[where]) for _, where in groups]
    found = iter(await compute_products(engine, jobs))
    order = np.argsort(np.concatenate([columns for columns, _ in groups]), kind="stable")
    looked = []
    for part in cells:
        stacked = concatenate([next(found).reshape(-1, len(part)) for _ in groups])
        looked.append(stacked[order].T)
    return looked

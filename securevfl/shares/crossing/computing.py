"""The products on shares of three: rows are dealt in parts, multiplied and added up; counts are compared, levels are
chosen, and what is left is opened to the active party.

Rounds: one a part of rows, then 3 for the counts that are too few, as many for the levels, and 3 for the opening. Noise
is added by the two that do not get the result, each to its own summand, so that nobody knows it all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from securevfl_crypto.replicated import Curve, Product, Share, Task

from securevfl.privacy.discrete_gaussian import draw_discrete_gaussian
from securevfl.shares.engine import Engine, compute_products
from securevfl.training.crossing import CrossPlan

__all__ = ["OPENING", "choose_cells", "draw_noise", "multiply_part"]

OPENING = "statistics"


async def multiply_part(engine: Engine, plan: CrossPlan, parts: Sequence[Share]) -> Share:
    """Products of some rows, (raw,), one round.

    Args:
        engine: computes on shares.
        plan: of the job.
        parts: the data parties' rows, the active one's first, (n, width).
    """
    active, passive = parts[0].T, parts[1:]
    jobs = [Product(active, one) for one in passive]
    for j, k in plan.pairs():
        left, right = (
            part[:, 1 : 1 + plan.layouts[i].scores] for i, part in ((j, passive[j - 1]), (k, passive[k - 1]))
        )
        jobs.append(Product(left.T, right))
    kept = [job for job in jobs if 0 not in job.shape]
    found = await compute_products(engine, kept) if kept else []
    flat = [one.reshape(-1) for one in found]
    return Share(np.concatenate([one.mine for one in flat]), np.concatenate([one.next for one in flat]))


async def choose_cells(engine: Engine, plan: CrossPlan, products: Share, noise: np.ndarray | None) -> Share:
    """The released cells, with zeros for what is withheld.

    Args:
        engine: computes on shares.
        plan: of the job.
        products: over all rows, (raw,).
        noise: this party's own, uint64 (released,); None for none.
    """
    release = plan.release
    cells = _map_share(products, release.sum_cells)
    wanted = cells[release.released]
    if plan.least and len(release.guards):
        enough = await _compare_to_threshold(engine, cells[release.guards], plan.least)
        one = engine.constant(np.ones(enough.shape, np.uint64))
        passes = await _compare_to_threshold(engine, -_map_share(one - enough, release.count_short), 0)
        chosen = await _compare_to_threshold(engine, passes - _map_share(passes, release.earlier_passes), 1)
        guarded = release.cell_level >= 0
        factor = _map_share(chosen, lambda words: words[np.maximum(release.cell_level, 0)])
        free = engine.constant((~guarded).astype(np.uint64))
        factor = factor * guarded.astype(np.int64) + free
    else:
        factor = engine.constant(np.ones(wanted.shape, np.uint64))
    shift = plan.shift
    if not shift:
        (found,) = await compute_products(engine, [Product(factor, wanted, "times", own=noise)])
        return found
    scores = release.cell_kind == 0
    found, rounded = await compute_products(
        engine,
        [
            Product(factor[~scores], wanted[~scores], "times"),
            Product(factor[scores], wanted[scores], "times", shift=shift),
        ],
    )
    return _join_shares(found, rounded * (1 << shift), scores)


def draw_noise(plan: CrossPlan, share: float) -> np.ndarray | None:
    """One adding party's noise on all released cells, uint64 (released,); None where the job adds none.

    Args:
        plan: of the job.
        share: of the variance that this party adds: a half where two reach all of it together, 1 where one does alone.
    """
    if not any(plan.noise):
        return None
    found = np.zeros(len(plan.release.released), np.int64)
    for kind, sigma in enumerate(plan.noise):
        where = plan.release.cell_kind == kind
        if not where.any():
            continue  # of columns of categories alone there are no products of scores, and no noise on them
        own = int(np.ceil(sigma * np.sqrt(share)))
        found[where] = draw_discrete_gaussian((int(where.sum()),), own)
    return found.view(np.uint64)


def _map_share(x: Share, change: object) -> Share:
    return Share(np.asarray(change(x.mine)), np.asarray(change(x.next)))  # type: ignore[operator]


def _join_shares(counts: Share, scores: Share, where: np.ndarray) -> Share:
    def merge(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        found = np.zeros(len(where), np.uint64)
        found[~where], found[where] = left, right
        return found

    return Share(merge(counts.mine, scores.mine), merge(counts.next, scores.next))


async def _compare_to_threshold(engine: Engine, x: Share, threshold: int) -> Share:
    """Words 1 where x ≥ threshold, else 0."""
    ((bits,),) = await engine.run_masked([Task(engine.additive_summand(x), curve=Curve((threshold,)))])
    return bits.reshape(-1)

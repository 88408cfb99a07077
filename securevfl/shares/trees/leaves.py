"""The values of leaves on shares, and their bounds where scores may only rise or fall with a column.

A split against its column's direction is never chosen, but leaves further down could still cross. So, from the root
down, a split by a column with a direction bounds the leaves of its two sides by the middle of their own values: those
of one side lie below, those of the other above. Each level takes five rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from securevfl_crypto.replicated import Curve, Product, Share, Task, concatenate, stack
from securevfl_crypto.ring import FRACTION

from securevfl.shares.engine import Engine, compute_products
from securevfl.shares.trees.rule import TreeRule

__all__ = ["bound_leaves", "compute_leaves"]

_FURTHEST = 1 << 58
"""No leaf is as far from zero, in units of the last place."""
_RAMP = Curve((0,), (1,))


async def compute_leaves(engine: Engine, sums: Share, rule: TreeRule) -> Share:
    """−G / (H + λ), (N,), with 16 fractional bits, without the rate; sixteen rounds.

    The divisor is at least λ, which is public, because every h is at least zero.

    Args:
        engine: computes on shares.
        sums: of g and h over the rows of each node, (2, N).
        rule: of the tree.
    """
    finer = 1 << (FRACTION - rule.gradient_bits)
    penalty = engine.constant(np.full(sums.shape[1:], rule.to_word(rule.l2), np.uint64))
    divisor = (sums[1] + penalty) * finer
    return await engine.divide(-sums[0] * finer, divisor, least=rule.l2, most=float(1 << rule.high))


async def bound_leaves(
    engine: Engine, leaves: Share, middles: Sequence[Share], chosen: Sequence[Share], directions: np.ndarray
) -> Share:
    """Bring leaves within the bounds of the splits above them.

    Args:
        engine: computes on shares.
        leaves: (nodes below the last level,), with the rate.
        middles: of each level, the mean of the values that the two sides of each node would have as leaves.
        chosen: of each level, the chosen candidates, (nodes, c).
        directions: of each candidate's column, 1, −1 or 0, int64 (c,).
    """
    nodes = len(middles[0])
    edge = engine.constant(np.full(nodes, _FURTHEST, np.uint64))
    low, high = -edge, edge
    for level, (middle, words) in enumerate(zip(middles, chosen, strict=True)):
        between = await _clip(engine, middle, low, high) if level else middle
        rises, falls = (words[:, directions == way].sum(axis=1) for way in (1, -1))
        jobs = [Product(bit, between - bound, "times") for bound in (high, low) for bit in (rises, falls)]
        high_rises, high_falls, low_rises, low_falls = await compute_products(engine, jobs)
        # Where scores rise, the left side ends and the right side begins at the middle; where they fall, the reverse.
        high = _in_turn(high + high_rises, high + high_falls)
        low = _in_turn(low + low_falls, low + low_rises)
    return await _clip(engine, leaves, low, high)


async def _clip(engine: Engine, x: Share, low: Share, high: Share) -> Share:
    """min(max(x, low), high), for low ≤ high; four rounds."""
    beyond = concatenate([low - x, x - high])
    ((found,),) = await engine.run_masked([Task(engine.additive_summand(beyond), curve=_RAMP)])
    return x + found[: len(x)] - found[len(x) :]


def _in_turn(left: Share, right: Share) -> Share:
    return stack([left, right], 1).reshape(-1)

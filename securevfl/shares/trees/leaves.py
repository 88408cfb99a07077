"""The values of leaves on shares."""

from __future__ import annotations

import numpy as np
from securevfl_crypto.replicated import Share
from securevfl_crypto.ring import FRACTION

from securevfl.shares.engine import Engine
from securevfl.shares.trees.rule import TreeRule

__all__ = ["compute_leaves"]


async def compute_leaves(engine: Engine, sums: Share, rule: TreeRule) -> Share:
    """−G / (H + λ), (N,), with 16 fractional bits, without the rate; sixteen rounds.

    The divisor is at least λ, which is public, because every h is at least zero.

    Args:
        engine: computes on shares.
        sums: of g and h over the rows of each leaf, (2, N).
        rule: of the tree.
    """
    finer = 1 << (FRACTION - rule.gradient_bits)
    penalty = engine.constant(np.full(sums.shape[1:], rule.to_word(rule.l2), np.uint64))
    return await engine.divide(-sums[0] * finer, (sums[1] + penalty) * finer, least=rule.l2, most=float(1 << rule.high))

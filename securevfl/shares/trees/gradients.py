"""First and second derivatives of the loss on shares, with few bits, and |g|, by which nodes are scaled."""

from __future__ import annotations

from typing import Literal

import numpy as np
from securevfl_crypto.replicated import SLOPE_BITS, Curve, Product, Share, Task, stack
from securevfl_crypto.ring import FRACTION

from securevfl.shares.engine import ONE, Engine, compute_products
from securevfl.shares.trees.rule import TreeRule
from securevfl.shares.trees.tournament import multiply_summand

__all__ = ["Loss", "compute_gradients", "weigh_rows"]

Loss = Literal["logistic", "softmax", "squares"]


async def compute_gradients(engine: Engine, loss: Loss, scores: Share, targets: Share, rule: TreeRule) -> Share:
    """g, h and |g| of each row, (n, K, 3), with `gradient_bits` fractional bits, their last bit rounded at random.

    Args:
        engine: computes on shares.
        loss: "logistic" of two classes, six rounds; "softmax" of K classes, 16 + ⌈log₂ K⌉; "squares" of numbers, four:
            half of the squared error up to `largest`, and its tangent beyond, so that no sum leaves its words.
        scores: raw scores, (K, n), 16 fractional bits.
        targets: (n, K), 16 fractional bits: of classes 0 or 1 in each, of two classes that of the second.
        rule: of the trees.
    """
    y = targets.T
    if loss == "squares":
        return await _square_gradients(engine, scores - y, rule)
    if loss == "logistic":
        one = engine.constant(np.ones((1, 1), np.uint64))
        (p,) = await compute_products(engine, [Product(scores, one, "times", then="sigmoid")])
        bits = FRACTION + SLOPE_BITS
    else:
        p = (await engine.softmax(scores.T)).T
        bits = FRACTION
    g = p - y * (1 << (bits - FRACTION))
    rest = engine.constant(np.full((1, 1), 1 << bits, np.uint64)) - p
    sign = engine.constant(np.full((1, 1), ONE, np.uint64)) - y * 2
    own = rule.gradient_bits
    tasks = [
        Task(engine.additive_summand(g), bits - own),
        Task(multiply_summand(engine, p, rest), 2 * bits - own),
        Task(multiply_summand(engine, g, sign), bits + FRACTION - own),
    ]
    return _arrange([found[0] for found in await engine.run_masked(tasks)])


async def _square_gradients(engine: Engine, error: Share, rule: TreeRule) -> Share:
    shift, edge = FRACTION - rule.gradient_bits, rule.to_word(rule.largest)
    summand = engine.additive_summand(error)
    held = Curve((-edge, edge), (1, -1), start=-edge)
    size = Curve((-edge, 0, edge), (-1, 2, -1), start=edge)
    tasks = [Task(summand, shift, curve=held), Task(summand, shift, curve=size)]
    (g,), (absolute,) = await engine.run_masked(tasks)
    h = engine.constant(np.full(error.shape, rule.to_word(1), np.uint64))
    return _arrange([g, h, absolute])


def _arrange(parts: list[Share]) -> Share:
    """(n, K, 3) from three shares (K, n)."""
    return stack([part.T for part in parts], 2)


def weigh_rows(gradients: Share, weights: np.ndarray) -> Share:
    """Leave out rows of a tree: gradients (n, K, 3) times public weights, 0 or 1, int64 (n,); no round."""
    return gradients * weights[:, None, None]

"""The largest of many secret fractions: groups compare all their pairs at once, and winners meet in the next stage.

A fraction a / d has d > 0, |a| ≤ 2^30 and d ≤ 2^30, so that a_i d_j − a_j d_i is exact. The earlier of two equal
fractions wins, so that there is exactly one winner.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from securevfl_crypto.replicated import Product, Share, Task, concatenate
from securevfl_crypto.replicated.curves import bits_of
from securevfl_crypto.replicated.product import product_summand

from securevfl.shares.engine import Engine, compute_products

__all__ = ["find_largest", "multiply_summand", "plan_stages"]

_LEAST = 1 << 30
"""Minus this, over 1, is a fraction that never wins against a real one: it fills up the last group."""
_COMPARED = 4
"""Rounds of a comparison."""


def multiply_summand(engine: Engine, left: Share, right: Share) -> np.ndarray:
    """This party's summand of left · right, element by element."""
    return product_summand(Product(left, right, "times"), engine.index)


@lru_cache
def plan_stages(count: int, widest: int) -> tuple[int, ...]:
    """Sizes of the groups of each stage: the fewest stages, then the fewest rounds, then the fewest comparisons.

    Args:
        count: number of fractions.
        widest: the largest group, 2 at least.
    """
    if count <= widest:
        return (max(count, 1),)
    best: tuple[int, int, tuple[int, ...]] | None = None
    for stages in itertools.count(2):
        for sizes in itertools.product(range(2, widest + 1), repeat=stages - 1):
            left, compared = count, 0
            for size in sizes:
                left = -(-left // size)
                compared += left * size * (size - 1) // 2
            if not 2 <= left <= widest:
                continue
            plan = (*sizes, left)
            rounds = sum(_COMPARED + (size - 1).bit_length() for size in plan) + stages - 1
            found = (rounds, compared + left * (left - 1) // 2, plan)
            best = found if best is None else min(best, found)
        if best is not None:
            break
    return best[2] if best is not None else ()


async def find_largest(engine: Engine, numerators: Share, denominators: Share, plan: Sequence[int]) -> Share:
    """Select the largest fraction of each row.

    Args:
        engine: computes on shares.
        numerators: (N, c).
        denominators: (N, c), positive.
        plan: of `plan_stages` for c.

    Returns:
        (N, c) words, 1 for the largest fraction of a row and 0 for the others.
    """
    nodes, count = numerators.shape
    wins: list[Share] = []
    for stage, size in enumerate(plan):
        last = stage == len(plan) - 1
        won, riders = await _compare_groups(engine, [numerators, denominators], size, keep=not last)
        wins.append(won)
        if not last:
            numerators, denominators = riders
    chosen = wins[-1].reshape(nodes, -1)
    for won in reversed(wins[:-1]):
        above = chosen[:, : won.shape[1], None]
        (chosen,) = await compute_products(engine, [Product(above.broadcast_to(won.shape), won, "times")])
        chosen = chosen.reshape(nodes, -1)
    return chosen[:, :count]


async def _compare_groups(
    engine: Engine, fractions: Sequence[Share], size: int, *, keep: bool
) -> tuple[Share, list[Share]]:
    """One stage: bits of the winners, (N, groups, size), and, if they are kept, the winners' fractions (N, groups)."""
    nodes, count = fractions[0].shape
    groups = -(-count // size)
    filled = []
    for words, filler in zip(fractions, (-_LEAST, 1), strict=True):
        padding = engine.constant(np.full((nodes, groups * size - count), filler % (1 << 64), np.uint64))
        filled.append(concatenate([words, padding], 1).reshape(nodes, groups, size))
    if size == 1:
        return engine.constant(np.ones((nodes, groups, 1), np.uint64)), [one[..., 0] for one in filled]
    a, d = filled
    left, right = np.triu_indices(size, 1)
    z = multiply_summand(engine, a[..., left], d[..., right]) - multiply_summand(engine, a[..., right], d[..., left])
    bits = (await engine.run_masked([Task(z, curve=bits_of((0,)))]))[0][0][0]
    place = {(int(i), int(j)): pair for pair, (i, j) in enumerate(zip(left, right, strict=True))}
    factors = []
    for step in range(1, size):
        others = [(k, (k + step) % size) for k in range(size)]
        later = np.array([k > other for k, other in others])
        won = bits[..., [place[min(pair), max(pair)] for pair in others]]
        # The bit says that the earlier of the two wins; of the later one, its complement counts.
        one = engine.constant(np.broadcast_to(later.astype(np.uint64), won.shape).copy())
        factors.append(one + won * np.where(later, -1, 1))
    bit, riders = await _multiply_all(engine, factors, filled if keep else [])
    return bit, [one.sum(-1) for one in riders]


async def _multiply_all(engine: Engine, factors: list[Share], riders: list[Share]) -> tuple[Share, list[Share]]:
    """The product of all factors, and its products with each rider, in ⌈log₂ (factors + 1)⌉ rounds.

    All riders are the last leaf of one tree of products; `path` is the product of the factors that they have met.
    """
    path = None if riders else factors.pop()
    while factors:
        partner = factors.pop() if len(factors) % 2 else None
        jobs = [Product(a, b, "times") for a, b in zip(factors[::2], factors[1::2], strict=True)]
        pairs = len(jobs)
        if partner is not None:
            met = riders if path is None else [*riders, path]
            jobs += [Product(partner, one, "times") for one in met]
        done = await compute_products(engine, jobs)
        factors = done[:pairs]
        if partner is not None:
            riders, path = done[pairs : pairs + len(riders)], partner if path is None else done[-1]
    if path is None:
        raise ValueError("a product of no factors")
    return path, riders

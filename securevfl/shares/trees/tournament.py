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
            rounds = sum(_COMPARED + (size - 1).bit_length() for size in plan) + stages - 2
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
    if count == 1:
        return engine.constant(np.ones((nodes, 1), np.uint64))
    wins: list[Share] = []
    fractions = [numerators, denominators]
    for size in plan[:-1]:
        filled = _fill_groups(engine, fractions, size)
        won, riders = await _multiply_all(engine, await _compare_pairs(engine, *filled), filled)
        fractions = [one.sum(-1) for one in riders]
        wins.append(won)
    factors = await _compare_pairs(engine, *_fill_groups(engine, fractions, plan[-1]))
    # The winners of the stage before ride along, which saves the round that would multiply them afterwards.
    riders = [_fill_up(engine, wins.pop(), plan[-1])[:, None]] if wins else []
    chosen, riders = await _multiply_all(engine, factors, riders)
    chosen = (riders[0] if riders else chosen).reshape(nodes, -1)
    for won in reversed(wins):
        above = chosen[:, : won.shape[1], None]
        (chosen,) = await compute_products(engine, [Product(above.broadcast_to(won.shape), won, "times")])
        chosen = chosen.reshape(nodes, -1)
    return chosen[:, :count]


def _fill_up(engine: Engine, x: Share, count: int, filler: int = 0) -> Share:
    """x with its axis 1 filled up to `count`."""
    shape = (x.shape[0], count - x.shape[1], *x.shape[2:])
    return concatenate([x, engine.constant(np.full(shape, filler % (1 << 64), np.uint64))], 1)


def _fill_groups(engine: Engine, fractions: Sequence[Share], size: int) -> list[Share]:
    """Numerators and denominators in groups, (N, groups, size)."""
    nodes, count = fractions[0].shape
    groups = -(-count // size)
    return [
        _fill_up(engine, words, groups * size, filler).reshape(nodes, groups, size)
        for words, filler in zip(fractions, (-_LEAST, 1), strict=True)
    ]


async def _compare_pairs(engine: Engine, a: Share, d: Share) -> list[Share]:
    """Compare all pairs of each group: size − 1 factors (N, groups, size), whose product is 1 for the winner."""
    size = a.shape[-1]
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
    return factors


async def _multiply_all(engine: Engine, factors: list[Share], riders: list[Share]) -> tuple[Share, list[Share]]:
    """The product of all factors, and its products with each rider, in ⌈log₂ (factors + 1)⌉ rounds.

    All riders are the last leaf of one tree of products; `path` is the product of the factors that they have met. A
    rider may have more axes than the factors.
    """
    path = None if riders else factors.pop()
    while factors:
        partner = factors.pop() if len(factors) % 2 else None
        jobs = [Product(a, b, "times") for a, b in zip(factors[::2], factors[1::2], strict=True)]
        pairs = len(jobs)
        if partner is not None:
            met = riders if path is None else [*riders, path]
            jobs += [Product(_with_axes(partner, one.ndim), one, "times") for one in met]
        done = await compute_products(engine, jobs)
        factors = done[:pairs]
        if partner is not None:
            riders, path = done[pairs : pairs + len(riders)], partner if path is None else done[-1]
    if path is None:
        raise ValueError("a product of no factors")
    return path, riders


def _with_axes(x: Share, ndim: int) -> Share:
    return x.reshape(*x.shape, *(1,) * (ndim - x.ndim))

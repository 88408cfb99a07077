"""The best split of each node on shares, without division and without opening a sum.

With v = H_L + λ, w = H_R + λ, H' = v + w and u = G_L H' − G v, the gain of a split is half of

    G_L² / v + G_R² / w − G² / (H + λ) = u² / (v w H') + G² / H' − G² / (H + λ).

Within a node only u² / (v w) depends on the split, so the largest of these fractions is the best split. The gain
exceeds γ exactly where the fraction exceeds (G² λ + 2 γ H' (H + λ)) / (H + λ), which is candidate 0, "no split": where
it wins, all rows go right. It is first, so that it wins ties, also against candidates that a gate has set to zero.

Sums of a node are scaled by secret powers of two to just below 2^29 before they are multiplied. Gradients are scaled by
the sum of |g|, not by the number of rows: with rare labels that number would leave u² no bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from securevfl_crypto.replicated import Product, Share, Task, concatenate, stack
from securevfl_crypto.replicated.curves import bits_of, relu_curve

from securevfl.shares.engine import Engine, compute_products
from securevfl.shares.trees.rule import SCALED, TreeRule
from securevfl.shares.trees.tournament import find_largest, multiply_summand, plan_stages

__all__ = ["NodeSums", "choose_splits", "scale_task"]

_COARSE = 14
"""Bits by which "no split" is coarser where γ > 0: it may exceed every real fraction, and has to fit."""
_GAIN_BITS = 15
"""Fractional bits of the factor γ 2^e."""
_LARGEST = 30
"""Numerators and denominators are at most 2^30."""
_WIDE, _NARROW = 28, 12
"""Largest groups of a tournament: wide ones save five rounds, and cost comparisons."""
_WIDE_UP_TO = 3000
"""Fractions of all nodes up to which wide groups are worth it."""


@dataclass(frozen=True, eq=False)
class NodeSums:
    """Sums over the rows of N nodes, with `gradient_bits` fractional bits.

    Attributes:
        totals: of g, h and |g|, (3, N).
        lefts: of g and h over the rows that go left, (2, N, c).
        bits: results of `scale_task`.
    """

    totals: Share = field(repr=False)
    lefts: Share = field(repr=False)
    bits: Share = field(repr=False)


def _share_constant(engine: Engine, value: int, shape: Sequence[int]) -> Share:
    return engine.constant(np.full(tuple(shape), value % (1 << 64), np.uint64))


def _powers(rule: TreeRule) -> range:
    return range(rule.low + 1, rule.high)


def _doubly_penalised(engine: Engine, h: Share, rule: TreeRule) -> Share:
    """H' = H + 2 λ."""
    return h + _share_constant(engine, 2 * rule.to_word(rule.l2), h.shape)


def scale_task(engine: Engine, totals: Share, rule: TreeRule) -> Task:
    """Make the comparisons that find the scales of nodes: H' and A = Σ |g| + 1 with powers of two.

    Args:
        engine: computes on shares.
        totals: as in `NodeSums`.
        rule: of the tree.
    """
    size = totals[2] + _share_constant(engine, rule.to_word(1), totals[2].shape)
    compared = stack([_doubly_penalised(engine, totals[1], rule), size])
    thresholds = tuple(1 << (rule.gradient_bits + power) for power in _powers(rule))
    return Task(engine.additive_summand(compared), curve=bits_of(thresholds))


def _scales(engine: Engine, bits: Share, rule: TreeRule) -> Share:
    """Factors (2, N) that bring x from [2^m, 2^(m+1)) to [2^high, 2^(high+1)): 2^(high−m)."""
    found = _share_constant(engine, 1 << (rule.high - rule.low), bits.shape[1:])
    for bit, power in enumerate(_powers(rule)):
        found = found - bits[bit] * (1 << (rule.high - power))
    return found


async def choose_splits(engine: Engine, directions: np.ndarray, sums: NodeSums, rule: TreeRule) -> Share:
    """Choose each node's best split: words (N, c), 1 for the chosen candidate, all 0 where no split has more than γ.

    Args:
        engine: computes on shares.
        directions: of each candidate's column, 1, −1 or 0, int64 (c,).
        sums: of the nodes; ties go to the first candidate.
        rule: of the tree.
    """
    fractions = await _compare_gains(engine, directions, sums, rule)
    nodes, count = fractions[0].shape
    widest = _WIDE if nodes * count <= _WIDE_UP_TO else _NARROW
    chosen = await find_largest(engine, *fractions, plan_stages(count, widest))
    return chosen[:, 1:]


@dataclass(frozen=True, eq=False)
class _Scaled:
    """Sums of a node after scaling, each below 2^29.

    Attributes:
        v: H_L + λ, (N, c).
        left: G_L, (N, c).
        h: H', (N,).
        g: G, (N,).
        penalty: λ, (N,).
        gate: 1 where both sides have enough h, 0 or −1 elsewhere, (N, c); None without `min_hessian`.
        gain: γ H' / (A² · scale of H'), clamped, with `_GAIN_BITS` bits, (N,); None without `min_gain`.
    """

    v: Share = field(repr=False)
    left: Share = field(repr=False)
    h: Share = field(repr=False)
    g: Share = field(repr=False)
    penalty: Share = field(repr=False)
    gate: Share | None = field(repr=False)
    gain: Share | None = field(repr=False)


async def _scale_sums(engine: Engine, sums: NodeSums, rule: TreeRule) -> _Scaled:
    shape = sums.lefts.shape[1:]
    factors = _scales(engine, sums.bits, rule)[..., None]
    by_h, by_g = factors[0], factors[1]
    whole = _doubly_penalised(engine, sums.totals[1], rule)[:, None]
    penalty = rule.to_word(rule.l2)
    v = sums.lefts[1] + _share_constant(engine, penalty, shape)
    flat = _share_constant(engine, penalty, by_h.shape)
    pairs = ((v, by_h), (sums.lefts[0], by_g), (whole, by_h), (sums.totals[0][:, None], by_g), (flat, by_h))
    tasks = [Task(multiply_summand(engine, x, factor), rule.scale_shift) for x, factor in pairs]
    if rule.min_hessian:
        # On words that were not scaled: a scaled one is rounded, which would decide at the border.
        least = bits_of((rule.to_word(rule.min_hessian) + penalty,))
        tasks += [Task(engine.additive_summand(x), curve=least) for x in (v, whole.broadcast_to(shape) - v)]
    if rule.min_gain:
        tasks.append(_gain_task(engine, sums.bits, rule))
    done = await engine.run_masked(tasks)
    v, left, h, g, flat = (one[0] for one in done[:5])
    gate = None
    if rule.min_hessian:
        gate = done[5][0][0] + done[6][0][0] - _share_constant(engine, 1, shape)
    gain = _look_up_gain(engine, done[-1][0], rule) if rule.min_gain else None
    return _Scaled(v, left, h[:, 0], g[:, 0], flat[:, 0], gate, gain)


async def _compare_gains(engine: Engine, directions: np.ndarray, sums: NodeSums, rule: TreeRule) -> tuple[Share, Share]:
    """Numerators and denominators of all fractions, (N, 1 + c), that of "no split" first."""
    shape = sums.lefts.shape[1:]
    scaled = await _scale_sums(engine, sums, rule)
    v, h, g = scaled.v, scaled.h[:, None], scaled.g[:, None]
    u = multiply_summand(engine, scaled.left, h) - multiply_summand(engine, g, v)
    held, free = np.flatnonzero(directions), np.flatnonzero(directions == 0)
    own = scaled.h - scaled.penalty  # H + λ
    tasks = [
        Task(multiply_summand(engine, v, h - v), 2 * SCALED - _LARGEST - 2),
        Task(multiply_summand(engine, scaled.g, scaled.g), SCALED - 1),
        Task(u[:, free], SCALED - 1),
        # Scores rise with a column exactly where u ≥ 0: a split against its direction counts as one without gain.
        Task(u[:, held] * directions[held].astype(np.uint64), SCALED - 1, curve=relu_curve()),
    ]
    if scaled.gain is not None:
        tasks += [
            Task(multiply_summand(engine, scaled.h, own), SCALED),
            Task(engine.additive_summand(own * 2), _COARSE),
        ]
    products, squares, freely, rising, *more = await engine.run_masked(tasks)
    order = np.argsort(np.concatenate([free, held]), kind="stable")
    differences = concatenate([freely[0], rising[0]], 1)[:, order]
    # One more, so that no candidate is 0 / 0: that would tie with every fraction, and win by its place.
    below = products[0] + _share_constant(engine, 1, shape)
    jobs = [
        Product(differences, differences, "times", _LARGEST, gate=scaled.gate),
        Product(squares[0], scaled.penalty, "times", _LARGEST + 1 + (_COARSE if more else 0)),
    ]
    if scaled.gain is not None:
        jobs.append(Product(more[0][0], scaled.gain, "times", SCALED))
    above, stays, *least = await compute_products(engine, jobs)
    for one in least:
        stays = stays + one
    stays_below = (more[1][0] if more else own * 2) + _share_constant(engine, 1, own.shape)
    return concatenate([stays[:, None], above], 1), concatenate([stays_below[:, None], below], 1)


def _gain_task(engine: Engine, bits: Share, rule: TreeRule) -> Task:
    """Compare e = k_H − 2 k_A with the integers at which γ 2^e counts, where H' < 2^k_H and A < 2^k_A are tight."""
    counts = bits.sum(axis=0)  # k − low − 1, of H' and of A
    exponent = counts[0] - counts[1] * 2 - _share_constant(engine, rule.low + 1, counts[0].shape)
    return Task(engine.additive_summand(exponent), curve=bits_of(_exponents(rule)))


def _exponents(rule: TreeRule) -> tuple[int, ...]:
    """Where γ 2^e with `_GAIN_BITS` bits goes from one half to the largest numerator."""
    first = -_GAIN_BITS - 1 - math.ceil(math.log2(rule.min_gain))
    return tuple(range(first, first + _LARGEST + 3))


def _look_up_gain(engine: Engine, bits: Share, rule: TreeRule) -> Share:
    """γ 2^e, clamped, from the bits of `_gain_task`."""
    found, before = _share_constant(engine, 0, bits.shape[1:]), 0
    for bit, exponent in enumerate(_exponents(rule)):
        value = min(round(math.ldexp(rule.min_gain, exponent + _GAIN_BITS)), 1 << _LARGEST)
        found = found + bits[bit] * (value - before)
        before = value
    return found

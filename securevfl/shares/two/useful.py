"""Whether the passive party's columns make a model of two parties better: the bit of `securevfl.shares.usefulness`.

Of a number, the variance of the clipped errors is bounded by twice their Huber loss, which is what two parties compute:
the rule is a little stricter than that of three.
"""

from __future__ import annotations

import math

import numpy as np
from securevfl_crypto.two.bits import and_bits, compare
from securevfl_crypto.two.curves import HUBER, SIGMOID, SQUARE
from securevfl_crypto.two.multiply import product, signed
from securevfl_crypto.two.online import LOGIT_BITS, encode_values
from securevfl_crypto.two.truncation import truncate

from securevfl.shares.two.judging import FINE, FINE_WAVES, curve_factors, sum_words
from securevfl.shares.two.network import TwoNetwork
from securevfl.shares.two.parties import TwoParty

__all__ = ["decide_usefulness"]

_CHANGE = 12
"""Fractional bits of a change of a probability."""

_MOVED = 10
"""Fractional bits of a change of a number."""

_ROOM = 30
_MOST_BITS = 15
_MEAN_BITS = 20


async def decide_usefulness(
    party: TwoParty, network: TwoNetwork, with_: np.ndarray, without: np.ndarray, targets: np.ndarray | None
) -> np.ndarray:
    """A shared bit, uint8 ().

    Args:
        party: one of the two.
        network: the trained model.
        with_: this party's shares of the outputs, uint64 (n, outputs).
        without: and of those with the passive party's columns at their mean.
        targets: at the active party, float64 (n, outputs); None at the other.
    """
    judge = _judge_numbers if network.shape.is_numeric else _judge_classes
    gain, chance = await judge(party, network, with_, without, targets)
    square = await product(party.wire, party.transfers, gain, gain)
    less = np.uint64(party.is_active)
    signs = await compare(party.wire, party.transfers, np.concatenate([square - chance - less, gain - less]), 64)
    return np.asarray((await and_bits(party.wire, party.transfers, signs[:1], signs[1:]))[0])


async def _judge_classes(
    party: TwoParty, network: TwoNetwork, with_: np.ndarray, without: np.ndarray, targets: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the gain, and of the square that it has to exceed, with twice as many fractional bits, (1,) each.

    With q = p − ½ and a label of 0 or 1, (p − y)² is q² + (1 − 2y) q + ¼.
    """
    wire, transfers, n = party.wire, party.transfers, len(with_)
    factors = [curve_factors(SIGMOID), curve_factors(SQUARE)]
    p, squares = await network.linear.evaluate(np.concatenate([with_, without]), factors, FINE_WAVES)
    moved = p[n:] - p[:n]
    signs = None if targets is None else np.where(targets > 0.5, -1, 1).astype(np.int64)
    turned = await signed(wire, transfers, moved, signs)
    gain = sum_words(squares[n:] - squares[:n]) + sum_words(turned)
    short = _drop_bits(party, moved, FINE - _CHANGE)
    change = sum_words(await product(wire, transfers, short, short, 32))
    weight = 2 if network.shape.classes > 2 else 1
    bits = min(_MOST_BITS, _ROOM - math.ceil(math.log2(2 * with_.size * weight)))
    small = await truncate(wire, transfers, gain, FINE - bits)
    chance = await _rescale(party, change * np.uint64(weight), 2 * _CHANGE, 2 * bits)
    return small, chance


async def _judge_numbers(
    party: TwoParty, network: TwoNetwork, with_: np.ndarray, without: np.ndarray, targets: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """As `_judge_classes`: the gain in Huber losses, and twice the mean loss times Σ(z − z₀)²."""
    wire, transfers, n = party.wire, party.transfers, len(with_)
    both = np.concatenate([with_, without])
    if targets is not None:
        both = both - encode_values(np.concatenate([targets, targets]), LOGIT_BITS)
    (loss,) = await network.linear.evaluate(both, [curve_factors(HUBER)], FINE_WAVES)
    own, bare = sum_words(loss[:n]), sum_words(loss[n:])
    log_rows = math.ceil(math.log2(max(n, 2)))
    bits = max(min(_MOST_BITS, 25 - log_rows), 5)
    moved = await truncate(wire, transfers, with_ - without, LOGIT_BITS - _MOVED)
    change = sum_words(await product(wire, transfers, moved, moved, 32))
    gain = await truncate(wire, transfers, bare - own, FINE - bits)
    total = await truncate(wire, transfers, own, FINE - _MOVED)
    factor = np.uint64(round(2.0 ** (_MEAN_BITS + log_rows) / n) * 2)
    mean = await truncate(wire, transfers, total * factor, _MEAN_BITS + log_rows)
    spread = await _rescale(party, change, 2 * _MOVED, 2 * bits - _MOVED)
    return gain, await product(wire, transfers, mean, spread)


def _drop_bits(party: TwoParty, words: np.ndarray, shift: int) -> np.ndarray:
    """Shares of small values without their lowest bits; off by a wrap for one in 2^34 values of 30 bits."""
    down = np.uint64(shift)
    if party.is_active:
        return words >> down
    return np.uint64(0) - ((np.uint64(0) - words) >> down)


async def _rescale(party: TwoParty, words: np.ndarray, have: int, want: int) -> np.ndarray:
    if want >= have:
        return words << np.uint64(want - have)
    return await truncate(party.wire, party.transfers, words, have - want)

"""Metrics of a model of two parties on validation rows: only their rounded values are opened, to the active party.

Two classes: accuracy and AUC from comparisons of the logits with edges, whose counts of positive rows need one transfer
each, because the active party knows the labels; the log-loss from a wave (`securevfl_crypto.two.curves`). More classes,
each against the rest: accuracy, and the sum of the log-losses. A number: its Huber loss.
"""

from __future__ import annotations

import math

import numpy as np
from securevfl_crypto.two.bits import and_bits, compare, find_above
from securevfl_crypto.two.correlations import WaveBits
from securevfl_crypto.two.curves import HUBER, SOFTPLUS, WAVES, Curve, Factors
from securevfl_crypto.two.multiply import bits_to_words, product, signed, times_private
from securevfl_crypto.two.online import LOGIT_BITS, encode_values
from securevfl_crypto.two.truncation import truncate

from securevfl.shares.metrics import EDGES, METRIC_BITS
from securevfl.shares.network_ranges import NetworkShape
from securevfl.shares.two.network import TwoNetwork
from securevfl.shares.two.parties import TwoParty

__all__ = [
    "FINE",
    "FINE_WAVES",
    "compute_metrics",
    "count_outside",
    "curve_factors",
    "drop_shift",
    "find_classes",
    "find_sides",
    "metric_scales",
    "metric_sizes",
    "round_figure",
    "sum_words",
]

FINE = 30
"""Fractional bits of a function of one row."""

FINE_WAVES: WaveBits = ((10, 9),) * WAVES
"""How finely sines are rounded for metrics."""

COARSE_BITS, COARSE = 17, 8
"""A logit is compared by 17 of its bits, 8 of them behind the point: up to 256 in size."""

_CLASS_BITS, _CLASS_FINE = 21, 12
_COARSE_SHIFT = np.uint64(LOGIT_BITS - COARSE)
_AREA_BITS = 60
_LARGEST_LOGIT = 12


def drop_shift(rows: int, bits: int) -> int:
    """How many bits of a sum over so many rows are dropped, so that its mean has no more than `METRIC_BITS` bits."""
    return max(bits + math.ceil(math.log2(max(rows, 1))) - METRIC_BITS, 0)


def metric_scales(rows: int, shape: NetworkShape) -> tuple[list[int], list[float]]:
    """Of each metric, the bits that are dropped, and what the rest is multiplied with."""
    if shape.is_numeric:
        shifts, units = [drop_shift(rows, FINE)], [2.0**-FINE / rows]
    else:
        shifts, units = [drop_shift(rows, 0), drop_shift(rows, FINE)], [1 / rows, 2.0**-FINE / rows]
    if shape.classes == 2:
        shifts.append(_AREA_BITS - METRIC_BITS)
        units.append(2.0**-_AREA_BITS)
    return shifts, [unit * 2.0**shift for unit, shift in zip(units, shifts, strict=True)]


def metric_sizes(shape: NetworkShape) -> list[int]:
    """Of each metric, the bits that are opened: the sign, and what a mean of it can need before the point."""
    if shape.is_numeric:
        return [METRIC_BITS + 8]
    loss = METRIC_BITS + 6 + max(shape.outputs - 1, 0).bit_length()
    return [METRIC_BITS + 2, loss, *([METRIC_BITS + 2] if shape.classes == 2 else [])]


async def compute_metrics(
    party: TwoParty, network: TwoNetwork, logits: np.ndarray, targets: np.ndarray | None
) -> np.ndarray:
    """This party's shares of the metrics, uint64 (metrics,), as `metric_scales` reads them.

    Args:
        party: one of the two.
        network: whose outputs these are.
        logits: this party's share, uint64 (n, outputs).
        targets: at the active party, float64 (n, outputs); None at the other.
    """
    shape = network.shape
    if shape.is_numeric:
        moved = logits if targets is None else logits - encode_values(targets, LOGIT_BITS)
        (loss,) = await network.linear.evaluate(moved, [curve_factors(HUBER)], FINE_WAVES)
        return sum_words(loss)
    loss = await _sum_log_losses(party, network, logits, targets)
    if shape.classes > 2:
        right = await _count_right(party, logits, targets)
        return np.concatenate([right, loss])
    right, area = await _rank_rows(party, logits.reshape(-1), None if targets is None else targets[:, 0])
    return np.concatenate([right, loss, area])


def sum_words(words: np.ndarray) -> np.ndarray:
    """The sum of all words modulo 2^64, uint64 (1,)."""
    total: np.ndarray = np.asarray(words.sum(dtype=np.uint64)).reshape(1)
    return total


def curve_factors(curve: Curve) -> Factors:
    """The factors of a curve for metrics."""
    return Factors(curve, 1.0, FINE, FINE_WAVES)


async def _sum_log_losses(
    party: TwoParty, network: TwoNetwork, logits: np.ndarray, targets: np.ndarray | None
) -> np.ndarray:
    """Σ log(1 + e^z) − y z = Σ (log(1 + e^z) − z/2) + (½ − y) z, over rows and outputs, with `FINE` bits."""
    (even,) = await network.linear.evaluate(logits, [curve_factors(SOFTPLUS)], FINE_WAVES)
    short = await truncate(party.wire, party.transfers, logits, LOGIT_BITS - FINE + 1)
    signs = None if targets is None else np.where(targets > 0.5, -1, 1).astype(np.int64)
    odd = await signed(party.wire, party.transfers, short, signs)
    return np.asarray(sum_words(even) + sum_words(odd))


async def _rank_rows(party: TwoParty, logits: np.ndarray, labels: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """How many rows are classified rightly, and the AUC times 2^60.

    The AUC is the area of trapezoids between counts above the edges. The active party knows the number of pairs, and
    multiplies with one over it.
    """
    wire, transfers, edges = party.wire, party.transfers, len(EDGES)
    bits = await find_above(
        wire, transfers, logits >> _COARSE_SHIFT, [round(edge * 2**COARSE) for edge in EDGES], COARSE_BITS
    )
    factors = None
    if labels is not None:
        each = np.stack([np.ones(len(labels), np.uint64), labels.astype(np.uint64)], axis=1)
        factors = np.tile(each, (edges, 1))
    counts = await bits_to_words(wire, transfers, bits.reshape(-1), factors, width=2)
    above, true = counts.reshape(edges, -1, 2).sum(axis=1, dtype=np.uint64).T
    middle, rows = EDGES.index(0.0), len(logits)
    known = 0 if labels is None else int(labels.sum())
    positives = np.array([known], np.uint64)
    negatives = np.array([rows - known if party.is_active else 0], np.uint64)
    here = slice(middle, middle + 1)
    right = negatives - above[here] + true[here] * np.uint64(2)
    high = np.concatenate([positives, true, np.zeros(1, np.uint64)])
    low = np.concatenate([negatives, above - true, np.zeros(1, np.uint64)])
    area = sum_words(await product(wire, transfers, low[:-1] - low[1:], high[:-1] + high[1:], 32))
    factor = None
    if labels is not None:
        pairs = known * (rows - known)
        factor = np.array([(1 << _AREA_BITS) // (2 * pairs) if pairs else 0], np.uint64)
    return right, await times_private(wire, transfers, area, factor, _AREA_BITS)


async def round_figure(party: TwoParty, shares: np.ndarray, rows: int, shape: NetworkShape) -> np.ndarray:
    """The figure by which epochs are compared, the larger the better, in units of 2^-10, this party's share (1,)."""
    shifts, _ = metric_scales(rows, shape)
    place = 2 if shape.classes == 2 else min(shape.classes - 1, 1)
    figure = await truncate(party.wire, party.transfers, shares[place : place + 1], shifts[place])
    return figure if shape.classes == 2 else np.uint64(0) - figure


async def find_classes(party: TwoParty, logits: np.ndarray) -> np.ndarray:
    """Shares of whether a class is the likeliest, uint8 (n, classes): of equal ones the first."""
    wire, transfers = party.wire, party.transfers
    rows, classes = logits.shape
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    words = np.stack([logits[:, i] - logits[:, j] for i, j in pairs]) >> np.uint64(LOGIT_BITS - _CLASS_FINE)
    ahead = await compare(wire, transfers, words, _CLASS_BITS)
    behind = ahead ^ np.uint8(party.is_active)
    beats = [[ahead[pairs.index((k, j))] for j in range(k + 1, classes)] for k in range(classes)]
    for k in range(classes):
        beats[k] += [behind[pairs.index((i, k))] for i in range(k)]
    level = np.array(beats)  # (classes, classes − 1, n): all of a class's have to hold
    while level.shape[1] > 1:
        half = level.shape[1] // 2
        met = await and_bits(
            wire, transfers, np.ascontiguousarray(level[:, :half]), np.ascontiguousarray(level[:, half : 2 * half])
        )
        level = np.concatenate([met, level[:, 2 * half :]], axis=1)
    return np.ascontiguousarray(level[:, 0].T).reshape(rows, classes)


async def _count_right(party: TwoParty, logits: np.ndarray, targets: np.ndarray | None) -> np.ndarray:
    bits = await find_classes(party, logits)
    factors = None if targets is None else targets.astype(np.uint64).reshape(-1, 1)
    found = await bits_to_words(party.wire, party.transfers, bits.reshape(-1), factors, width=1)
    return sum_words(found)


async def find_sides(party: TwoParty, coarse: np.ndarray, edge: int) -> tuple[np.ndarray, np.ndarray]:
    """Shared bits, uint8 of the values' shape: whether a value is above −edge, and whether it is above edge.

    A comparison with an edge wraps for values within that edge of ±256, the largest; the sign does not.

    Args:
        party: one of the two.
        coarse: this party's shares, uint64, of which `COARSE_BITS` count.
        edge: in units of 2^-`COARSE`.
    """
    wire, transfers, one = party.wire, party.transfers, np.uint8(party.is_active)
    low, sign, high = await find_above(wire, transfers, coarse, [-edge, -1, edge], COARSE_BITS)
    met = await and_bits(wire, transfers, np.stack([low ^ one, high]), np.stack([sign ^ one, sign]))
    return met[0] ^ one, met[1]


async def count_outside(party: TwoParty, logits: np.ndarray) -> np.ndarray:
    """A shared bit, uint8 (): whether more than one value in a hundred is above 12 in size, so that its wave is off."""
    wire, transfers, flat = party.wire, party.transfers, logits.reshape(-1)
    low, high = await find_sides(party, flat >> _COARSE_SHIFT, _LARGEST_LOGIT << COARSE)
    inside = low ^ high  # above the lower bound, and not above the upper one
    count = sum_words(await bits_to_words(wire, transfers, inside.reshape(-1)))
    if party.is_active:
        count = count - np.uint64(flat.size - flat.size // 100)
    enough = await compare(wire, transfers, count, 32)
    return np.asarray(enough[0] ^ np.uint8(party.is_active))

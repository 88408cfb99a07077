"""Metrics of a model on rows, computed on shares: only their rounded values are opened, to the active party.

Two classes: accuracy, log-loss and AUC. All follow from comparisons of the logits with a few edges: the log-loss by
chords of softplus between them, the AUC by trapezoids. More classes: accuracy and log-loss. A number: its Huber loss.
Opened logits of the same rows in each epoch would give the features back.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from securevfl_crypto.replicated import Product, Share, concatenate
from securevfl_crypto.ring import FRACTION

from securevfl.shares.answers import NUMBER_BOUND, clip_outputs
from securevfl.shares.engine import ONE, Engine, compute_products, scaling_job
from securevfl.shares.network_ranges import ERROR_BOUND, TARGET_BOUND
from securevfl.shares.trainee import Trainee

__all__ = ["EDGES", "METRIC_BITS", "SharedMetrics", "name_metrics"]

METRIC_BITS = 10
"""Fractional bits of an opened metric: it is rounded at 2^-10, up or down by chance without bias. Coarser metrics
choose worse epochs, and who asks again averages them out. So a job's metrics count as one number of each validation
row."""

_QUOTIENT_BITS = 10
"""A quotient's divisor is below 2 to this."""

_DIVISOR_BITS = 16
_MOST_LOSS = ERROR_BOUND * (NUMBER_BOUND + TARGET_BOUND)
"""Largest Huber loss of a prediction that is clipped, of a target within its bounds."""

_LARGEST_SUM = 62
"""Bits below which a word is truncated rightly."""

EDGES = tuple(float(edge) for edge in (-6, -5, -4.5, -4, -3.5, *np.arange(-3, 3.01, 0.25), 3.5, 4, 4.5, 5, 6))
"""Logits between which a bin lies; 35 bins."""
_SLOPE_BITS = 10
_MARGIN = 2.0**-10
"""By so much a wrong class has to be ahead: truncation moves logits by 2^-16."""


class SharedMetrics:
    """Adds up what metrics are made of, over parts of the rows.

    Args:
        network: whose logits are judged.
        loss_bits: by how many bits the loss of a number is finer than other metrics; five at most.
    """

    def __init__(self, network: Trainee, loss_bits: int = 0) -> None:
        self._network = network
        self._loss_bits = loss_bits
        self._engine: Engine = network.engine
        self._rows = 0
        self._sums: Share | None = None

    async def add_rows(self, inputs: Any, targets: Share) -> None:
        """Judge some rows: inputs as for `Trainee.forward`, targets (n, outputs)."""
        logits = await self._network.forward(inputs)
        judge = {1: self._score_numbers, 2: self._score_two_classes}.get(
            self._network.shape.classes, self._score_many_classes
        )
        found = await judge(logits, targets)
        self._sums = found if self._sums is None else self._sums + found
        self._rows += len(targets)

    async def _score_two_classes(self, logits: Share, targets: Share) -> Share:
        """Sums over the rows: of y z; of y; then for each edge how many rows lie above it, Σ y and Σ z of those. Those
        of y and z have 16 fractional bits."""
        engine, n = self._engine, len(targets)
        bits = (await engine.compare(logits, EDGES)).reshape(len(EDGES), n)
        each, product = await compute_products(
            engine, [Product(bits, concatenate([targets, logits], axis=1)), Product(targets.T, logits, shift=FRACTION)]
        )
        total = targets.reshape(-1).sum().reshape(1)
        return concatenate([product.reshape(1), total, bits.sum(axis=1), each[:, 0], each[:, 1]])

    async def _score_numbers(self, logits: Share, targets: Share) -> Share:
        """The sum of the Huber losses, c (r − c/2) of an error r that is c when clipped, 16 fractional bits, (1,). The
        prediction is clipped as an answer is, so that no loss is above `_MOST_LOSS`."""
        engine = self._engine
        error = await clip_outputs(engine, logits, 1) - targets
        bound = engine.constant(np.full(error.shape, round(ERROR_BOUND * ONE), dtype=np.uint64))
        (done,) = await engine.compute_products([replace(scaling_job(engine, error + bound, 1, 0), then="relu6")])
        clipped = (done[0] if isinstance(done, tuple) else done) - bound
        (found,) = await compute_products(engine, [Product(clipped.T, error * 2 - clipped, shift=FRACTION + 1)])
        return found.reshape(1)

    async def _score_many_classes(self, logits: Share, targets: Share) -> Share:
        """The number of rows whose class is not the likeliest, and the sum of their losses with 16 bits, (2,)."""
        engine = self._engine
        (own,) = await compute_products(engine, [Product(logits, targets, "times", shift=FRACTION)])
        ahead = logits - own.sum(axis=1, keepdims=True).broadcast_to(logits.shape)
        loss = (await engine.log_sum_exp(logits)).reshape(-1).sum() - own.reshape(-1).sum()
        better = (await engine.compare(ahead, (_MARGIN,))).reshape(*logits.shape)
        count = better.sum(axis=1, keepdims=True) * ONE
        wrong = await engine.compare(count, (0.5,))
        return concatenate([wrong.reshape(-1).sum().reshape(1), loss.reshape(1)])

    async def compute_rounded(self) -> Share:
        """The metrics with `METRIC_BITS` fractional bits: accuracy, log-loss and, of two classes, AUC; of a number
        the mean Huber loss alone, 2^`loss_bits` times. The AUC of rows of one class is 0.
        """
        if self._sums is None:
            raise ValueError("metrics of no rows")
        engine, sums = self._engine, self._sums
        if self._network.shape.is_numeric:
            return (await compute_products(engine, self._row_share_jobs([sums], [FRACTION - self._loss_bits])))[0]
        if self._network.shape.classes > 2:
            right = self._share_constant(self._rows) - sums[:1]
            return concatenate(await compute_products(engine, self._row_share_jobs([right, sums[1:]], [0, FRACTION])))
        edges, middle = len(EDGES), EDGES.index(0.0)
        product, total = sums[:1], sums[1:2]
        above, true, heights = (sums[2 + k * edges : 2 + (k + 1) * edges] for k in range(3))
        loss = _sum_softplus(above, heights) - product * (1 << _SLOPE_BITS)
        counts, loss = await compute_products(
            engine,
            [scaling_job(engine, concatenate([total, true]), 1, FRACTION), scaling_job(engine, loss, 1, _SLOPE_BITS)],
        )
        wholes, positives = counts[:1], counts[1:]
        # rows above zero that are positive, and rows below that are negative
        right = (
            self._share_constant(self._rows) - wholes - above[middle : middle + 1] + positives[middle : middle + 1] * 2
        )
        quotient = await self._area_of_pairs(above, positives, wholes)
        jobs = self._row_share_jobs([right, loss], [0, FRACTION])
        jobs.append(scaling_job(engine, quotient, 1, FRACTION - METRIC_BITS))
        return concatenate([one.reshape(1) for one in await compute_products(engine, jobs)])

    async def _area_of_pairs(self, above: Share, positives: Share, wholes: Share) -> Share:
        """The AUC, from counts of rows and of positive rows above each edge, and of positives: the area under the curve
        of counts over the number of pairs. Nobody deals the number of pairs: a false one would magnify the ranks of
        single rows.

        Twice the area is Σ (negatives in a bin) · (positives above its ends).

        Pairs of n rows are at most n² / 4, and at least n − 1 where both classes occur. Scaled by 2^(12 − 2L), where
        n is at most 2^L, they lie between 2^(11 − L) and 2^10.
        """
        engine, nothing, negatives = self._engine, self._share_constant(0), self._share_constant(self._rows) - wholes
        log_rows = max(math.ceil(math.log2(self._rows)), 1)
        true, false = concatenate([wholes, positives, nothing]), concatenate([negatives, above - positives, nothing])
        width, height = false[:-1] - false[1:], true[:-1] + true[1:]
        area, pairs = await compute_products(
            engine, [Product(width.reshape(1, -1), height.reshape(-1, 1)), Product(wholes, negatives, "times")]
        )
        up = FRACTION + _QUOTIENT_BITS + 2 - 2 * log_rows  # of the pairs; half as much of twice the area
        jobs = [
            scaling_job(engine, value, 1 << max(power, 0), max(-power, 0))
            for value, power in ((area.reshape(1), up - 1), (pairs, up))
        ]
        over, under = await compute_products(engine, jobs)
        least = 2.0 ** min(_QUOTIENT_BITS + 1 - log_rows, _QUOTIENT_BITS - 1)
        return await engine.divide(over, under, least=least, most=2.0**_QUOTIENT_BITS)

    def _row_share_jobs(self, sums: list[Share], bits: list[int]) -> list[Product]:
        """Make the products that are sums divided by the number of rows, rounded; each has so many fractional bits.

        One over the rows is a whole number of `_DIVISOR_BITS` bits, and of fewer where a sum of so many rows could wrap
        with them: up to 2^18 rows all, of 2^24 rows ten, with which a mean is right to a thousandth of it.
        """
        log_rows, kept = math.ceil(math.log2(self._rows)), METRIC_BITS
        room = _LARGEST_SUM - FRACTION - math.ceil(math.log2(_MOST_LOSS)) - log_rows
        digits, jobs = min(_DIVISOR_BITS, room), []
        for total, have in zip(sums, bits, strict=True):
            shift = digits - 1 - kept + have + log_rows
            factor = round(2.0 ** (kept - have + shift) / self._rows)
            jobs.append(scaling_job(self._engine, total, factor, shift))
        return jobs

    def _share_constant(self, value: int) -> Share:
        return self._engine.constant(np.array([value], dtype=np.uint64))


def _slope_changes() -> list[int]:
    """By how much the slope of the chords of softplus changes at each edge, with `_SLOPE_BITS`; they add up to one."""
    edges = np.array(EDGES)
    chords = np.diff(np.logaddexp(0, edges)) / np.diff(edges)
    slopes = np.rint(np.array([0, *chords, 1]) * (1 << _SLOPE_BITS)).astype(int)
    return [int(jump) for jump in np.diff(slopes)]


def _sum_softplus(above: Share, heights: Share) -> Share:
    """Σ log(1 + e^z) over the rows by chords between the edges, 16 + `_SLOPE_BITS` fractional bits.

    Args:
        above: how many rows lie above each edge.
        heights: the sum of their logits, with 16 fractional bits.
    """
    jumps, edges = np.array(_slope_changes()), np.array([round(edge * ONE) for edge in EDGES])
    found: Share = heights * jumps - above * (jumps * edges)
    return found.sum(keepdims=True)


def name_metrics(values: np.ndarray, *, pairs: bool) -> dict[str, float]:
    """Opened metrics by their names.

    Args:
        values: as `Scores.compute_rounded` gives them.
        pairs: whether there is a positive and a negative row, so that there is an AUC.
    """
    names = ("accuracy", "log_loss", "auc")
    found = {name: float(value) for name, value in zip(names, values, strict=False)}
    return found if pairs else {name: value for name, value in found.items() if name != "auc"}

"""One bit: does the model predict the validation rows better with the passive parties' columns than without?

It is opened once, to all three computing parties, before the model answers anything. Let p be the probabilities of a
row's classes and p₀ the same with the columns of all passive parties at their mean over all validation rows. With the
gain g = ‖y − p₀‖² − ‖y − p‖², a difference of Brier scores, the bit says whether Σg is positive and exceeds what chance
gives it in one standard deviation:

- two classes: (Σg)² > Σ(p − p₀)², of the second class's p, as y has a standard deviation of at most ½;
- more classes: (Σg)² > 2 Σ‖p − p₀‖², as the variance of a difference of two entries is at most ½ of that (Popoviciu);
- a number, with outputs z and z₀: n (Σg)² > Σc² · Σ(z − z₀)², with c the error clipped at ±3 and g a difference of
  Huber losses.

Of honest models of the credit table, fitted to the end on 800 training and judged on 200 validation rows, 20 of 24
pass, of labels drawn by coin 1 (`benchmarks.asked`). By a difference of log-losses, which takes five times as many
comparisons, 15 of 24 would pass.

A model of labels drawn by coin fails in most cases; so does one whose label follows from the active party's own
columns. The bit cannot tell labels that the active party knows and wants to extend to other rows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from securevfl_crypto.replicated import Product, Share, concatenate
from securevfl_crypto.ring import FRACTION

from securevfl.errors import PolicyError
from securevfl.party_context import PartyContext
from securevfl.shares.answers import clip_outputs
from securevfl.shares.engine import ONE, compute_products, scaling_job
from securevfl.shares.network_ranges import ERROR_BOUND
from securevfl.shares.trainee import Trainee

__all__ = ["Usefulness", "explain_useless"]

_ROOM = 61
"""Values below 2 to this are right; all sums here stay below it."""

_DIVISOR_BITS = 20
_MEAN_BITS = 18
"""Of one over the rows, for a mean: a column of 2^24 rows adds up to 2^43 at most, and times this to 2^61."""


class Usefulness:
    """Adds up, over parts of the validation rows, what the bit follows from.

    Args:
        network: the trained model.
    """

    def __init__(self, network: Trainee) -> None:
        self._network = network
        self._columns: list[Share] = []
        self._counted = 0
        self._means: list[Share] = []
        self._sums: Share | None = None
        self._rows = 0

    @property
    def _change_bits(self) -> int:
        """Fractional bits of Σ(z − z₀)². With 16 it would be nothing for a model that hardly moved, and any gain would
        exceed it."""
        return 24 if self._network.shape.is_numeric else 2 * FRACTION

    async def add_to_means(self, inputs: Any) -> None:
        """Take some rows into the means of the passive parties' columns. All of them come before the first `add_rows`:
        means of some rows alone would let who orders the rows choose what the model is compared with."""
        rows, sums = await self._network.sum_others(inputs)
        self._columns = [a + b for a, b in zip(self._columns, sums, strict=True)] if self._counted else list(sums)
        self._counted += rows

    async def add_rows(self, inputs: Any, targets: Share) -> None:
        """Judge some rows: inputs as for `Trainee.forward`, targets (n, outputs) with 16 fractional bits."""
        engine, shape, n = self._network.engine, self._network.shape, len(targets)
        if not self._means:
            self._means = await self._compute_means()
        outputs = concatenate(list(await self._network.forward_averaged(inputs, self._means)))
        if shape.is_numeric:
            outputs = await clip_outputs(engine, outputs, 1)
            jobs = await self._loss_jobs(outputs, targets)
        else:
            outputs = await (engine.sigmoid(outputs) if shape.classes == 2 else engine.softmax(outputs))
            gained, rest = outputs[:n] - outputs[n:], targets * 2 - outputs[:n] - outputs[n:]
            jobs = [Product(gained.reshape(1, -1), rest.reshape(-1, 1), shift=FRACTION)]
        moved = (outputs[:n] - outputs[n:]).reshape(-1, 1)
        jobs.append(Product(moved.T, moved, shift=2 * FRACTION - self._change_bits))
        *found, change = [one.reshape(1) for one in await compute_products(engine, jobs)]
        if shape.is_numeric:
            with_, without, squares = found
            sums = concatenate([without - with_, change, squares])
        else:
            sums = concatenate([*found, change])
        self._sums = sums if self._sums is None else self._sums + sums
        self._rows += n

    async def decide(self) -> Share:
        """The bit as a word 0 or 1, (1,)."""
        if self._sums is None:
            raise ValueError("usefulness over no rows")
        engine, shape = self._network.engine, self._network.shape
        log_rows = math.ceil(math.log2(max(self._rows, 2)))
        gain, change = self._sums[:1], self._sums[1:2]
        if shape.is_numeric:
            # Σg is below 2^8 n, Σ(z − z₀)² below 2^12 n, the mean of c² at most 9.
            bits = min(FRACTION, (_ROOM - 1) // 2 - 8 - log_rows, (_ROOM - 16 - FRACTION - log_rows) // 2)
            factor, shift = round(2.0 ** (_DIVISOR_BITS + log_rows) / self._rows), _DIVISOR_BITS + log_rows
            jobs = [scaling_job(engine, self._sums[2:], factor, shift), *self._rescale_jobs(gain, change, bits)]
            mean, gain, change = await compute_products(engine, jobs)
            (chance,) = await compute_products(engine, [Product(change, mean, "times", shift=FRACTION)])
        else:
            # |Σg| is at most 2 n, Σ‖p − p₀‖² as well.
            bits = min(FRACTION, (_ROOM - 2) // 2 - 2 - log_rows, (_ROOM - 4 - log_rows) // 2)
            gain, chance = await compute_products(engine, self._rescale_jobs(gain, change, bits))
        (square,) = await compute_products(engine, [Product(gain, gain, "times")])
        weight = 2 if shape.classes > 2 else 1
        least = 1 / ONE  # one unit of the last place: compares as *above zero*
        exceeds = await engine.compare(concatenate([square - chance * weight, gain]), (least,))
        exceeds = exceeds.reshape(-1)
        (bit,) = await compute_products(engine, [Product(exceeds[:1], exceeds[1:], "times")])
        return bit

    def _rescale_jobs(self, gain: Share, change: Share, bits: int) -> list[Product]:
        """Σg with so many fractional bits, and Σ(z − z₀)² with twice as many."""
        engine = self._network.engine
        finer = max(2 * bits - self._change_bits, 0)
        coarser = max(self._change_bits - 2 * bits, 0)
        return [
            scaling_job(engine, gain, 1, FRACTION - bits),
            scaling_job(engine, change, 1 << finer, coarser),
        ]

    async def _compute_means(self) -> list[Share]:
        """The means of the passive parties' columns, or of what stands for them, with 16 fractional bits."""
        if not self._counted:
            raise ValueError("usefulness without means")
        shift = _MEAN_BITS - 1 + math.ceil(math.log2(self._counted))
        factor = round(2.0**shift / self._counted)
        engine = self._network.engine
        return await compute_products(engine, [scaling_job(engine, one, factor, shift) for one in self._columns])

    async def _loss_jobs(self, outputs: Share, targets: Share) -> list[Product]:
        """Make the products that are the Huber losses with all columns, those without, and Σc² of the errors with."""
        engine, n = self._network.engine, len(targets)
        error = outputs - concatenate([targets, targets])
        bound = engine.constant(np.full(error.shape, round(ERROR_BOUND * ONE), dtype=np.uint64))
        (done,) = await engine.compute_products([replace(scaling_job(engine, error + bound, 1, 0), then="relu6")])
        clipped = (done[0] if isinstance(done, tuple) else done) - bound
        slope = error * 2 - clipped
        return [
            Product(clipped[:n].T, slope[:n], shift=FRACTION + 1),
            Product(clipped[n:].T, slope[n:], shift=FRACTION + 1),
            Product(clipped[:n].T, clipped[:n], shift=FRACTION),
        ]


def explain_useless(site: PartyContext, rows: int) -> str:
    """What follows from a model that is not useful: in a simulation a warning for the report.

    Args:
        site: the party's context.
        rows: validation rows that judged.

    Raises:
        PolicyError: between organisations; nothing is answered.
    """
    found = (
        f"on {rows} validation rows the model does not predict better with the passive parties' columns than with "
        "their means, by more than chance"
    )
    more = "more validation rows, or columns that tell more of the label, help"
    if site.simulated:
        return f"{found}: between organisations it would answer nothing; {more}"
    raise PolicyError(
        f"{site.name!r} refuses to answer: {found}. The try counts as an answer about each test row; {more}. useful = "
        '"off" in the protection and in each party\'s policy turns the rule off',
        cause="useless",
    )

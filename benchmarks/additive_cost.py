"""What an epoch of the additive model's sums costs at three computing parties in one process.

    python -m benchmarks.additive --only cost

With and without the check of what is dealt; CPU seconds are of all parties together.
"""

from __future__ import annotations

import resource
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from securevfl_crypto.replicated import Computing, deal_shares, run_three

import securevfl as sv
from securevfl.shares.additive.contrasts import split_contrasts
from securevfl.shares.additive.ranged import join_bits, split_bits
from securevfl.shares.additive.sums import SharedRows, find_violations, sum_contrasts

__all__ = ["measure_cost"]

EPOCHS = 60


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure_cost(rows: int, columns: Sequence[int], *, bounded: bool, repeat: int = 3) -> dict[str, Any]:
    """One epoch of two classes.

    Args:
        rows: that train.
        columns: of each data party, the intercept with the first.
        bounded: whether what is dealt is checked, as in a job with a budget.
        repeat: how often; the medians count.
    """
    protection = sv.Shares(dp=sv.DP(model=sv.Gaussian(epsilon=1.0)), metrics="none")
    algorithm = sv.Additive(edges="declared")
    job = algorithm.plan_sums(protection, rows=rows, outputs=1, columns=columns, epochs=EPOCHS)
    tops = [cap + 2 * slack for cap, slack in zip(job.caps, job.slacks, strict=True)]
    rng = np.random.default_rng(0)
    every, one, largest = sum(columns), job.one, job.contrast
    mass = rng.uniform(0.05, 0.5, every)
    side = rng.random((rows, every)) < mass
    contrasts = np.where(side, largest, np.rint(-mass / (1 - mass) * largest)).astype(np.int64)
    parts = [rng.integers(0, top + 1, (rows, 1)) for top in tops]
    y = deal_shares((rng.integers(0, 2, (rows, 1)) * one).astype(np.uint64))
    ends = np.cumsum(columns)
    figures = []
    for _ in range(repeat):
        start = _cpu()
        dealt = []
        for end, width, part, top in zip(ends, columns, parts, tops, strict=True):
            split = split_contrasts(contrasts[:, end - width : end])
            words = [split.bits, part.astype(np.uint64), split.values.view(np.uint64)]
            if bounded:
                words[1:] = [split_bits(part, top), split_bits(split.values + largest, 2 * largest)]
            dealt.append([deal_shares(array) for array in words])
        dealing = _cpu() - start
        start = _cpu()
        run = run_three(_epoch_program(dealt, y, tops, largest, ends, bounded=bounded), openings=_OPENINGS)
        figures.append(
            {
                "dealing cpu": dealing,
                "computing cpu": _cpu() - start,
                "dealt bytes": sum(one.nbytes for party in dealt for array in party for one in array),
                "computing bytes": run.bytes_sent,
                "rounds": run.rounds,
            }
        )
    middle = {name: statistics.median(one[name] for one in figures) for name in figures[0]}
    return {"rows": rows, "columns": list(columns), "bounded": bounded, **middle}


_OPENINGS = {"bounds": 1, "sums 0": 1, "sums 1": 1, "sums 2": 1}


def _epoch_program(
    dealt: Sequence[Sequence[Any]], y: Any, tops: Sequence[int], largest: int, ends: np.ndarray, *, bounded: bool
) -> Callable[[Computing], Any]:
    async def program(party: Computing) -> None:
        from securevfl_crypto.replicated import concatenate

        taken = [[party.read_dealt(one[party.index]) for one in own] for own in dealt]
        await party.confirm("input", *(share for own in taken for share in own))
        bits = concatenate([own[0] for own in taken], axis=1)
        residual = party.read_dealt(y[party.index])
        parts, values = [own[1] for own in taken], [own[2] for own in taken]
        if bounded:
            wrong = await find_violations(party, [bits, *parts, *values], [])
            assert await party.is_zero("bounds", wrong)
            parts = [join_bits(part, top) for part, top in zip(parts, tops, strict=True)]
            values = [
                join_bits(one, 2 * largest) - party.constant(np.full(one.shape[:2], largest, np.uint64))
                for one in values
            ]
        for part in parts:
            residual = residual - part
        noise = np.zeros((bits.shape[1], 1), np.uint64)
        sums = await sum_contrasts(party, [SharedRows(bits, residual)], concatenate(values, axis=1), noise)
        await party.open_each([(f"sums {k}", own, k) for k, own in enumerate(_split(sums, ends))])

    return program


def _split(sums: Any, ends: np.ndarray) -> list[Any]:
    starts = [0, *ends.tolist()]
    return [sums[low:high] for low, high in pairwise(starts)]

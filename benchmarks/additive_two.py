"""The additive model between two parties under BFV: what an epoch costs, AUC by ε, and an audit of the noise.

    python -m benchmarks.additive_two [--only cost|auc|audit] [--seeds 3]

*Cost*: the sums of one epoch at 13,000 rows, 6 columns of the active party (the intercept is one) and 18 of the
passive, both directions, in one process; CPU seconds are of both parties together, and bytes of both directions. Beside
it Paillier sums by bin, as sealed boosting makes them, for the direction to the passive party: its parts were timed,
and the other direction is reckoned from them by the columns.

*Audit*: shapes that make a row's residual +1 in one world and −1 in the other, with contrasts of one in every column.
The shift between both worlds is that of real sums without noise, and the noise is what a party's real sums contain once
its own draws are taken off. Their ratio is the μ of the party's view, which has to reach the stated one.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import resource
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import securevfl_crypto as crypto
from securevfl_crypto.sums import SumHolder, SumOwner, SumPlan

import securevfl as sv
from benchmarks.additive import DELTA, EPOCHS, declare_columns
from benchmarks.common import before, data, write
from securevfl.algorithms.additive.channel import sum_contrasts
from securevfl.algorithms.additive.sealed_keys import SealedKeys
from securevfl.algorithms.additive.sealed_sums import SealedSums
from securevfl.algorithms.additive.shapes import PublicPlan
from securevfl.algorithms.additive.units import CONTRAST_ONE, PART_ONE, SUM_ONE, split_caps
from securevfl.data import Parties
from securevfl.party_context import PartyContext
from securevfl.privacy.sums_budget import SumsBudget
from securevfl.run import join_parties
from securevfl.run.simulation import run_parties
from securevfl.testing import link_in_memory

ROWS, COLUMNS = 13_000, (6, 18)
_PAILLIER_BITS = 2048


class _Noted(SealedSums):
    """Sums that remember this party's noise.

    Attributes:
        drawn: in order: on the other party's sums, then on its own, in each epoch.
    """

    def __init__(self, keys: SealedKeys) -> None:
        super().__init__(keys)
        self.drawn: list[np.ndarray] = []

    def draw_noise(self, shape: tuple[int, ...]) -> np.ndarray:
        """See `SealedSums.draw_noise`."""
        self.drawn.append(super().draw_noise(shape))
        return self.drawn[-1]


@dataclass
class Side:
    """What one party brings, and what it gets.

    Attributes:
        contrasts: of its columns, int64 (n, columns).
        part: int64 (n, outputs).
        sums: of each epoch.
        own_noise: its own draws on these sums.
        sent: bytes that it sent.
    """

    contrasts: np.ndarray
    part: np.ndarray
    sums: list[np.ndarray] = field(default_factory=list)
    own_noise: list[np.ndarray] = field(default_factory=list)
    sent: int = 0


async def _take_part(site: PartyContext, side: Side, plan: PublicPlan, budget: SumsBudget | None, epochs: int) -> None:
    keys = SealedKeys(site, sv.BFV())
    sums = _Noted(keys)
    await keys.exchange(both=True)
    sums.begin(plan, budget)
    for epoch in range(1, epochs + 1):
        side.sums.append(await sums.exchange(epoch, side.contrasts, side.part))
        side.own_noise.append(sums.drawn[-1])
    side.sent = sum(site.clock.lap().sent.values())


def run_sums(sides: tuple[Side, Side], budget: SumsBudget | None, epochs: int) -> None:
    """Make the sums of some epochs between two parties in this process."""
    sites = link_in_memory(active="bank", passive=("shop",))
    plan = PublicPlan(
        rows=len(sides[0].part),
        parties=("bank", "shop"),
        columns=tuple(side.contrasts.shape[1] for side in sides),
        outputs=sides[0].part.shape[1],
        seed=1,
        start=np.zeros(sides[0].part.shape[1]),
        noise=0.0 if budget is None else budget.total_sigma,
    )

    async def both() -> None:
        names = ("bank", "shop")
        await asyncio.gather(
            *(_take_part(sites[name], side, plan, budget, epochs) for name, side in zip(names, sides, strict=True))
        )

    asyncio.run(both())


def crafted_sides(columns: tuple[int, int], *, replaced: bool, rows: int = 4) -> tuple[Side, Side]:
    """Both parties' contrasts and parts: the residual of the first row is +1, or −1 once the row is replaced; contrasts
    are one in all columns, so that every sum moves by two."""
    caps = split_caps(columns)
    parts = [np.zeros((rows, 1), dtype=np.int64) for _ in columns]
    # y = 1 and p = 0, or y = 0 and p = 1: both parties' parts at their caps.
    parts[0][0], parts[1][0] = (-caps[0], caps[1]) if replaced else (PART_ONE, 0)
    active, passive = (
        Side(np.full((rows, count), CONTRAST_ONE, dtype=np.int64), part)
        for count, part in zip(columns, parts, strict=True)
    )
    return active, passive


def audit_party(party: int, columns: tuple[int, int], epsilon: float, epochs: int) -> tuple[float, float]:
    """μ of one party's view of its own sums, from real sums; and the stated one of all sums, of all parties.

    Args:
        party: 0 for the active party, 1 for the passive one.
        columns: of both; nearly all of them the party's, so that its view is nearly the joint one.
        epsilon: of the training.
        epochs: of the training.
    """
    worlds = []
    for replaced in (False, True):
        sides = crafted_sides(columns, replaced=replaced)
        run_sums(sides, None, 1)
        worlds.append(sides[party].sums[0] / SUM_ONE)
    sides = crafted_sides(columns, replaced=False)
    budget = SumsBudget(
        epsilon=epsilon,
        delta=DELTA,
        rows=len(sides[0].part),
        columns=sum(columns),
        epochs=epochs,
        outputs=1,
        counted=False,
        adders="two parties",
    )
    run_sums(sides, budget, epochs)
    seen = np.stack(sides[party].sums) / SUM_ONE - np.stack(sides[party].own_noise) / SUM_ONE
    noise = seen - worlds[0]
    shift = np.linalg.norm(worlds[1] - worlds[0]) * math.sqrt(epochs)
    return float(shift / np.sqrt(np.mean(noise**2))), budget.mu_sums


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure_cost(rows: int, columns: tuple[int, int], epochs: int = 5) -> dict[str, Any]:
    """An epoch under BFV, the mean of some after the first."""
    rng = np.random.default_rng(0)
    caps = split_caps(columns)
    sides = tuple(
        Side(rng.choice([-90, CONTRAST_ONE], (rows, count)), rng.integers(0, cap, (rows, 1)))
        for count, cap in zip(columns, caps, strict=True)
    )
    budget = SumsBudget(
        epsilon=1.0,
        delta=DELTA,
        rows=rows,
        columns=sum(columns),
        epochs=60,
        outputs=1,
        counted=False,
        adders="two parties",
    )
    found = []
    for count in (1, 1 + epochs):
        again = Side(sides[0].contrasts, sides[0].part), Side(sides[1].contrasts, sides[1].part)
        start, clock = _cpu(), time.perf_counter()
        run_sums(again, budget, count)
        found.append((_cpu() - start, time.perf_counter() - clock, again[0].sent, again[1].sent))
    cpu, wall, up, down = ((more - less) / epochs for less, more in zip(*found, strict=True))
    residual = sides[0].part - sides[1].part
    exact = sum_contrasts(sides[1].contrasts, residual)
    run_sums(sides, None, 1)
    return {
        "rows": rows,
        "columns": list(columns),
        "cpu_s": cpu,
        "wall_s": wall,
        "bytes_active": up,
        "bytes_passive": down,
        "exact": bool(np.array_equal(exact, sides[1].sums[0])),
    }


def measure_paillier(rows: int, columns: int) -> dict[str, Any]:
    """Sums by side of the passive party's columns under Paillier, one direction."""
    rng = np.random.default_rng(0)
    part, codes = rng.integers(-PART_ONE, PART_ONE + 1, (rows, 1)), rng.integers(0, 2, (rows, columns))
    key, plan = crypto.generate_keypair(_PAILLIER_BITS), SumPlan(key_bits=_PAILLIER_BITS, rows=rows, bounds=(PART_ONE,))
    owner, holder = SumOwner(key, plan), SumHolder(key.public, plan)
    start = _cpu()
    sealed = owner.encrypt_rows(part)
    sealed_at = _cpu()
    answer = holder.compute_sums(holder.load_rows(sealed), codes, [2] * columns)
    summed_at = _cpu()
    opened = owner.open_sums(answer, [2] * columns, part.sum(axis=0, keepdims=True))
    end = _cpu()
    exact = [part[codes[:, j] == side].sum() for j in range(columns) for side in (0, 1)]
    if not np.array_equal(np.ravel(opened), exact):
        raise ValueError("sums under Paillier differ")
    return {
        "bits": _PAILLIER_BITS,
        "rows": rows,
        "columns": columns,
        "cpu_s": end - start,
        "encrypt_s": sealed_at - start,
        "sums_s": summed_at - sealed_at,
        "open_s": end - summed_at,
        "bytes": int(sealed.nbytes + answer.ciphertexts.nbytes),
    }


def measure_auc(epsilon: float | None, seed: int) -> dict[str, Any] | None:
    """One run on credit between bank and network: the job's own path."""
    people = data(lambda: sv.datasets.default_credit(overlap=1.0, seed=seed), "the credit table")
    if people is None:
        return None
    two = Parties.of(people.active, people.passive[0])
    dp = None if epsilon is None else sv.DP(model=sv.Gaussian(epsilon=epsilon, delta=DELTA))
    job = sv.Job(
        algorithm=sv.Additive(**({} if epsilon is None else declare_columns(two))),
        protection=sv.BFV(dp=dp),
        epochs=EPOCHS,
        keep="last",
        valid=0.02,
        test=0.38,
        seed=seed,
    )
    start = time.perf_counter()
    ran = run_parties(job, two, join_parties(two, job), run="additive")
    trained = ran.trained[two.active.name]
    return {
        "rows": len(ran.split.train),
        "epsilon": epsilon,
        "seed": seed,
        "auc": trained.test["auc"],
        "reported": max((one.epsilon_prv for one in trained.spent), default=None),
        "seconds": time.perf_counter() - start,
    }


def main() -> None:
    """Measure what is asked for, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("cost", "auc", "audit"))
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    found: dict[str, Any] = before("additive_two") or {}
    if asked.only in (None, "cost"):
        found["cost"] = measure_cost(ROWS, COLUMNS)
        found["paillier"] = measure_paillier(ROWS, COLUMNS[1])
    if asked.only in (None, "audit"):
        found["audit"] = [
            {"party": party, "columns": columns, "measured": measured, "stated": stated}
            for party, columns in ((0, (40, 1)), (1, (1, 40)))
            for measured, stated in (audit_party(party, columns, 1.0, 200),)
        ]
    if asked.only in (None, "auc"):
        runs = [measure_auc(epsilon, seed) for epsilon in (None, 8.0, 1.0) for seed in range(asked.seeds)]
        found["auc"] = [run for run in runs if run is not None]
    write("additive_two", found)


if __name__ == "__main__":
    main()

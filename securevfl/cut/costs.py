"""What a training step costs on shares and under encryption, to choose between them before the parties have met.

Encryption alone is chosen among by measurement, when the cut is set up (`auto`). Whether a job trains on shares decides
who computes at all, so that it is settled before: by the links as the job states them, and by steps that were measured
once, of all parties on one core:

    step = work · rows/256 / cores + bytes · rows/256 / bandwidth + rounds · latency.

A step on shares is cheap and has 18 rounds; an encrypted one is dear and has 2. So shares lose where links are slow to
answer, above some 7 ms from one end to the other on one core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["COSTS", "ROWS", "Speed", "StepCost", "choose_fastest", "estimate_seconds"]

ROWS = 256
"""Rows of the steps that were measured: 32 columns in all, a cut and a top of 16 units."""


@dataclass(frozen=True)
class Speed:
    """A link.

    Attributes:
        bandwidth: bytes a second.
        latency: seconds from one end to the other.
    """

    bandwidth: float
    latency: float


@dataclass(frozen=True)
class StepCost:
    """A step of `ROWS` rows, all three parties together.

    Attributes:
        work: seconds on one core.
        size: bytes over the busiest party's links.
        rounds: messages that wait for each other.
    """

    work: float
    size: float
    rounds: int


COSTS: Mapping[str, StepCost] = {
    "shares": StepCost(0.0163, 2 / 3 * 3.633e6, 18),
    "ckks": StepCost(0.1336, 2 * 1.413e6, 2),
    "bfv": StepCost(0.2178, 2 * 1.713e6, 2),
    "paillier": StepCost(0.2004, 2 * 0.312e6, 2),
}
"""Name of a protection → its step. Work of the first three and the rounds of shares: as ``benchmarks.shares_step`` gave
them on two busy cores. On idle ones each takes 0.7 of it (``results/shares_step.json``), so that CKKS overtakes shares
at 5 ms of latency, not at 7. Paillier's is BFV's by the ratio of the two in another run (184 to 200 ms). Bytes of the
encrypted ones: `securevfl.cut.auto.measure`, 16 columns a passive party, two of these."""


def estimate_seconds(name: str, rows: int, *, mbit: float, latency_ms: float, cores: int = 1) -> float:
    """Seconds of a step.

    Args:
        name: in `COSTS`.
        rows: of a batch.
        mbit: bandwidth of each party's links together, in Mbit/s.
        latency_ms: from one end of a link to the other.
        cores: of each party.
    """
    cost, batches = COSTS[name], rows / ROWS
    return cost.work * batches / cores + 8e-6 * cost.size * batches / mbit + cost.rounds * latency_ms / 1e3


def choose_fastest(
    names: Sequence[str], rows: int, *, mbit: float, latency_ms: float, cores: int = 1
) -> tuple[str, str]:
    """The protection with the shortest step, and why, in words. Arguments as for `estimate_seconds`.

    Args:
        names: to choose from.
    """
    steps = {name: estimate_seconds(name, rows, mbit=mbit, latency_ms=latency_ms, cores=cores) for name in names}
    order = sorted(steps, key=steps.__getitem__)
    told = ", ".join(f"{name} {1e3 * steps[name]:.0f} ms" for name in order)
    why = (
        f"protection 'auto' took {order[0]}: a step of {rows} rows is estimated at {told}, over links of {mbit:g} "
        f"Mbit/s and {latency_ms:g} ms, as stated, with {cores} core{'s' * (cores != 1)} a party"
    )
    return order[0], why

"""What the label owner has without the others: the baselines of its own report, trained on its own table.

They run at the label owner alone, after the job's own training and before anybody learns that it has its results: no
message is sent and no row of another party is used. They score the same test rows, so that the report says what joining
was worth, with the interval of a paired difference.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field

from securevfl.cut import Plain
from securevfl.data import Parties, PartyTable
from securevfl.errors import SecureVFLError
from securevfl.experiments.baselines import run_baseline, usual_baselines
from securevfl.party import Alignments, Job
from securevfl.party_context import Observer
from securevfl.report.record import RunRecord
from securevfl.run.simulation import Aligned
from securevfl.training import Trained

__all__ = ["LONGEST", "AloneBaselines", "measure_alone"]

LONGEST = 300.0
"""Seconds that one baseline may take: meanwhile the other parties, which are done, wait for this party's word, and not
longer than `securevfl.run.timeouts.STAY`."""


@dataclass(frozen=True)
class AloneBaselines:
    """The baselines of one party.

    Attributes:
        runs: their records.
        trained: key → what the party's own program returned, with scores of the test rows.
        notes: which were left out, and why.
    """

    runs: list[RunRecord] = field(default_factory=list)
    trained: dict[str, Trained] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class _Stopped(SecureVFLError):
    """The baseline took too long, or the party was stopped."""


class _Deadline(Observer):
    """Ends a training whose party was stopped, or that takes too long."""

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped
        self._until = time.monotonic() + LONGEST

    def step(self, epoch: int, done: int, total: int) -> None:
        if self._stopped.is_set() or time.monotonic() > self._until:
            raise _Stopped(f"it took more than {LONGEST:.0f} seconds")


async def measure_alone(
    job: Job, name: str, table: PartyTable | None, alignments: Alignments, trained: Trained
) -> AloneBaselines:
    """Train the baselines in a thread, so that the party's links stay alive; empty at a party without labels.

    Args:
        job: that ran.
        name: the party.
        table: the party's table; None at a coordinator.
        alignments: its own.
        trained: what its program returned: which rows were tested.
    """
    if table is None or table.label is None or not len(trained.scores) or not len(trained.split.test):
        return AloneBaselines()
    stopped = threading.Event()
    try:
        return await asyncio.to_thread(_train_alone, job, name, table, alignments, trained, stopped)
    finally:
        stopped.set()


def _train_alone(
    job: Job, name: str, table: PartyTable, alignments: Alignments, trained: Trained, stopped: threading.Event
) -> AloneBaselines:
    mine, found = Parties.of(table), AloneBaselines()
    aligned = Aligned(alignments={name: {name: alignments[name]}})
    plain = _without_others(job, name)
    for key in usual_baselines(job, mine):
        if not key.startswith("alone") or stopped.is_set():
            continue
        try:
            record, ran = run_baseline(key, plain, mine, aligned, trained.split, _Deadline(stopped))
        except SecureVFLError as error:
            found.notes.append(f"the baseline {key!r} is left out: {error}")
            continue
        found.runs.append(record)
        found.trained[key] = ran.trained[name]
    return found


def _without_others(job: Job, name: str) -> Job:
    """The job as its label owner trains it alone: in the clear, under its own policy."""
    return job.replace(protection=Plain(), policies={one: rule for one, rule in job.policies.items() if one == name})

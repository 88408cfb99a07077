"""A trial: run one algorithm on small parties in this process, for the checks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, TypeVar
from unittest import mock

import numpy as np

from securevfl.cut import BFV, Paillier, Plain, Protection
from securevfl.data import Parties, PartyTable
from securevfl.errors import InputError, PartyFailed, PolicyError
from securevfl.party import Job, consent_party, train_party
from securevfl.party_context import Keeper, PartyContext, PartySecret
from securevfl.run.receipt import check_recorded_protection
from securevfl.run.simulated_parties import COORDINATOR, Simulated
from securevfl.run.simulation import RunOutcome, join_parties
from securevfl.testing.failure import CheckFailed
from securevfl.testing.parties import low_overlap_parties, make_label_owners, silent_active
from securevfl.training import Algorithm, PassiveRole, Trained
from securevfl.training.active_role import ActiveRole
from securevfl.training.role import Role
from securevfl.transport import WINDOW, Exchange

__all__ = ["Trial", "check_equal_runs", "results_of", "roles_begun"]

T = TypeVar("T")
_Batches = tuple[dict[tuple[str, str], list[np.ndarray]], dict[tuple[str, str], np.ndarray]]
_TICK, _IDLE = 0.25, 12
"""Seconds between two checks of a run, and the number of checks without a message after which it counts as stuck."""


class Trial:
    """An algorithm and the small parties that it runs on.

    Args:
        algorithm: with the settings to try.

    Attributes:
        batches: (label owner, party) → the rows of each training step of the plain run, and the rows that the party
            lacks.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self._people: dict[tuple[int, int, int, float], Parties] = {}
        self.batches: _Batches = ({}, {})

    @property
    def passive(self) -> int:
        """Passive parties in most runs: two, or fewer if the algorithm allows fewer."""
        most = self.algorithm.most_passive
        return 2 if most is None else min(2, most)

    @property
    def class_counts(self) -> tuple[int, ...]:
        """Numbers of classes that it is tried on: two and three, or two if the algorithm allows no more."""
        most = self.algorithm.most_classes
        return tuple(count for count in (2, 3) if most is None or count <= most)

    def people(
        self, passive: int | None = None, *, rows: int = 140, classes: int = 2, overlap: float = 0.25
    ) -> Parties:
        """Small parties: one active party, or two label owners if the algorithm supports several.

        Args:
            passive: number of passive parties; `passive` of the trial unless given.
            rows: how many people there are.
            classes: number of classes.
            overlap: share of the training rows that all parties have, with one label owner.
        """
        count = self.passive if passive is None else passive
        key = (count, rows, classes, overlap)
        if key not in self._people:
            self._people[key] = (
                make_label_owners(2, count, max(rows // 3, 20), classes=classes)
                if self.algorithm.many_owners
                else low_overlap_parties(count, rows, classes=classes, overlap=overlap)
            )
        return self._people[key]

    def revealing_parties(self, classes: int = 2) -> Parties:
        """Aligned parties of which only the passive ones' columns predict the class."""
        return silent_active(self.people(rows=600, classes=classes, overlap=0.9))

    def job(self, protection: Protection | None = None, **changes: Any) -> Job:
        """A short job; long enough for the algorithm's last stage."""
        plan = {"epochs": max(4, self.algorithm.least_epochs + 1), "batch_size": 32, "seed": 3} | changes
        return Job(algorithm=self.algorithm, protection=protection or Plain(), **plan)

    def declared_exchanges(self, protection: Protection, passive: int | None = None) -> tuple[Exchange, ...]:
        """The messages that the algorithm declares."""
        return self.algorithm.exchanges(protection, self.passive if passive is None else passive)

    @property
    def exchanges_messages(self) -> bool:
        """Whether the parties exchange anything to train with."""
        return bool(self.declared_exchanges(Plain()))

    @cached_property
    def plain_run(self) -> RunOutcome:
        """The short job without protection, run once for all checks."""
        with _batches_taken() as self.batches:
            return self.run(self.job())

    @property
    def few_people(self) -> Parties:
        """Fewer people, for runs under encryption, at as many passive parties as the algorithm serves there."""
        most = self.algorithm.most_passive_under(self.sealing_protection)
        return self.people(self.passive if most is None else min(self.passive, most), rows=80, overlap=0.5)

    def few_job(self, protection: Protection) -> Job:
        """A job for them; it keeps the last epoch where a sealed one has no validation to choose by."""
        keep = "last" if self.algorithm.opens_only_answers(self.sealing_protection) else "best"
        return self.job(protection, batch_size=16, epochs=max(2, self.algorithm.least_epochs), keep=keep)

    @cached_property
    def sealing_protection(self) -> Protection:
        """A protection that seals it: BFV, or Paillier if it accepts no other."""
        return next((one for one in (BFV(), Paillier(bits=2048)) if self._accepts(one)), BFV())

    @property
    def exact_protection(self) -> Protection:
        """A protection that computes in the clear, in the integers of `sealing_protection`."""
        fixed = Plain(fixed_point=True)
        return fixed if self._accepts(fixed) else Plain()

    def _accepts(self, protection: Protection) -> bool:
        try:
            self.algorithm.check_protection(protection)
        except (InputError, PolicyError):
            return False
        return True

    @cached_property
    def sealed_run(self) -> RunOutcome:
        """That job sealed, run once for all checks."""
        return self.run(self.few_job(self.sealing_protection), self.few_people)

    def run(
        self,
        job: Job,
        people: Parties | None = None,
        *,
        window: int = WINDOW,
        keepers: Mapping[str, Keeper] | None = None,
    ) -> RunOutcome:
        """Run a job with all parties in this process.

        Args:
            job: what to run.
            people: the parties; `people()` unless given.
            window: bytes on their way in each direction of each link.
            keepers: party → what keeps its checkpoints.

        Raises:
            CheckFailed: the parties wait for each other.
            SecureVFLError: the run failed.
        """
        people = people or self.people()
        aligned = join_parties(people, job)
        sites: dict[str, PartyContext] = {}

        async def program(site: PartyContext, table: PartyTable | None) -> Trained:
            sites[site.name] = site
            return await _watch_progress(partial(consented_training, site, table), sites)

        async def consented_training(site: PartyContext, table: PartyTable | None) -> Trained:
            await consent_party(site, table, job)
            return await train_party(site, table, aligned.alignments.get(site.name, {}), job)

        simulated = Simulated(
            job=job,
            parties=people,
            run="check",
            coordinated=job.algorithm.many_owners,
            keepers=keepers,
            # The checks compare runs bit by bit, sealed ones included, so all secrets come from the job's seed.
            secrets={name: PartySecret.from_seed(job.seed, name) for name in [*people, COORDINATOR]},
            window=window,
        )
        try:
            trained, _ = simulated.run_program(program)
        except PartyFailed as error:
            if isinstance(error.__cause__, CheckFailed):
                raise error.__cause__ from None
            raise
        ledgers = {name: site.ledger for name, site in sites.items()}
        resumed = any(keeper.load() is not None for keeper in (keepers or {}).values())
        own = {name: ledgers[name] for name in people}
        check_recorded_protection(job, own, [table.name for table in people.passive], resumed=resumed)
        return RunOutcome(trained=trained, ledgers=ledgers, split=trained[simulated.roster.owners[0]].split)


@contextmanager
def _batches_taken() -> Iterator[_Batches]:
    """Record (label owner, party) → the rows of each training step in the block, and the rows that the party lacks."""
    taken: dict[tuple[str, str], list[np.ndarray]] = {}
    lacking: dict[tuple[str, str], np.ndarray] = {}
    begin = Role.plan_and_build

    def record_role(role: Role) -> None:
        begin(role)
        if not isinstance(role, ActiveRole | PassiveRole):
            return
        ends = role.site.active, role.site.name
        train, mine = role.train_batch, taken.setdefault(ends, [])
        lacking[ends] = role.table.own_places(np.arange(role.table.total_count)) < 0

        async def record_batch(rows: np.ndarray) -> object:
            mine.append(rows.copy())
            return await train(rows)

        vars(role)["train_batch"] = record_batch

    with mock.patch.object(Role, "plan_and_build", record_role):
        yield taken, lacking


async def _watch_progress(work: Callable[[], Awaitable[T]], sites: Mapping[str, PartyContext]) -> T:
    """Return the result of `work`, unless the parties stop exchanging messages before it has one.

    Args:
        work: one party's program.
        sites: party → its context, of all parties that have begun.

    Raises:
        CheckFailed: for about three seconds no party recorded a message.
    """
    task = asyncio.ensure_future(work())
    idle, before = 0, -1
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_TICK)
            now = sum(len(site.ledger.lines) for site in sites.values())
            idle, before = (idle + 1 if now == before else 0), now
            if idle >= _IDLE:
                last = ", ".join(f"{name!r} {_last_entry(site)}" for name, site in sites.items())
                raise CheckFailed(
                    f"the parties wait for each other: {last}; both ends of a link must not send before they receive: "
                    "use link.exchange, or let one of them receive first"
                )
        return await task
    finally:
        task.cancel()


def _last_entry(site: PartyContext) -> str:
    entries = site.ledger.entries
    return f"last {entries[-1].way} {entries[-1].what!r}" if entries else "sent nothing"


@contextmanager
def roles_begun() -> Iterator[list[Role]]:
    """Record the roles that begin in the block, in their order."""
    found: list[Role] = []
    begin = Role.plan_and_build

    def record_role(role: Role) -> None:
        begin(role)
        found.append(role)

    with mock.patch.object(Role, "plan_and_build", record_role):
        yield found


def results_of(ran: RunOutcome) -> dict[str, tuple[object, ...]]:
    """Party with labels → all of its results, exactly."""
    return {
        name: ([(e.loss, e.valid) for e in t.epochs], t.test, t.best_epoch, t.stopped, t.scores.tolist())
        for name, t in ran.trained.items()
        if t.epochs
    }


def check_equal_runs(one: RunOutcome, other: RunOutcome, what: str) -> None:
    """Compare two runs bit by bit.

    Args:
        one: a run.
        other: a run that must be equal.
        what: how the runs differ in their settings, for the message.

    Raises:
        CheckFailed: the first difference.
    """
    for name, first in results_of(one).items():
        second = results_of(other).get(name)
        if second == first:
            continue
        if second is None or len(first) != len(second):
            raise CheckFailed(f"{what}: {name!r} has nothing to show in one of the runs")
        for epoch, (a, b) in enumerate(zip(one.trained[name].epochs, other.trained[name].epochs, strict=False), 1):
            if a != b:
                raise CheckFailed(
                    f"{what}: at {name!r}, epoch {epoch} has loss {a.loss!r} and {b.loss!r}, and metrics {a.valid} and "
                    f"{b.valid}"
                )
        scores = one.trained[name].scores, other.trained[name].scores
        gap = float(np.abs(scores[0] - scores[1]).max()) if scores[0].shape == scores[1].shape else np.inf
        raise CheckFailed(f"{what}: the epochs of {name!r} are the same and its test scores are {gap:.3g} apart")

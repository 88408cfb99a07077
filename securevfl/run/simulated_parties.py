"""All parties of one simulated run, each with its own context, table, secret and keeper."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from securevfl.data import Parties, PartyTable
from securevfl.errors import InputError, NoCommonRows, UnknownNameError
from securevfl.party import Job, job_exchanges
from securevfl.party.eligibility import check_roster
from securevfl.party_context import Keeper, Observer, PartyContext, PartySecret
from securevfl.privacy import Ledgers, ResultBook
from securevfl.run.context_building import build_context, draw_secret
from securevfl.run.id_spelling import find_spellings
from securevfl.run.in_memory import run_in_memory
from securevfl.run.roster import Roster
from securevfl.transport import WINDOW, Channel

__all__ = ["COORDINATOR", "Simulated", "coordinator_of"]

T = TypeVar("T")

_COMPARED = 100_000
"""If no rows are common, a simulation looks for differently spelled identifiers in tables up to this many rows."""
COORDINATOR = "coordinator"
"""Name of the party without a table that several label owners need, and that shares may."""


def coordinator_of(job: Job, parties: Collection[str], *, linking: bool = False) -> str:
    """Name of the party without a table that a job needs; empty if it needs none.

    Args:
        job: the job.
        parties: names of those with a table.
        linking: whether for the linkage of records too, or for what comes after it alone.
    """
    trains = COORDINATOR if job.algorithm.many_owners else job.protection.coordinator_among(parties)
    links = linking and job.link is not None and job.link.needs_coordinator()
    return trains or (COORDINATOR if links else "")


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """All parties of one simulated run, and how to build each party's context.

    Args:
        job: what they run.
        parties: their tables.
        run: name of the run, for the ledgers.
        coordinated: whether the run has a coordinator, where the algorithm needs one.
        linking: whether it has one where the job links records by a party without data.
        observer: receives progress events at the first label owner.
        observers: party → receiver of that party's events, instead of `observer`.
        keepers: party → what keeps its checkpoints.
        secrets: party → its secret; the others get a first one.
        signing: opens the ledgers; with new keys unless given.
        results: party → its result book.
        window: see `run_in_memory`.

    Raises:
        InputError: parties that the algorithm cannot serve, or a party with the coordinator's name.
        UnknownNameError: a policy names a party that is not in the run.
    """

    job: Job
    parties: Parties
    run: str
    coordinated: bool = False
    linking: bool = False
    observer: Observer | None = None
    observers: Mapping[str, Observer] | None = None
    keepers: Mapping[str, Keeper] | None = None
    secrets: Mapping[str, PartySecret] | None = field(default=None, repr=False)
    signing: Ledgers | None = None
    results: Mapping[str, ResultBook] | None = None
    window: int = WINDOW

    def __post_init__(self) -> None:
        """A user's mistakes end here, before anything runs: each party's program would find them too."""
        if COORDINATOR in self.parties:
            raise InputError(
                f"a party is called {COORDINATOR!r}, which is the name of the one without a table: rename it"
            )
        for name in self.job.policies:
            if name not in self.parties:
                raise UnknownNameError("party with a policy", name, self.parties)
        check_roster(self.roster.owners, self.roster.passive, self.job)

    @cached_property
    def roster(self) -> Roster:
        """The parties and their roles."""
        coordinator = ""
        if self.coordinated or (self.linking and self.job.link is not None and self.job.link.needs_coordinator()):
            coordinator = coordinator_of(self.job, self.parties, linking=self.linking)
        return Roster.from_names(
            self.parties, owners=[table.name for table in self.parties.label_owners], coordinator=coordinator
        )

    @cached_property
    def party_secrets(self) -> Mapping[str, PartySecret]:
        """Party → its secret."""
        given = self.secrets or {}
        return {name: given.get(name) or draw_secret(self.job, name) for name in self.roster.names}

    def run_program(
        self, program: Callable[[PartyContext, PartyTable | None], Awaitable[T]]
    ) -> tuple[dict[str, T], dict[str, PartyContext]]:
        """Let each party run `program` at its site with its table; see `run_in_memory`."""
        messages = job_exchanges(self.job, len(self.roster.passive))
        ledgers, tables = self.signing or Ledgers(runs=[self.run]), dict(self.parties)
        chief = self.roster.owners[0]

        def site_at(name: str, channels: Mapping[str, Channel]) -> PartyContext:
            return build_context(
                self.job,
                self.roster,
                name,
                channels,
                run=self.run,
                ledgers=ledgers,
                secret=self.party_secrets[name],
                keeper=(self.keepers or {}).get(name),
                observer=(self.observers or {}).get(name) or (self.observer if name == chief else None),
                messages=messages,
                results=(self.results or {}).get(name),
                simulated=True,
            )

        async def run_at(site: PartyContext) -> T:
            return await program(site, tables.get(site.name))

        try:
            return run_in_memory(dict.fromkeys(self.roster.names, run_at), site_at, window=self.window)
        except NoCommonRows as error:
            if self.job.link is None and all(table.rows <= _COMPARED for table in tables.values()):
                for hint in find_spellings({repr(name): table.ids for name, table in tables.items()}):
                    error.add_note(hint)
            raise

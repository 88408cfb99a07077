"""Where one party serves: the parties, its own table, files and limits, and its context in a session."""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from securevfl_net.durable import make_folder, write_atomic

from securevfl.data import PartyTable
from securevfl.errors import InputError
from securevfl.ledger import PrivateKey
from securevfl.party import Job
from securevfl.party_context import PartyContext, PartySecret
from securevfl.privacy import Clock, HeldNumbers, Ledger, ResultBook
from securevfl.run.context_building import build_links
from securevfl.run.digests import data_digests
from securevfl.run.roster import Roster
from securevfl.serving.daily import DailyCounts
from securevfl.serving.exchanges import serving_exchanges
from securevfl.serving.policy import ServingPolicy
from securevfl.transport import Channel

__all__ = ["ServingContext", "table_digest"]

_KEY_BYTES = 32


def table_digest(table: PartyTable) -> str:
    """SHA-256 of a table's content, hexadecimal."""
    return data_digests(table, {})["table"]


@dataclass(frozen=True, kw_only=True)
class ServingContext:
    """One party's settings, table and files for serving a model.

    Attributes:
        name: the party.
        active: name of the active party.
        passive: names of the passive parties.
        coordinator: name of the party without data that computes on shares; empty if there is none.
        job: that trained the model, with this party's own policy in it.
        load: reads the party's table; asked at the start, and again on a refresh.
        folder: the party's own, for its models, counts and ledgers; nobody else may read it.
        policy: how much may be scored.
        key: signs the party's ledgers; a new one that is never written down, unless given.
        results: file that counts the numbers of each of its rows that were answered, training and other models'
            predictions among it: the party's one book; in `folder` unless given.
        days: folder of the party's day book, the one of all its servers; ``counts`` in `folder` unless given.
        organisations: see `PartyContext.organisations`.
        now: seconds since 1970, UTC.
        software: name and version, for ledgers.
        pins: party → its public key, hexadecimal, as the agreement names it; see `Ledger`.
        gone: passive parties that left the job; they are not in `passive`.
        reasons: whether answers come with reasons, as the agreement says.
    """

    name: str
    active: str
    passive: tuple[str, ...]
    job: Job
    load: Callable[[], PartyTable]
    folder: Path
    policy: ServingPolicy = field(default_factory=ServingPolicy)
    key: PrivateKey = field(default_factory=PrivateKey.generate, repr=False)
    results: Path | None = None
    days: Path | None = None
    organisations: Mapping[str, str] = field(default_factory=dict)
    now: Callable[[], float] = time.time
    software: str = "securevfl serving"
    coordinator: str = ""
    pins: Mapping[str, str] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    reasons: bool = False

    def __post_init__(self) -> None:
        if self.name not in self.parties:
            raise InputError(f"{self.name!r} is not a party of this job (parties: {', '.join(self.parties)})")
        make_folder(self.folder, private=True)

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of all parties, the active one first."""
        return (self.active, *self.passive, *([self.coordinator] if self.coordinator else []))

    @cached_property
    def roster(self) -> Roster:
        """The parties and their roles."""
        return Roster.from_names(self.passive, owners=[self.active], coordinator=self.coordinator)

    @cached_property
    def book(self) -> ResultBook:
        """The party's result book.

        Raises:
            InputError: it is damaged.
        """
        return ResultBook(self._book_file, party=self.name, key=self.key, organisations=self.organisations)

    @property
    def _book_file(self) -> Path:
        return self.results or self.folder / "results.jsonl"

    def count_days(self) -> DailyCounts:
        """The party's counts of the day. Those that an earlier version kept in `folder` are taken over.

        Raises:
            InputError: they are damaged.
        """
        own = self.folder / "counts"
        asker = self.organisations.get(self.active, self.active)
        older = None if self.days is None else own
        return DailyCounts(
            self.days or own,
            self.name,
            self.policy,
            now=self.now,
            asker=asker,
            older=older,
            organisations=self.organisations,
        )

    def read_table(self) -> PartyTable:
        """The party's table, read now.

        Raises:
            InputError: it cannot be used, or is another party's.
        """
        table = self.load()
        if table.name != self.name:
            raise InputError(f"the table is {table.name!r}'s and this is {self.name!r}: name the party's own file")
        return table

    def table_tag(self, digest: str) -> str:
        """A tag of a table for peers: it shows them whether the table is the same as before, and nothing else."""
        return hmac.new(self._read_key("tables.key"), digest.encode(), hashlib.sha256).hexdigest()

    def _read_key(self, name: str) -> bytes:
        path = self.folder / name
        if not path.exists():
            write_atomic(path, os.urandom(_KEY_BYTES), private=True)
        return path.read_bytes()

    def session_context(self, run: str, channels: Mapping[str, Channel]) -> PartyContext:
        """The party's context for one session, with a separate ledger.

        Args:
            run: name of the session, for the ledger; the same at all parties.
            channels: peer → what carries messages.
        """
        policy = self.job.policy(self.name)
        clock = Clock()
        folder = self.folder / "ledgers" / f"{time.time_ns()}-{run}"
        make_folder(folder, private=True)
        ledger = Ledger(
            self.name,
            run=run,
            job=self.job.digest,
            policy=policy.text(),
            role=self.roster.role_of(self.name),
            key=self.key,
            software=self.software,
            pins=self.pins,
            path=folder / f"{self.name}.jsonl",
            kept=False,
        )
        messages = serving_exchanges(self.job, len(self.passive))
        return PartyContext(
            name=self.name,
            active=self.active,
            passive=self.roster.passive,
            links=build_links(self.roster, self.name, channels, messages, ledger=ledger, policy=policy, clock=clock),
            ledger=ledger,
            policy=policy,
            clock=clock,
            job=self.job.digest,
            seed=self.job.seed,
            secret=PartySecret.generate(),
            coordinator=self.coordinator,
            results=self.book,
            held=HeldNumbers(self._book_file.with_suffix(".peers")),
            organisations=self.organisations,
            gone=self.gone,
        )

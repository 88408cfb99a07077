"""One party's work in an attempt: consent, alignment (or the stored one), training, signed heads, and its own results.

It is the program that `PartyRunner` runs. Everything it needs is the party's own: its table, its state folder, its key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from securevfl.data import PartyTable
from securevfl.errors import InputError
from securevfl.ledger import AGREEMENT, LEFT
from securevfl.party import Alignments, Job, align_party, consent_party, train_party
from securevfl.party.candidates import candidate_ends, trained_job
from securevfl.party.program import note_spent, run_and_close
from securevfl.party.reports import View
from securevfl.party_context import SILENCE, Observer, PartyContext
from securevfl.privacy import HeldNumbers, Ledger, Policy, ResultBook
from securevfl.process.alone_baselines import AloneBaselines, measure_alone
from securevfl.process.chains import Chains
from securevfl.process.leaving import Departed
from securevfl.process.state_folder import StateFolder, StoredAlignment
from securevfl.run.checkpoint import FolderKeeper
from securevfl.run.context_building import build_context, draw_secret
from securevfl.run.digests import data_digests
from securevfl.run.model_parts import MODEL_PART, PART, model_part, write_run
from securevfl.run.receipt import check_recorded_protection
from securevfl.run.roster import Roster
from securevfl.run.store import tree_digest, write_tree
from securevfl.training import Trained
from securevfl.transport import Channel

__all__ = ["STEPS", "AttemptOutcome", "PartyAttempts"]

STEPS = 64
"""Batches of a sealed epoch from one checkpoint to the next: minutes, where an epoch can take hours. All parties count
the same ones."""


@dataclass(frozen=True, kw_only=True)
class AttemptOutcome:
    """Outcome of an attempt at one party.

    Attributes:
        trained: its own figures and its part of the model.
        alignments: its own.
        ledger: of the attempt, closed.
        aligning: seconds that alignment took in this attempt; 0 where an earlier one was used.
        seconds: that the attempt took.
        model: SHA-256 of its part of the model; empty without one.
        alone: the baselines of the label owner alone; empty at others.
    """

    trained: Trained
    alignments: Alignments
    ledger: Ledger
    aligning: float
    seconds: float
    model: str = ""
    alone: AloneBaselines = field(default_factory=AloneBaselines)


@dataclass(kw_only=True)
class PartyAttempts:
    """One party's part in a job, attempt by attempt.

    Attributes:
        state: its folder.
        job: what all agreed to run, with its own policy.
        roster: who takes part.
        name: the party.
        table: the party's table; None at a coordinator.
        chains: open its ledger's chains.
        note: facts of the agreement for every chain.
        observer: receives progress events.
        begun: writes more into the chain of an attempt that begins.
        keep: stores the outcome of an attempt before any peer learns that this party has it.
        silence: see `PartyContext.silence`.
        results: the party's result book, over all agreements.
        held: see `PartyContext.held`.
        own_policy: the party's, before the agreement tightens it for this job.
        organisations: see `PartyContext.organisations`.
        classes: how many classes the label has, as agreed; 0 if unknown.
        filters: see `PartyContext.filters`.
        departed: what was decided of parties that left for good.
        baselines: whether the label owner also trains what it has alone, for its report.
    """

    state: StateFolder
    job: Job
    roster: Roster
    name: str
    table: PartyTable | None
    chains: Chains
    note: Callable[[], Mapping[str, str]]
    observer: Observer = field(default_factory=Observer)
    begun: Callable[[Ledger], None] | None = None
    keep: Callable[[AttemptOutcome], None] | None = None
    silence: float = SILENCE
    results: ResultBook = field(default_factory=ResultBook)
    held: HeldNumbers = field(default_factory=HeldNumbers)
    own_policy: Policy = field(default_factory=Policy)
    organisations: Mapping[str, str] = field(default_factory=dict)
    classes: int = 0
    filters: Path | None = None
    departed: Departed = field(default_factory=Departed)
    baselines: bool = False

    def __post_init__(self) -> None:
        kept = self.state.read_alignment()
        self._table_digest = data_digests(self.table, {}).get("table", "")
        if kept is not None and kept.table != self._table_digest:
            raise InputError(
                f"{self.name!r} aligned another table than this one: continue with the table of the first "
                "start, or make a new agreement, with another state folder"
            )
        self.keeper = FolderKeeper(
            self.state.checkpoint_folder,
            self.name,
            self.job.digest,
            data=self._digests_of_data(kept),
            steps=STEPS if self.job.protection.is_sealed else 0,
            ends=candidate_ends(self.job),
        )
        self.secret = self.state.keep_secret(draw_secret(self.job, self.name))
        self._part = ""

    def begin_from(self, first: Mapping[str, object] | None) -> None:
        """Train from the party's part of an earlier model, where there is one."""
        self.keeper.first_part = first

    def _digests_of_data(self, kept: StoredAlignment | None) -> dict[str, str]:
        return data_digests(self.table, {} if kept is None else kept.alignments)

    async def __call__(self, view: View, channels: Mapping[str, Channel]) -> AttemptOutcome:
        began = time.perf_counter()
        self.keeper.resume_from(view.attempt, None if view.start is None else view.start[:2])
        roster = self.roster.drop_parties(self.departed.gone)
        site = build_context(
            self.job,
            roster,
            self.name,
            channels,
            run=self.chains.run_name(view.attempt),
            ledgers=self.chains.attempt_ledgers(view),
            secret=self.secret,
            keeper=self.keeper,
            observer=self.observer,
            silence=self.silence,
            results=self.results,
            held=self.held,
            own_policy=self.own_policy,
            organisations=self.organisations,
            filters=self.filters,
            gone=self.departed.gone,
        )
        site.ledger.record_note(AGREEMENT, self.note())
        if self.departed.gone:
            site.ledger.record_note(LEFT, self.departed.facts)
        if self.keeper.first_part is not None:
            site.ledger.record_note("begins from", {"sha256": tree_digest(dict(self.keeper.first_part))})
        if self.begun is not None:
            self.begun(site.ledger)
        alignments, aligning, trained = await run_and_close(site, self._run_attempt(site, view))
        check_recorded_protection(
            self.job,
            {self.name: site.ledger} if self.table is not None else {},
            roster.passive,
            resumed=view.start is not None,
        )
        seconds, alone = time.perf_counter() - began, AloneBaselines()
        if self.baselines:
            alone = await measure_alone(trained_job(self.job, trained), self.name, self.table, alignments, trained)
        finished = AttemptOutcome(
            trained=trained,
            alignments=alignments,
            ledger=site.ledger,
            aligning=aligning,
            seconds=seconds,
            model=self._part,
            alone=alone,
        )
        if self.keep is not None:
            self.keep(finished)
        return finished

    async def _run_attempt(self, site: PartyContext, view: View) -> tuple[Alignments, float, Trained]:
        site.observer.phase("consent")
        await consent_party(site, self.table, self.job, classes=self.classes)
        kept = self.state.read_alignment() if view.alignment else None
        if kept is None and self.departed.gone:
            raise InputError(
                f"the parties no longer have one alignment, and without {', '.join(self.departed.gone)} a new one "
                "would tell more of which rows are common: propose a new agreement without it"
            )
        aligning = 0.0
        if kept is None:
            began = time.perf_counter()
            site.observer.phase("alignment")
            self.state.forget_alignment()
            found = await align_party(site, self.table, self.job)
            kept = StoredAlignment(digest=view.mark.hex(), table=self._table_digest, alignments=found)
            self.state.store_alignment(kept)
            aligning = time.perf_counter() - began
        self.keeper.data = self._digests_of_data(kept)
        trained = await train_party(site, self.table, kept.alignments, self.job)
        note_spent(site.ledger, trained.spent)
        site.observer.phase("heads")
        trained.notes += self.departed.sentences
        if trained.model:
            if self.departed.gone:
                trained.model["left"] = dict.fromkeys(self.departed.gone, self.departed.epoch)
            part = model_part(trained_job(self.job, trained), self.name, trained.model)
            self._part = tree_digest(part)
            site.ledger.record_note(MODEL_PART, {"sha256": self._part})
            write_tree(self.state.model_folder / f"{self.name}{PART}", part)
            write_run(self.state.model_folder, self.state.agreement)
        return kept.alignments, aligning, trained

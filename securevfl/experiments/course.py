"""The cells of a comparison, one after the other, and what they leave: ledgers, scores, models."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from securevfl.cut import Plain
from securevfl.data import Parties
from securevfl.errors import SecureVFLError
from securevfl.experiments.baselines import run_baseline
from securevfl.party import Job
from securevfl.party.numbering import split_own_rows
from securevfl.party_context import Observer, PartySecret
from securevfl.privacy import Ledger, Ledgers, ResultBook
from securevfl.report.record import Record, RunRecord
from securevfl.run.checkpoint import FolderKeeper, lock_keepers
from securevfl.run.continuing import give_starts
from securevfl.run.digests import data_digests
from securevfl.run.grouping import find_grouping
from securevfl.run.job_card import run_title
from securevfl.run.model import Model
from securevfl.run.receipt import check_recorded_protection
from securevfl.run.recording import run_record
from securevfl.run.run_files import ALIGNMENT
from securevfl.run.simulated_parties import coordinator_of
from securevfl.run.simulation import Aligned, RunOutcome, run_parties
from securevfl.training import Split, Trained

__all__ = ["Cell", "Course", "keeping_parties", "split_names"]


@dataclass(frozen=True)
class Cell:
    """A cell of a comparison: a job, and which of its draws."""

    key: str
    job: Job
    number: int

    @property
    def name(self) -> str:
        """Names the run's ledgers."""
        return self.key if self.number == 1 else f"{self.key} {self.number}"


@dataclass(kw_only=True)
class Course:
    """Runs the cells of a comparison, and collects what they leave."""

    parties: Parties
    aligned: Aligned
    observer: Observer
    observers: Mapping[str, Observer] | None
    checkpoints: str | Path | None
    signing: Ledgers
    books: Mapping[str, ResultBook] | None
    start: Model | None
    secrets: dict[str, PartySecret] = field(repr=False)
    ledgers: dict[str, Mapping[str, Ledger]] = field(default_factory=dict)
    scores: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    chief: dict[str, Trained] = field(default_factory=dict, repr=False)
    models: dict[str, Model] = field(default_factory=dict)
    split: Split | None = None

    def __post_init__(self) -> None:
        self.ledgers[ALIGNMENT] = self.aligned.ledgers

    def run_baseline(self, key: str, job: Job) -> RunRecord:
        """Run a baseline on the rows of a job."""
        self.observer.run(key)
        chief = self.parties.label_owners[0]
        secret = self.secrets.get(chief.name, PartySecret.from_seed(job.seed, chief.name))
        self.split = split_own_rows(chief, self.aligned.parties[chief.name], job, secret)
        own = {name: policy for name, policy in job.policies.items() if name == chief.name}
        plain = job.replace(protection=Plain(), policies=own)
        figures, ran = run_baseline(key, plain, self.parties, self.aligned, self.split, self.observer)
        self.scores[key] = ran.trained[chief.name].scores
        self.chief[key] = ran.trained[chief.name]
        return figures

    def run_cell(self, cell: Cell, notes: Sequence[str]) -> RunRecord:
        """Run a job. Its first draw leaves scores and a model; each draw leaves ledgers.

        Args:
            cell: which.
            notes: for the record.
        """
        key, job, chief = cell.key, cell.job, self.parties.label_owners[0]
        first = cell.number == 1
        if first:
            self.observer.run(run_title(job))
        began = time.perf_counter()
        with _attach_ledgers(self.ledgers), self._keep_checkpoints(key, job if first else None) as kept:
            ran = run_parties(
                job,
                self.parties,
                self.aligned,
                run=cell.name,
                observer=self.observer,
                observers=self.observers if first else None,
                keepers=give_starts(self.start, dict(kept), self.parties),
                secrets=self.secrets,
                signing=self.signing,
                results=self.books,
            )
            self.ledgers[cell.name] = ran.ledgers
            if first:
                self._collect_run(key, job, ran)
                check_recorded_protection(
                    job,
                    {name: ran.ledgers[name] for name in self.parties},
                    tuple(table.name for table in self.parties.passive),
                    resumed=any(keeper.start for keeper in kept.values()),
                )
        if first:
            self.split = self.split or ran.split
            if len(ran.trained[chief.name].scores):
                self.scores[key] = ran.trained[chief.name].scores
            self.chief[key] = ran.trained[chief.name]
        kept_notes = dict.fromkeys(note for keeper in kept.values() for note in keeper.notes)
        owners, passive = split_names(self.parties)
        seconds = time.perf_counter() - began
        places = {name: one.rows[ran.split.test] for name, one in self.aligned.parties.items()}
        grouping = find_grouping(job.report, self.parties, places, chief.name)
        return run_record(key, job, ran, owners, passive, seconds, notes=[*notes, *kept_notes], grouping=grouping)

    def keep_failed(self, key: str, error: SecureVFLError) -> None:
        """Keep the ledgers of a run that failed, which its error carries."""
        before = [ledger for parties in self.ledgers.values() for ledger in parties.values()]
        broken = [one for one in error.ledgers if not any(one is other for other in before)]
        self.ledgers[key] = {ledger.party: ledger for ledger in broken}

    def keep_only(self, record: Record) -> None:
        """Forget the models and scores of candidates that were not chosen, and their checkpoints."""
        if record.choice is None:
            return
        for one in record.choice.candidates:
            if one.chosen:
                continue
            self.models.pop(one.key, None)
            self.scores.pop(one.key, None)
            if self.checkpoints is not None and one.valid is not None:
                shutil.rmtree(Path(self.checkpoints) / one.key, ignore_errors=True)

    def _collect_run(self, key: str, job: Job, ran: RunOutcome) -> None:
        # all jobs start from the secrets that the first one drew, so that they begin with the same weights
        self.secrets = {name: ran.secrets[name] for name in self.parties}
        if job.algorithm.describes:
            return
        self.models[key] = Model(job=job, parts={name: t.model for name, t in ran.trained.items() if t.model})

    def _keep_checkpoints(self, key: str, job: Job | None) -> AbstractContextManager[dict[str, FolderKeeper]]:
        """Keeps the parties' checkpoints of one run if the caller gave a folder for them."""
        if self.checkpoints is None or job is None:
            return nullcontext({})
        names, tables = keeping_parties(self.parties, job), dict(self.parties)
        data = {name: data_digests(tables.get(name), self.aligned.alignments.get(name, {})) for name in names}
        return lock_keepers(Path(self.checkpoints) / key, names, job.digest, data)


@contextmanager
def _attach_ledgers(ledgers: Mapping[str, Mapping[str, Ledger]]) -> Iterator[None]:
    """An error raised inside also carries the ledgers of the runs before it."""
    try:
        yield
    except (SecureVFLError, KeyboardInterrupt) as error:
        before = [ledger for parties in ledgers.values() for ledger in parties.values()]
        error.ledgers = (*before, *getattr(error, "ledgers", ()))  # type: ignore[union-attr]
        raise


def split_names(parties: Parties) -> tuple[list[str], list[str]]:
    """Names of the label owners, and of the other parties."""
    return [table.name for table in parties.label_owners], [table.name for table in parties.passive]


def keeping_parties(parties: Parties, job: Job) -> list[str]:
    """Who keeps checkpoints: all parties, and the coordinator where there is one."""
    coordinator = coordinator_of(job, parties)
    return [*parties, *([coordinator] if coordinator else [])]

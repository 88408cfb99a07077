"""Runs of one or more jobs over the same parties, with baselines, and what they measured."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from securevfl.cut import Plain
from securevfl.data import Parties
from securevfl.errors import InputError, PolicyError, SecureVFLError, UnknownNameError
from securevfl.experiments.baselines import BASELINES, run_baseline, usual_baselines, wrong_baselines
from securevfl.party import Job, choose_protection, with_default_protection
from securevfl.party.numbering import split_own_rows
from securevfl.party_context import Observer, PartySecret
from securevfl.privacy import Ledger, Ledgers, ResultBook
from securevfl.report import progress_line
from securevfl.report.record import (
    PartyRecord,
    Record,
    RunRecord,
)
from securevfl.run.checkpoint import FolderKeeper, lock_keepers
from securevfl.run.digests import data_digests
from securevfl.run.gains import add_gains
from securevfl.run.grouping import check_grouping, find_grouping
from securevfl.run.job_card import run_title
from securevfl.run.machine import describe_machine, package_versions
from securevfl.run.model import Model
from securevfl.run.receipt import check_recorded_protection
from securevfl.run.recording import alignment_record, ledger_records, over_draws, run_record
from securevfl.run.result import Result
from securevfl.run.run_files import ALIGNMENT, RESULTS
from securevfl.run.signing import Keys, open_signed_ledgers
from securevfl.run.simulated_parties import coordinator_of
from securevfl.run.simulation import Aligned, RunOutcome, align_parties, consent_parties, result_books, run_parties
from securevfl.training import Split, Trained

__all__ = ["compare", "simulate"]


def simulate(
    job: Job,
    parties: Parties,
    *,
    baselines: Sequence[str] | None = (),
    name: str = "run",
    title: str = "",
    command: str = "",
    aligned: Aligned | None = None,
    observer: Observer | None = None,
    observers: Mapping[str, Observer] | None = None,
    checkpoints: str | Path | None = None,
    draws: int = 1,
    secrets: Mapping[str, PartySecret] | None = None,
    keys: Keys = None,
    ledgers: str | Path | None = None,
    results: str | Path | None = None,
) -> Result:
    """Run one job with all parties in this process: align, verify, train, test.

    `compare` explains the parameters that are not listed here.

    Args:
        job: what to run.
        parties: the parties' tables; one of them has the labels.
        baselines: which of `BASELINES` to run beside it; None for the usual ones, which say whether joining is worth
            it. A usual one that these tables do not allow is left out, with a note.
        name: of the run, for the report.

    Raises:
        SecureVFLError: whatever ended the run; its `exit_code` gives the kind.
    """
    owners, passive = _split_names(parties)
    return compare(
        {_job_key(with_default_protection(job, owners, passive)): job},
        parties,
        baselines=baselines,
        name=name,
        title=title,
        command=command,
        aligned=aligned,
        observer=observer,
        observers=observers,
        checkpoints=checkpoints,
        draws=draws,
        secrets=secrets,
        keys=keys,
        ledgers=ledgers,
        results=results,
    )


def compare(
    jobs: Mapping[str, Job],
    parties: Parties,
    *,
    baselines: Sequence[str] | None = BASELINES,
    name: str = "comparison",
    title: str = "",
    command: str = "",
    aligned: Aligned | None = None,
    observer: Observer | None = None,
    observers: Mapping[str, Observer] | None = None,
    checkpoints: str | Path | None = None,
    draws: int = 1,
    secrets: Mapping[str, PartySecret] | None = None,
    keys: Keys = None,
    ledgers: str | Path | None = None,
    results: str | Path | None = None,
) -> Result:
    """Run several jobs over the same verified alignment, and baselines on the same rows.

    Args:
        jobs: key → job; they have to agree on the seed and on the split.
        parties: the parties' tables.
        baselines: which of `BASELINES` to run too; see `simulate`.
        name: of the comparison, for the report.
        title: of the report; the name unless given.
        command: what runs it again, for the report.
        aligned: an alignment of the same parties to use again.
        observer: hears of progress; its phases carry the run's key. Without one, a line on standard error shows
            progress in a terminal or a notebook; `Observer()` is silent.
        observers: party → the observer that hears of this party alone while it trains, in place of `observer`.
        checkpoints: folder in which each party keeps its state after every epoch, in a subfolder per job; an
            interrupted run resumes from there.
        draws: how often a job with differential privacy runs, each time with fresh noise: its figures are then mean and
            standard deviation. For data that are public or simulated: each run is a release, and parties that did this
            with private data would pay ε each time.
        secrets: party → its secret, from which first weights are drawn: for experiments that run a job twice from the
            same start. Unless given, they come from the operating system if one of the jobs seals the cut, and from the
            job's seed otherwise. All jobs start with the same secrets.
        keys: party → the private key that signs its ledgers, or the folder of `securevfl keys` with one for each party;
            new keys that stay in memory unless given.
        ledgers: folder for the ledgers while the run continues, ``PARTY.jsonl`` each; it contains no ledgers yet.
        results: folder in which each party counts the numbers that were opened of each of its rows, over all runs and
            predictions that name the folder; see `Policy.max_results`.

    Raises:
        SecureVFLError: whatever ended a run; `ledgers` of the error has its ledgers and those of the runs before it.
    """
    first, jobs, why = _check_jobs(jobs, parties, baselines or (), draws)
    books = None if results is None else result_books(results, parties)
    observer = observer or progress_line()
    observer.run("alignment by PSI")
    start = time.perf_counter()
    agreed = list(jobs.values())
    cells = [_Run(key, job, number) for key, job in jobs.items() for number in range(1, _count_draws(job, draws) + 1)]
    signing = open_signed_ledgers(
        [cell.name for cell in cells],
        _keeping_parties(parties, first),
        keys,
        aligned,
        None if ledgers is None else Path(ledgers),
    )
    consent_parties(agreed[1:] if aligned is None else agreed, parties, signing.independent_ledgers())
    aligned = aligned or align_parties(parties, first, observer, signing=signing)
    seconds = time.perf_counter() - start
    sealed = any(job.protection.is_sealed or job.algorithm.draws_secretly for job in agreed)
    fresh = {name: PartySecret.generate() for name in parties} if sealed else {}
    course = _Course(
        parties=parties,
        aligned=aligned,
        observer=observer,
        observers=observers,
        checkpoints=checkpoints,
        signing=signing,
        books=books,
        secrets=fresh | dict(secrets or {}),
    )
    chief = parties.label_owners[0]
    wanted = usual_baselines(first, parties) if baselines is None else baselines
    runs, left_out = [], list[str]()
    for key in (key for key in BASELINES if key in wanted):
        try:
            runs.append(course.run_baseline(key, first))
        except (InputError, PolicyError) as error:
            if baselines is not None:
                raise
            left_out.append(f"the baseline {key!r} is left out: {error}")
    for key in jobs:
        figures, *more = [course.run_cell(cell, [*why[key], *left_out]) for cell in cells if cell.key == key]
        runs.append(over_draws(figures, [again.test for again in more]))
    split = course.split or Split.without_rows()
    record = Record(
        name=name,
        title=title or name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        versions=package_versions(),
        machine=describe_machine(first.device),
        job=first.describe(),
        parties=[
            PartyRecord(name=t.name, role=t.role, rows=t.rows, columns=list(t.feature_names)) for t in parties.values()
        ],
        alignment=alignment_record(aligned, split, chief.name, seconds),
        runs=add_gains(runs, course.chief),
        ledgers=ledger_records(course.ledgers),
    )
    observer.end()
    return Result(
        record=record,
        ledgers=course.ledgers,
        scores=course.scores,
        test_ids=chief.ids_of(aligned.parties[chief.name].rows[split.test]),
        models=course.models,
        signing=signing,
    )


def _count_draws(job: Job, draws: int) -> int:
    """How many times the job runs; its runs differ only in their noise."""
    return draws if job.protection.dp is not None else 1


@dataclass(frozen=True)
class _Run:
    """A cell of a comparison: a job, and which of its draws."""

    key: str
    job: Job
    number: int

    @property
    def name(self) -> str:
        """Names the run's ledgers."""
        return self.key if self.number == 1 else f"{self.key} {self.number}"


@dataclass(kw_only=True)
class _Course:
    """Runs the cells of a comparison, and collects what they leave."""

    parties: Parties
    aligned: Aligned
    observer: Observer
    observers: Mapping[str, Observer] | None
    checkpoints: str | Path | None
    signing: Ledgers
    books: Mapping[str, ResultBook] | None
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

    def run_cell(self, cell: _Run, notes: Sequence[str]) -> RunRecord:
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
                keepers=kept,
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
            self.scores[key] = ran.trained[chief.name].scores
            self.chief[key] = ran.trained[chief.name]
        kept_notes = dict.fromkeys(note for keeper in kept.values() for note in keeper.notes)
        owners, passive = _split_names(self.parties)
        seconds = time.perf_counter() - began
        places = {name: one.rows[ran.split.test] for name, one in self.aligned.parties.items()}
        grouping = find_grouping(job.report, self.parties, places, chief.name)
        return run_record(key, job, ran, owners, passive, seconds, notes=[*notes, *kept_notes], grouping=grouping)

    def _collect_run(self, key: str, job: Job, ran: RunOutcome) -> None:
        # all jobs start from the secrets that the first one drew, so that they begin with the same weights
        self.secrets = {name: ran.secrets[name] for name in self.parties}
        self.models[key] = Model(job=job, parts={name: t.model for name, t in ran.trained.items() if t.model})

    def _keep_checkpoints(self, key: str, job: Job | None) -> AbstractContextManager[dict[str, FolderKeeper]]:
        """Keeps the parties' checkpoints of one run if the caller gave a folder for them."""
        if self.checkpoints is None or job is None:
            return nullcontext({})
        names, tables = _keeping_parties(self.parties, job), dict(self.parties)
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


def _job_key(job: Job) -> str:
    return job.protection.name + ("-dp" if job.protection.dp else "")


def _check_jobs(
    jobs: Mapping[str, Job], parties: Parties, baselines: Sequence[str], draws: int
) -> tuple[Job, dict[str, Job], dict[str, list[str]]]:
    """The first job, all jobs with a protection each, and the reason for a protection that was chosen."""
    if not jobs:
        raise InputError("no job to run: give at least one")
    for baseline in baselines:
        if baseline not in BASELINES:
            raise UnknownNameError("baseline", baseline, BASELINES)
    if draws < 1:
        raise InputError(f"draws is {draws}; at least 1 is needed")
    for reserved in {ALIGNMENT, RESULTS, *BASELINES} & set(jobs):
        raise InputError(f"{reserved!r} cannot be the key of a job: a comparison uses this name itself")
    first = next(iter(jobs.values()))
    for mistake in wrong_baselines(first.algorithm, baselines):
        raise InputError(mistake)
    for key, job in jobs.items():
        for name in job.policies:
            if name not in parties:
                raise UnknownNameError("party with a policy", name, parties)
        if job.algorithm.many_owners != first.algorithm.many_owners:
            raise InputError(f"job {key!r} and the first: only one has several label owners; compare them apart")
        for what in ("seed", "valid", "test", "stratify", "split_by", "fold"):
            if getattr(job, what) != getattr(first, what):
                raise InputError(f"job {key!r} and the first differ in {what}: give both the same {what}")
    owners, passive = _split_names(parties)
    for job in jobs.values():
        check_grouping(job.report, parties, owners[0])
    protected = {key: with_default_protection(job, owners, passive) for key, job in jobs.items()}
    why = {key: [words] if (words := choose_protection(job, owners, passive)[1]) else [] for key, job in jobs.items()}
    return next(iter(protected.values())), protected, why


def _split_names(parties: Parties) -> tuple[list[str], list[str]]:
    """Names of the label owners, and of the other parties."""
    return [table.name for table in parties.label_owners], [table.name for table in parties.passive]


def _keeping_parties(parties: Parties, job: Job) -> list[str]:
    """Who keeps checkpoints: all parties, and the coordinator where there is one."""
    coordinator = coordinator_of(job, parties)
    return [*parties, *([coordinator] if coordinator else [])]

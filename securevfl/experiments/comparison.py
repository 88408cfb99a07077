"""Runs of one or more jobs over the same parties, with baselines, and what they measured."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from securevfl.data import Parties
from securevfl.errors import InputError, PolicyError, RangeError, SecureVFLError, UnknownNameError
from securevfl.experiments.baselines import BASELINES, usual_baselines, wrong_baselines
from securevfl.experiments.choosing import find_candidates, record_choice
from securevfl.experiments.course import Cell, Course, keeping_parties, split_names
from securevfl.party import Job, choose_protection, undecided_choice, with_default_protection
from securevfl.party.candidates import CandidateJobs
from securevfl.party.diverging import DIVERGENCE
from securevfl.party_context import Observer, PartySecret
from securevfl.privacy.outcomes import BoundBroken
from securevfl.report import progress_line
from securevfl.report.record import (
    PartyRecord,
    Record,
)
from securevfl.run.continuing import check_start
from securevfl.run.gains import add_gains
from securevfl.run.grouping import check_grouping
from securevfl.run.machine import describe_machine, package_versions
from securevfl.run.model import Model
from securevfl.run.recording import alignment_record, ledger_records, over_draws
from securevfl.run.result import Result
from securevfl.run.run_files import ALIGNMENT, RESULTS
from securevfl.run.signing import Keys, open_signed_ledgers
from securevfl.run.simulation import Aligned, align_parties, consent_parties, result_books
from securevfl.training import Split

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
    start: Model | None = None,
) -> Result:
    """Run one job with all parties in this process: align, verify, train, test.

    `compare` explains the parameters that are not listed here.

    Args:
        job: what to run.
        parties: the parties' tables; one of them has the labels.
        baselines: which of `BASELINES` to run beside it; None for the usual ones, which say whether joining is worth
            it. A usual one that these tables do not allow is left out, with a note.
        name: of the run, for the report.
        start: an earlier model of the same parties, from which training goes on: from its weights, or with more trees.
            Columns are encoded as in it.

    Raises:
        SecureVFLError: whatever ended the run; its `exit_code` gives the kind.
    """
    owners, passive = split_names(parties)
    ready = with_default_protection(job, owners, passive)
    found = find_candidates(ready, parties) if job.algorithm.chooses else None
    return _compare_jobs(
        {_job_key(ready): job} if found is None else found.jobs,
        parties,
        found,
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
        start=start,
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
    start: Model | None = None,
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
        start: see `simulate`; of all jobs.

    Raises:
        SecureVFLError: whatever ended a run; `ledgers` of the error has its ledgers and those of the runs before it.
    """
    return _compare_jobs(
        jobs,
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
        start=start,
    )


def _compare_jobs(
    jobs: Mapping[str, Job],
    parties: Parties,
    choice: CandidateJobs | None = None,
    *,
    baselines: Sequence[str] | None,
    name: str,
    title: str,
    command: str,
    aligned: Aligned | None,
    observer: Observer | None,
    observers: Mapping[str, Observer] | None,
    checkpoints: str | Path | None,
    draws: int,
    secrets: Mapping[str, PartySecret] | None,
    keys: Keys,
    ledgers: str | Path | None,
    results: str | Path | None,
    start: Model | None,
) -> Result:
    """See `compare`. With a choice, the jobs are its candidates, and one of them is kept."""
    first, jobs, why = _check_jobs(jobs, parties, baselines or (), draws)
    for job in jobs.values():
        if start is not None:
            check_start(start, job, parties)
    books = None if results is None else result_books(results, parties)
    observer = observer or progress_line()
    observer.run("alignment by PSI")
    began = time.perf_counter()
    agreed = list(jobs.values())
    cells = [Cell(key, job, number) for key, job in jobs.items() for number in range(1, _count_draws(job, draws) + 1)]
    signing = open_signed_ledgers(
        [cell.name for cell in cells],
        keeping_parties(parties, first),
        keys,
        aligned,
        None if ledgers is None else Path(ledgers),
    )
    consent_parties(agreed[1:] if aligned is None else agreed, parties, signing.independent_ledgers())
    aligned = aligned or align_parties(parties, first, observer, signing=signing)
    seconds = time.perf_counter() - began
    sealed = any(job.protection.is_sealed or job.algorithm.draws_secretly for job in agreed)
    fresh = {name: PartySecret.generate() for name in parties} if sealed else {}
    course = Course(
        parties=parties,
        aligned=aligned,
        observer=observer,
        observers=observers,
        checkpoints=checkpoints,
        signing=signing,
        books=books,
        start=start,
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
    failed: dict[str, str] = {}
    for key in jobs:
        try:
            figures, *more = [course.run_cell(cell, [*why[key], *left_out]) for cell in cells if cell.key == key]
        except (InputError, PolicyError, *DIVERGENCE) as error:
            if choice is None or isinstance(error, BoundBroken):
                raise
            failed[key] = str(error)
            course.keep_failed(key, error)
            if len(failed) == len(jobs):
                raise _explain_failures(error, failed) from error
            continue
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
    if choice is not None:
        record = record_choice(record, choice, failed, course.chief, parties, aligned)
        course.keep_only(record)
    observer.end()
    return Result(
        record=record,
        ledgers=course.ledgers,
        scores=course.scores,
        test_ids=chief.ids_of(aligned.parties[chief.name].rows[split.test]),
        models=course.models,
        signing=signing,
    )


def _explain_failures(last: SecureVFLError, failed: Mapping[str, str]) -> SecureVFLError:
    """The error of a choice of which every candidate failed, with the reason of each; of the kind of the last one's."""
    reasons = "".join(f"\n  {key}: {' '.join(why.split())}" for key, why in failed.items())
    kind = next((one for one in (PolicyError, InputError) if isinstance(last, one)), RangeError)
    error = kind(f"algorithm is 'auto', and no candidate could be trained:{reasons}")
    error.ledgers = last.ledgers
    return error


def _count_draws(job: Job, draws: int) -> int:
    """How many times the job runs; its runs differ only in their noise."""
    return draws if job.protection.dp is not None else 1


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
    undecided = [mistake for job in jobs.values() for mistake in undecided_choice(job.algorithm, "a comparison is of")]
    for mistake in (*undecided, *wrong_baselines(first.algorithm, baselines)):
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
    owners, passive = split_names(parties)
    for job in jobs.values():
        check_grouping(job.report, parties, owners[0])
    protected = {key: with_default_protection(job, owners, passive) for key, job in jobs.items()}
    why = {key: [words] if (words := choose_protection(job, owners, passive)[1]) else [] for key, job in jobs.items()}
    return next(iter(protected.values())), protected, why

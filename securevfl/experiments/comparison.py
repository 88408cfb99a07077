"""Runs of one or more jobs over the same parties, with baselines, and what they measured."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from securevfl.cut import Plain
from securevfl.data import Parties
from securevfl.errors import InputError, SecureVFLError, UnknownNameError
from securevfl.experiments.baselines import BASELINES, run_baseline, wrong_baselines
from securevfl.party import Job, chosen, settled
from securevfl.party.numbering import own_split
from securevfl.party_context import Observer, PartySecret
from securevfl.privacy import Ledger
from securevfl.report import progress_line
from securevfl.report.record import (
    PartyRecord,
    Record,
    RunRecord,
)
from securevfl.run.checkpoint import FolderKeeper, kept_in
from securevfl.run.digests import data_digests
from securevfl.run.machine import machine, versions
from securevfl.run.model import Model
from securevfl.run.receipt import check_protection
from securevfl.run.recording import alignment_record, ledger_records, over_draws, run_record, title_of
from securevfl.run.result import Result
from securevfl.run.run_files import ALIGNMENT, RESULTS
from securevfl.run.signing import Keys, signing_of
from securevfl.run.simulated_parties import coordinator_of
from securevfl.run.simulation import Aligned, align_parties, consent_parties, look_books, run_parties
from securevfl.training import Split

__all__ = ["compare", "simulate"]


def simulate(
    job: Job,
    parties: Parties,
    *,
    baselines: Sequence[str] = (),
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
    looks: str | Path | None = None,
) -> Result:
    """Run one job with all parties in this process: align, verify, train, test.

    Args:
        job: what to run.
        parties: the parties' tables; one of them has the labels.
        baselines: which of `BASELINES` to run beside it.
        name: of the run, for the report.
        title: of the report; the name unless given.
        command: what makes it again, for the report.
        aligned: an alignment of the same parties to use again.
        observer: hears how it goes on.
        observers: party → what hears of it alone while it trains, in place of `observer`.
        checkpoints: folder in which each party keeps its state after every epoch; an interrupted run goes on
            from there.
        draws: see `compare`.
        secrets: see `compare`.
        keys: party → the private key that signs its ledgers, or the folder of `securevfl keys` with one for each
            party; new ones that stay in memory unless given.
        ledgers: folder for the ledgers while the run goes on, ``PARTY.jsonl`` each; without ledgers by now.
        looks: folder in which each party counts what was opened of each of its rows, over all runs and predictions that
            name it; see `Policy.max_looks`.

    Raises:
        SecureVFLError: whatever ended it; its `exit_code` says of what kind.
    """
    owners, passive = _names(parties)
    return compare(
        {_key(settled(job, owners, passive)): job},
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
        looks=looks,
    )


def compare(
    jobs: Mapping[str, Job],
    parties: Parties,
    *,
    baselines: Sequence[str] = BASELINES,
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
    looks: str | Path | None = None,
) -> Result:
    """Run several jobs over the same verified alignment, and baselines on the same rows.

    Args:
        jobs: key → job; they have to agree on the seed and on the split.
        parties: the parties' tables.
        baselines: which of `BASELINES` to run too.
        name: of the comparison, for the report.
        title: the report's.
        command: what makes it again, for the report.
        aligned: an alignment of the same parties to use again.
        observer: hears how it goes on; its phases carry the run's key. Without one, a line on standard error says it
            in a terminal or a notebook; `Observer()` keeps silent.
        observers: see `simulate`.
        checkpoints: see `simulate`; each job has a folder of its own in it.
        draws: how often a job with differential privacy runs, each time with fresh noise: its figures are the mean and
            the standard deviation then. For data that are public or simulated: each run is a release of its own, and
            parties that did this for real would pay ε each time.
        secrets: party → its secret, from which first weights are drawn: for experiments that run a job twice from the
            same start. Unless given, a comparison draws them from the operating system where one of its jobs seals the
            cut, and derives them from the job's seed where none does. All its jobs begin with the same.
        keys: see `simulate`.
        ledgers: see `simulate`.
        looks: see `simulate`.

    Raises:
        SecureVFLError: whatever ended it.
    """
    import sklearn.metrics  # noqa: F401 - now, before any clock runs, so that no party's time holds the import

    owners, passive = _names(parties)
    first, jobs, why = _check(jobs, parties, baselines, draws)
    books = None if looks is None else look_books(looks, parties)
    observer = observer or progress_line()
    observer.run("alignment by PSI")
    start = time.perf_counter()
    agreed = list(jobs.values())
    runs_to_come = [_draw(key, i) for key, job in jobs.items() for i in range(1, _draws(job, draws) + 1)]
    signing = signing_of(
        runs_to_come, _keeping_parties(parties, first), keys, aligned, None if ledgers is None else Path(ledgers)
    )
    consent_parties(agreed[1:] if aligned is None else agreed, parties, signing.beside())
    aligned = aligned or align_parties(parties, first, observer, signing=signing)
    seconds = time.perf_counter() - start
    chief = parties.label_owners[0]
    split: Split | None = None
    runs: list[RunRecord] = []
    kept_ledgers: dict[str, Mapping[str, Ledger]] = {ALIGNMENT: aligned.ledgers}
    scores: dict[str, np.ndarray] = {}
    models: dict[str, Model] = {}
    sealed = any(job.protection.sealed or job.algorithm.draws_secretly for job in agreed)
    alike = ({name: PartySecret.fresh() for name in parties} if sealed else {}) | dict(secrets or {})
    for key in (b for b in BASELINES if b in baselines):
        observer.run(key)
        secret = alike.get(chief.name, PartySecret.derived(first.seed, chief.name))
        split = own_split(chief, aligned.parties[chief.name], first, secret)
        own = {name: policy for name, policy in first.policies.items() if name == chief.name}
        plain = first.replace(protection=Plain(), policies=own)
        figures, ran = run_baseline(key, plain, parties, aligned, split, observer)
        runs.append(figures)
        scores[key] = ran.trained[chief.name].scores
    for key, job in jobs.items():
        observer.run(title_of(job))
        began = time.perf_counter()
        with _keeping(kept_ledgers), _kept(checkpoints, key, job, parties, aligned) as kept:
            ran = run_parties(
                job,
                parties,
                aligned,
                run=key,
                observer=observer,
                observers=observers,
                keepers=kept,
                secrets=alike,
                signing=signing,
                looks=books,
            )
            alike = {name: ran.secrets[name] for name in parties}
            models[key] = Model(job=job, parts={name: t.model for name, t in ran.trained.items() if t.model})
            kept_ledgers[key] = ran.ledgers
            check_protection(
                job,
                {name: ran.ledgers[name] for name in parties},
                tuple(p.name for p in parties.passive),
                resumed=any(k.start for k in kept.values()),
            )
            split = split or ran.split
        told = dict.fromkeys(note for keeper in kept.values() for note in keeper.notes)
        figures = run_record(key, job, ran, owners, passive, time.perf_counter() - began, notes=[*why[key], *told])
        more = []
        for number in range(2, _draws(job, draws) + 1):
            with _keeping(kept_ledgers):
                again = run_parties(
                    job,
                    parties,
                    aligned,
                    run=_draw(key, number),
                    observer=observer,
                    secrets=alike,
                    signing=signing,
                    looks=books,
                )
            kept_ledgers[_draw(key, number)] = again.ledgers
            more.append(again.trained[chief.name].test)
        runs.append(over_draws(figures, more))
        scores[key] = ran.trained[chief.name].scores
    record = Record(
        name=name,
        title=title or name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        versions=versions(),
        machine=machine(first.device),
        job=first.describe(),
        parties=[
            PartyRecord(name=t.name, role=t.role, rows=t.rows, columns=list(t.feature_names)) for t in parties.values()
        ],
        alignment=alignment_record(aligned, split or Split.empty(), chief.name, seconds),
        runs=runs,
        ledgers=ledger_records(kept_ledgers),
    )
    observer.end()
    return Result(
        record=record,
        ledgers=kept_ledgers,
        scores=scores,
        test_ids=chief.names(aligned.parties[chief.name].rows[(split or Split.empty()).test]),
        models=models,
        signing=signing,
    )


def _draws(job: Job, draws: int) -> int:
    """How often the job runs: two runs differ by noise alone."""
    return draws if job.protection.dp is not None else 1


def _draw(key: str, number: int) -> str:
    return key if number == 1 else f"{key} {number}"


@contextmanager
def _keeping(ledgers: Mapping[str, Mapping[str, Ledger]]) -> Iterator[None]:
    """An error inside carries the ledgers of what went before it, too."""
    try:
        yield
    except (SecureVFLError, KeyboardInterrupt) as error:
        before = [ledger for parties in ledgers.values() for ledger in parties.values()]
        error.ledgers = (*before, *getattr(error, "ledgers", ()))  # type: ignore[union-attr]
        raise


def _kept(
    checkpoints: str | Path | None, key: str, job: Job, parties: Parties, aligned: Aligned
) -> AbstractContextManager[dict[str, FolderKeeper]]:
    """What keeps the parties' checkpoints of one run; nothing where none are asked for."""
    if checkpoints is None:
        return nullcontext({})
    names, tables = _keeping_parties(parties, job), dict(parties)
    data = {name: data_digests(tables.get(name), aligned.alignments.get(name, {})) for name in names}
    return kept_in(Path(checkpoints) / key, names, job.digest, data)


def _key(job: Job) -> str:
    return job.protection.name + ("-dp" if job.protection.dp else "")


def _check(
    jobs: Mapping[str, Job], parties: Parties, baselines: Sequence[str], draws: int
) -> tuple[Job, dict[str, Job], dict[str, list[str]]]:
    """The first job, all of them, each with a protection, and why it is that one."""
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
    owners, passive = _names(parties)
    protected = {key: settled(job, owners, passive) for key, job in jobs.items()}
    why = {key: [words] if (words := chosen(job, owners, passive)[1]) else [] for key, job in jobs.items()}
    return next(iter(protected.values())), protected, why


def _names(parties: Parties) -> tuple[list[str], list[str]]:
    """Of label owners, and of the others."""
    return [table.name for table in parties.label_owners], [table.name for table in parties.passive]


def _keeping_parties(parties: Parties, job: Job) -> list[str]:
    """Who keeps checkpoints: all parties, and the coordinator where there is one."""
    coordinator = coordinator_of(job, parties)
    return [*parties, *([coordinator] if coordinator else [])]

"""Cross-validation: the same job once per fold, over one alignment, and the mean and deviation of its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from securevfl.data import Parties
from securevfl.errors import InputError
from securevfl.experiments.cells import find_metric
from securevfl.experiments.comparison import simulate
from securevfl.experiments.grid import Point
from securevfl.experiments.split_ratio import find_job_ratio
from securevfl.experiments.study import Study
from securevfl.party import Job, check_trains, with_default_protection
from securevfl.party_context import Observer, PartySecret
from securevfl.report import CellFigures, Failed, SweepRecord
from securevfl.report.record import Record, RunRecord
from securevfl.run.gains import average_gains
from securevfl.run.result import Result
from securevfl.run.simulation import align_parties

__all__ = ["cross_validate"]


def cross_validate(
    job: Job,
    parties: Parties,
    *,
    folds: int = 5,
    baselines: Sequence[str] | None = (),
    name: str = "run",
    title: str = "",
    observer: Observer | None = None,
    checkpoints: str | Path | None = None,
    secrets: Mapping[str, PartySecret] | None = None,
    **options: Any,
) -> Study:
    """Run a job once for each fold, with all parties in this process: each common row tests once, or, by time, the rows
    of each later block.

    The parties align once. Folds follow the job's `split_by` and `stratify`; the other parties learn the marks of every
    fold, so which common rows are in one fold together. With noise each fold is a release of its own: parties that did
    this for real would pay ε as often.

    Args:
        job: what to run; without `fold`.
        parties: the parties' tables; the label owner marks no rows itself.
        folds: how many, 2 to 100.
        baselines: see `simulate`.
        name: of the run, for the reports.
        title: of the reports; the name unless given. Each fold's says which it is.
        observer: hears how it goes on.
        checkpoints: folder in which each fold has one of its own; see `simulate`.
        secrets: see `compare`. The label owner's is the same for all folds, so that its groups and classes fall into
            the same folds each time.
        options: others of `simulate`, the same for all folds.

    Raises:
        InputError: a wrong number of folds, rows that the label owner marks, or a job that has a fold.
        SecureVFLError: whatever ended a fold.
    """
    check_trains(job.algorithm, "to cross-validate")
    if job.fold is not None:
        raise InputError(f"the job is fold {job.fold[0]} of {job.fold[1]} already: leave fold out, or use simulate")
    if isinstance(folds, bool) or not isinstance(folds, int) or not 2 <= folds <= 100:
        raise InputError(f"folds is {folds!r}; a whole number from 2 to 100 was expected")
    marked = [table.name for table in parties.label_owners if table.fold is not None]
    if marked:
        raise InputError(f"{marked[0]!r} marks which rows train, validate and test itself: leave its fold out")
    owners = [table.name for table in parties.label_owners]
    ready = with_default_protection(job, owners, [table.name for table in parties.passive])
    aligned = align_parties(parties, ready, observer or Observer())
    secret = PartySecret.generate if ready.protection.is_sealed or ready.algorithm.draws_secretly else None
    own = {name: PartySecret.from_seed(job.seed, name) if secret is None else secret() for name in owners}
    results = []
    for k in range(1, folds + 1):
        one = job.replace(fold=(k, folds))
        kept = None if checkpoints is None else Path(checkpoints) / f"fold-{k}"
        options |= {"observer": observer, "checkpoints": kept, "secrets": own | dict(secrets or {})}
        options["title"] = f"{title or name}, fold {k} of {folds}"
        results.append(simulate(one, parties, baselines=baselines, name=name, aligned=aligned, **options))
    comparison = _average_folds([result.record for result in results], title or name)
    metric = find_metric(job, len(parties.label_owners[0].classes))
    record = _record_of(results, comparison, parties, job, metric)
    points = tuple(
        Point(settings={"run": run.title}, job=ready, method=run.title, x=0.0, baseline=run.baseline)
        for run in comparison.runs
    )
    return Study(record=record, points=points, folds=tuple(results), comparison=comparison)


def _record_of(results: Sequence[Result], comparison: Record, parties: Parties, job: Job, metric: str) -> SweepRecord:
    """Every run of every fold as a cell, whose seed is the number of its fold."""
    data = (parties.label_owners[0].label_name or "own tables")[:80]
    figures, failed = [], []
    for number, result in enumerate(results, 1):
        for run in result.record.runs:
            every = all(metric in other.run(run.key).test for other in results)
            shown = metric if every else "accuracy"  # AUC needs both classes among the test rows of each fold
            if shown in run.test:
                ratio = find_job_ratio(job.replace(fold=(number, len(results))))
                figures.append(_figures_of(run, shown, data, number, ratio))
            else:
                error = f"the test rows of this fold have no {metric}"
                failed.append(Failed(data=data, method=run.title, x=0.0, seed=number, error=error))
    folds = f"{len(results)} folds"
    return SweepRecord(
        name=comparison.name,
        title=comparison.title,
        created=comparison.created,
        command=comparison.command,
        versions=comparison.versions,
        machine=comparison.machine,
        size="own tables",
        axis="rows",
        axis_unit="category",
        ticks={"0.0": folds},
        cells=figures,
        failed=failed,
        notes=["The seed of a cell is the number of its fold: each common row tests in one fold."],
        job=job.describe(),
    )


def _figures_of(run: RunRecord, metric: str, data: str, fold: int, ratio: float) -> CellFigures:
    history = [epoch.valid[metric] for epoch in run.epochs if metric in epoch.valid]
    best = run.epochs[run.best_epoch - 1].valid.get(metric, 0.0) if run.best_epoch and run.epochs else 0.0
    return CellFigures(
        data=data,
        method=run.title,
        x=0.0,
        seed=fold,
        value=run.test[metric],
        valid=best,
        metric=metric,
        epochs=len(run.epochs),
        best_epoch=run.best_epoch,
        seconds=round(run.seconds, 2),
        extra={f"ε of {total.protects}": total.epsilon_rdp for total in run.epsilon_totals},
        history=[round(value, 4) for value in history],
        test=dict(run.test),
        test_ratio=ratio,
    )


def _average_folds(records: Sequence[Record], title: str) -> Record:
    first = records[0]
    runs = [_average_runs([record.runs[i] for record in records]) for i in range(len(first.runs))]
    return msgspec.structs.replace(first, runs=runs, title=f"{title}, {len(records)} folds")


def _average_runs(runs: Sequence[RunRecord]) -> RunRecord:
    common = [name for name in runs[0].test if all(name in run.test for run in runs)]
    values = {name: [run.test[name] for run in runs] for name in common}
    note = f"mean ± standard deviation over {len(runs)} folds; time and bytes are of the first"
    return msgspec.structs.replace(
        runs[0],
        test={name: float(np.mean(found)) for name, found in values.items()},
        deviation={name: float(np.std(found, ddof=1)) for name, found in values.items()},
        notes=[*runs[0].notes, note],
        warnings=list(dict.fromkeys(warning for run in runs for warning in run.warnings)),
        constant={},
        gained=average_gains([run.gained for run in runs]),
    )

"""Cross-validation: the same job once for each fold, over one alignment, and the mean and deviation of its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from securevfl_net.durable import make_folder, write_whole

from securevfl.data import Parties
from securevfl.errors import InputError
from securevfl.experiments.comparison import simulate
from securevfl.party import Job, settled
from securevfl.party_context import Observer, PartySecret
from securevfl.report import comparison_table, render_text, write
from securevfl.report.record import Record, RunRecord
from securevfl.run.result import Result
from securevfl.run.simulation import align_parties

__all__ = ["CrossValidation", "cross_validate"]


@dataclass(frozen=True, kw_only=True)
class CrossValidation:
    """What cross-validation measured.

    Attributes:
        results: of the folds, in order.
        record: that of the first fold with the mean of each run's test metrics, and their deviation, over the folds.
    """

    results: tuple[Result, ...] = field(repr=False)
    record: Record = field(repr=False)

    def __repr__(self) -> str:
        run = self.record.runs[-1]
        figures = ", ".join(f"{name} {value:.4g} ± {run.deviation[name]:.2g}" for name, value in run.test.items())
        return f"CrossValidation({len(self.results)} folds, {run.title}: {figures})"

    @property
    def mean(self) -> Mapping[str, float]:
        """Metric → its mean over the folds, of the job's run."""
        return self.record.runs[-1].test

    @property
    def deviation(self) -> Mapping[str, float]:
        """Metric → its standard deviation over the folds (of a sample: n − 1), of the job's run."""
        return self.record.runs[-1].deviation

    def table(self, width: int = 110) -> str:
        """Mean ± deviation of every run as text."""
        return render_text(comparison_table(self.record), width=width)

    def report(self, folder: str | Path) -> Path:
        """Write each fold's report to ``fold-1/``, ``fold-2/`` …, each fold's metrics to ``cross-validation.json``,
        and a page with mean and deviation, whose path is returned.

        Raises:
            InputError, OSError: as `Result.report`.
        """
        target = Path(folder)
        make_folder(target)
        for number, result in enumerate(self.results, 1):
            result.report(target / f"fold-{number}")
        runs = [
            {
                "key": run.key,
                "title": run.title,
                "mean": run.test,
                "deviation": run.deviation,
                "folds": [result.run(run.key).test for result in self.results],
            }
            for run in self.record.runs
        ]
        content = {"format": 1, "name": self.record.name, "folds": len(self.results), "runs": runs}
        write_whole(target / "cross-validation.json", msgspec.json.format(msgspec.json.encode(content), indent=2))
        return write(self.record, target)


def cross_validate(
    job: Job,
    parties: Parties,
    *,
    folds: int = 5,
    baselines: Sequence[str] = (),
    name: str = "run",
    title: str = "",
    observer: Observer | None = None,
    checkpoints: str | Path | None = None,
    secrets: Mapping[str, PartySecret] | None = None,
    **options: Any,
) -> CrossValidation:
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
    if job.fold is not None:
        raise InputError(f"the job is fold {job.fold[0]} of {job.fold[1]} already: leave fold out, or use simulate")
    if isinstance(folds, bool) or not isinstance(folds, int) or not 2 <= folds <= 100:
        raise InputError(f"folds is {folds!r}; a whole number from 2 to 100 was expected")
    marked = [table.name for table in parties.label_owners if table.fold is not None]
    if marked:
        raise InputError(f"{marked[0]!r} marks which rows train, validate and test itself: leave its fold out")
    owners = [table.name for table in parties.label_owners]
    ready = settled(job, owners, [table.name for table in parties.passive])
    aligned = align_parties(parties, ready, observer or Observer())
    secret = PartySecret.fresh if ready.protection.sealed or ready.algorithm.draws_secretly else None
    own = {name: PartySecret.derived(job.seed, name) if secret is None else secret() for name in owners}
    results = []
    for k in range(1, folds + 1):
        one = job.replace(fold=(k, folds))
        kept = None if checkpoints is None else Path(checkpoints) / f"fold-{k}"
        options |= {"observer": observer, "checkpoints": kept, "secrets": own | dict(secrets or {})}
        options["title"] = f"{title or name}, fold {k} of {folds}"
        results.append(simulate(one, parties, baselines=baselines, name=name, aligned=aligned, **options))
    together = _together([result.record for result in results], title or name)
    return CrossValidation(results=tuple(results), record=together)


def _together(records: Sequence[Record], title: str) -> Record:
    first = records[0]
    runs = [_over_folds([record.runs[i] for record in records]) for i in range(len(first.runs))]
    return msgspec.structs.replace(first, runs=runs, title=f"{title}, {len(records)} folds")


def _over_folds(runs: Sequence[RunRecord]) -> RunRecord:
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
    )

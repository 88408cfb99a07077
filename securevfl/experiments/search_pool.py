"""Trials of a search on a pool: what crosses to a worker, and what comes back.

The tables are in one file of the search's folder, for their owner alone, while it runs. A worker tells its epochs to
the journal in the same folder, where the pruner finds those of the others.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from securevfl.data import Parties
from securevfl.errors import InputError
from securevfl.experiments.pool import Workers, open_workers, require_visible
from securevfl.experiments.search_loop import Runs
from securevfl.experiments.search_study import journal_report, need_optuna
from securevfl.experiments.search_trial import Outcome, SearchRequest, run_trial
from securevfl.experiments.table_store import digest_tables, load_tables
from securevfl.party import Job
from securevfl.run.simulation import Aligned, join_parties

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import Trial

__all__ = ["check_pruner", "on_pool", "trial_task"]


class _Order(msgspec.Struct, frozen=True):
    """A trial in plain values.

    Attributes:
        number: as Optuna counts.
        job: see `Job.describe`.
        metric: by which trials are compared.
        repeats: runs of it.
        tables: digest of the tables.
        once: whether it may not run twice.
    """

    number: int
    job: Mapping[str, Any]
    metric: str
    repeats: int
    tables: str
    once: bool


def check_pruner(study: Study) -> None:
    """Check that workers need not ask the pruner of a study in this process.

    Raises:
        InputError: it has one.
    """
    if not isinstance(study.pruner, need_optuna().pruners.NopPruner):
        raise InputError(
            f"the study has a {type(study.pruner).__name__}, which workers cannot ask: make it with "
            "pruner=optuna.pruners.NopPruner(), run its trials in this process (workers=1, no pool), or leave study out"
        )


@contextmanager
def on_pool(text: str, asked: SearchRequest, place: Path, journal: Path | None) -> Iterator[Runs]:
    """Workers that run trials; their files are gone in the end.

    Args:
        text: see `securevfl.experiments.pool.choose_pool`.
        asked: what all trials have alike.
        place: a folder that all workers see.
        journal: the study's, in that folder; None where nothing is pruned.

    Raises:
        InputError: a pool that cannot be opened, or tables that cannot be written.
    """
    folder = place / "workers"
    shutil.rmtree(folder, ignore_errors=True)  # left by a process that was killed
    try:
        with open_workers(text, asked.parties, folder) as workers:
            yield _OnPool(workers, asked, journal)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _OnPool:
    """Hands trials to the workers of a pool."""

    def __init__(self, workers: Workers, asked: SearchRequest, journal: Path | None) -> None:
        self._workers, self._asked, self._journal = workers, asked, journal
        self._digest = digest_tables(asked.parties)

    @property
    def slots(self) -> int:
        return self._workers.slots

    def start_trial(self, trial: Trial, job: Job, noisy: bool) -> Future[Any]:
        order = _Order(
            number=trial.number,
            job=job.describe(),
            metric=self._asked.metric,
            repeats=self._asked.repeats,
            tables=self._digest,
            once=noisy,
        )
        journal = "" if self._journal is None else str(self._journal.resolve())
        return self._workers.submit(f"{__name__}:trial_task", msgspec.msgpack.encode(order), journal)

    def read_outcome(self, trial: Trial, ended: Future[Any]) -> Outcome:
        outcome = msgspec.msgpack.decode(ended.result(), type=Outcome)
        if self._journal is None:
            for epoch, value in outcome.epochs:
                trial.report(value, epoch)
        return outcome


def trial_task(order: bytes, tables: str, journal: str) -> bytes:
    """A trial as a task of a pool: an `_Order` in, an `Outcome` out, both as msgpack.

    Args:
        order: the trial.
        tables: the file with the tables; all workers have to see it.
        journal: the study's file; empty where nothing is pruned.

    Raises:
        InputError: the folder cannot be seen, or the trial has noise and was begun by a worker that was lost.
        SecureVFLError: what ended the trial.
    """
    torch.set_num_threads(1)
    asked = msgspec.msgpack.decode(order, type=_Order)
    require_visible(tables, *([journal] if journal else []))
    file = Path(tables)
    if asked.once:
        _begin_once(file.parent / f"begun-{asked.number}", asked.number)
    job = Job.from_values(asked.job)
    parties, aligned = _load_rows(file, asked.tables, job)
    report = journal_report(Path(journal), asked.number) if journal else _never_stop
    outcome = run_trial(job, parties, aligned, metric=asked.metric, repeats=asked.repeats, report=report)
    return msgspec.msgpack.encode(outcome)


def _begin_once(mark: Path, number: int) -> None:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        raise InputError(
            f"trial {number} was begun by a worker that was lost; it has noise, and running it again would release the "
            "same rows again, which no budget counted"
        ) from None


def _never_stop(epoch: int, value: float) -> bool:
    return False


_kept: dict[str, tuple[Parties, Aligned]] = {}
"""In a worker: the rows of its search. To read and to join them can take as long as a trial."""


def _load_rows(file: Path, digest: str, job: Job) -> tuple[Parties, Aligned]:
    if digest not in _kept:
        _kept.clear()
        parties = load_tables(file)
        _kept[digest] = (parties, join_parties(parties, job))
    return _kept[digest]

"""One trial of a search: a job with suggested settings, run on the split that all trials have."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.data import Parties
from securevfl.data.table import TEST, TRAIN, VALID
from securevfl.errors import InputError, SecureVFLError
from securevfl.jobs.check import Roster, refusals
from securevfl.jobs.own_sweep import seeds_of
from securevfl.jobs.search_budget import Budget, kept_plan, kept_releases
from securevfl.jobs.search_space import Space, job_of, suggested
from securevfl.jobs.search_study import EPOCHS, PLANNED, RELEASED, spent_by
from securevfl.jobs.selection_cost import Cost, planned_cost, together
from securevfl.jobs.simulation import Aligned, join_parties, run_parties
from securevfl.party import Job, settled, wrong_parties
from securevfl.party.numbering import barred, own_split
from securevfl.privacy import Spent
from securevfl.site import Observer, PartySecret

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import Trial

__all__ = ["Asked", "OverBudget", "Pruned", "final_seeds", "run_trial", "with_one_split"]

_SEEDS = 5


class Pruned(SecureVFLError):
    """A trial is worse than others were at this epoch."""


class OverBudget(SecureVFLError):
    """A trial more would spend too much."""


class _Reporting(Observer):
    """Reports each epoch's validation metric to a trial, and ends it where the pruner says so."""

    def __init__(self, trial: Trial, metric: str, other: Observer | None) -> None:
        self._trial, self._metric, self._other = trial, metric, other or Observer()
        self.epochs = 0

    def phase(self, name: str) -> None:
        self._other.phase(name)

    def step(self, epoch: int, done: int, total: int) -> None:
        self._other.step(epoch, done, total)

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        self._other.epoch(epoch, loss, valid)
        if self._metric not in valid:  # of a party that does not know it
            return
        self.epochs = epoch
        self._trial.report(valid[self._metric], epoch)
        if self._trial.should_prune():
            raise Pruned(f"pruned after epoch {epoch}")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What all trials have alike."""

    job: Job
    parties: Parties
    aligned: Aligned
    roster: Roster
    metric: str
    space: Space
    repeats: int
    budget: Budget

    def planned(self, job: Job) -> dict[str, Cost]:
        """What a run of a job spends at most, by what is protected; empty without noise."""
        return dict(planned_cost(job, self.roster.passive))

    def ready(self, settings: Mapping[str, Any]) -> Job:
        """The job with these settings, its protection settled, held against parties and policies."""
        job = settled(job_of(self.job, settings), self.roster.owners, self.roster.passive)
        mistakes = wrong_parties(job.algorithm, self.roster.owners, self.roster.passive)
        refused = refusals(job, self.roster)
        if mistakes or refused:
            raise InputError("; ".join([*mistakes, *refused]))
        return job

    def run(self, job: Job, observer: Observer) -> tuple[float, dict[str, Sequence[Spent]]]:
        """The validation metric of the epoch that a run kept, and what each party released. The test metrics of the run
        are dropped here: nobody sees them."""
        ran = run_parties(job, self.parties, self.aligned, run="search", observer=observer)
        trained = ran.trained[self.roster.owners[0]]
        valid = trained.epochs[trained.best_epoch - 1].valid if trained.best_epoch else {}
        if self.metric not in valid:
            raise InputError(
                f"the validation rows have no {self.metric}, by which trials are compared: they are of one class, or "
                "of one value, or none of them counts; give more rows, a larger valid, or stratify = true"
            )
        return valid[self.metric], {name: one.spent for name, one in ran.trained.items()}


def with_one_split(job: Job, parties: Parties) -> tuple[Job, Parties, Aligned]:
    """The parties with the job's split marked in the active party's table, so that every seed has the same; the job as
    it runs with such marks; and the alignment. Rows that all do not hold, but that a split by group or by time bars
    from training, are marked as test rows: nothing scores them.

    Raises:
        InputError: several label owners, a job that is a fold, or too few rows.
        AlignmentError: no common rows.
    """
    chief = parties.active
    if job.fold is not None:
        raise InputError(f"the job is fold {job.fold[0]} of {job.fold[1]}; a search draws one split: leave fold out")
    aligned = join_parties(parties, job)
    if chief.fold is not None:
        return job, parties, aligned
    own = aligned.parties[chief.name]
    split = own_split(chief, own, job.replace(valid_rows=None), PartySecret.derived(job.seed, chief.name))
    marks = np.zeros(chief.rows, dtype=np.int8)
    marks[barred(chief, own.rows, split, job)] = TEST
    marks[own.rows[split.train]] = TRAIN
    marks[own.rows[split.valid]] = VALID
    marks[own.rows[split.test]] = TEST
    tables = [replace(chief, fold=marks) if name == chief.name else table for name, table in parties.items()]
    marked = Parties.of(*tables, description=parties.description, active=chief.name)
    return job.replace(split_by="rows", stratify=False), marked, join_parties(marked, job)


def final_seeds(seeds: int | Sequence[int] | None, job: Job) -> tuple[int, ...]:
    """Seeds of the winner's runs."""
    if seeds == 0 and not isinstance(seeds, bool):
        return ()
    if seeds is None:
        seeds = _SEEDS if job.protection.dp is None else 1
    return seeds_of(seeds, job.seed)


def run_trial(
    study: Study,
    trial: Trial,
    asked: Asked,
    seeds: int | Sequence[int] | None,
    observer: Observer | None,
) -> float:
    """A trial's value, and what it released into the study."""
    job = asked.ready(suggested(asked.space, trial))
    cost, finals = asked.planned(job), len(final_seeds(seeds, job))
    if not asked.budget.allows(spent_by(study), [cost] * (asked.repeats + finals)):
        raise OverBudget(
            f"one more trial and the winner's runs, {asked.repeats + finals} on the same rows, would cross the budget "
            f"of ε = {asked.budget.epsilon:g}: give a larger budget, fewer seeds, or noise with a smaller ε"
        )
    if cost:
        trial.set_user_attr(PLANNED, kept_plan(together([cost] * asked.repeats)))
    values, every = [], []
    for k in range(asked.repeats):
        watching = _Reporting(trial, asked.metric, observer) if k == 0 else observer or Observer()
        try:
            value, spent = asked.run(job.replace(seed=job.seed + k), watching)
        finally:
            if isinstance(watching, _Reporting):
                trial.set_user_attr(EPOCHS, watching.epochs)
        values.append(value)
        every.append(kept_releases(spent))
    if cost:
        trial.set_user_attr(RELEASED, every)
    return statistics.fmean(values)

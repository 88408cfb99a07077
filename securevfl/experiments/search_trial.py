"""One trial of a search: a job with suggested settings, run on the split that all trials have, here or on a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np

from securevfl.data import Parties
from securevfl.data.table import TEST, TRAIN, VALID
from securevfl.errors import InputError, SecureVFLError
from securevfl.experiments.privacy_cost import Cost, plan_cost, total_cost
from securevfl.experiments.search_budget import SearchBudget, kept_plan, kept_releases
from securevfl.experiments.search_space import Space, job_of, suggest_settings
from securevfl.experiments.search_study import PLANNED, spent_by
from securevfl.experiments.sweep import choose_seeds
from securevfl.jobfile.job_roster import policy_refusals
from securevfl.party import Job, with_default_protection, wrong_parties
from securevfl.party.numbering import excluded_rows, split_own_rows
from securevfl.party_context import Observer, PartySecret
from securevfl.privacy import Spent
from securevfl.run.roster import Roster
from securevfl.run.simulation import Aligned, join_parties, run_parties

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import Trial

__all__ = [
    "Outcome",
    "OverBudget",
    "Report",
    "SearchRequest",
    "final_seeds",
    "planned_trial",
    "run_trial",
    "with_one_split",
]

Report: TypeAlias = Callable[[int, float], bool]
"""Epoch and metric in; whether the trial ends there out."""

_SEEDS = 5


class Pruned(SecureVFLError):
    """A trial is worse than others were at this epoch."""


class OverBudget(SecureVFLError):
    """A trial more would spend too much."""


class Outcome(msgspec.Struct, frozen=True):
    """How the runs of a trial went, in plain values, as a worker sends it.

    Attributes:
        values: the metric of each run on the validation rows.
        released: of each run, party → its releases.
        epochs: of the first run, with its metric on the validation rows.
        pruned: the first run was ended, and no other began.
    """

    values: list[float]
    released: list[dict[str, list[dict[str, Any]]]]
    epochs: list[tuple[int, float]]
    pruned: bool


class _Reporting(Observer):
    """Tells each epoch's validation metric, and ends the run where the answer is yes."""

    def __init__(self, report: Report, metric: str, other: Observer) -> None:
        self._report, self._metric, self._other = report, metric, other
        self.epochs: list[tuple[int, float]] = []

    def phase(self, name: str) -> None:
        self._other.phase(name)

    def step(self, epoch: int, done: int, total: int) -> None:
        self._other.step(epoch, done, total)

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        self._other.epoch(epoch, loss, valid)
        if self._metric not in valid:  # of a party that does not know it
            return
        self.epochs.append((epoch, float(valid[self._metric])))
        if self._report(*self.epochs[-1]):
            raise Pruned(f"pruned after epoch {epoch}")


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """What all trials have alike."""

    job: Job
    parties: Parties
    aligned: Aligned
    roster: Roster
    metric: str
    space: Space
    repeats: int
    budget: SearchBudget

    def planned_cost(self, job: Job) -> dict[str, Cost]:
        """What a run of a job spends at most, by what is protected; empty without noise."""
        return dict(plan_cost(job, self.roster.passive))

    def prepare_job(self, settings: Mapping[str, Any]) -> Job:
        """The job with these settings, its protection settled, held against parties and policies."""
        job = with_default_protection(job_of(self.job, settings), self.roster.owners, self.roster.passive)
        mistakes = wrong_parties(job.algorithm, self.roster.owners, self.roster.passive)
        refused = policy_refusals(job, self.roster)
        if mistakes or refused:
            raise InputError("; ".join([*mistakes, *refused]))
        return job


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
    split = split_own_rows(chief, own, job.replace(valid_rows=None), PartySecret.from_seed(job.seed, chief.name))
    marks = np.zeros(chief.rows, dtype=np.int8)
    marks[excluded_rows(chief, own.rows, split, job)] = TEST
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
    return choose_seeds(seeds, job.seed)


def planned_trial(
    study: Study, trial: Trial, asked: SearchRequest, seeds: int | Sequence[int] | None
) -> tuple[Job, bool]:
    """The job of a trial, and whether it has noise: what it spends at most is in the study from here on.

    Raises:
        OverBudget: it would spend more than is left, with what other trials planned that are under way.
        Unbudgeted: it has noise, and no budget was given.
        InputError: settings that these parties cannot have, or refuse.
    """
    job = asked.prepare_job(suggest_settings(asked.space, trial))
    cost, finals = asked.planned_cost(job), len(final_seeds(seeds, job))
    if not asked.budget.allows(spent_by(study), [cost] * (asked.repeats + finals)):
        raise OverBudget(
            f"one more trial and the winner's runs, {asked.repeats + finals} on the same rows, would cross the budget "
            f"of ε = {asked.budget.epsilon:g}: give a larger budget, fewer seeds, or noise with a smaller ε"
        )
    if cost:
        trial.set_user_attr(PLANNED, kept_plan(total_cost([cost] * asked.repeats)))
    return job, bool(cost)


def run_trial(
    job: Job,
    parties: Parties,
    aligned: Aligned,
    *,
    metric: str,
    repeats: int,
    report: Report,
    observer: Observer | None = None,
) -> Outcome:
    """Run the job of a trial so many times, each with a seed of its own.

    Args:
        job: of `planned_trial`.
        parties: with the one split.
        aligned: their rows.
        metric: by which trials are compared.
        repeats: how many runs.
        report: hears the first run's epochs and their metric, and says whether it ends there.
        observer: hears how it goes on.

    Raises:
        InputError: the validation rows do not have this metric.
        SecureVFLError: whatever else ended a run.
    """
    other = observer or Observer()
    first = _Reporting(report, metric, other)
    values, released = [], []
    for k in range(repeats):
        numbered = job.replace(seed=job.seed + k)
        try:
            value, spent = _run_trial(numbered, parties, aligned, metric, first if k == 0 else other)
        except Pruned:
            return Outcome([], [], first.epochs, pruned=True)
        values.append(value)
        released.append(kept_releases(spent))
    return Outcome(values, released, first.epochs, pruned=False)


def _run_trial(
    job: Job, parties: Parties, aligned: Aligned, metric: str, observer: Observer
) -> tuple[float, dict[str, Sequence[Spent]]]:
    """The validation metric of the epoch that a run kept, and what each party released. The test metrics of the run
    are dropped here: nobody sees them."""
    ran = run_parties(job, parties, aligned, run="search", observer=observer)
    trained = ran.trained[parties.label_owners[0].name]
    valid = trained.epochs[trained.best_epoch - 1].valid if trained.best_epoch else {}
    if metric not in valid:
        raise InputError(
            f"the validation rows have no {metric}, by which trials are compared: they are of one class, or "
            "of one value, or none of them counts; give more rows, a larger valid, or stratify = true"
        )
    return float(valid[metric]), {name: one.spent for name, one in ran.trained.items()}

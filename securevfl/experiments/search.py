"""`search`: Optuna looks for settings of a job over your tables, scored on validation rows only.

One split is drawn before the first trial, and all trials have it: a row that tests the winner never validated a trial.
Trials run one after the other, or on a pool; their states are in Optuna's journal file, so that a search goes on where
it broke off.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from securevfl_net.durable import lock_folder, make_folder

from securevfl.data import Parties
from securevfl.errors import InputError
from securevfl.experiments.cells import find_metric
from securevfl.experiments.pool import choose_pool
from securevfl.experiments.privacy_cost import total_cost
from securevfl.experiments.search_budget import SearchBudget, kept_plan
from securevfl.experiments.search_loop import run_trials, trials_in_process
from securevfl.experiments.search_pool import check_pruner, on_pool
from securevfl.experiments.search_space import Space, check_space, describe_space, suggest_settings
from securevfl.experiments.search_study import (
    EPOCHS,
    ERROR,
    FINALS,
    complete_trials,
    ended_trials,
    in_memory,
    journal_of,
    make_study,
    mark_study,
    need_optuna,
    spent_by,
)
from securevfl.experiments.search_trial import SearchRequest, final_seeds, with_one_split
from securevfl.experiments.study import SearchRecord, SearchTrial, Study
from securevfl.experiments.sweep import choose_seeds, count_missing, empty_study, sweep
from securevfl.experiments.table_store import digest_tables
from securevfl.party import Job, check_trains
from securevfl.party_context import Observer
from securevfl.run.roster import Roster

if TYPE_CHECKING:
    from optuna.study import Study as OptunaStudy

__all__ = ["search"]


def search(
    job: Job,
    parties: Parties,
    space: Space,
    *,
    trials: int = 20,
    repeats: int = 1,
    seeds: int | Sequence[int] | None = None,
    budget: float | None = None,
    folder: str | Path | None = None,
    workers: int = 1,
    pool: str = "",
    study: OptunaStudy | None = None,
    observer: Observer | None = None,
) -> Study:
    """Look for settings of a job over your tables with Optuna, which has to be installed (`securevfl[optuna]`).

    Args:
        job: what the settings change.
        parties: the parties' tables.
        space: setting → what it may be: choices (``["relu", …]`` or label → value), a range (``{"low": 1e-4, "high":
            0.1, "log": True}``; two whole numbers for whole numbers), or an Optuna distribution. Where settings depend
            on each other: a function of Optuna's trial that returns setting → value.
        trials: how many in all, those that a `folder` has from before included.
        repeats: runs of a trial, with seeds of batches and first weights counted from the job's own; their mean is the
            trial's value. Only the first can be pruned.
        seeds: the winner's runs in the end, each tested: as for `sweep`, on the same split. Five unless given; of a
            winner with noise, one. 0 for none.
        budget: ε that all trials and the winner's runs may spend of one row's features, and of its labels, together.
            Needed where a trial has noise; the search ends before it would be crossed. ``math.inf`` for data that are
            public or simulated.
        folder: where Optuna's journal is: the same search goes on there; in memory unless given.
        workers: processes that run trials, one thread each; 1 runs them in this one, one after the other.
        pool: who runs trials, in place of `workers`, as `run_sweep` takes it. Its workers have to see
            `folder`, where the tables are while they run, for their owner alone. Trials of one worker are those of
            this process. With more, a trial is suggested while others are under way: what the sampler knows then, and
            from its 11th trial on what it suggests, depends on which ended first, so that the seed no longer makes the
            same search again.
        study: an Optuna study of your own, that maximises, with a sampler and a pruner of your choice; the default has
            TPE by the job's seed, and prunes below the median. Workers cannot ask a pruner that is in this process:
            for them it has to be ``optuna.pruners.NopPruner()``. Nothing locks its storage: `budget`
            holds for one search on it at a time.
        observer: hears how each trial goes on that runs in this process.

    Raises:
        InputError: a space, numbers, a pool or a folder that cannot be; noise without a budget; no trial that ended
            well.
        PolicyError: a policy that refuses the job.
    """
    check_trains(job.algorithm, "to search for")
    need_optuna()
    check_space(job, space)
    if not job.protection.opens_metrics or job.protection.compares_epochs(simulated=True):
        raise InputError(
            "trials are compared by metrics of the validation rows, and protection.metrics is "
            f"{getattr(job.protection, 'metrics', '')!r}, so that none is opened: set metrics = 'rounded'"
        )
    if not job.plan.validates:
        raise InputError(
            f"trials are compared by metrics of the validation rows, and {job.algorithm.title} under "
            f"{job.protection.title} scores none in training: search under protection 'plain', in a simulation"
        )
    _check_counts(trials=trials, repeats=repeats, workers=workers)
    if seeds is not None and seeds != 0:
        choose_seeds(seeds, job.seed)
    one_split, parties, aligned = with_one_split(job, parties)
    roster = Roster(
        owners=tuple(table.name for table in parties.label_owners),
        passive=tuple(table.name for table in parties.passive),
    )
    metric = find_metric(job, len(parties.active.classes))
    asked = SearchRequest(
        job=one_split,
        parties=parties,
        aligned=aligned,
        roster=roster,
        metric=metric,
        space=space,
        repeats=repeats,
        budget=SearchBudget(budget),
    )
    if folder is not None and study is not None:
        raise InputError("folder and study are both given: a study has a storage of its own; leave one out")
    pool = choose_pool(pool, workers)
    own = study is not None
    if study is not None and pool:
        check_pruner(study)
    kept = None if folder is None else Path(folder)
    with _open_study(kept, pool) as place:
        if study is None:
            study = make_study(job.seed, place)
        parts = [job.digest, digest_tables(parties), describe_space(space), str(repeats)]
        mark_study(study, hashlib.sha256("\n".join(parts).encode()).hexdigest())
        journal = None if own or place is None else journal_of(place)
        with (
            trials_in_process(asked, observer)
            if place is None or not pool
            else on_pool(pool, asked, place, journal) as runs
        ):
            stopped = run_trials(study, asked, trials, seeds, runs)
        if kept is None and journal is not None and place is not None:
            study = in_memory(place)  # the journal's folder is about to go
        return _make_result(job, study, asked, seeds, kept, stopped, pool)


@contextmanager
def _open_study(folder: Path | None, pool: str) -> Iterator[Path | None]:
    """Where journal and tables are, locked: the folder, a temporary one for workers, or nowhere."""
    if folder is not None:
        make_folder(folder)
        with lock_folder(folder, "wait for it to end, or give another folder"):
            yield folder
    elif pool:
        with tempfile.TemporaryDirectory(prefix="securevfl-search-") as made:
            yield Path(made)
    else:
        yield None


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 100_000:
            raise InputError(f"{name} is {count!r}; a whole number from 1 to 100,000 was expected")


def _make_result(
    given: Job,
    study: OptunaStudy,
    asked: SearchRequest,
    seeds: int | Sequence[int] | None,
    place: Path | None,
    stopped: str,
    pool: str,
) -> Study:
    from optuna.trial import FixedTrial

    if not complete_trials(study):
        raise InputError("no trial ended with a value: all were pruned; give a pruner with more patience")
    best = study.best_trial
    settings = suggest_settings(asked.space, FixedTrial(best.params))
    job = asked.prepare_job(settings)
    numbers = final_seeds(seeds, job)
    found = empty_study(job, asked.parties)
    if numbers:
        winner = None if place is None else place / "winner"
        cost = asked.planned_cost(job)
        left = len(numbers) if winner is None else count_missing(job, asked.parties, numbers, winner)
        if cost and left:
            # runs that an earlier call began and did not end may have released all that they planned: they stay counted
            if not asked.budget.allows(spent_by(study), [cost] * left):
                raise InputError(
                    f"the winner's {left} runs would cross the budget of ε = {asked.budget.epsilon:g}: give a "
                    "larger one, or fewer seeds; seeds=0 for none"
                )
            kept = dict(study.user_attrs.get(FINALS, {}))
            kept[f"{job.digest} {list(numbers)} {len(kept)}"] = kept_plan(total_cost([cost] * left))
            study.set_user_attr(FINALS, kept)
        own = "" if cost else pool  # noise stays here: a pool runs again what it loses, and no budget counts that
        found = sweep(job, asked.parties, {}, seeds=numbers, folder=winner, pool=own)
    trials = tuple(
        SearchTrial(
            number=one.number,
            settings=dict(one.params),
            value=one.value,
            state=one.state.name.lower(),
            epochs=one.user_attrs.get(EPOCHS),
            error=one.user_attrs.get(ERROR, ""),
        )
        for one in ended_trials(study)
    )
    # the winner as the user would run it: the split of the search is one drawing of the job's own split settings
    tuned = job.replace(split_by=given.split_by, stratify=given.stratify)
    search = SearchRecord(
        metric=asked.metric,
        value=float(best.values[0]),
        trials=trials,
        spent=spent_by(study),
        stopped=stopped,
        study=study,
    )
    return replace(found, points=(replace(found.points[0], settings=settings, job=tuned),), search=search)

"""The loop of a search: it asks Optuna for trials while a worker is free, and reports each result to Optuna.

One place is this process; a pool has as many as workers. The loop is the same, so that one worker makes the trials that
this process makes.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from securevfl_crypto.errors import PoolError

from securevfl.errors import InputError, SecureVFLError
from securevfl.experiments.search_budget import Unbudgeted
from securevfl.experiments.search_study import EPOCHS, ERROR, RELEASED, complete_trials, ended_trials
from securevfl.experiments.search_trial import Outcome, OverBudget, SearchRequest, planned_trial, run_trial
from securevfl.party import Job
from securevfl.party_context import Observer

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import Trial

__all__ = ["Runs", "run_trials", "trials_in_process"]


class Runs(Protocol):
    """Runs trials."""

    @property
    def slots(self) -> int:
        """How many trials run at the same time."""
        ...

    def start_trial(self, trial: Trial, job: Job, noisy: bool) -> Future[Any]:
        """Begin a trial.

        Args:
            trial: Optuna's.
            job: of `planned_trial`.
            noisy: whether it releases anything; then it may not run twice.
        """
        ...

    def read_outcome(self, trial: Trial, ended: Future[Any]) -> Outcome:
        """The outcome of a trial.

        Raises:
            SecureVFLError: what ended it.
            PoolError: a worker was lost, or met an unforeseen error.
        """
        ...


class _Here:
    """Runs trials in this process, each as it is started."""

    slots = 1

    def __init__(self, asked: SearchRequest, observer: Observer | None) -> None:
        self._asked, self._observer = asked, observer

    def start_trial(self, trial: Trial, job: Job, noisy: bool) -> Future[Any]:
        def report(epoch: int, value: float) -> bool:
            trial.report(value, epoch)
            return trial.should_prune()

        asked, ended = self._asked, Future[Any]()
        try:
            outcome = run_trial(
                job,
                asked.parties,
                asked.aligned,
                metric=asked.metric,
                repeats=asked.repeats,
                report=report,
                observer=self._observer,
            )
        except SecureVFLError as error:
            ended.set_exception(error)
        else:
            ended.set_result(outcome)
        return ended

    def read_outcome(self, trial: Trial, ended: Future[Any]) -> Outcome:
        outcome: Outcome = ended.result()
        return outcome


@contextmanager
def trials_in_process(asked: SearchRequest, observer: Observer | None) -> Iterator[Runs]:
    """Trials in this process, one after the other."""
    yield _Here(asked, observer)


def run_trials(study: Study, asked: SearchRequest, trials: int, seeds: int | Sequence[int] | None, runs: Runs) -> str:
    """Run trials until there are this many; return why they stopped early, or an empty text.

    A trial that fails stops no other one, once one ended with a value. Before that, none is begun until those under way
    have ended, and the first error is raised if none of them has a value.

    Raises:
        InputError: the budget is too small for one trial.
        Unbudgeted: a trial has noise, and no budget was given.
        SecureVFLError: what ended the first trials.
    """
    loop = _Loop(study, asked, trials, seeds, runs)
    try:
        return loop.run()
    except BaseException:
        loop.break_off()
        raise


class _Loop:
    def __init__(
        self, study: Study, asked: SearchRequest, trials: int, seeds: int | Sequence[int] | None, runs: Runs
    ) -> None:
        self._study, self._asked, self._trials, self._seeds, self._runs = study, asked, trials, seeds, runs
        self._going: dict[Future[Any], Trial] = {}
        self._next: Trial | None = None
        self._failed: SecureVFLError | None = None
        """What ended the first trials."""

    def run(self) -> str:
        while True:
            over = self._begin_trials()
            if not self._going:
                if self._failed is not None:
                    raise self._failed
                if over is None:
                    return ""
                self._fail_trial(self._next)
                self._next = None
                if not complete_trials(self._study):
                    raise InputError(str(over))
                return str(over)
            ended, _ = wait(self._going, return_when=FIRST_COMPLETED)
            for future in sorted(ended, key=lambda one: self._going[one].number):
                self._end_trial(future)

    def break_off(self) -> None:
        """Mark trials that are under way: they count as planned, and run again."""
        for trial in [*self._going.values(), self._next]:
            self._fail_trial(trial)

    def _begin_trials(self) -> OverBudget | None:
        """Fill free places. Where the budget has no room for the next trial beside those under way, it waits: what
        ended well costs less than was planned."""
        while len(self._going) < self._runs.slots and self._failed is None:
            if len(ended_trials(self._study)) + len(self._going) >= self._trials:
                break
            trial = self._next = self._next or self._study.ask()
            try:
                job, noisy = planned_trial(self._study, trial, self._asked, self._seeds)
            except OverBudget as over:
                return over
            except SecureVFLError as error:
                self._next = None
                self._refuse_trial(trial, error)
                continue
            future = self._runs.start_trial(trial, job, noisy)
            self._next = None
            self._going[future] = trial
        return None

    def _end_trial(self, future: Future[Any]) -> None:
        """Tell the study how a trial went."""
        from optuna.trial import TrialState

        trial = self._going[future]
        try:
            outcome = self._runs.read_outcome(trial, future)
        except (SecureVFLError, PoolError) as error:
            del self._going[future]
            self._note_epochs(trial)
            self._refuse_trial(trial, error if isinstance(error, SecureVFLError) else SecureVFLError(str(error)))
            return
        self._note_epochs(trial)
        if any(outcome.released):
            trial.set_user_attr(RELEASED, outcome.released)
        if outcome.pruned:
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            self._study.tell(trial, statistics.fmean(outcome.values))
            self._failed = None
        del self._going[future]

    def _note_epochs(self, trial: Trial) -> None:
        told = self._study.get_trials(deepcopy=False)[trial.number].intermediate_values
        trial.set_user_attr(EPOCHS, max(told, default=0))

    def _refuse_trial(self, trial: Trial, error: SecureVFLError) -> None:
        trial.set_user_attr(ERROR, str(error))
        self._fail_trial(trial)
        if isinstance(error, Unbudgeted):
            raise error
        if not complete_trials(self._study):
            self._failed = self._failed or error

    def _fail_trial(self, trial: Trial | None) -> None:
        from optuna.trial import TrialState

        if trial is not None:
            self._study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)

"""Optuna's study of a search: how it is made, whose it is, and what it keeps of trials and of what they released."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from securevfl.errors import InputError
from securevfl.experiments.privacy_cost import Cost
from securevfl.experiments.search_budget import planned_of, total_released

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

__all__ = [
    "EPOCHS",
    "ERROR",
    "FINALS",
    "PLANNED",
    "RELEASED",
    "complete_trials",
    "ended_trials",
    "in_memory",
    "journal_of",
    "journal_report",
    "make_study",
    "mark_study",
    "need_optuna",
    "spent_by",
]

PLANNED, RELEASED, EPOCHS, ERROR = "planned", "released", "epochs", "error"
"""What a study keeps of each trial."""
FINALS = "winner's runs"
"""What it keeps of these."""
_STARTUP = 5
"""Trials before any is pruned."""
_WHAT = "securevfl search"


def need_optuna() -> Any:
    """Optuna.

    Raises:
        InputError: it is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise InputError("search needs Optuna, which is not installed: pip install 'securevfl[optuna]'") from None
    return optuna


@contextmanager
def _silence_optuna(optuna: Any) -> Iterator[None]:
    """Without Optuna's line about each study that it makes."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(level, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)


def journal_of(folder: Path) -> Path:
    """The file of a folder's study."""
    return folder / "study.log"


def _open_journal(optuna: Any, file: Path) -> Any:
    from optuna.storages.journal import JournalFileBackend

    return optuna.storages.JournalStorage(JournalFileBackend(str(file)))


def _make_pruner(optuna: Any) -> Any:
    return optuna.pruners.MedianPruner(n_startup_trials=_STARTUP)


def make_study(seed: int, folder: Path | None) -> Study:
    """A study in memory, or in the journal of a folder.

    Args:
        seed: of the sampler; it is another one where a search goes on.
        folder: where ``study.log`` is.
    """
    optuna = need_optuna()
    storage = None if folder is None else _open_journal(optuna, journal_of(folder))
    with _silence_optuna(optuna):
        study = optuna.create_study(
            storage=storage,
            study_name=_WHAT if folder is not None else None,
            load_if_exists=True,
            direction="maximize",
            pruner=_make_pruner(optuna),
        )
    for left in study.trials:
        if left.state.name == "RUNNING":  # of a process that was killed
            study.tell(left.number, state=optuna.trial.TrialState.FAIL)
    study.sampler = optuna.samplers.TPESampler(seed=(seed + len(study.trials)) % (1 << 32))
    return cast("Study", study)


def in_memory(folder: Path) -> Study:
    """A copy of a folder's study, for when the folder is gone."""
    optuna = need_optuna()
    memory = optuna.storages.InMemoryStorage()
    with _silence_optuna(optuna):
        optuna.copy_study(
            from_study_name=_WHAT, from_storage=_open_journal(optuna, journal_of(folder)), to_storage=memory
        )
        return cast("Study", optuna.load_study(study_name=_WHAT, storage=memory, pruner=_make_pruner(optuna)))


def journal_report(file: Path, number: int) -> Callable[[int, float], bool]:
    """What a worker tells a trial's epochs: they go into the journal, where the pruner compares them with those of
    other trials.

    Args:
        file: of `journal_of`.
        number: of the trial, which is under way.
    """
    optuna = need_optuna()
    with _silence_optuna(optuna):
        study = optuna.load_study(
            study_name=_WHAT,
            storage=_open_journal(optuna, file),
            sampler=optuna.samplers.RandomSampler(),  # suggests nothing
            pruner=_make_pruner(optuna),
        )
    trial = optuna.trial.Trial(study, study.trials[number]._trial_id)
    told = set(study.trials[number].intermediate_values)

    def report(epoch: int, value: float) -> bool:
        if epoch not in told:  # by a worker that was lost
            trial.report(value, epoch)
        return bool(trial.should_prune())

    return report


def mark_study(study: Study, digest: str) -> None:
    """Mark the study as of one search.

    Args:
        study: Optuna's.
        digest: of what the search is over.

    Raises:
        InputError: it minimises, or is of another search.
    """
    if len(study.directions) != 1 or study.direction.name != "MAXIMIZE":
        raise InputError("the study does not maximise one value: make it with direction='maximize'")
    kept = study.user_attrs.get(_WHAT)
    if kept is not None and kept != digest:
        raise InputError(
            "this study is of another search: another job, other tables, another space or other repeats; give another "
            "folder"
        )
    if kept is None:
        study.set_user_attr(_WHAT, digest)


def ended_trials(study: Study) -> list[FrozenTrial]:
    """Trials that ended by themselves; those that were broken off run again."""
    return [one for one in study.trials if one.state.name in ("COMPLETE", "PRUNED") or ERROR in one.user_attrs]


def complete_trials(study: Study) -> list[FrozenTrial]:
    """Trials that have a value."""
    return [one for one in study.trials if one.state.name == "COMPLETE"]


def spent_by(study: Study) -> dict[str, Cost]:
    """What all trials of a study, and the winners' runs, spent of one row at most."""
    ended = [run for one in complete_trials(study) for run in one.user_attrs.get(RELEASED, [])]
    others = [
        planned_of(one.user_attrs[PLANNED])
        for one in study.trials
        if one.state.name != "COMPLETE" and PLANNED in one.user_attrs
    ]
    finals = [planned_of(kept) for kept in study.user_attrs.get(FINALS, {}).values()]
    return total_released(ended, [*others, *finals])

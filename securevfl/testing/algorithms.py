"""`check_algorithm`: check that an algorithm keeps the contract of all algorithms. Each check is a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from securevfl.errors import InputError
from securevfl.testing import algorithm_configuration as configuration
from securevfl.testing import algorithm_messages as messages
from securevfl.testing import algorithm_privacy as privacy
from securevfl.testing import algorithm_training as training
from securevfl.testing.failure import CheckFailed
from securevfl.testing.trial import Trial
from securevfl.training import Algorithm

__all__ = ["check_algorithm", "checks"]

_CHECKS: Mapping[str, Callable[[Trial], None]] = {
    "configuration": configuration.check_configuration,
    "registry": configuration.check_registry,
    "declarations": configuration.check_declarations,
    "refusals": configuration.check_refusals,
    "messages": messages.check_messages,
    "batches": training.check_batches,
    "ledgers": messages.check_ledgers,
    "receipt": messages.check_receipt,
    "findings": messages.check_findings,
    "determinism": training.check_determinism,
    "window": messages.check_window,
    "learning": training.check_learning,
    "learning from others": training.check_learning_from_others,
    "held-out rows": training.check_held_out_rows,
    "numbers of parties": training.check_numbers_of_parties,
    "alone": training.check_alone,
    "resuming": training.check_resuming,
    "prediction": training.check_prediction,
    "subsets": training.check_subsets,
    "sealing": privacy.check_sealing,
    "noise on features": privacy.check_noise_on_features,
    "loss": privacy.check_loss,
    "noise on labels": privacy.check_noise_on_labels,
    "randomised labels": privacy.check_randomised_labels,
    "further protections": privacy.check_further_protections,
}
"""Name → check, the cheap and general ones first: their failures explain those of later ones."""


def check_algorithm(algorithm: Algorithm | type[Algorithm]) -> None:
    """Check that an algorithm keeps the contract of all algorithms: it learns, is reproducible, declares what it sends,
    adds and counts the job's noise, resumes from a checkpoint, and predicts.

    Runs some dozens of small jobs in this process, which takes seconds.

    Args:
        algorithm: a class, for its defaults, or a configuration with small networks and few stages, which is quicker.

    Raises:
        CheckFailed: the first check that fails; the message begins with the algorithm and the check's name.
    """
    for _, check in checks(algorithm):
        check()


def checks(algorithm: Algorithm | type[Algorithm]) -> list[tuple[str, Callable[[], None]]]:
    """The single checks of `check_algorithm`, for a test runner: ``pytest.mark.parametrize("name, check", checks(…))``.

    Args:
        algorithm: as for `check_algorithm`.

    Returns:
        Pairs of a check's name and a function without arguments that runs it and raises `CheckFailed`. Nothing runs
        before one of them is called. They share runs, so calling all of them in one process is fastest.
    """
    trial = Trial(_configure(algorithm))
    return [(name, partial(_run_check, name, check, trial)) for name, check in _CHECKS.items()]


def _configure(algorithm: Algorithm | type[Algorithm]) -> Algorithm:
    if isinstance(algorithm, Algorithm):
        return algorithm
    try:
        return algorithm()
    except (InputError, TypeError) as error:
        raise CheckFailed(
            f"{algorithm.__name__} [configuration]: it cannot be made without settings ({error}); give a configuration"
        ) from error


def _run_check(name: str, check: Callable[[Trial], None], trial: Trial) -> None:
    """Run one check, and add its name to its error.

    Raises:
        CheckFailed: it fails, or the algorithm ends with an error.
    """
    at = f"{type(trial.algorithm).__name__} [{name}]"
    try:
        check(trial)
    except CheckFailed as error:
        raise CheckFailed(f"{at}: {error}") from error
    except Exception as error:
        raise CheckFailed(f"{at}: a run ends with {type(error).__name__}: {error}") from error

"""What a search may try: a setting's choices or its range, as Optuna's distributions; or a function of a trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.config import Config
from securevfl.errors import InputError
from securevfl.experiments.grid import read_over, with_setting
from securevfl.party import Job

if TYPE_CHECKING:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.trial import BaseTrial

__all__ = ["Space", "check_space", "describe_space", "job_of", "read_space", "suggest_settings"]

Space = Mapping[str, Any] | Callable[[Any], Mapping[str, Any]]
"""Setting → its choices (a list, or label → value), its range (`{"low": …, "high": …}`), or an Optuna distribution; or
a function of Optuna's trial that returns setting → value."""

_RANGE = {"low", "high", "log", "step"}
_ONE_SPLIT = ("valid", "test", "valid_rows", "stratify", "split_by", "align", "link", "device", "pool", "task")
"""What all trials have alike."""


def check_space(job: Job, space: Space) -> None:
    """Hold the space against the job, before anything runs: each choice, and both ends of each range.

    Raises:
        InputError: no such setting, values that it does not take, or one that all trials have to have alike.
        PolicyError: a protection that the algorithm cannot have.
    """
    if callable(space):
        return
    if not isinstance(space, Mapping) or not space:
        raise InputError(
            "space names no setting; give setting → choices or range: {'algorithm.lr': {'low': 1e-4, 'high': 0.1, "
            "'log': True}}"
        )
    whole = [path for path in space if any(other.startswith(f"{path}.") for other in space)]
    if whole:
        raise InputError(
            f"space has {whole[0]!r} and a part of it: which parts there are depends on the choice, so give a function "
            "of the trial that returns setting → value"
        )
    found = []
    for path, given in space.items():
        try:
            for value in _list_ends(path, given):
                job_of(job, {path: value})
        except InputError as error:
            found.append(str(error))
    if found:
        raise InputError("\n  ".join(found))


def read_space(texts: Sequence[str]) -> dict[str, Any]:
    """A space as the command line has it.

    Args:
        texts: ``algorithm.lr=0.0001..0.1:log`` for a range, with ``:log`` or without; ``batch_size=32,64`` for choices.

    Raises:
        InputError: one of another form, or a setting twice.
    """
    found: dict[str, Any] = {}
    for text in texts:
        path, _, given = text.partition("=")
        low, dots, high = given.partition("..")
        if not dots:
            more: dict[str, Any] = read_over([text])
        else:
            high, _, scale = high.partition(":")
            if scale not in ("", "log"):
                raise InputError(f"{text!r} ends with :{scale}; a range ends with :log, or with nothing")
            try:
                ends = {"low": _parse_number(low), "high": _parse_number(high)}
            except ValueError:
                raise InputError(f"{text!r} is from {low!r} to {high!r}; two numbers were expected") from None
            more = {path.strip(): ends | ({"log": True} if scale else {})}
        doubled = found.keys() & more.keys()
        if doubled:
            raise InputError(f"{sorted(doubled)[0]!r} is given twice: give all that it may be at once")
        found |= more
    return found


def _parse_number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def job_of(job: Job, settings: Mapping[str, Any]) -> Job:
    """The job with these settings.

    Raises:
        InputError: a setting that does not exist, a value that it does not take, or one that all trials have alike.
        PolicyError: an algorithm and a protection that do not go together.
    """
    for path in sorted(settings, key=lambda path: path.count(".")):  # the whole before its parts
        first = path.split(".", maxsplit=1)[0]
        if first in _ONE_SPLIT:
            raise InputError(f"{path!r} cannot be searched: all trials have the same {first}, so set it in the job")
        job = with_setting(job, path, settings[path])
    return job


def suggest_settings(space: Space, trial: BaseTrial) -> dict[str, Any]:
    """The settings that a trial is to try.

    Args:
        space: see `Space`.
        trial: of Optuna's; it chooses.

    Raises:
        InputError: a function that returns no settings.
    """
    if callable(space):
        found = space(trial)
        if not isinstance(found, Mapping) or not found:
            raise InputError(
                f"the function of the trial returned {found!r}; setting → value was expected: "
                "{'algorithm.lr': trial.suggest_float('lr', 1e-4, 0.1, log=True)}"
            )
        return dict(found)
    return {path: _suggest_value(path, given, trial) for path, given in space.items()}


def describe_space(space: Space) -> str:
    """The space in words, for the digest that says whether a folder's study is the same search."""
    if callable(space):
        return f"function {getattr(space, '__qualname__', type(space).__qualname__)}"
    return "; ".join(f"{path}: {given!r}" for path, given in sorted(space.items()))


def _labelled_choices(given: Any) -> Mapping[str, Any] | None:
    """Label → value of a list, or of label → value; None for a range or a distribution."""
    if isinstance(given, Mapping) and not (set(given) <= _RANGE and {"low", "high"} <= set(given)):
        return {str(label): value for label, value in given.items()}
    given = given.tolist() if isinstance(given, np.ndarray) else given
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        values = [value.item() if isinstance(value, np.generic) else value for value in given]
        return {_format_choice(value): value for value in values}
    return None


def _format_choice(value: object) -> str:
    title = getattr(value, "title", "") if isinstance(value, Config) else ""
    return title if isinstance(title, str) and title else repr(value) if isinstance(value, Config) else str(value)


def _suggest_value(path: str, given: Any, trial: BaseTrial) -> Any:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    choices = _labelled_choices(given)
    if choices is not None:
        return choices[trial.suggest_categorical(path, list(choices))]
    made = _build_distribution(path, given)
    if isinstance(made, CategoricalDistribution):
        return trial.suggest_categorical(path, made.choices)
    if isinstance(made, IntDistribution):
        return trial.suggest_int(path, made.low, made.high, step=made.step, log=made.log)
    return trial.suggest_float(path, made.low, made.high, step=made.step, log=made.log)


def _list_ends(path: str, given: Any) -> list[Any]:
    """Each choice, or both ends of a range.

    Raises:
        InputError: neither.
    """
    from optuna.distributions import CategoricalDistribution

    choices = _labelled_choices(given)
    if choices is not None:
        size = len(given)
        if not size or len(choices) != size:
            raise InputError(f"space[{path!r}] is {given!r}; different choices were expected, at least one")
        return list(choices.values())
    made = _build_distribution(path, given)
    return list(made.choices) if isinstance(made, CategoricalDistribution) else [made.low, made.high]


def _build_distribution(path: str, given: Any) -> CategoricalDistribution | FloatDistribution | IntDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(given, CategoricalDistribution | FloatDistribution | IntDistribution):
        return given
    if not isinstance(given, Mapping):
        raise InputError(
            f"space[{path!r}] is {given!r}; a list of choices, {{'low': …, 'high': …}} or an Optuna distribution was "
            "expected"
        )
    ends = [given["low"], given["high"]]
    if not all(isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one) for one in ends):
        raise InputError(f"space[{path!r}] is from {ends[0]!r} to {ends[1]!r}; two numbers were expected")
    if ends[0] > ends[1]:
        raise InputError(f"space[{path!r}] is from {ends[0]!r} to {ends[1]!r}; give the lower end first")
    options = {name: given[name] for name in ("log", "step") if name in given}
    try:
        if all(isinstance(one, int) for one in ends) and isinstance(given.get("step", 1), int):
            return IntDistribution(ends[0], ends[1], **options)
        return FloatDistribution(float(ends[0]), float(ends[1]), **options)
    except (ValueError, TypeError) as error:
        raise InputError(f"space[{path!r}]: {error}") from None

"""Settings to try: a path into a job (``"algorithm.lr"``) and its values; every combination is a point."""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from securevfl.config import Config
from securevfl.errors import InputError, PolicyError, UnknownNameError
from securevfl.party import Job

__all__ = ["Grid", "GridAxis", "Over", "Point", "grid_of", "read_over", "with_setting"]

Over = Mapping[str, Sequence[Any] | Mapping[str, Any]]
"""Path of a setting → its values, or label → value."""

_MOST = 10_000
_NOT_SWEPT = {
    "seed": "give seeds=…, which every point runs with",
    "fold": "use sv.cross_validate for folds",
    "policies": "a policy is its party's own affair",
}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One combination of settings.

    Attributes:
        settings: short name of each setting → its value, or its label.
        job: the job with them; its seed is that of the job that was given.
        method: the settings off the axis, in words.
        x: position on the axis.
        data: label of the data set, where the study has several; empty where the tables are own ones.
        baseline: whether it is there to compare with, and never the best.
    """

    settings: Mapping[str, Any]
    job: Job = field(repr=False)
    method: str = field(repr=False)
    x: float = field(repr=False)
    data: str = field(default="", repr=False)
    baseline: bool = field(default=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class GridAxis:
    """The setting on the axis of plots and tables.

    Attributes:
        name: as shown.
        labels: of positions 0, 1 … where its values are no numbers; else empty.
    """

    name: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Grid:
    """All points.

    Attributes:
        axis: what tables have in columns.
        points: every combination, in the order of the values.
    """

    axis: GridAxis
    points: tuple[Point, ...]


@dataclass(frozen=True, kw_only=True)
class _Setting:
    path: str
    name: str
    values: tuple[Any, ...] = field(repr=False)
    labels: tuple[Any, ...]

    @property
    def is_numeric(self) -> bool:
        return all(isinstance(one, int | float) and not isinstance(one, bool) for one in self.labels)


def with_setting(job: Job, path: str, value: object) -> Job:
    """A job with one setting changed.

    Args:
        job: the job.
        path: of the setting: ``"epochs"``, ``"algorithm"``, ``"algorithm.lr"``, ``"protection.dp.features.epsilon"``.
        value: for it, as the setting takes it; an algorithm or a protection also by its name.

    Raises:
        InputError: no such setting, or a value that it does not take.
        PolicyError: an algorithm and a protection that do not go together.
    """
    first = path.split(".", maxsplit=1)[0]
    if first in _NOT_SWEPT:
        raise InputError(f"{path!r} cannot be swept: {_NOT_SWEPT[first]}")
    if first == "job" and path != first:
        raise InputError(
            f"{path!r} is no setting: those of [job] are named without it, as {path.removeprefix('job.')!r}"
        )
    return cast(Job, _replace_setting(job, path.split("."), value, "job"))


def _replace_setting(config: Config, path: Sequence[str], value: object, where: str) -> Config:
    name, *rest = path
    if name not in config.__struct_fields__:
        raise UnknownNameError(f"setting of {where}:", name, config.__struct_fields__)
    if not rest:
        return config.replace(**{name: value})
    inner = getattr(config, name)
    if not isinstance(inner, Config):
        raise InputError(f"{where}.{name} is {inner!r}, so it has no {rest[0]!r}: give the job a {name} that has it")
    return config.replace(**{name: _replace_setting(inner, rest, value, f"{where}.{name}")})


def grid_of(job: Job, over: Over, axis: str | None = None) -> Grid:
    """Every combination of settings, each as a job that was checked.

    Args:
        job: what they change.
        over: path → values, or path → label → value; none for the job as it is.
        axis: the path that tables have in columns; else the first with two numbers or more, else the first.

    Raises:
        InputError: everything that is wrong with it, in one message.
        PolicyError: a protection that an algorithm cannot have.
    """
    settings = _read_settings(over)
    chosen = _choose_axis(settings, axis)
    most = math.prod(len(one.values) for one in settings)
    if most > _MOST:
        raise InputError(f"over has {most:,} combinations; {_MOST:,} are the most: leave out values, or use sv.search")
    found: list[str] = []
    refused: list[str] = []
    points = []
    for places in itertools.product(*(range(len(one.values)) for one in settings)):
        picked = dict(zip((one.name for one in settings), places, strict=True))
        shown = {one.name: one.labels[picked[one.name]] for one in settings}
        words = ", ".join(f"{name} {value}" for name, value in shown.items() if chosen is None or name != chosen.name)
        try:
            made = job
            for one in sorted(settings, key=lambda one: one.path.count(".")):  # the whole before its parts
                made = with_setting(made, one.path, one.values[picked[one.name]])
        except InputError as error:
            found.append(f"{', '.join(f'{k} {v}' for k, v in shown.items())}: {error}")
            continue
        except PolicyError as error:
            refused.append(f"{', '.join(f'{k} {v}' for k, v in shown.items())}: {error}")
            continue
        place = 0 if chosen is None else picked[chosen.name]
        x = float(chosen.labels[place]) if chosen is not None and chosen.is_numeric else float(place)
        title = "the job" if chosen is not None and chosen.path == "algorithm" else job.algorithm.title
        points.append(Point(settings=shown, job=made, method=words or title, x=x))
    if found:
        more = f"\n  and {len(found) - 10} more" if len(found) > 10 else ""
        raise InputError(("\n  ".join(found[:10])) + more)
    if refused:
        raise PolicyError("; ".join(dict.fromkeys(refused)))
    if chosen is None:
        return Grid(axis=GridAxis(name="setting", labels=("as it is",)), points=tuple(points))
    labels = () if chosen.is_numeric else tuple(str(label) for label in chosen.labels)
    return Grid(axis=GridAxis(name=chosen.name, labels=labels), points=tuple(points))


def read_over(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Parse settings and their values from the command line.

    Args:
        texts: ``algorithm.lr=0.01,0.1`` each: a path, and values as TOML writes them, or words without quotes.

    Raises:
        InputError: one of another form, or a setting twice.
    """
    found: dict[str, list[Any]] = {}
    for text in texts:
        path, equals, values = text.partition("=")
        path = path.strip()
        if not equals or not path or not values.strip():
            raise InputError(f"{text!r} is no setting with values; write it like algorithm.lr=0.01,0.1")
        if path in found:
            raise InputError(f"{path!r} is given twice: give all of its values at once")
        bare = values.strip()
        try:
            whole = tomllib.loads(f"x = {bare}" if bare.startswith("[") else f"x = [{bare}]")["x"]
        except tomllib.TOMLDecodeError:
            whole = [_parse_value(one.strip()) for one in values.split(",")]
        found[path] = whole
    return found


def _parse_value(text: str) -> Any:
    """Parse a value as TOML; text that is not TOML stays as it is."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _read_settings(over: Over) -> list[_Setting]:
    if not isinstance(over, Mapping):
        raise InputError(f"over is a {type(over).__name__}; give setting → values: {{'algorithm.lr': [0.01, 0.1]}}")
    wrong = [path for path in over if not isinstance(path, str) or not path or "" in path.split(".")]
    if wrong:
        raise InputError(f"over names the setting {wrong[0]!r}; a path such as 'algorithm.lr' was expected")
    last = [path.rpartition(".")[2] for path in over]
    found = []
    for path, given in over.items():
        values = given.tolist() if isinstance(given, np.ndarray) else given
        if isinstance(values, str | bytes) or not isinstance(values, Sequence | Mapping) or not values:
            raise InputError(f"over[{path!r}] is {values!r}; give a list of values, at least one")
        short = path.rpartition(".")[2]
        name = path if last.count(short) > 1 else short
        if isinstance(values, Mapping):
            labels, taken = tuple(map(str, values)), tuple(values.values())
        else:
            taken = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
            labels = _format_labels(taken)
        doubled = sorted({str(one) for one in labels if labels.count(one) > 1})
        if doubled:
            raise InputError(f"over[{path!r}] has {doubled[0]} twice: leave one out, or label them {{label: value}}")
        found.append(_Setting(path=path, name=name, values=taken, labels=labels))
    return found


def _format_labels(values: Sequence[object]) -> tuple[Any, ...]:
    """How values are shown: configurations in full where their titles are alike."""
    found = tuple(_format_label(value) for value in values)
    if len(set(map(str, found))) == len(found):
        return found
    return tuple(repr(value) if isinstance(value, Config) else _format_label(value) for value in values)


def _format_label(value: object) -> Any:
    """How a value is shown: a number as it is, a configuration by its title."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return value
    if isinstance(value, Config):
        title = getattr(value, "title", "")
        return title if isinstance(title, str) and title else repr(value)
    return str(value)


def _choose_axis(settings: Sequence[_Setting], axis: str | None) -> _Setting | None:
    if axis is not None:
        for one in settings:
            if axis in (one.path, one.name):
                return one
        raise UnknownNameError("axis", axis, [one.path for one in settings])
    numbers = [one for one in settings if one.is_numeric and len(one.values) > 1]
    return next(iter([*numbers, *settings]), None)

"""The installed algorithms: entry points of `securevfl.algorithms` from any package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from typing import Any

from securevfl.registry import Registry
from securevfl.training.fits import Fits

__all__ = ["AUTO", "STATISTICS", "algorithms_fit", "load_registered", "registered_algorithms", "selectable_algorithms"]

_REGISTRY = Registry("algorithm", "securevfl.algorithms")

AUTO = EntryPoint("auto", "securevfl.algorithms.automatic:AutoAlgorithm", _REGISTRY.group)
"""The choice among algorithms: a job can name it, and it is not one of them."""


STATISTICS = EntryPoint("statistics", "securevfl.algorithms.statistics:Statistics", _REGISTRY.group)
"""Statistics before a model: a job can name them, and they train nothing."""

_BESIDE = {one.name: one for one in (AUTO, STATISTICS)}


def registered_algorithms() -> Mapping[str, EntryPoint]:
    """Name in job files → the algorithm's entry point; see `Registry.entries`."""
    return _REGISTRY.entries


def selectable_algorithms() -> tuple[str, ...]:
    """Names that a job can give as its algorithm: those of the installed ones, ``"auto"`` and
    ``"statistics"``."""
    return (*registered_algorithms(), *_BESIDE)


def load_registered(name: str) -> Any:
    """Load what is registered under this name, or one of those beside; see `Registry.load`. `find_algorithm` also
    checks it."""
    return _BESIDE[name].load() if name in _BESIDE else _REGISTRY.load(name)


def algorithms_fit(fit: Callable[[Fits], bool]) -> list[str]:
    """Names of the algorithms whose `fits` passes this test, for messages that suggest some."""
    return [name for name in registered_algorithms() if fit(getattr(load_registered(name), "fits", Fits()))]

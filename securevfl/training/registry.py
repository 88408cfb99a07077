"""Which algorithms there are: the entry points of `securevfl.algorithms`, of any installed package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from typing import Any

from securevfl.registry import Registry
from securevfl.training.fits import Fits

__all__ = ["algorithms_fit", "load_registered", "registered_algorithms"]

_REGISTRY = Registry("algorithm", "securevfl.algorithms")


def registered_algorithms() -> Mapping[str, EntryPoint]:
    """Name in job files → where the algorithm lives; see `Registry.entries`."""
    return _REGISTRY.entries


def load_registered(name: str) -> Any:
    """What is registered under this name; see `Registry.load`, and `find_algorithm`, which checks it."""
    return _REGISTRY.load(name)


def algorithms_fit(fit: Callable[[Fits], bool]) -> list[str]:
    """Names of the algorithms whose `fits` this accepts: messages list them from here."""
    return [name for name in registered_algorithms() if fit(getattr(load_registered(name), "fits", Fits()))]

"""The installed algorithms: entry points of `securevfl.algorithms` from any package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from typing import Any

from securevfl.registry import Registry
from securevfl.training.fits import Fits

__all__ = ["algorithms_fit", "load_registered", "registered_algorithms"]

_REGISTRY = Registry("algorithm", "securevfl.algorithms")


def registered_algorithms() -> Mapping[str, EntryPoint]:
    """Name in job files → the algorithm's entry point; see `Registry.entries`."""
    return _REGISTRY.entries


def load_registered(name: str) -> Any:
    """Load what is registered under this name; see `Registry.load`. `find_algorithm` also checks it."""
    return _REGISTRY.load(name)


def algorithms_fit(fit: Callable[[Fits], bool]) -> list[str]:
    """Names of the algorithms whose `fits` passes this test, for messages that suggest some."""
    return [name for name in registered_algorithms() if fit(getattr(load_registered(name), "fits", Fits()))]

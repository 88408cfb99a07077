"""Which algorithms there are: the entry points of `securevfl.algorithms`, of any installed package."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any

from securevfl.registry import Registry

__all__ = ["algorithms", "loaded", "that_learn"]

_REGISTRY = Registry("algorithm", "securevfl.algorithms")


def algorithms() -> Mapping[str, EntryPoint]:
    """Name in job files → where the algorithm lives; see `Registry.entries`."""
    return _REGISTRY.entries


def loaded(name: str) -> Any:
    """What is registered under this name; see `Registry.load`, and `find_algorithm`, which checks it."""
    return _REGISTRY.load(name)


def that_learn(what: str) -> list[str]:
    """Names of those whose `learns` has this."""
    return sorted(name for name in algorithms() if what in getattr(loaded(name), "__dict__", {}).get("learns", ()))

"""Which algorithms there are. Job files name them, and names are entry points: an installed package can add one.

Nothing is imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from securevfl.errors import InputError, UnknownNameError

__all__ = ["GROUP", "algorithms", "loaded", "that_learn"]

GROUP = "securevfl.algorithms"
"""The group of entry points that algorithms register in."""


@cache
def algorithms() -> Mapping[str, EntryPoint]:
    """Name in job files → where the algorithm lives; nothing is imported yet.

    Raises:
        InputError: two installed packages give the same name to different algorithms.
    """
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        if found.setdefault(entry.name, entry).value != entry.value:
            raise InputError(
                f"two algorithms are called {entry.name!r}: {found[entry.name].value} and {entry.value}; uninstall one"
            )
    return dict(sorted(found.items()))


def loaded(name: str) -> Any:
    """What is registered under this name; see `find_algorithm`.

    Raises:
        UnknownNameError: no installed package has one.
        InputError: it cannot be imported.
    """
    known = algorithms()
    if name not in known:
        raise UnknownNameError("algorithm", name, known)
    try:
        return known[name].load()
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"algorithm {name!r} is registered as {known[name].value} and does not load: {error}"
        ) from error


def that_learn(what: str) -> list[str]:
    """Names of those whose `learns` has this."""
    return sorted(name for name in algorithms() if what in getattr(loaded(name), "__dict__", {}).get("learns", ()))

"""Columns that a job names, as ``"party.column"``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from securevfl.algorithms.additive.edges import CELLS, signed_log
from securevfl.errors import UnknownNameError

__all__ = ["declared_mistakes", "named_mistakes", "own_entries", "split_name"]

_T = TypeVar("_T")

_NARROWEST = 1e-9
"""The narrowest range, on the scale of `signed_log`, whose cells differ in floating point."""

_MOST_LEVELS = 254
"""One bin more has all other levels, and one more missing values."""


def split_name(name: str) -> tuple[str, str]:
    """Split ``"party.column"`` into party and column; the party is empty if the name has no dot."""
    party, dot, column = name.partition(".")
    return (party, column) if dot and column else ("", name)


def own_entries(party: str, entries: Mapping[str, _T]) -> dict[str, _T]:
    """The entries of one party's columns, by column."""
    found = {}
    for name, value in entries.items():
        owner, column = split_name(name)
        if owner == party:
            found[column] = value
    return found


def named_mistakes(key: str, names: Iterable[str], columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Sentences about names of columns that no party has.

    Args:
        key: the setting, for the messages: ``"additive.ranges"``.
        names: ``"party.column"``.
        columns: of each party.
    """
    found = []
    for name in names:
        party, column = split_name(name)
        if party not in columns:
            found.append(f"{key} names {name!r}, and no party is {party!r}: they are {', '.join(columns)}")
        elif column not in columns[party]:
            found.append(str(UnknownNameError(f"{key}: column of {party!r}:", column, columns[party])))
    return found


def declared_mistakes(
    prefix: str, ranges: Mapping[str, tuple[float, float]], levels: Mapping[str, Sequence[str]]
) -> list[str]:
    """Sentences about ranges and levels that cannot be.

    Args:
        prefix: the algorithm's name, for the messages.
        ranges: ``"party.column"`` → lowest and highest value.
        levels: ``"party.column"`` → names of levels.
    """
    found = []
    for name, (low, high) in ranges.items():
        if not (math.isfinite(high - low) and signed_log(high) - signed_log(low) >= _NARROWEST):
            found.append(
                f"{prefix}.ranges of {name!r} is {(low, high)}: give the lowest and the highest value, finite and "
                f"far enough apart for {CELLS} cells"
            )
    for name, own in levels.items():
        if len(set(own)) != len(own) or not own or not all(own) or len(own) > _MOST_LEVELS:
            found.append(f"{prefix}.levels of {name!r}: give 1 to 254 different names, none of them empty")
    return found

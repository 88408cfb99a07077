"""Columns that a job names, as ``"party.column"``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from securevfl.errors import UnknownNameError

__all__ = ["named_mistakes", "own_entries", "split_name"]

_T = TypeVar("_T")


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
        key: the setting, for the messages.
        names: ``"party.column"``.
        columns: of each party.
    """
    found = []
    for name in names:
        party, column = split_name(name)
        if party not in columns:
            found.append(f"additive.{key} names {name!r}, and no party is {party!r}: they are {', '.join(columns)}")
        elif column not in columns[party]:
            found.append(str(UnknownNameError(f"additive.{key}: column of {party!r}:", column, columns[party])))
    return found

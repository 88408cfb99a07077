"""Monotone constraints: columns along which scores may only rise or only fall, named by a job."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl.errors import InputError

__all__ = ["check_parties", "column_directions", "split_name"]


def split_name(name: str) -> tuple[str, str]:
    """Split ``"party.column"`` into party and column; the party is empty if the name has no dot."""
    party, dot, column = name.partition(".")
    return (party, column) if dot and column else ("", name)


def check_parties(names: Sequence[str], parties: Sequence[str]) -> None:
    """Check that constrained columns belong to parties of the job.

    Args:
        names: ``"party.column"``.
        parties: of the job.

    Raises:
        InputError: a column belongs to a party that is not in the job.
    """
    for name in names:
        party = split_name(name)[0]
        if party not in parties:
            raise InputError(
                f"boosting.rising or boosting.falling names {name!r}, and no party is {party!r}: the parties are "
                f"{', '.join(parties)}"
            )


def column_directions(
    party: str, columns: Sequence[str], codes: Sequence[int], rising: Sequence[str], falling: Sequence[str]
) -> np.ndarray:
    """1 for columns along which scores may only rise, −1 where they may only fall, else 0; int64 (columns,).

    Args:
        party: whose columns these are.
        columns: their names.
        codes: number of codes of each column, 0 for numbers.
        rising: ``"party.column"`` of any parties.
        falling: likewise.

    Raises:
        InputError: the party has no such column, or its values have no order.
    """
    found = np.zeros(len(columns), dtype=np.int64)
    for names, direction in ((rising, 1), (falling, -1)):
        key = "rising" if direction > 0 else "falling"
        for name in names:
            owner, column = split_name(name)
            if owner != party:
                continue
            if column not in columns:
                raise InputError(f"boosting.{key} names {name!r}: {party!r} has no column {column!r} to train on")
            place = list(columns).index(column)
            if codes[place]:
                raise InputError(f"boosting.{key} names {name!r}, whose values are categories: only numbers can rise")
            found[place] = direction
    return found

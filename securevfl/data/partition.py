"""Splitting one table among parties: which columns, which rows and which order each of them holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from securevfl.data.parties import Parties
from securevfl.data.table import PartyTable
from securevfl.errors import InputError

__all__ = ["independent_rows", "partition", "shared_rows"]


def _generator(seed: int, *labels: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=labels))


def _check_overlap(overlap: float) -> None:
    if not 0 < overlap <= 1:
        raise InputError(f"overlap is {overlap}; it is a share of the rows, more than 0 and at most 1")


def independent_rows(rows: int, parties: int, *, overlap: float, seed: int) -> list[np.ndarray]:
    """For each party its own random share of the rows, each in its own random order.

    Args:
        rows: how many there are.
        parties: how many parties.
        overlap: share of the rows that each party holds, independently of the others.
        seed: of the choice.

    Raises:
        InputError: an overlap out of range.
    """
    _check_overlap(overlap)
    count = max(round(rows * overlap), 1)
    return [_generator(seed, party).permutation(rows)[:count] for party in range(parties)]


def shared_rows(rows: int, parties: int, *, overlap: float, seed: int) -> list[np.ndarray]:
    """A share `overlap` of the rows at all parties, the rest split among them without overlap; each in its own order.

    This is the partition of the papers on few aligned samples. Arguments and errors as for `independent_rows`.
    """
    _check_overlap(overlap)
    order = _generator(seed, parties).permutation(rows)
    common = max(round(rows * overlap), 1)
    rest = np.array_split(order[common:], parties)
    return [
        _generator(seed, party).permutation(np.concatenate([order[:common], part])) for party, part in enumerate(rest)
    ]


def partition(
    table: PartyTable, columns: Mapping[str, Sequence[str]], rows: Sequence[np.ndarray], *, description: str = ""
) -> Parties:
    """Parties that each hold some columns and rows of `table`; its own name says who keeps the labels.

    Args:
        table: the whole table, named like the party that will be active.
        columns: party → its columns.
        rows: for each party, in the order of `columns`, its row numbers.
        description: of the data.

    Raises:
        InputError: the active party is not among `columns`, or a row list is missing.
    """
    if table.name not in columns:
        raise InputError(f"the labels belong to {table.name!r}, which is not among {', '.join(columns)}")
    if len(rows) != len(columns):
        raise InputError(f"{len(rows)} lists of rows for {len(columns)} parties; one for each is needed")
    parts = []
    for (name, chosen), own in zip(columns.items(), rows, strict=True):
        part = table.select(chosen).take(own)
        active = name == table.name
        parts.append(
            PartyTable(
                name=name,
                ids=part.ids,
                columns=part.columns,
                categorical=part.categorical,
                label=part.label if active else None,
                classes=part.classes if active else (),
                label_name=part.label_name if active else "",
            )
        )
    return Parties.of(*parts, description=description)

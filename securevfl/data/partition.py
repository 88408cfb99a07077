"""Split one table among parties: each party's columns, rows and row order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real

import numpy as np

from securevfl.data.parties import Parties
from securevfl.data.table import PartyTable
from securevfl.errors import InputError

__all__ = [
    "drop_labels",
    "independent_rows",
    "is_number",
    "partition",
    "seeded_generator",
    "shared_rows",
    "whole_number",
]


def seeded_generator(seed: int, *labels: int) -> np.random.Generator:
    """Return an independent random generator for each tuple of labels.

    Raises:
        InputError: the seed is not a whole number from 0 up.
    """
    whole_number("seed", seed, 0)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=labels))


def whole_number(what: str, value: object, least: int) -> None:
    """Check that an argument is a whole number.

    Raises:
        InputError: `value` is not a whole number, or is below `least`.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise InputError(f"{what} is {value!r}; a whole number from {least} was expected")


def is_number(value: object) -> bool:
    """Return True if an argument is a number; True and False do not count."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _check_overlap(overlap: float) -> None:
    if not is_number(overlap) or not 0 < overlap <= 1:
        raise InputError(f"overlap is {overlap!r}; give a share of the rows, more than 0 and at most 1")


def independent_rows(rows: int, parties: int, *, overlap: float, seed: int) -> list[np.ndarray]:
    """Draw a separate random share of the rows for each party, in a separate random order.

    Args:
        rows: number of rows.
        parties: number of parties.
        overlap: share of the rows at each party, drawn independently.
        seed: seeds the choice.

    Raises:
        InputError: an overlap out of range.
    """
    _check_overlap(overlap)
    count = max(round(rows * overlap), 1)
    return [seeded_generator(seed, party).permutation(rows)[:count] for party in range(parties)]


def shared_rows(rows: int, parties: int, *, overlap: float, seed: int) -> list[np.ndarray]:
    """Give all parties the share `overlap` of the rows and split the rest among them; each gets its own row order.

    This is the partition of the papers on few aligned samples. Arguments and errors as for `independent_rows`.
    """
    _check_overlap(overlap)
    order = seeded_generator(seed, parties).permutation(rows)
    common = max(round(rows * overlap), 1)
    rest = np.array_split(order[common:], parties)
    return [
        seeded_generator(seed, party).permutation(np.concatenate([order[:common], part]))
        for party, part in enumerate(rest)
    ]


def partition(
    table: PartyTable, columns: Mapping[str, Sequence[str]], rows: Sequence[np.ndarray], *, description: str = ""
) -> Parties:
    """Split `table` into parties with some columns and rows each; the party named like the table keeps the labels.

    Args:
        table: the full table, named after the future active party.
        columns: party → its columns.
        rows: for each party, in the order of `columns`, its row numbers.
        description: description of the data.

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
        parts.append(replace(part, name=name) if name == table.name else drop_labels(part, name))
    return Parties.of(*parts, description=description)


def drop_labels(table: PartyTable, name: str) -> PartyTable:
    """Return the features of `table` as the table of a party without labels."""
    return replace(
        table,
        name=name,
        label=None,
        classes=(),
        label_name="",
        fold=None,
        book=None,
        weight=None,
        group=None,
        time=None,
    )

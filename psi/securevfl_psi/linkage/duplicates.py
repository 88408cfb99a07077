"""Finds people who occur twice in one file. A party runs it on its table in the clear, before it encodes.

Linkage assumes that each person occurs once in a file. The similarity of whole records cannot distinguish a duplicate
from a twin, since both differ little. Fields can. Two records count as one person only if *every* field that both fill
is alike, and both fill the fields in which similar records of the file mostly differ: a twin has another given name, a
junior another birthday. A duplicate that moved or married is not found; this is the price of not merging two people.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from securevfl_psi.errors import LinkageError
from securevfl_psi.linkage.blocking import hamming_tokens
from securevfl_psi.linkage.clk import encode_records, normal_columns
from securevfl_psi.linkage.schema import Schema
from securevfl_psi.linkage.similarity import dice, similar_pairs

__all__ = ["Distinct", "find_duplicates"]

_LEAST = 0.8
"""Pairs of records with a lower similarity are not compared field by field."""
_TELLS = 0.5
"""A field distinguishes people if it differs in at least this share of the similar pairs that differ anywhere."""


@dataclass(frozen=True, eq=False)
class Distinct:
    """The people of a file.

    Attributes:
        rows: one row for each person: the one with the most filled fields, the first of several; ascending, (people,)
            int64.
        person: for each row, the place of its person in `rows`, (n,) int64.
    """

    rows: np.ndarray
    person: np.ndarray

    @property
    def duplicates(self) -> int:
        """The number of rows that `rows` leaves out."""
        return len(self.person) - len(self.rows)

    def describe(self) -> str:
        """One line for reports."""
        groups = int((np.bincount(self.person) > 1).sum())
        return f"{len(self.person)} rows are {len(self.rows)} people; {groups} of them occur more than once"


def find_duplicates(table: Mapping[str, Sequence[object]], schema: Schema, *, alike: float = 0.7) -> Distinct:
    """Find the rows of a file that are the same person.

    Args:
        table: columns by name.
        schema: the fields to compare. It needs one that distinguishes members of a household: given name or birthday.
        alike: the least similarity of every field that both rows fill, 0.5 to 1. 0.7 allows one typing error in all but
            short values.

    Raises:
        LinkageError: `alike` is out of range, or `encode_records` refuses the table.
    """
    if not 0.5 <= alike <= 1:
        raise LinkageError(f"alike is {alike!r}; expected 0.5 to 1")
    key = secrets.token_bytes(32)  # nothing leaves the party
    whole = encode_records(table, replace(schema, hardening=()), key)
    tokens = hamming_tokens(whole, tables=20, bits=16)
    pairs = similar_pairs(whole, whole, minimum=_LEAST, blocks=(tokens, tokens))
    order = pairs.rows_a < pairs.rows_b
    first, second = pairs.rows_a[order], pairs.rows_b[order]
    values = normal_columns(table, [(field.name, field) for field in schema.fields])
    filled = np.array([[value is not None for value in column] for column in values.values()])
    known = np.array([filled[place][first] & filled[place][second] for place in range(len(filled))])
    unlike = np.zeros_like(known)
    for place, field in enumerate(schema.fields):
        both = known[place]
        if both.any():
            rows, at = np.unique(np.r_[first[both], second[both]], return_inverse=True)
            column = {field.name: [values[field.name][row] for row in rows.tolist()]}
            alone = replace(schema, fields=(replace(field, salt=None),), hardening=(), bits=1024, fill=0.2)
            encoded = encode_records(column, alone, key)
            unlike[place, both] = dice(encoded, encoded, at[: both.sum()], at[both.sum() :]) < alike
    others = unlike.any(axis=0)
    # A null in a field in which most similar rows of two people differ leaves open which person the row is.
    tells = unlike[:, others].mean(axis=1) >= _TELLS if others.any() else np.zeros(len(known), dtype=bool)
    same = ~others & known[tells].all(axis=0)
    return _group_rows(first[same], second[same], filled.sum(axis=0))


def _group_rows(first: np.ndarray, second: np.ndarray, filled: np.ndarray) -> Distinct:
    """Group rows into people by pairs of equal rows; the relation is made transitive."""
    rows = len(filled)
    root = list(range(rows))

    def find_root(row: int) -> int:
        while root[row] != row:
            root[row] = root[root[row]]
            row = root[row]
        return row

    for one, other in zip(first.tolist(), second.tolist(), strict=True):
        a, b = sorted((find_root(one), find_root(other)), key=lambda row: (-int(filled[row]), row))
        root[b] = a
    stands, person = np.unique([find_root(row) for row in range(rows)], return_inverse=True)
    return Distinct(stands.astype(np.int64), person.astype(np.int64))

"""The rows that all parties have, as one object that scikit-learn can split and index as X."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from securevfl.data import Parties
from securevfl.errors import InputError, NoCommonRows

__all__ = ["AlignedRows"]


class AlignedRows:
    """Rows that all parties of a simulation have, in the active party's order.

    It has a length and a shape, and indexing gives the `AlignedRows` of these rows: scikit-learn's splitters and
    searches cut it as they cut an array. Nothing is copied before a job trains.

    Args:
        parties: the parties' tables.
        rows: which rows of the active party; those that all parties hold unless given.

    Attributes:
        parties: the whole tables.
        rows: numbers of the active party's rows, (n,) int64.

    Raises:
        NoCommonRows: no row is held by all.
    """

    def __init__(self, parties: Parties, rows: np.ndarray | None = None) -> None:
        self.parties = parties
        if rows is None:
            common = set(parties.active.ids)
            for table in parties.passive:
                common &= set(table.ids)
            rows = np.array([row for row, one in enumerate(parties.active.ids) if one in common], dtype=np.int64)
            if not len(rows):
                raise NoCommonRows("no identifier is in all tables: do they write them alike?")
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, values of a row over all parties)."""
        return len(self.rows), sum(table.values for table in self.parties.values())

    @property
    def ids(self) -> Sequence[str]:
        """The rows' identifiers."""
        return self.parties.active.ids_of(self.rows)

    @property
    def y(self) -> np.ndarray:
        """The rows' labels, (n,): values of the classes as the table has them, or numbers; or zeros and ones of several
        labels, (n, labels).

        Raises:
            InputError: the active party has none.
        """
        table = self.parties.active
        if table.label is None:
            raise InputError(f"{table.name!r} has no labels")
        found: np.ndarray = table.label[self.rows]
        if table.target != "classes":
            return found
        values: np.ndarray = np.asarray(table.classes)[found]
        return values

    def __getitem__(self, key: Any) -> AlignedRows:
        """These rows: a slice, numbers, or a mask; of a pair, such as ``rows, ...``, the first counts.

        Raises:
            IndexError: numbers beyond the last row.
        """
        place = key[0] if isinstance(key, tuple) else key
        chosen = np.atleast_1d(self.rows[place if isinstance(place, slice) else np.asarray(place)])
        return AlignedRows(self.parties, chosen)

    def tables(self) -> Parties:
        """The parties' tables with these rows of the active one.

        Raises:
            InputError: there is no row, or one comes twice.
        """
        if not len(self.rows):
            raise InputError("no rows: give at least one")
        if len(np.unique(self.rows)) != len(self.rows):
            raise InputError("a row comes twice; a person is aligned once: draw rows without replacement")
        active = self.parties.active
        kept = [active.take(self.rows) if name == active.name else self.parties[name] for name in self.parties]
        return Parties.of(*kept, description=self.parties.description, active=active.name)

    def __repr__(self) -> str:
        names = ", ".join(self.parties)
        return f"AlignedRows({len(self):,} rows of {names}; {self.shape[1]} columns)"

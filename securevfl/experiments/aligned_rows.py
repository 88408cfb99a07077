"""The rows that all parties have, as one object that scikit-learn can split and index as X."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.data import Parties
from securevfl.errors import InputError, NoCommonRows

__all__ = ["AlignedRows", "same_labels", "set_row_weights"]


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

    def to_pandas(self) -> Any:
        """These rows as one pandas DataFrame with a column ``PARTY.COLUMN`` for each column of a party, for tools that
        change columns: `permutation_importance`, `ColumnTransformer`.

        Raises:
            InputError: pandas is not installed, or a column has several values of a row.
        """
        try:
            import pandas as pd
        except ImportError:
            raise InputError("to_pandas needs pandas, which is not installed: pip install pandas") from None
        found = {}
        for name, table in self.parties.items():
            at = {one: row for row, one in enumerate(table.ids)}
            rows = np.array([at[one] for one in self.ids], dtype=np.int64)
            for column, values in table.columns.items():
                if values.ndim > 1:
                    raise InputError(
                        f"column {column!r} of {name!r} has {values.shape[1:]} values of a row: leave it out"
                    )
                found[f"{name}.{column}"] = np.asarray(values[rows])
        return pd.DataFrame(found)

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


def set_row_weights(rows: AlignedRows, weight: np.ndarray | None) -> AlignedRows:
    """The same rows, of a table with these weights."""
    if weight is None:
        return rows
    if weight.shape != (len(rows),):
        raise InputError(f"sample_weight has shape {weight.shape}; there are {len(rows):,} rows: give one for each")
    active = rows.parties.active
    every = np.ones(active.rows)
    every[rows.rows] = weight
    tables = [replace(table, weight=every) if table is active else table for table in rows.parties.values()]
    return AlignedRows(Parties.of(*tables, description=rows.parties.description, active=active.name), rows.rows)


def same_labels(given: np.ndarray, own: np.ndarray) -> bool:
    """Whether labels are the table's own, or their numbers in sorted order, which `cross_val_predict` makes of them."""
    if np.array_equal(given, own):
        return True
    if given.shape != own.shape or given.dtype.kind not in "iu" or own.dtype.kind == "f":
        return False
    return np.array_equal(np.unique(given, return_inverse=True)[1], np.unique(own, return_inverse=True)[1])

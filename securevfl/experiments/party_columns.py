"""One frame or array of all parties' columns, as scikit-learn's tools hand it over: which column is whose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.data import Parties
from securevfl.errors import InputError, UnknownNameError
from securevfl.experiments.aligned_rows import AlignedRows

__all__ = ["column_names_of", "is_matrix", "name_free_column", "rows_of_matrix"]

Columns = Mapping[str, Sequence[str | int]]
"""Party → its columns: names of a frame, or positions of an array."""


def is_matrix(given: object) -> bool:
    """Whether X is a frame or an array of columns, and not parties or rows of them."""
    return not isinstance(given, Parties | AlignedRows) and len(getattr(given, "shape", ())) == 2


def column_names_of(matrix: Any) -> list[str] | None:
    """Names of a frame's columns, ``PARTY.COLUMN`` where they have two levels; None of an array."""
    if not hasattr(matrix, "columns"):
        return None
    return [".".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in matrix.columns]


def rows_of_matrix(
    matrix: Any,
    columns: Columns | None,
    active: str | None,
    *,
    y: np.ndarray | None = None,
    weight: np.ndarray | None = None,
    target: str = "classes",
) -> AlignedRows:
    """The parties' tables of a frame or an array, all with the same rows in the same order.

    Args:
        matrix: a pandas DataFrame whose columns are called ``PARTY.COLUMN``, or that `columns` shares out; or an array
            (n, columns) that `columns` shares out by position. What a ``ColumnTransformer`` puts before a name, up to
            ``__``, is no part of the party's.
        columns: party → its columns.
        active: the party that has the labels.
        y: labels (n,), to train.
        weight: of the rows, (n,).
        target: ``"number"`` if the labels are numbers.

    Raises:
        InputError: a column that is nobody's, no column, no active party, or labels of another length.
        UnknownNameError: an active party without columns.
    """
    frame = _to_frame(matrix)
    shares = _share_by_name(frame) if columns is None else _share_as_told(frame, columns, named=hasattr(matrix, "iloc"))
    if active is None:  # not the first column's: a transformer may put another party's there
        raise InputError(
            f"X has columns of {', '.join(shares)}: name the party that has the labels, active={next(iter(shares))!r}"
        )
    if active not in shares:
        raise UnknownNameError("active party", active, shares)
    owner = active
    count = len(frame)
    tables = {name: frame[list(places)].rename(columns=places) for name, places in shares.items()}
    id_column = name_free_column("row", tables)
    for table in tables.values():
        table.insert(0, id_column, np.arange(count).astype(str))
    options: dict[str, Any] = {}
    for role, values in (("label", y), ("weight", weight)):
        if values is None:
            continue
        if np.shape(values) != (count,):
            raise InputError(
                f"X has {count:,} rows, and the {role}s have shape {np.shape(values)}: give one for each row"
            )
        options[role] = name_free_column(role, tables)
        tables[owner] = tables[owner].assign(**{options[role]: np.asarray(values)})
    if y is None:
        return AlignedRows(Parties.from_pandas(tables, id=id_column, active=owner))
    return AlignedRows(Parties.from_pandas(tables, id=id_column, target=target, **options))


def name_free_column(wanted: str, tables: Mapping[str, Any]) -> str:
    """A name that no table has for a column."""
    while any(wanted in table.columns for table in tables.values()):
        wanted += "_"
    return wanted


def _to_frame(matrix: Any) -> Any:
    """A frame with text names; positions are the names of an array's columns."""
    import pandas as pd

    names = column_names_of(matrix)
    if names is None:
        if not isinstance(matrix, np.ndarray):
            matrix = matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)
        names = [str(place) for place in range(matrix.shape[1])]
        return pd.DataFrame(matrix, columns=names)
    if not hasattr(matrix, "iloc"):
        raise InputError(
            f"X is a {type(matrix).__module__}.{type(matrix).__name__}; give a pandas DataFrame or an array"
        )
    return matrix.set_axis(names, axis=1).reset_index(drop=True)


def _share_by_name(frame: Any) -> dict[str, dict[str, str]]:
    """Party → column of the frame → column of the party, from names ``PARTY.COLUMN``."""
    found: dict[str, dict[str, str]] = {}
    for name in frame.columns:
        before, dot, own = name.partition(".")
        party = before.rpartition("__")[2]
        if not (dot and party and own):
            raise InputError(
                f"column {name!r} of X does not name its party: call columns PARTY.COLUMN, such as 'bank.income', or "
                "give the estimator columns={'bank': [...], 'shop': [...]}, party → its columns"
            )
        found.setdefault(party, {})[name] = own
    if not found:
        raise InputError("X has no columns")
    return found


def _share_as_told(frame: Any, columns: Columns, *, named: bool) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for party, some in columns.items():
        for one in some:
            name = str(one) if named else str(range(frame.shape[1])[_place(one, frame.shape[1], party)])
            if name not in frame.columns:
                raise UnknownNameError(f"column of {party!r} in X:", name, list(frame.columns))
            found.setdefault(party, {})[name] = name if named else f"column {name}"
    owners = [name for places in found.values() for name in places]
    left = [name for name in frame.columns if name not in owners]
    if left or len(set(owners)) < len(owners):
        what = f"column {left[0]!r} is nobody's" if left else "a column is of two parties"
        raise InputError(
            f"columns shares out {len(owners)} of the {frame.shape[1]} columns of X: {what}; name each once"
        )
    return found


def _place(one: str | int, count: int, party: str) -> int:
    if isinstance(one, str) or not -count <= one < count:
        raise InputError(
            f"columns names {one!r} for {party!r}; X is an array of {count} columns: give positions from 0"
        )
    return one

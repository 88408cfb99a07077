"""What each of a party's own columns adds to a score, from the party's own part of an additive model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from securevfl.algorithms.additive.columns import bin_offsets, code_rows, read_columns
from securevfl.algorithms.additive.tables import POINTS
from securevfl.algorithms.linear_terms import owns_start
from securevfl.data.column_terms import ColumnTerms
from securevfl.errors import InputError
from securevfl.training.state import as_dict, as_tensor

__all__ = ["read_terms"]


def read_terms(part: Mapping[str, Any], x: np.ndarray, party: str, *, numeric: bool) -> ColumnTerms:
    """The terms of encoded columns. Their means are those over the bins' masses, which noise covers where a budget is
    spent.

    Args:
        part: the party's part of the model.
        x: coded columns of some rows, float64 (n, columns), NaN where missing.
        party: its name, for messages.
        numeric: whether the target is a number.

    Raises:
        InputError: the part has no shapes, or those of other columns.
    """
    shapes = as_dict(part.get("parts", {})).get("shapes")
    if shapes is None:
        raise InputError(f"this part of a model at {party!r} has no shapes: it is not of an additive model")
    kept = as_dict(shapes)
    columns, values = read_columns(kept["columns"]), as_tensor(kept["values"]).numpy()
    places, offsets = code_rows(columns, np.asarray(x, np.float64).reshape(len(x), -1)), bin_offsets(columns)
    own = [j for j, column in enumerate(columns) if not column.is_intercept]
    terms = values[places]
    means = np.array([columns[j].masses @ values[offsets[j] : offsets[j + 1]] for j in own])
    start = terms[:, [j for j, column in enumerate(columns) if column.is_intercept]].sum(axis=1)
    start = start[0] if len(start) else np.zeros(values.shape[1])
    if owns_start(part, party):
        start = start + as_tensor(kept["start"]).numpy()
    return ColumnTerms(
        values=terms[:, own],
        start=start,
        unit="share of the target's range" if numeric else "probability",
        means=means.reshape(-1, values.shape[1]),
        points=0.0 if numeric or values.shape[1] > 1 else POINTS,
    )

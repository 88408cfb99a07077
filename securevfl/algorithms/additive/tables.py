"""What an owner reads of its own shapes: tables with the noise's band, importance and points, and the terms of rows.

Everything here is post-processing of the party's own part of the model; nobody else has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.algorithms.additive.columns import BinnedColumn, bin_offsets, code_rows, read_columns
from securevfl.algorithms.linear_terms import owns_start
from securevfl.data.column_terms import ColumnTerms
from securevfl.errors import InputError
from securevfl.training.state import State, as_dict, as_list, as_tensor

__all__ = ["POINTS", "read_terms", "shape_notes", "shape_tables"]

_OTHER = "other levels"
_MOSTLY = 0.5

POINTS = 1000.0
"""Points of a probability of one: the points of a row's bins add up to its probability in thousandths."""


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


def shape_tables(columns: Sequence[BinnedColumn], values: np.ndarray, variance: np.ndarray) -> list[State]:
    """Each column's shape as plain values, the one with the largest spread first, without the intercept.

    Args:
        columns: of one party.
        values: of its bins, float64 (all bins, outputs).
        variance: of each bin's value, from the noise alone, (all bins,).
    """
    offsets, found = bin_offsets(columns), []
    for j, column in enumerate(columns):
        if column.is_intercept:
            continue
        part = slice(int(offsets[j]), int(offsets[j + 1]))
        shape, noise = values[part], np.sqrt(variance[part])
        centred = shape - column.masses @ shape
        spread = float(np.sqrt((column.masses[:, None] * centred**2).sum()))
        bins = [
            {
                "bin": _bin_text(column, place),
                "up to": _end(column, place),
                "share": round(float(column.masses[place]), 6),
                "values": [round(float(value), 6) for value in centred[place]],
                "deviation": round(float(noise[place]), 6),
                "points": round(POINTS * float(centred[place, 0]), 1) + 0.0,
            }
            for place in range(column.bins)
        ]
        found.append(
            {
                "column": column.name,
                "importance": round(spread, 6),
                "noise": round(float(np.sqrt(column.masses @ variance[part])), 6),
                "bins": bins,
            }
        )
    return sorted(found, key=lambda one: -float(str(one["importance"])))


def shape_notes(party: str, tables: Sequence[State]) -> list[str]:
    """Sentences for the report: the columns whose shapes have the largest spread, beside that of the noise, and those
    whose values are mostly none of the declared levels, as their masses say."""
    told = [
        f"{one['column']} {one['importance']:.4f}" + (f" (noise alone {one['noise']:.4f})" if one["noise"] else "")
        for one in tables[:5]
    ]
    found = [f"{party}'s columns of the largest importance: {', '.join(told)}"] if told else []
    for one in tables:
        shares = {str(row["bin"]): float(str(row["share"])) for row in map(as_dict, as_list(one["bins"]))}
        if (share := shares.get(_OTHER, 0.0)) > _MOSTLY:
            found.append(
                f"{party}'s column {one['column']}: about {share:.0%} of the rows have none of the declared levels and "
                "share one bin; if that is not meant, compare additive.levels with how the column is written"
            )
    return found


def _end(column: BinnedColumn, place: int) -> float | None:
    return None if column.is_category or place >= len(column.edges) else float(column.edges[place])


def _bin_text(column: BinnedColumn, place: int) -> str:
    if place == column.bins - 1:
        return "missing"
    if column.is_category:
        return column.levels[place] if place < len(column.levels) else _OTHER
    low = column.edges[place - 1] if place else None
    high = column.edges[place] if place < len(column.edges) else None
    if low is None and high is None:
        return "any value"
    if low is None:
        return f"up to {high:.6g}"
    return f"above {low:.6g}" if high is None else f"{low:.6g} to {high:.6g}"

"""Functions that make one value of several rows of an identifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from securevfl.errors import InputError

__all__ = ["ALL", "FUNCTIONS", "check_aggregate"]

FUNCTIONS: Mapping[str, str] = {
    "sum": "sum",
    "mean": "mean",
    "std": "stddev",
    "min": "min",
    "max": "max",
    "count": "count",
    "distinct": "count_distinct",
    "first": "first",
    "last": "last",
}
"""Function of `aggregate` → Arrow's name. ``count`` and ``distinct`` leave missing values out."""
ALL = "*"
"""Stands for the row: ``{"*": "count"}`` is the column ``rows``."""
_IN_ORDER = ("first", "last")


def check_aggregate(
    aggregate: Mapping[str, str | Sequence[str]] | None, order_by: str | None
) -> dict[str, tuple[str, ...]]:
    """Return column → functions.

    Raises:
        InputError: an unknown function, none for a column, first or last without `order_by`, or `order_by` without
            `aggregate`.
    """
    found = {
        column: (functions,) if isinstance(functions, str) else tuple(functions)
        for column, functions in (aggregate or {}).items()
    }
    if order_by is not None and not found:
        raise InputError(f"order_by is {order_by!r}, and there is no aggregate: leave it out, or aggregate columns")
    for column, functions in found.items():
        known = ("count",) if column == ALL else tuple(FUNCTIONS)
        wrong = [one for one in functions if one not in known]
        if wrong or not functions:
            raise InputError(
                f"aggregate: column {column!r} has function {(*wrong, '')[0]!r}; known are {', '.join(known)}"
            )
        if order_by is None and set(functions) & set(_IN_ORDER):
            raise InputError(f"aggregate: first or last of {column!r}, by which column? Name it in order_by")
    return found

"""What a claim of benchmarks/claims.toml compares, and by which measure of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from statistics import fmean
from typing import Any

from securevfl.report import CellFigures

__all__ = ["Place", "list_pairs", "measure_run", "value_by_seed"]

Place = tuple[str, str, float]
"""Data set, method, position."""


def list_pairs(claim: Mapping[str, Any], places: Iterable[tuple[str, float]]) -> list[tuple[Place, Place]]:
    """The pairs of runs that a claim compares: two methods at each place, or one method at two positions.

    Args:
        claim: of claims.toml.
        places: data sets and positions of the sweep.
    """
    found = list(dict.fromkeys(places))
    if "method" in claim:
        return [
            ((data, claim["method"], float(high)), (data, claim["method"], float(low)))
            for data in dict.fromkeys(data for data, _ in found)
            for high, low in claim["positions"]
        ]
    chosen = [(data, x) for data, x in found if x in claim.get("at", [x])]
    return [((data, claim["better"], x), (data, claim["worse"], x)) for data, x in chosen]


def measure_run(figures: CellFigures, claim: Mapping[str, Any]) -> float | None:
    """The figure of a run that a claim is about; None where the run has none.

    - ``"value"``: the test metric, with all columns or, with ``rows = "alone"``, without the partner's.
    - ``"speed"``: the mean over all epochs of the validation metric, larger for what converges faster.
    - ``"swing"``: the mean step of the validation metric from one epoch to the next, over the last fifth of them.

    Raises:
        ValueError: there is no such measure.
    """
    kind, history = claim.get("measure", "value"), figures.history
    if kind == "value":
        return figures.alone if claim.get("rows") == "alone" else figures.value
    if kind == "speed":
        return fmean(history) if history else None
    if kind == "swing":
        last = history[-max(len(history) // 5, 2) :]
        return fmean(abs(after - before) for before, after in pairwise(last)) if len(last) > 1 else None
    raise ValueError(f"a claim has the measure {kind!r}; there are value, speed and swing")


def value_by_seed(cells: Iterable[CellFigures], claim: Mapping[str, Any]) -> dict[Place, dict[int, float]]:
    """Place → seed → the measure of a claim, where there is one."""
    found: dict[Place, dict[int, float]] = {}
    for cell in cells:
        value = measure_run(cell, claim)
        if value is not None:
            found.setdefault((cell.data, cell.method, cell.x), {})[cell.seed] = value
    return found

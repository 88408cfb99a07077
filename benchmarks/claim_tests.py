"""The runs that a claim of benchmarks/claims.toml compares, and the measure it compares them by.

The papers' claims are about scores as a model gives them. Ours are calibrated after training, with an intercept for
each class, which changes accuracy (`securevfl.training.calibration`); so the claims compare the metric before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import msgspec

from securevfl.report import CellFigures
from securevfl.report.statistics import FEWEST

__all__ = [
    "Differences",
    "Place",
    "average_places",
    "find_differences",
    "find_largest_ratio",
    "list_pairs",
    "measure_run",
    "strip_calibration",
]

Place = tuple[str, str, float]
"""Data set, method, position."""
Differences = dict[tuple[Place, Place], dict[int, float]]
"""Better and worse → seed → difference."""


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


def strip_calibration(cells: Iterable[CellFigures]) -> list[CellFigures]:
    """The runs with the metric before calibration as their value; those whose record lacks it are left out.

    Of two classes the value is an AUC. Calibration keeps the order of the rows, so it changes an AUC by ties alone.
    """
    kept = []
    for cell in cells:
        if cell.uncalibrated is not None:
            kept.append(msgspec.structs.replace(cell, value=cell.uncalibrated))
        elif cell.metric == "auc":
            kept.append(cell)
    return kept


def measure_run(figures: CellFigures, claim: Mapping[str, Any]) -> float | None:
    """The figure of a run that a claim is about; None where the run has none.

    - ``"value"``: the test metric, with all columns or, with ``rows = "alone"``, without the partner's.
    - ``"speed"``: the mean over all epochs of the validation metric, larger for what converges faster.
    - ``"swing"``: the mean step of the validation metric from one epoch to the next, over the last fifth of them.

    Raises:
        ValueError: there is no such measure.
    """
    kind, history = claim.get("measure", "value"), figures.history
    if kind == "value" and claim.get("rows") == "alone" and "paper" in claim:
        raise ValueError(
            "a paper's claim is about scores before calibration, which records do not have without partners"
        )
    if kind == "value":
        return figures.alone if claim.get("rows") == "alone" else figures.value
    if kind == "speed":
        return fmean(history) if history else None
    if kind == "swing":
        last = history[-max(len(history) // 5, 2) :]
        return fmean(abs(after - before) for before, after in pairwise(last)) if len(last) > 1 else None
    raise ValueError(f"a claim has the measure {kind!r}; there are value, speed and swing")


def find_differences(
    cells: Iterable[CellFigures],
    claim: Mapping[str, Any],
    places: Iterable[tuple[str, float]],
    planned: Sequence[int] = (),
) -> Differences:
    """A claim's differences at each place, by seed; pairs that share no seed are left out.

    Args:
        cells: what ran.
        claim: of claims.toml.
        places: data sets and positions of the sweep.
        planned: the seeds of the sweep's file, if it shall count when runs ended. Then all of them count once every
            place has them, and the first five until then: a test after each further seed, until one decides, would
            find more than chance may.
    """
    values: dict[Place, dict[int, float]] = {}
    for cell in cells:
        value = measure_run(cell, claim)
        if value is not None:
            values.setdefault((cell.data, cell.method, cell.x), {})[cell.seed] = value
    found: Differences = {}
    for better, worse in list_pairs(claim, places):
        other = values.get(worse, {})
        by_seed = {seed: value - other[seed] for seed, value in values.get(better, {}).items() if seed in other}
        if by_seed:
            found[better, worse] = by_seed
    if any(set(planned) - by_seed.keys() for by_seed in found.values()):
        first = set(planned[:FEWEST])
        kept = {pair: {s: one for s, one in by_seed.items() if s in first} for pair, by_seed in found.items()}
        return {pair: by_seed for pair, by_seed in kept.items() if by_seed}
    return found


def average_places(differences: Differences) -> tuple[int, dict[int, float]]:
    """The differences averaged over places, seed by seed, and over how many places.

    A claim is about methods, not about one table, so its own test is of this average: each place counts once. Places
    with fewer than five seeds are left out, and of the others the seeds that all of them have count. A seed splits
    different tables independently, and the same table in the same way; either is in the deviation over seeds.
    """
    whole = [by_seed for by_seed in differences.values() if len(by_seed) >= FEWEST]
    if not whole:
        return 0, {}
    common = sorted(set.intersection(*(set(by_seed) for by_seed in whole)))
    return len(whole), {seed: fmean(by_seed[seed] for by_seed in whole) for seed in common}


def find_largest_ratio(differences: Differences, ratios: Mapping[tuple[str, float], float | None]) -> float | None:
    """The largest ratio of the places that `average_places` averages; None where one of them has none.

    The average varies with the rows that seeds share no more than at the place where they share most.
    """
    known = [ratios[data, x] for ((data, _, x), _), by_seed in differences.items() if len(by_seed) >= FEWEST]
    return None if None in known else max((one for one in known if one is not None), default=None)

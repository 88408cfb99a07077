"""From coefficients to points, as Siddiqi, "Credit Risk Scorecards" (2006), chapter 6.

With odds of the first class to the second, a score is ``offset + factor · ln(odds)``, where ``factor = pdo / ln 2`` and
``offset = base − factor · ln(base odds)``. The logit of the model is ``−ln(odds)``, so a bin of column j has
``−factor · β_j · woe`` points, and the active party's part begins with ``offset − factor · bias``: a party's points of
a row are the sum over its columns, and a row's score is the sum over the parties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from securevfl.algorithms.scorecard.binning import Evidence
from securevfl.training.state import State

__all__ = ["factor_and_offset", "opened_card", "party_card", "summarise_columns"]


def factor_and_offset(base: float, odds: float, pdo: float) -> tuple[float, float]:
    """The factor and the offset of scores."""
    factor = pdo / math.log(2)
    return factor, base - factor * math.log(odds)


def party_card(
    names: Sequence[str],
    cuts: Sequence[np.ndarray],
    units: Sequence[np.ndarray],
    found: Sequence[Evidence],
    weights: np.ndarray,
    factor: float,
    start: float,
) -> State:
    """One party's part of the card, of plain values.

    Args:
        names: of its encoded columns.
        cuts: of each column, as the model compares them.
        units: the same in the column's original units, NaN if they cannot be computed.
        found: evidence of each column.
        weights: β_j, (columns,) float64.
        factor: of points.
        start: points that each row begins with, at the active party.
    """
    columns = []
    for name, cut, unit, one, weight in zip(names, cuts, units, found, weights.tolist(), strict=True):
        own, ends = _ends_to_show(cut, unit)
        bins = [
            {
                "above": low,
                "up to": high,
                "rows": int(rows),
                "woe": round(float(woe), 6),
                "points": round(-factor * weight * float(woe), 3),
            }
            for low, high, rows, woe in zip([None, *ends], [*ends, None], one.rows, one.woe, strict=True)
        ]
        columns.append(
            {
                "column": name,
                "units": "own" if own else "prepared",
                "coefficient": weight,
                "information value": round(one.iv, 6),
                "bins": bins,
            }
        )
    return {"points to begin with": round(start, 3), "columns": columns}


def opened_card(
    names: Sequence[str],
    cuts: Sequence[np.ndarray],
    units: Sequence[np.ndarray],
    rows: Sequence[np.ndarray],
    values: np.ndarray,
    factor: float,
    start: float,
) -> State:
    """One party's part of a card that was opened as points alone: weights of evidence and coefficients stay secret.

    Args:
        names: of its encoded columns.
        cuts: of each column, as the model compares them.
        units: the same in the column's original units, NaN if they cannot be computed.
        rows: training rows of each bin of each column.
        values: coefficient times weight of evidence of all bins, column by column.
        factor: of points.
        start: points that each row begins with, at the active party.
    """
    columns = []
    ends_of = np.cumsum([len(one) for one in rows])
    parts = np.split(values, ends_of[:-1]) if len(rows) else []
    for name, cut, unit, counts, part in zip(names, cuts, units, rows, parts, strict=True):
        own, ends = _ends_to_show(cut, unit)
        bins = [
            {"above": low, "up to": high, "rows": int(count), "points": round(-factor * float(value), 3)}
            for low, high, count, value in zip([None, *ends], [*ends, None], counts, part, strict=True)
        ]
        columns.append({"column": name, "units": "own" if own else "prepared", "bins": bins})
    return {"points to begin with": round(start, 3), "columns": columns}


def _ends_to_show(cut: np.ndarray, unit: np.ndarray) -> tuple[bool, list[float]]:
    """Whether the ends of a column's bins are in its own units, and the ends."""
    own = bool(np.isfinite(unit).all())
    return own, _format_ends(unit if own else cut)


def _format_ends(ends: np.ndarray) -> list[float]:
    """Round bin ends for people: to six digits of the largest, because they were single-precision numbers before."""
    largest = float(np.abs(ends).max(initial=0.0))
    digits = 5 - int(np.floor(np.log10(largest))) if largest > 0 else 0
    return [round(float(end), digits) + 0.0 for end in ends]


def summarise_columns(party: str, names: Sequence[str], found: Sequence[Evidence]) -> str:
    """One sentence for the report: the columns with the largest information value."""
    single = sum(len(one.rows) < 2 for one in found)
    best = sorted(zip(names, found, strict=True), key=lambda pair: -pair[1].iv)[:5]
    text = ", ".join(f"{name} {one.iv:.3f}" for name, one in best if len(one.rows) > 1) or "none"
    more = f"; {single} of {len(found)} columns have one bin and no points" if single else ""
    return f"scorecard of {party!r}: columns of the largest information value: {text}{more}"

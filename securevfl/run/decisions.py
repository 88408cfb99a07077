"""Which score is high enough: cut-offs of two classes, what they cost, and the cheapest one.

The cheapest cut-off is chosen on the validation rows and paid for on the test rows. Where no scores of validation rows
were opened, it is chosen on the test rows: each fifth of them is then decided by the cut-off that the other four
choose, so that no row pays for a cut-off that it helped to choose.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl.party.report_options import Costs
from securevfl.report.evaluation import CutoffRow, Decision
from securevfl.training.metrics import SURE

__all__ = ["PER_ROWS", "choose_cutoff", "count_at", "cutoff_rows", "make_decision", "mean_cost"]

PER_ROWS = 1_000
"""Costs are of this many rows."""

_SHARES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of the rows that the table's cut-offs flag, about."""
_APART = 0.005
"""Cut-offs of the table flag shares of the rows that differ by at least this."""
_FOLDS = 5
_ABOVE = 1.000001
"""A cut-off that no probability reaches."""
_FEWEST = 50
"""Validation rows below which the test rows choose as well."""


def count_at(hits: np.ndarray, scores: np.ndarray, cutoff: float, costs: Costs | None = None) -> CutoffRow:
    """Count what a cut-off decides.

    Args:
        hits: whether the row is of the second class, bool (n,).
        scores: its probability, (n,).
        cutoff: rows with this score or more are flagged.
        costs: of wrong decisions; None for none.
    """
    flagged = scores >= cutoff
    both, many, true = int((flagged & hits).sum()), int(flagged.sum()), int(hits.sum())
    return CutoffRow(
        cutoff=cutoff,
        flagged=many,
        hits=both,
        false_positives=many - both,
        false_negatives=true - both,
        precision=both / many if many else None,
        recall=both / true if true else None,
        share=many / len(hits),
        cost=None if costs is None else mean_cost(hits, flagged, costs),
    )


def cutoff_rows(
    hits: np.ndarray, scores: np.ndarray, costs: Costs | None = None, more: Sequence[float] = ()
) -> list[CutoffRow]:
    """The table of cut-offs, highest first: rounded to two digits, at scores that flag from 1 % to 90 % of the rows,
    and one half.

    Args:
        hits, scores, costs: as for `count_at`.
        more: further cut-offs, as they are.
    """
    near = {_round_cutoff(float(value)) for value in np.quantile(scores, [1 - share for share in _SHARES])}
    wanted = sorted({0.5, *near, *more}, reverse=True)
    rows = [count_at(hits, scores, cutoff, costs) for cutoff in (0.5, *more)]
    for cutoff in wanted:
        row = count_at(hits, scores, cutoff, costs)
        if all(abs(row.share - other.share) >= _APART for other in rows):
            rows.append(row)
    return sorted({row.cutoff: row for row in rows}.values(), key=lambda row: -row.cutoff)


def _round_cutoff(value: float) -> float:
    """Two significant digits of the value, or of its distance from 1 where that is smaller."""
    return float(f"{value:.2g}") if value < 0.9 else round(1 - float(f"{1 - value:.2g}"), 6)


def mean_cost(hits: np.ndarray, flagged: np.ndarray, costs: Costs) -> float:
    """What decisions cost per 1,000 rows, from whether each row is of the class and was flagged, bool (n,)."""
    return PER_ROWS * float(_row_costs(hits, flagged, costs).mean())


def _row_costs(hits: np.ndarray, flagged: np.ndarray, costs: Costs) -> np.ndarray:
    found: np.ndarray = np.where(flagged & ~hits, costs.false_positive, 0.0)
    return found + np.where(~flagged & hits, costs.false_negative, 0.0)


def choose_cutoff(hits: np.ndarray, scores: np.ndarray, costs: Costs) -> float:
    """The cut-off with the least cost on these rows, half way between two scores; of equal ones the highest, which
    flags fewest rows.

    Args:
        hits, scores, costs: as for `count_at`.
    """
    order = np.argsort(-scores, kind="stable")
    ranked, positive = scores[order].astype(np.float64), hits[order]
    last_of_ties = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)
    found = np.cumsum(positive)[last_of_ties]
    flagged = last_of_ties + 1
    cost = costs.false_positive * (flagged - found) + costs.false_negative * (found[-1] - found)
    none = costs.false_negative * found[-1]
    best = int(cost.argmin())
    if none <= cost[best]:
        return _ABOVE
    after = last_of_ties[best] + 1
    return float((ranked[after - 1] + (ranked[after] if after < len(ranked) else 0.0)) / 2)


def make_decision(
    hits: np.ndarray,
    scores: np.ndarray,
    costs: Costs,
    chosen_on: tuple[np.ndarray, np.ndarray] | None = None,
    cutoff: float | None = None,
) -> Decision:
    """Choose the cheapest cut-off and pay for it on the test rows.

    Args:
        hits, scores, costs: of the test rows, as for `count_at`.
        chosen_on: the same two of the validation rows; None where their scores are unknown. Fewer than 50 choose
            nothing.
        cutoff: one that was chosen before, if any: nothing is chosen then.
    """
    if cutoff is not None:
        where, rows, flagged = "rows of an earlier run", 0, scores >= cutoff
    elif chosen_on is not None and len(chosen_on[0]) >= _FEWEST:
        cutoff, where, rows = choose_cutoff(*chosen_on, costs), "validation rows", len(chosen_on[0])
        flagged = scores >= cutoff
    else:
        cutoff, where, rows = choose_cutoff(hits, scores, costs), "test rows", len(hits)
        flagged = np.empty(len(hits), dtype=bool)
        for fold in range(min(_FOLDS, len(hits))):
            held = np.arange(len(hits)) % _FOLDS == fold
            rest = ~held if len(hits) > 1 else held
            flagged[held] = scores[held] >= choose_cutoff(hits[rest], scores[rest], costs)
    each = PER_ROWS * _row_costs(hits, flagged, costs)
    mean = float(each.mean())
    half = SURE * float(each.std(ddof=1)) / len(each) ** 0.5 if len(each) > 1 else 0.0
    none = np.zeros(len(hits), dtype=bool)
    return Decision(
        false_positive=costs.false_positive,
        false_negative=costs.false_negative,
        cutoff=cutoff,
        chosen_on=where,
        chosen_rows=rows,
        cost=mean,
        low=max(0.0, mean - half),
        high=mean + half,
        flag_none=mean_cost(hits, none, costs),
        flag_all=mean_cost(hits, ~none, costs),
        at_half=mean_cost(hits, scores >= 0.5, costs),
    )

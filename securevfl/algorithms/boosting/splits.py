"""The best split of a node from its histogram: second-order gain with L1 and L2 (Chen and Guestrin 2016, equations 5 to
7), the direction of missing values learned (their algorithm 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl.algorithms.boosting.categories import NUMBER, Arranged, order_categories, scan_places, set_of

__all__ = ["SplitRule", "TreeSplit", "best_split", "leaf_value"]

_ROUNDED = 1e-9
"""Sums of h are integers times a unit, and twenty rows' sum of 1 may be a little less than 20."""


@dataclass(frozen=True, kw_only=True)
class SplitRule:
    """The penalties and bounds that decide between splits.

    Attributes:
        l1: penalty of a leaf's magnitude, α.
        l2: penalty of its square, λ.
        min_gain: least gain of a split, γ.
        min_hessian: least sum of h on either side.
        least_rows: least rows on either side. Histograms have no counts: as in LightGBM, a side has the share of the
            node's rows that it has of the node's h.
        scales: units of g and of h in the histograms' integers.
    """

    l1: float
    l2: float
    min_gain: float
    min_hessian: float
    least_rows: float = 0.0
    scales: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class TreeSplit:
    """A split of a node.

    Attributes:
        gain: reduction of the second-order loss.
        column: among all candidates of all parties, in their order.
        bin: rows with a code up to this one go left.
        missing_left: where rows without a value go.
        left: sums of g and h of the left side, in the histograms' integers, int64 (2,).
        codes: of categories, the set of codes that go left, including missing values; `NUMBER` otherwise.
    """

    gain: float
    column: int
    bin: int
    missing_left: bool
    left: np.ndarray = field(repr=False)
    codes: int = NUMBER


def _soft_threshold(g: np.ndarray, l1: float) -> np.ndarray:
    """The soft threshold of L1."""
    return np.sign(g) * np.maximum(np.abs(g) - l1, 0) if l1 else g


def _leaf_score(g: np.ndarray, h: np.ndarray, rule: SplitRule) -> np.ndarray:
    """Twice the reduction of the loss by a leaf; zero for a leaf without rows."""
    below = h + rule.l2
    found: np.ndarray = np.divide(_soft_threshold(g, rule.l1) ** 2, below, out=np.zeros_like(below), where=below > 0)
    return found


def _held_score(g: np.ndarray, h: np.ndarray, value: np.ndarray, rule: SplitRule) -> np.ndarray:
    """Twice the reduction of the loss by leaves with these values; equals `_leaf_score` for the best value."""
    found: np.ndarray = -(2 * g * value + (h + rule.l2) * value**2 + 2 * rule.l1 * np.abs(value))
    return found


def _held_values(g: np.ndarray, h: np.ndarray, rule: SplitRule, within: tuple[float, float]) -> np.ndarray:
    """Leaves' values within their bounds."""
    below = h + rule.l2
    best = np.divide(-_soft_threshold(g, rule.l1), below, out=np.zeros_like(below), where=below > 0)
    found: np.ndarray = np.clip(best, *within)
    return found


def leaf_value(g: float, h: float, rule: SplitRule) -> float:
    """−g / (h + λ), with L1's threshold: the step of a leaf before shrinkage.

    Args:
        g: sum of the gradients, in their own unit.
        h: sum of the second derivatives.
        rule: penalties.
    """
    below = h + rule.l2
    return float(-_soft_threshold(np.asarray(g, dtype=np.float64), rule.l1) / below) if below > 0 else 0.0


def best_split(
    sums: np.ndarray,
    counts: Sequence[int],
    total: np.ndarray,
    rule: SplitRule,
    allowed: np.ndarray | None = None,
    directions: np.ndarray | None = None,
    within: tuple[float, float] = (-np.inf, np.inf),
    kinds: np.ndarray | None = None,
    rows: int = 0,
    seen: int = 0,
) -> TreeSplit | None:
    """Find the split with the largest gain. Ties: the first column, then the first bin, then missing values right.

    Args:
        sums: of g and h by code, int64 (codes of all columns, 2); each column's last code is that of missing values.
        counts: codes of each column.
        total: of the node, int64 (2,).
        rule: penalties and bounds.
        allowed: which columns may be used, bool (columns,); None for all.
        directions: of each column, 1 if the right side's value may not be below the left one's, −1 if it may not be
            above, 0 otherwise, int64 (columns,); None if no column is constrained.
        within: smallest and largest value of leaves below this node, if columns have directions.
        kinds: which columns contain categories, bool (columns,); None if no column does.
        rows: number of rows of the node whose h is not zero, if there are categories.
        seen: number of rows of the node that the tree sees, if the rule bounds those of a side.

    Returns:
        None if no split has a positive gain.
    """
    sizes = np.asarray(counts, dtype=np.int64)
    ends = np.cumsum(sizes)
    column = np.repeat(np.arange(len(sizes)), sizes)
    values = np.ones(len(sums), dtype=bool)
    values[ends - 1] = False  # codes of missing values
    whole = total * np.asarray(rule.scales)
    least = max(rule.min_hessian, rule.least_rows * float(whole[1]) / max(seen, 1) - _ROUNDED)
    parent = float(_leaf_score(whole[:1], whole[1:], rule)[0])
    if directions is not None:
        parent = float(_held_score(whole[:1], whole[1:], _held_values(whole[:1], whole[1:], rule, within), rule)[0])
    arranged: Arranged | None = None
    if kinds is not None and kinds.any():
        arranged = order_categories(sums, sizes, kinds, total, rule.scales, rows)
    sofar = np.cumsum(sums if arranged is None else sums[arranged.order], axis=0)
    before = np.concatenate([np.zeros((1, 2), dtype=np.int64), sofar[ends - 1]])[:-1]
    lefts = sofar - before[column]
    missing = sums[ends - 1][column]
    stops = [values, values & missing.any(axis=1)]
    if arranged is not None and kinds is not None:
        holds = kinds[column]
        missing = np.where(holds[:, None], arranged.spare[column], missing)
        stops = [
            np.where(holds, one, stop) for one, stop in zip(scan_places(arranged, column, sizes), stops, strict=True)
        ]
    if allowed is not None:
        stops = [stop & allowed[column] for stop in stops]
    gains = []
    for left, stop in zip((lefts, lefts + missing), stops, strict=True):
        if not stop.any():  # as of missing values where none is
            gains.append(np.full(len(stop), -np.inf))
            continue
        low, high = left * np.asarray(rule.scales), (total - left) * np.asarray(rule.scales)
        enough = stop & (np.minimum(low[:, 1], high[:, 1]) >= least)
        if directions is None:
            gain = _leaf_score(low[:, 0], low[:, 1], rule) + _leaf_score(high[:, 0], high[:, 1], rule) - parent
        else:
            one, other = (_held_values(part[:, 0], part[:, 1], rule, within) for part in (low, high))
            gain = _held_score(low[:, 0], low[:, 1], one, rule) + _held_score(high[:, 0], high[:, 1], other, rule)
            gain -= parent
            enough &= (other - one) * directions[column] >= 0
        gains.append(np.where(enough, gain / 2, -np.inf))
    most = max(float(one.max(initial=-np.inf)) for one in gains)
    if not most > max(rule.min_gain, 0.0):
        return None
    _, side, at = min(
        (int(column[k]), side, int(k)) for side, gain in enumerate(gains) for k in np.flatnonzero(gain == most)[:1]
    )
    found = int(column[at])
    chosen = lefts[at] + missing[at] if side else lefts[at]
    if arranged is not None and kinds is not None and kinds[found]:
        codes = set_of(arranged, sizes, found, at, spare=bool(side))
        return TreeSplit(most, found, 0, bool(codes >> int(sizes[found] - 1) & 1), chosen, codes)
    return TreeSplit(most, found, at - int(ends[found] - sizes[found]), bool(side), chosen)

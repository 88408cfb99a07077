"""Fixed point of training: which integers parts and contrasts are, and the caps that bound a row's residual.

A row's residual is ``r = y − Σ_P p_P``, in units of 2⁻¹². Party P's part lies between 0 and its cap, and caps add up to
one, so ``|r| ≤ 1`` for any shapes and any noise; with several classes a part has no negative entry and its entries add
up to at most the cap, so ``‖r‖ ≤ √2``. Contrasts are in units of 2⁻⁸ and lie between −1 and 1. Both bounds are valid
for these integers, after rounding: the noise is sized by them.

*Slack.* A cap follows from public numbers, not from what a party's columns tell. Of three parties or more, one with few
strong columns would stay at its cap, and its shapes grow beyond what the residuals show. There caps are alike, and a
part may exceed its range by a share of the cap at both ends, the slack: then ``|r| ≤ 1 + slack``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = [
    "CONTRAST_BITS",
    "CONTRAST_ONE",
    "PART_BITS",
    "PART_ONE",
    "SUM_ONE",
    "cap_parts",
    "cap_slack",
    "part_of",
    "residual_bound",
    "slack_units",
    "split_caps",
    "target_units",
]

PART_BITS = 12
PART_ONE = 1 << PART_BITS
CONTRAST_BITS = 8
CONTRAST_ONE = 1 << CONTRAST_BITS
SUM_ONE = PART_ONE * CONTRAST_ONE
"""One unit of a sum of contrasts times residuals."""


def cap_slack(parties: int, outputs: int, *, budget: bool) -> float:
    """How far a part may exceed its range at either end, as a share of its cap.

    Args:
        parties: with columns.
        outputs: K.
        budget: whether a budget is spent, whose noise grows with the slack.
    """
    if parties <= _FEW_PARTIES:
        return 0.0
    if not budget:
        return 1.0
    return _SLACK if outputs == 1 else 0.0


_FEW_PARTIES = 2
_SLACK = 0.25
"""Chosen with the rule of caps on rows that no published figure has: less noise than 0.5 with caps by columns, and
still room for a party that tells most."""


def slack_units(cap: int, slack: float) -> int:
    """The slack of a part with this cap, in units; those of all parties add up to at most `slack` of one."""
    return math.floor(slack * cap)


def residual_bound(outputs: int, slack: float = 0.0) -> float:
    """R, the largest L2 norm of a row's residual: 1 and the slack, or √2 with an output for each class."""
    return 1.0 + slack if outputs == 1 else math.sqrt(2.0)


def split_caps(columns: Sequence[int]) -> tuple[int, ...]:
    """Split one into the parties' caps, in units of 2⁻¹²; they add up to 2¹². Of two parties in proportion to their
    columns; of three or more, those with columns have the same.

    Args:
        columns: of each party; the intercept is one of the active party's.
    """
    weights = list(columns) if len(columns) <= _FEW_PARTIES else [int(count > 0) for count in columns]
    total = sum(weights)
    exact = [PART_ONE * weight / total for weight in weights]
    caps = [math.floor(value) for value in exact]
    for place in sorted(range(len(columns)), key=lambda k: caps[k] - exact[k])[: PART_ONE - sum(caps)]:
        caps[place] += 1
    return tuple(caps)


def target_units(y: np.ndarray, outputs: int) -> np.ndarray:
    """Targets in units of 2⁻¹², int64 (n, outputs).

    Args:
        y: classes, int64 (n,), with an output for each class; else numbers between 0 and 1, (n,).
        outputs: K.
    """
    if outputs == 1:
        return np.rint(np.clip(y.astype(np.float64), 0, 1) * PART_ONE).astype(np.int64)[:, None]
    found = np.zeros((len(y), outputs), dtype=np.int64)
    found[np.arange(len(y)), y.astype(np.int64)] = PART_ONE
    return found


def part_of(sums: np.ndarray, start: np.ndarray, cap: int, slack: float = 0.0) -> np.ndarray:
    """A party's capped part of each row's prediction, int64 (n, outputs), in units of 2⁻¹².

    Args:
        sums: of the party's shapes, float64 (n, outputs).
        start: the prediction that training begins with, (outputs,).
        cap: of the party, from `split_caps`.
        slack: from `cap_slack`.
    """
    return cap_parts(sums * PART_ONE + start * cap, cap, slack)


def cap_parts(parts: np.ndarray, cap: int, slack: float = 0.0) -> np.ndarray:
    """Cap parts in units: one output lies between 0 and `cap`; several are projected on the simplex that adds up to it.
    With slack, each output lies between 0 and `cap` but for the slack.

    Args:
        parts: float64 (n, outputs).
        cap: largest value of one output, or sum of several.
        slack: from `cap_slack`.
    """
    beyond = slack_units(cap, slack)
    if parts.shape[1] == 1 or beyond:
        rounded: np.ndarray = np.rint(np.clip(parts, -beyond, cap + beyond)).astype(np.int64)
        return rounded
    projected = _project_simplex(parts, cap)
    whole = np.floor(projected).astype(np.int64)
    # Rounding down keeps the sum within the cap; the units that are left go to the largest remainders.
    left = np.clip(cap - whole.sum(axis=1), 0, parts.shape[1])
    order = np.argsort(whole - projected, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(parts.shape[1]), order.shape), axis=1)
    found: np.ndarray = whole + (rank < left[:, None])
    return found


def _project_simplex(points: np.ndarray, total: float) -> np.ndarray:
    """The nearest points without negative entries whose entries add up to `total` (Duchi et al. 2008), float64."""
    ordered = -np.sort(-points, axis=1)
    excess = (ordered.cumsum(axis=1) - total) / np.arange(1, points.shape[1] + 1)
    used = (ordered > excess).sum(axis=1)
    shift = np.take_along_axis(excess, used[:, None] - 1, axis=1)
    found: np.ndarray = np.clip(points - shift, 0, total)
    return found

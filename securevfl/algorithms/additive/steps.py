"""How large the steps of an epoch are."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["StepRule", "step_rate"]

_MANY_COLUMNS = 50
"""From here on correlated columns may ring: steps are bounded by 1.5 / F."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRule:
    """How large steps are; the algorithm's settings.

    Attributes:
        lr: of all columns together.
        l2: λ, in rows.
        damping: κ, how far the noise shortens steps.
    """

    lr: float
    l2: float
    damping: float


def step_rate(lr: float, columns: int) -> float:
    """η = lr / √(F + 1), and at most 1.5 / F for more than 50 columns.

    Args:
        lr: of the settings.
        columns: F + 1, with the intercept.
    """
    rate = lr / math.sqrt(columns)
    return min(rate, 1.5 / (columns - 1)) if columns - 1 > _MANY_COLUMNS else rate

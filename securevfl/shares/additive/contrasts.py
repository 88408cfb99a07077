"""What a party deals of its contrasts in an epoch: a bit for each row and column, and two values a column.

A contrast takes two values, u on one side of its cut and v on the other, so that ``Σ s r = u Σ r + (v − u) Σ b r`` for
bits b. Dealt like this, |s| ≤ 1 follows from bits, where words s would take a comparison for each row and column.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from securevfl.errors import InputError

__all__ = ["SplitContrasts", "split_contrasts"]


@dataclass(frozen=True)
class SplitContrasts:
    """One party's contrasts.

    Attributes:
        bits: 0 or 1, uint64 (n, columns).
        values: u and v, int64 (2, columns).
    """

    bits: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)


def split_contrasts(contrasts: np.ndarray) -> SplitContrasts:
    """Split contrasts into bits and values.

    Args:
        contrasts: in units of the last place, int64 (n, columns), of at least one row.

    Raises:
        InputError: a column takes more than two values.
    """
    low, high = contrasts.min(axis=0), contrasts.max(axis=0)
    upper = contrasts == high
    wrong = (~upper & (contrasts != low)).any(axis=0)
    if wrong.any():
        raise InputError(f"contrast {int(np.argmax(wrong))} takes more than two values; on shares it takes two")
    return SplitContrasts(upper.astype(np.uint64), np.stack([low, high]).astype(np.int64))

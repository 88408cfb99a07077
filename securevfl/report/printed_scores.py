"""How a score is printed: in the report's scores, in `predict`'s file, in a server's answer and beside an export.

One function for all of them, so that the same row has the same digits wherever a person meets it.
"""

from __future__ import annotations

__all__ = ["print_score"]

_DECIMALS = 6
"""Of a probability."""

_SIGNIFICANT = 7
"""Digits of a predicted number: what float32, in which models compute, has."""

_LONGEST = 15


def print_score(value: float, *, number: bool = False) -> str:
    """Return a score as text.

    Args:
        value: a probability, or a predicted number in the target's units.
        number: whether it is a predicted number.
    """
    if not number:
        return f"{value:.{_DECIMALS}f}"
    rounded = float(f"{value:.{_SIGNIFICANT}g}")
    return f"{rounded:.{_LONGEST}g}"  # an amount of 12,345,680 in digits, and not as a power of ten

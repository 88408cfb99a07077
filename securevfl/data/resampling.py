"""How many test rows two seeds have in common: what tests over seeds correct for (`securevfl.report.statistics`).

Seeds of a sweep split the same rows, or draw rows from the same table. A row then tests in several seeds, and the
seeds' figures are not independent. The ratio of Nadeau and Bengio (2003) is test rows over all other rows that a seed
could have tested.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

__all__ = ["NamedSplit", "compute_ratio", "describe_split"]

_CREDIT_ROWS = 30_000
_TEST_IMAGES = 10_000
"""In each of the image sets."""
_TEST_SHARE = 0.2
"""Of the tables whose `test` is left out."""
_IMAGES = ("cifar10", "fashion_mnist", "mnist")
_HELD_OUT = ("digits", "fate", "handwritten", "limited_credit", "parkinson")
_INDEPENDENT: Mapping[str, tuple[int, float]] = {"breast_cancer": (2, 0.9), "default_credit": (3, 0.85)}
"""Data sets whose jobs split the common rows: parties, and share of the rows at each."""


def compute_ratio(share: float) -> float:
    """Test rows over other rows, from the share of the rows that one seed tests.

    Args:
        share: of the rows that seeds draw their test rows from; 1 where all seeds test the same rows. Then, as for 0,
            the ratio is 0: figures differ by training alone, and a verdict is about these test rows.
    """
    return share / (1 - share) if 0 < share < 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class NamedSplit:
    """How seeds of a named data set draw its rows.

    Attributes:
        tested: share of the rows that one seed tests, 1 where all seeds test the same; None where the job splits the
            common rows.
        drawn: share of the data set's rows that are common to all parties in one seed, of which the job tests some.
    """

    tested: float | None
    drawn: float = 1.0


def describe_split(name: object, options: Mapping[str, object]) -> NamedSplit | None:
    """How seeds of a named data set draw its rows; None for a name or a number that is not known here.

    Args:
        name: of the data set.
        options: of its function, as far as they are given.
    """
    if name in _IMAGES:
        wanted = _read_number(options, "test_rows", _TEST_IMAGES)
        return None if wanted is None else NamedSplit(tested=wanted / _TEST_IMAGES)
    sampled = 1.0
    if name in ("default_credit", "limited_credit"):
        rows = _read_number(options, "rows", _CREDIT_ROWS)
        if rows is None:
            return None
        sampled = rows / _CREDIT_ROWS
    if name in _HELD_OUT:
        test = _read_number(options, "test", _TEST_SHARE)
        return None if test is None else NamedSplit(tested=sampled * test)
    if name in _INDEPENDENT:
        parties, usual = _INDEPENDENT[str(name)]
        overlap = _read_number(options, "overlap", usual)
        if overlap is None:
            return None
        return NamedSplit(tested=None, drawn=sampled * overlap ** (1 if options.get("shared") else parties))
    return None


def _read_number(options: Mapping[str, object], name: str, usual: float) -> float | None:
    """The option's number; the usual one where it is left out; None where it is no number."""
    value = options.get(name)
    if value is None:
        return usual
    return float(value) if isinstance(value, Real) else None

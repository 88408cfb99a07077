"""Which methods are better over several tables: Friedman's test of ranks, and Nemenyi's distance between mean ranks.

Tests at one place ask what these rows say. Tests of ranks ask what would be found on another table: each table counts
once, whatever its size and its number of positions. Demšar (2006), "Statistical Comparisons of Classifiers over
Multiple Data Sets". The distance depends on how many methods are compared; take only those of interest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from securevfl.errors import InputError
from securevfl.report.statistics import LEVEL

__all__ = ["Ranking", "rank_methods"]


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Mean ranks of methods over tables.

    Attributes:
        ranks: method → its mean rank, 1 for the best, equal figures sharing theirs; best first.
        tables: how many.
        p: of Friedman's test that all methods are equal, by Iman and Davenport's F; 1 where all figures are equal.
        distance: Nemenyi's: mean ranks that differ by more are different at 5 %.
    """

    ranks: Mapping[str, float]
    tables: int
    p: float
    distance: float


def rank_methods(figures: Mapping[str, Sequence[float]]) -> Ranking:
    """Rank methods on each table, and test whether their mean ranks differ.

    Args:
        figures: method → its figure on each table, in the same order for all; larger is better.

    Raises:
        InputError: fewer than three methods or two tables, figures that are not finite, or of other numbers of tables.
    """
    lengths = sorted({len(values) for values in figures.values()})
    if len(figures) < 3 or len(lengths) != 1 or lengths[0] < 2:
        raise InputError(
            f"ranks are of three or more methods on the same two or more tables; there are {len(figures)} methods with "
            f"figures on {lengths} tables"
        )
    values = np.array(list(figures.values()), dtype=float)  # (methods, tables)
    if not np.isfinite(values).all():
        raise InputError("a figure to rank is not finite; leave out methods that have no figure on a table")
    from scipy.special import fdtrc
    from scipy.stats import friedmanchisquare, rankdata, studentized_range

    k, n = values.shape
    means = rankdata(-values, axis=0).mean(axis=1)
    chi = 0.0 if (values == values[0]).all() else float(friedmanchisquare(*values).statistic)
    left = n * (k - 1) - chi
    p = float(fdtrc(k - 1, (k - 1) * (n - 1), (n - 1) * chi / left)) if left > 1e-9 else 0.0
    distance = float(studentized_range.ppf(1 - LEVEL, k, np.inf)) / math.sqrt(2) * math.sqrt(k * (k + 1) / (6 * n))
    order = np.argsort(means, kind="stable")
    names = list(figures)
    return Ranking(ranks={names[i]: float(means[i]) for i in order}, tables=n, p=p, distance=distance)

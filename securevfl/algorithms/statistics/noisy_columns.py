"""A party's columns under a budget: bins come from noisy counts, and a number becomes the normal score of its bin."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from securevfl.algorithms.additive.edges import category_column, noisy_category, noisy_column, signed_log
from securevfl.algorithms.statistics.columns import OwnColumn
from securevfl.privacy.noise import draw_gaussian
from securevfl.privacy.statistics_budget import StatisticsBudget

__all__ = ["cut_privately", "score_by_bins"]

_EVERYWHERE = 1e9
_CELLS = 64


def cut_privately(
    names: Sequence[str],
    codes: Sequence[int],
    levels: Mapping[str, Sequence[str]],
    x: np.ndarray,
    *,
    bins: int,
    ranges: Mapping[str, tuple[float, float]],
    budget: StatisticsBudget,
) -> list[OwnColumn]:
    """A passive party's columns by noisy counts.

    Args:
        names: of the columns.
        codes: number of codes of each, 0 for numbers.
        levels: column → names of its declared codes.
        x: rows, float64 (n, columns), NaN where missing.
        bins: most bins of values.
        ranges: column → its lowest and highest value, where the job states them; elsewhere a quarter of the column's
            budget finds them.
        budget: of the job.
    """
    found, mu = [], budget.mu_column(len(names))
    for j, name in enumerate(names):
        values = x[:, j]
        if codes[j]:
            made = noisy_category(category_column(name, codes[j], tuple(levels.get(name, ()))), values, mu)
            texts = [*levels.get(name, ()), "other"][: codes[j]]
        else:
            left, low, high = mu, *ranges.get(name, (0.0, 0.0))
            if name not in ranges:
                low, high = _find_range(values, mu / 2)
                left = mu * math.sqrt(0.75)
            made = noisy_column(name, values, bins, low, high, left)
            ends = [f"{low:.4g}", *(f"{edge:.4g}" for edge in made.edges), f"{high:.4g}"]
            texts = [f"{one} to {other}" for one, other in pairwise(ends)]
        one = OwnColumn(
            name=name,
            is_number=not codes[j],
            missing=0,
            codes=made.encode(values),
            labels=[*texts, "missing"],
            levels=(tuple(range(made.bins)),),
        )
        if not codes[j]:
            one.scores = _normal_scores(made.masses)[one.codes]
        found.append(one)
    return found


def _find_range(values: np.ndarray, mu: float) -> tuple[float, float]:
    """Where nearly all values of a column are, from noisy counts in 64 cells of all numbers, on the signed logarithm.

    Replacing a row moves two counts by one. A cell counts as filled from four standard deviations of the noise on.
    """
    last = float(signed_log(_EVERYWHERE))
    places = np.clip((signed_log(values[~np.isnan(values)]) + last) / (2 * last), 0, 1)
    counts = np.bincount(np.minimum((places * _CELLS).astype(np.int64), _CELLS - 1), minlength=_CELLS)
    sd = math.sqrt(2.0) / mu
    filled = np.flatnonzero(counts + draw_gaussian((_CELLS,), sd).numpy() >= 4 * sd)
    ends = (0, _CELLS) if not len(filled) else (int(filled[0]), int(filled[-1]) + 1)
    low, high = (2 * last * end / _CELLS - last for end in ends)
    return math.copysign(math.expm1(abs(low)), low), math.copysign(math.expm1(abs(high)), high)


def _normal_scores(masses: np.ndarray) -> np.ndarray:
    """Standardised normal scores of bins of these masses, the last one of missing values: 0, float64 (bins,)."""
    own = masses[:-1] / max(masses[:-1].sum(), 1e-12)
    middle = np.clip(np.cumsum(own) - own / 2, 1e-3, 1 - 1e-3)
    scores = np.array([NormalDist().inv_cdf(float(one)) for one in middle])
    scores -= own @ scores
    spread = math.sqrt(float(own @ np.square(scores)))
    return np.append(scores / spread if spread > 1e-6 else np.zeros(len(scores)), 0.0)


def score_by_bins(columns: Sequence[OwnColumn]) -> None:
    """Give columns of numbers the normal scores of their bins, as a party with noisy counts does."""
    for one in columns:
        if one.scores is not None:
            there = one.present if one.present is not None else np.ones(len(one.codes), bool)
            values = len(one.labels) - (one.missing > 0)
            masses = np.append(np.bincount(one.codes[there], minlength=values)[:values] / max(there.sum(), 1), 0.0)
            one.scores = _normal_scores(masses)[np.where(there, one.codes, values)]

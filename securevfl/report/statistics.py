"""Verdicts on paired differences that hold: the corrected resampled t, Holm's correction, effect sizes, power.

Two methods run with the same seeds share partition and start, so their differences by seed are one sample of size n.
Where seeds split the same rows, these differences are not independent: the test rows of two seeds overlap. Nadeau and
Bengio (2003), "Inference for the Generalization Error", therefore take (1/n + ratio) times the differences' variance
as that of their mean, where the ratio is test rows over all other rows. This is the t test that a correlation of
ratio / (1 + ratio) between any two differences asks for. With a ratio of 0 it is Student's. Holm (1979), "A Simple
Sequentially Rejective Multiple Test Procedure", keeps the chance of any false decision among all tests of a page at
5 %.

All verdicts of sweeps, searches, pages and benchmarks come from here. `securevfl.data.resampling` tells the ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from securevfl.errors import InputError

__all__ = [
    "CHANCE",
    "FEWEST",
    "LEVEL",
    "Judgement",
    "Paired",
    "adjust_p_values",
    "compute_error",
    "compute_power",
    "count_seeds",
    "judge_family",
    "run_paired_test",
    "visible_distance",
]

LEVEL = 0.05
"""The chance of one or more false decisions among all tests of a page, at most."""
FEWEST = 5
"""Seeds below which nothing is decided."""
CHANCE = 0.8
"""The power at which a difference counts as one that a test would have seen."""
_MOST_SEEDS = 1_000
_ROUNDING = 1e-12  # differences below this come from floating point, not from training


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Differences of two methods, seed by seed, against a margin.

    Attributes:
        n: seeds.
        margin: the difference under the null hypothesis.
        ratio: test rows over the other rows that seeds draw them from; None where it is unknown.
        mean: of the differences.
        deviation: their sample standard deviation, n − 1 below the line; None for one seed.
        low: lower end of the 95 % interval of the mean by the corrected t; None for one seed, and without a ratio.
        high: its upper end.
        p: of the two-sided corrected t test of mean = margin; 1 where all differences are equal, so that nothing tells
            of chance; None for one seed, and without a ratio.
        effect: Cohen's d_z = mean / deviation, times Hedges' correction 1 − 3 / (4 (n − 1) − 1) for small samples;
            None without a deviation, and below three seeds, where the correction is not defined.
    """

    n: int
    margin: float
    ratio: float | None
    mean: float
    deviation: float | None
    low: float | None
    high: float | None
    p: float | None
    effect: float | None

    @property
    def half_width(self) -> float | None:
        """Half the length of the interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a test says, as one of a family.

    Attributes:
        verdict: "holds", "does not hold" or "undecided".
        adjusted: Holm's p: the smallest level of the family at which this test decides; None where it cannot.
        seen: the least distance of the true difference from the margin, to either side, that this test would have
            decided with a power of 80 % at the level that Holm left it, if the deviation is as observed; None where
            there is none.
        seeds: of an undecided test: how many seeds would decide it with a power of 80 % at that level, if mean and
            deviation are as observed; None where no number up to 1,000 would, where there is no deviation or ratio,
            and of decided tests.
    """

    verdict: str
    adjusted: float | None
    seen: float | None
    seeds: int | None


def run_paired_test(differences: Sequence[float], margin: float = 0.0, *, ratio: float | None) -> Paired:
    """The corrected resampled t test of paired differences.

    Args:
        differences: seed by seed.
        margin: the difference under the null hypothesis.
        ratio: test rows over the other rows that seeds draw them from; 0 where seeds share no test row, and where all
            seeds test the same ones, so that a verdict is about these rows. None where it is unknown: then there is
            neither interval nor p.

    Raises:
        InputError: there is no difference, or one is not finite; the ratio is negative or not finite.
    """
    n = len(differences)
    if not n or not all(map(math.isfinite, differences)):
        raise InputError(f"the paired differences are {list(differences)}; expected one or more finite numbers")
    if ratio is not None and not 0 <= ratio < math.inf:
        raise InputError(f"the ratio of test rows to other rows is {ratio}; give a number from 0")
    mean = math.fsum(differences) / n
    deviation = None if n == 1 else math.sqrt(math.fsum((one - mean) ** 2 for one in differences) / (n - 1))
    low = high = p = effect = None
    if deviation is not None:
        constant = deviation <= _ROUNDING  # a metric of few test rows comes in steps, and may be off by one everywhere
        effect = None if constant or n < 3 else (1 - 3 / (4 * (n - 1) - 1)) * mean / deviation
        if ratio is not None:
            from scipy.special import stdtr, stdtrit

            error = compute_error(n, deviation, ratio)
            half = -float(stdtrit(n - 1, LEVEL / 2)) * error
            low, high = mean - half, mean + half
            p = 1.0 if constant else 2 * float(stdtr(n - 1, -abs(mean - margin) / error))
    return Paired(
        n=n, margin=margin, ratio=ratio, mean=mean, deviation=deviation, low=low, high=high, p=p, effect=effect
    )


def compute_error(n: int, deviation: float, ratio: float) -> float:
    """The standard error of a mean over seeds: Nadeau and Bengio's.

    Args:
        n: seeds.
        deviation: over the seeds, n − 1 below the line.
        ratio: see `run_paired_test`.
    """
    return deviation * math.sqrt(1 / n + ratio)


def adjust_p_values(ps: Sequence[float]) -> list[float]:
    """Adjusted p values: the i-th smallest of m is multiplied by m − i + 1, and is no less than those before it.

    To decide where the adjusted value is at most α keeps the chance of any false decision at α, whatever the
    dependence between the tests.
    """
    adjusted = [0.0] * len(ps)
    largest = 0.0
    for place, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        largest = max(largest, min(1.0, (len(ps) - place) * ps[i]))
        adjusted[i] = largest
    return adjusted


def judge_family(family: Sequence[Paired], *, level: float = LEVEL) -> list[Judgement]:
    """Verdicts of all tests of a page together: holds where the mean is above the margin, does not hold below it.

    Tests of fewer than five seeds, or without a ratio, are undecided, and do not count for Holm.
    """
    tested = {i: sample.p for i, sample in enumerate(family) if sample.n >= FEWEST and sample.p is not None}
    adjusted = dict(zip(tested, adjust_p_values(list(tested.values())), strict=True))
    decided = {i for i, p in adjusted.items() if p <= level}
    remaining = level / max(1, len(tested) - len(decided))  # what Holm's next step asks of a p value
    lines = []
    for i, sample in enumerate(family):
        above = sample.mean > sample.margin
        word = ("holds" if above else "does not hold") if i in decided else "undecided"
        seen, seeds = None, None
        if i in adjusted and sample.deviation and sample.deviation > _ROUNDING:
            seen = visible_distance(sample.n, sample.deviation, ratio=sample.ratio or 0.0, level=remaining)
        if word == "undecided" and sample.p is not None:
            seeds = count_seeds(sample, level=remaining)
        lines.append(Judgement(verdict=word, adjusted=adjusted.get(i), seen=seen, seeds=seeds))
    return lines


def compute_power(n: int, deviation: float, distance: float, *, ratio: float = 0.0, level: float = LEVEL) -> float:
    """The chance that the two-sided test of n differences decides, if the true mean is `distance` from the margin.

    By the noncentral t distribution with n − 1 degrees of freedom and noncentrality distance / (deviation ·
    √(1/n + ratio)).

    Args:
        n: differences.
        deviation: of them, as a sample shows it.
        distance: of the true mean from the margin.
        ratio: see `run_paired_test`.
        level: of the test.

    Raises:
        InputError: fewer than two differences, or a deviation or level out of range.
    """
    _check_sample(n, deviation, level)
    return _noncentral_power(n - 1, abs(distance) / compute_error(n, deviation, ratio), level)


def _noncentral_power(freedom: int, off: float, level: float) -> float:
    """The same from degrees of freedom and noncentrality."""
    from scipy.special import nctdtr, stdtrit

    bound = -float(stdtrit(freedom, level / 2))
    wrong = float(nctdtr(freedom, off, -bound)) if off < 4 else 0.0  # beyond, less than 4e-8; scipy loses its digits
    return 1 - float(nctdtr(freedom, off, bound)) + wrong


def visible_distance(
    n: int, deviation: float, *, ratio: float = 0.0, level: float = LEVEL, chance: float = CHANCE
) -> float:
    """The distance from the margin at which `compute_power` is `chance`.

    Raises:
        InputError: fewer than two differences, or a deviation, level or chance out of range.
    """
    _check_sample(n, deviation, level)
    if not level < chance < 1:
        raise InputError(f"the power is {chance}: give a fraction above the level {level} and below 1")
    return _noncentrality(n - 1, level, chance) * compute_error(n, deviation, ratio)


def count_seeds(sample: Paired, *, level: float = LEVEL) -> int | None:
    """How many seeds decide with a chance of 80 %, if mean and deviation stay as they are.

    More seeds do not help without end: the part of the error that comes from rows which all seeds share stays.

    Args:
        sample: with a deviation.
        level: of the test.

    Returns:
        A number from `FEWEST` to 1,000; None where none of them does.
    """
    distance, deviation, ratio = abs(sample.mean - sample.margin), sample.deviation or 0.0, sample.ratio or 0.0

    def decides(n: int) -> bool:
        return distance > 0 and distance >= visible_distance(n, deviation, ratio=ratio, level=level)

    low, high = FEWEST, _MOST_SEEDS
    if deviation <= _ROUNDING or not decides(high):
        return None
    while low < high:  # what a test sees falls with n
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle + 1, high)
    return low


@cache
def _noncentrality(freedom: int, level: float, chance: float) -> float:
    """Where `_noncentral_power` is `chance`."""
    from scipy.optimize import brentq

    top = 1.0
    while _noncentral_power(freedom, top, level) < chance:
        top *= 2
    return float(brentq(lambda off: _noncentral_power(freedom, off, level) - chance, 0.0, top, xtol=1e-9))


def _check_sample(n: int, deviation: float, level: float) -> None:
    if n < 2 or not 0 < deviation < math.inf or not 0 < level < 1:
        raise InputError(
            f"the test has {n} differences, deviation {deviation} and level {level}: it needs two or more, a positive "
            "deviation, and a level between 0 and 1"
        )

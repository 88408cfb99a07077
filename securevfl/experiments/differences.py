"""Which settings differ by more than chance, where seeds draw splits of the same rows.

The test rows of such seeds overlap, and Student's t over seeds decides too often. Here the variance of the mean is
(1/n + test rows / other rows) times that of the differences (Nadeau and Bengio 2003, "Inference for the Generalization
Error"), with Holm's correction over all lines.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from securevfl.experiments.grid import Point
from securevfl.report.statistics import FEWEST, LEVEL, adjust_p_values

__all__ = ["Difference", "Resampled", "compare_points", "resampled_t_test"]


@dataclass(frozen=True, kw_only=True)
class Resampled:
    """Differences of two points over seeds whose test rows overlap.

    Attributes:
        mean: of the differences.
        half: half the 95 % interval of the mean; None below two seeds.
        p: of the two-sided t test of no difference; None below two seeds, 1 where all differences are equal.
    """

    mean: float
    half: float | None
    p: float | None


def resampled_t_test(differences: Sequence[float], overlap: float) -> Resampled:
    """The corrected resampled_t_test t test.

    Args:
        differences: seed by seed.
        overlap: test rows over all other common rows; 0 where the test rows of seeds have nothing in common.
    """
    n, mean = len(differences), math.fsum(differences) / len(differences)
    if n < 2:
        return Resampled(mean=mean, half=None, p=None)
    from scipy.special import stdtr, stdtrit

    error = statistics.stdev(differences) * math.sqrt(1 / n + overlap)
    if error < 1e-12:  # nothing tells of chance
        return Resampled(mean=mean, half=0.0, p=1.0)
    half = -float(stdtrit(n - 1, LEVEL / 2)) * error
    return Resampled(mean=mean, half=half, p=2 * float(stdtr(n - 1, -abs(mean) / error)))


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A point against another one.

    Attributes:
        point: the first.
        seeds: that both ran with.
        test: of the first's figures less the other's.
        adjusted: p after Holm's correction; None below five seeds.
        verdict: ``"better"``, ``"worse"`` or ``"undecided"``.
    """

    point: Point
    seeds: int
    test: Resampled
    adjusted: float | None
    verdict: str


def compare_points(
    figures: Sequence[tuple[Point, Mapping[int, float]]], base: Point, overlap: float
) -> list[Difference]:
    """Each point against `base`, seed by seed; all of them are one family.

    Args:
        figures: points, and seed → figure, larger is better.
        base: one of the points.
        overlap: see `resampled_t_test`.
    """
    own = next((values for point, values in figures if point == base), {})
    tried: list[tuple[Point, int, Resampled]] = []
    for point, values in figures:
        pairs = [value - own[seed] for seed, value in values.items() if seed in own]
        if pairs and point != base:
            tried.append((point, len(pairs), resampled_t_test(pairs, overlap)))
    tested = [i for i, (_, n, _) in enumerate(tried) if n >= FEWEST]
    adjusted = dict(zip(tested, adjust_p_values([tried[i][2].p or 0.0 for i in tested]), strict=True))
    found = []
    for i, (point, n, test) in enumerate(tried):
        decided = adjusted.get(i, 1.0) <= LEVEL
        verdict = ("better" if test.mean > 0 else "worse") if decided else "undecided"
        found.append(Difference(point=point, seeds=n, test=test, adjusted=adjusted.get(i), verdict=verdict))
    return found

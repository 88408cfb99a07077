"""Which settings differ by more than chance: every point against one of them, all tests one family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from securevfl.experiments.grid import Point
from securevfl.report.statistics import Paired, judge_family, run_paired_test

__all__ = ["Difference", "compare_points"]

_WORDS = {"holds": "better", "does not hold": "worse", "undecided": "undecided"}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A point against another one.

    Attributes:
        point: the first.
        test: of the first's figures less the other's, seed by seed.
        adjusted: p after Holm's correction; None below five seeds.
        verdict: ``"better"``, ``"worse"`` or ``"undecided"``.
    """

    point: Point
    test: Paired
    adjusted: float | None
    verdict: str


def compare_points(
    figures: Sequence[tuple[Point, Mapping[int, float]]], base: Point, ratio: float | None
) -> list[Difference]:
    """Each point against `base`, seed by seed.

    Args:
        figures: points, and seed → figure, larger is better.
        base: one of the points.
        ratio: see `run_paired_test`.
    """
    own = next((values for point, values in figures if point == base), {})
    tried: list[tuple[Point, Paired]] = []
    for point, values in figures:
        pairs = [value - own[seed] for seed, value in values.items() if seed in own]
        if pairs and point != base:
            tried.append((point, run_paired_test(pairs, ratio=ratio)))
    return [
        Difference(point=point, test=test, adjusted=said.adjusted, verdict=_WORDS[said.verdict])
        for (point, test), said in zip(tried, judge_family([test for _, test in tried]), strict=True)
    ]

"""Which settings differ by more than chance: every point against one of them, all tests one family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from securevfl.experiments.grid import Point
from securevfl.report.statistics import Paired, judge_family, run_paired_test

__all__ = ["Difference", "compare_points", "describe_differences", "list_differences", "name_point"]

_MOST_NAMED = 5
"""Points that a sentence names; the table has all of them."""
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


def name_point(point: Point) -> str:
    """A point in words: its settings, or its method."""
    return ", ".join(f"{name} {value}" for name, value in point.settings.items()) or point.method


def list_differences(lines: Sequence[Difference], metric: str) -> list[dict[str, object]]:
    """One row a difference: settings, seeds, mean with the ends of its interval, p and verdict.

    Args:
        lines: of `compare_points`.
        metric: that was compared.
    """
    return [
        {
            **one.point.settings,
            "seeds": one.test.n,
            f"{metric} difference": one.test.mean,
            "low": one.test.low,
            "high": one.test.high,
            "p": one.adjusted,
            "verdict": one.verdict,
        }
        for one in lines
    ]


def describe_differences(lines: Sequence[Difference], base: Point) -> str:
    """Which points are better or worse than `base` by more than chance, in a sentence; empty where nothing was tested.

    Args:
        lines: of `compare_points`.
        base: the best on the validation rows.
    """
    if not any(line.adjusted is not None for line in lines):
        return ""
    parts = []
    for verdict in ("better", "worse"):
        names = [f"{name_point(one.point)} ({100 * one.test.mean:+.1f})" for one in lines if one.verdict == verdict]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        parts += [f"{verdict} by more than chance: {', '.join(names[:_MOST_NAMED])}{more}"] if names else []
    left = sum(one.verdict == "undecided" for one in lines)
    parts += [f"undecided: {'all' if left == len(lines) else left} others"] if left else []
    return (
        f"Against {name_point(base)}, the best on the validation rows, in points on the test rows: "
        f"{'; '.join(parts)} (t test over seeds, corrected for test rows in common, after Holm)."
    )

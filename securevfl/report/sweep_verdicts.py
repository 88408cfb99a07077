"""Which claims of a sweep hold: every claim, data set and position is one test of the same family."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from securevfl.report.split_ratio import find_ratios
from securevfl.report.statistics import Judgement, Paired, judge_family, run_paired_test
from securevfl.report.sweep_record import Claim, SweepRecord, by_seed, dataset_names, list_positions

__all__ = ["Verdict", "judge_claims", "list_verdicts", "tests_of"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the seeds that were run say of a claim on one data set at one position."""

    claim: Claim
    data: str
    x: float | None
    """None for a claim that no two runs can tell of"""
    n: int
    """seeds that both methods ran with"""
    difference: float | None
    """mean over these seeds of better minus worse, a fraction"""
    low: float | None = None
    high: float | None = None
    """ends of the 95 % interval of this difference by itself; None below two seeds, and without a ratio"""
    p: float | None = None
    """of the two-sided corrected t test of a difference equal to the margin"""
    adjusted: float | None = None
    """Holm's p among all tests of the sweep; None below five seeds"""
    effect: float | None = None
    """Cohen's d_z with Hedges' correction: the difference in standard deviations of the differences"""
    seen: float | None = None
    """how far from the margin the true difference had to be for a verdict with a chance of 80 %"""
    seeds: int | None = None
    """how many seeds would decide an undecided line with a chance of 80 %, if mean and deviation stay; None: none"""
    ratio: float | None = None
    """test rows over the other rows that seeds draw them from, which the test corrects for; None where it is unknown,
    and nothing is decided"""
    verdict: str
    """"holds", "does not hold", "undecided" or "not tried" """

    @property
    def half_width(self) -> float | None:
        """Half the length of the interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


def tests_of(record: SweepRecord, claim: Claim) -> Iterator[tuple[str, float, Paired]]:
    """Data set, position and paired differences, where a seed ran with both methods."""
    seeds, ratios = by_seed(record, claim.rows), find_ratios(record)
    for data in dataset_names(record):
        if claim.data not in ("*", data):
            continue
        for x in list_positions(record, data):
            if claim.at and not any(math.isclose(x, at, rel_tol=1e-9, abs_tol=1e-12) for at in claim.at):
                continue
            better, worse = (seeds.get((data, method, x), {}) for method in (claim.better, claim.worse))
            pairs = [better[seed] - worse[seed] for seed in better if seed in worse]
            if pairs:
                yield data, x, run_paired_test(pairs, claim.margin, ratio=ratios[data, x])


def _build_verdict(claim: Claim, data: str, x: float, sample: Paired, found: Judgement) -> Verdict:
    return Verdict(
        claim=claim,
        data=data,
        x=x,
        n=sample.n,
        difference=sample.mean,
        low=sample.low,
        high=sample.high,
        p=sample.p,
        adjusted=found.adjusted,
        effect=sample.effect,
        seen=found.seen,
        seeds=found.seeds,
        ratio=sample.ratio,
        verdict=found.verdict,
    )


def judge_claims(record: SweepRecord) -> list[tuple[Claim, list[Verdict]]]:
    """Each claim, with a line for each data set and position where a seed ran with both methods.

    A claim without such a line has a single one, "not tried". The two methods are compared seed by seed, so that what a
    split or a start makes easy or hard for both drops out. A claim holds where its difference is above the margin by
    the t test that is corrected for test rows which seeds share, and does not hold where it is below, after Holm's
    correction over all lines of all claims: if every difference equals its margin, the chance of any verdict but
    "undecided" is at most 5 %. Fewer than five seeds decide nothing, nor does a record without the ratio of its splits.
    """
    tests = [list(tests_of(record, claim)) for claim in record.claims]
    found = iter(judge_family([sample for lines in tests for _, _, sample in lines]))
    return [
        (claim, [_build_verdict(claim, *line, next(found)) for line in lines] or [_untried_verdict(claim)])
        for claim, lines in zip(record.claims, tests, strict=True)
    ]


def _untried_verdict(claim: Claim) -> Verdict:
    return Verdict(claim=claim, data=claim.data, x=None, n=0, difference=None, verdict="not tried")


def list_verdicts(record: SweepRecord) -> list[Verdict]:
    """All lines of `judged`, in order."""
    return [line for _, lines in judge_claims(record) for line in lines]

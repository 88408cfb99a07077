"""Verdicts on claims of a gain: it holds, it does not, or the gain is shown to be smaller than a stated bound.

A test that finds no difference proves nothing. Two one-sided tests do (Schuirmann 1987): they reject that the
difference is the bound or more, and that it is minus the bound or less. Where the first rejects, a claimed gain is less
than the bound; where both do, there is no difference above it. The t statistic is the corrected one of
`securevfl.report.statistics`.

Every claim then has three hypotheses: the difference is the margin; it is the bound or more; it is minus the bound or
less. No two of them can be true at once. So a page of K claims has at most K true hypotheses, and a Holm procedure that
knows this (Shaffer 1986, "Modified Sequentially Rejective Multiple Test Procedures") starts at level / K, as with one
hypothesis a claim, and keeps the chance of any false verdict at the level, whatever the dependence. The price: a claim
makes the level of the others larger only when all its hypotheses are rejected, for until then one of them may be true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from securevfl.report.statistics import (
    FEWEST,
    LEVEL,
    Judgement,
    Paired,
    compute_error,
    count_seeds,
    visible_distance,
)

__all__ = ["BOUND", "DECIDED", "MOST", "ClaimJudgement", "adjust_disjoint", "judge_claims", "run_bound_tests"]

BOUND = 0.02
"""The gain that a verdict of no gain excludes, as a fraction: 2 points of accuracy or AUC."""
MOST = 1_000
"""Seeds beyond which more are no help."""
DECIDED = ("holds", "does not hold", "no gain", "no difference")
"""The verdicts that decide a claim."""
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class ClaimJudgement(Judgement):
    """The verdict on one claim from a page's tests.

    Attributes:
        verdict: "holds" or "does not hold" of the claim against its margin; else "no difference" if both one-sided
            tests reject; else, of a claim of a gain, "no gain" if the upper one does; else "undecided". A claim with a
            negative margin, to be hardly worse, is not decided by the upper test alone.
        below_bound: the test rejects that the difference is the bound or more. A claim that holds can have it, too.
        above_bound: the test rejects that the difference is minus the bound or less.
        bound_seeds: of an undecided claim: how many seeds would lead to "no gain" (of a claim with a negative margin,
            to "no difference") with a chance of 80 %, if mean and deviation are as observed; None where no number up
            to 1,000 would.
        limit: as `seen`, with `MOST` seeds: the rows that all seeds share keep it from going to zero.
    """

    below_bound: bool
    above_bound: bool
    bound_seeds: int | None
    limit: float | None = None

    @property
    def fewest_seeds(self) -> int | None:
        """How many seeds would lead to a verdict of either kind."""
        return min((n for n in (self.seeds, self.bound_seeds) if n is not None), default=None)


def run_bound_tests(sample: Paired, bound: float) -> tuple[float, float]:
    """The one-sided p values of: the mean is `bound` or more; the mean is −`bound` or less.

    Args:
        sample: with a ratio, and two seeds or more. Equal differences show nothing about chance: 1 and 1.
        bound: positive.
    """
    from scipy.special import stdtr

    if sample.ratio is None or not sample.deviation or sample.deviation <= _ROUNDING:
        return 1.0, 1.0
    error = compute_error(sample.n, sample.deviation, sample.ratio)
    return (
        float(stdtr(sample.n - 1, (sample.mean - bound) / error)),
        float(stdtr(sample.n - 1, -(sample.mean + bound) / error)),
    )


def adjust_disjoint(claims: Sequence[Sequence[float]]) -> list[list[float]]:
    """Adjusted p values where at most one hypothesis of each claim is true: the smallest level that rejects each.

    A hypothesis is rejected if every set of hypotheses that could all be true with it, at most one of each claim, has
    a p value of at most level / (size of the set). The worst set takes the largest p value of those claims where it is
    largest. With one hypothesis a claim this is Holm's correction.

    Args:
        claims: p values of each claim's hypotheses.
    """
    hardest = [max(ps) for ps in claims]
    adjusted = []
    for i, ps in enumerate(claims):
        others = [2.0, *sorted(hardest[:i] + hardest[i + 1 :], reverse=True)]
        adjusted.append([min(1.0, max((s + 1) * min(p, q) for s, q in enumerate(others))) for p in ps])
    return adjusted


def judge_claims(
    family: Sequence[Paired], bounds: Sequence[float | None] | None = None, *, level: float = LEVEL
) -> list[ClaimJudgement]:
    """Verdicts of a page's claims together.

    Tests of fewer than five seeds, or without a ratio, are undecided, and do not count for the correction.

    Args:
        family: each claim's differences.
        bounds: the gain that each claim's one-sided tests exclude; None for a claim without them. Without `bounds`, all
            have `BOUND`. A claim whose margin is not inside ±bound has none, for its hypotheses could be true at once.
        level: the chance of one or more false verdicts, at most.
    """
    given = [BOUND] * len(family) if bounds is None else list(bounds)
    asked = [
        bound if bound is not None and abs(sample.margin) < bound else None
        for sample, bound in zip(family, given, strict=True)
    ]
    ps: dict[int, list[float]] = {}
    for i, (sample, bound) in enumerate(zip(family, asked, strict=True)):
        if sample.n >= FEWEST and sample.p is not None:
            ps[i] = [sample.p, *(() if bound is None else run_bound_tests(sample, bound))]
    adjusted = dict(zip(ps, adjust_disjoint(list(ps.values())), strict=True))
    still_open = sum(max(values) > level for values in adjusted.values())
    remaining = level / max(1, still_open)  # what the last step asks of a p value
    return [
        _judge_claim(sample, bound, adjusted.get(i), level, remaining)
        for i, (sample, bound) in enumerate(zip(family, asked, strict=True))
    ]


def _judge_claim(
    sample: Paired, bound: float | None, adjusted: Sequence[float] | None, level: float, remaining: float
) -> ClaimJudgement:
    if adjusted is None:
        return ClaimJudgement(
            verdict="undecided", adjusted=None, seen=None, seeds=None,
            below_bound=False, above_bound=False, bound_seeds=None,
        )  # fmt: skip
    below, above = (p <= level for p in (*adjusted[1:], *(() if len(adjusted) > 1 else (1.0, 1.0))))
    if adjusted[0] <= level:
        verdict = "holds" if sample.mean > sample.margin else "does not hold"
    elif below and above:
        verdict = "no difference"
    elif below and sample.margin >= 0:
        verdict = "no gain"
    else:
        verdict = "undecided"
    seen = limit = seeds = bound_seeds = None
    if sample.deviation and sample.deviation > _ROUNDING:
        seen, limit = (
            visible_distance(n, sample.deviation, ratio=sample.ratio or 0.0, level=remaining) for n in (sample.n, MOST)
        )
    if verdict == "undecided":
        seeds = count_seeds(sample, level=remaining)
        two_sided = sample.margin < 0
        if bound is not None and (abs(sample.mean) if two_sided else sample.mean) < bound:
            nearer = -bound if two_sided and sample.mean < 0 else bound
            # one-sided at a level is two-sided at twice that level
            bound_seeds = count_seeds(replace(sample, margin=nearer), level=2 * remaining)
    return ClaimJudgement(
        verdict=verdict, adjusted=adjusted[0], seen=seen, seeds=seeds,
        below_bound=below, above_bound=above, bound_seeds=bound_seeds, limit=limit,
    )  # fmt: skip

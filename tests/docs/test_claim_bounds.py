"""Claims that a gain is small: the tests, their correction, and the levels that they hold."""

from __future__ import annotations

import itertools

import false_verdicts_page
import numpy as np
import pytest
from scipy import stats

from benchmarks.claim_bounds import BOUND, ClaimJudgement, adjust_disjoint, judge_claims, run_bound_tests
from benchmarks.false_bounds import CHOSEN, MEAN, TRUTHS, count_false, is_false, measure
from benchmarks.false_verdicts import CASES, differences, read_table
from securevfl.report.statistics import LEVEL, Paired, adjust_p_values, run_paired_test


def _sample(mean: float, deviation: float, n: int = 10, margin: float = 0.0) -> Paired:
    """Differences with exactly this mean and deviation."""
    steps = np.linspace(-1, 1, n)
    return run_paired_test((mean + steps * deviation / steps.std(ddof=1)).tolist(), margin, ratio=0.25)


def test_one_sided_tests_are_those_of_scipy_without_rows_in_common() -> None:
    values = np.random.default_rng(0).normal(0.01, 0.02, 9)
    below, above = run_bound_tests(run_paired_test(values.tolist(), ratio=0.0), BOUND)
    assert below == pytest.approx(stats.ttest_1samp(values, BOUND, alternative="less").pvalue)
    assert above == pytest.approx(stats.ttest_1samp(values, -BOUND, alternative="greater").pvalue)
    shared = run_bound_tests(run_paired_test(values.tolist(), ratio=0.25), BOUND)
    assert shared[0] > below


def test_with_one_hypothesis_a_claim_the_correction_is_holms() -> None:
    ps = np.random.default_rng(1).random(9).tolist()
    assert [one for (one,) in adjust_disjoint([[p] for p in ps])] == pytest.approx(adjust_p_values(ps))


def test_the_correction_is_the_closed_test_of_hypotheses_that_can_be_true_together() -> None:
    """All sets with at most one hypothesis of each claim, by enumeration."""
    draw = np.random.default_rng(2)
    for _ in range(20):
        claims = (draw.random((4, 3)) ** 3).tolist()
        wanted = [[0.0] * 3 for _ in claims]
        for chosen in itertools.product((None, 0, 1, 2), repeat=4):
            together = [(i, k) for i, k in enumerate(chosen) if k is not None]
            if together:
                least = len(together) * min(claims[i][k] for i, k in together)
                for i, k in together:
                    wanted[i][k] = max(wanted[i][k], min(1.0, least))
        assert np.allclose(adjust_disjoint(claims), wanted)


def test_claims_get_the_verdict_that_their_interval_shows() -> None:
    wide = _sample(0.0, 0.05)
    samples = [_sample(0.05, 0.005), _sample(-0.05, 0.005), _sample(0.001, 0.002), _sample(-0.02, 0.004), wide]
    verdicts = [one.verdict for one in judge_claims(samples)]
    assert verdicts == ["holds", "does not hold", "no difference", "does not hold", "undecided"]
    small = _sample(-0.012, 0.0053)  # below the bound, but neither below 0 nor above minus the bound
    (alone,) = judge_claims([small])
    assert (alone.verdict, alone.below_bound, alone.above_bound) == ("does not hold", True, True)
    among = judge_claims([small, *[wide] * 19])[0]
    assert (among.verdict, among.below_bound, among.above_bound) == ("no gain", True, False)


def test_a_claim_to_be_on_par_needs_both_bounds() -> None:
    others = [_sample(0.0, 0.05)] * 19
    on_par, gain = (judge_claims([_sample(-0.012, 0.0053, margin=m), *others])[0] for m in (-0.005, 0.0))
    assert (on_par.verdict, gain.verdict) == ("undecided", "no gain")
    near = judge_claims([_sample(-0.01, 0.0045, n=6, margin=-0.005), *others])[0]
    assert near.verdict == "undecided"
    assert near.bound_seeds is not None
    close = judge_claims([_sample(-0.006, 0.003, margin=-0.005), *others])[0]
    assert close.verdict == "no difference"


def test_what_nothing_is_known_of_is_undecided() -> None:
    few, constant = run_paired_test([0.001, 0.002, 0.001], ratio=0.25), run_paired_test([0.0] * 8, ratio=0.25)
    unknown = run_paired_test([0.001, 0.002, 0.001, 0.0, 0.001], ratio=None)
    judged = judge_claims([few, constant, unknown])
    assert {one.verdict for one in judged} == {"undecided"}
    assert not any(one.below_bound or one.above_bound for one in judged)
    sure = _sample(0.001, 0.002)
    assert judge_claims([sure], [None])[0].verdict == "undecided"  # a claim without bounds
    assert judge_claims([_sample(0.001, 0.002, margin=0.03)])[0].verdict == "does not hold"  # the margin is beyond it


def test_the_seeds_that_a_bound_wants_would_show_it() -> None:
    (found,) = judge_claims([_sample(0.004, 0.012, n=5)])
    assert found.verdict == "undecided"
    assert found.bound_seeds is not None
    assert found.fewest_seeds == found.bound_seeds  # the sign wants more, or no number will do
    assert judge_claims([_sample(0.004, 0.012, n=found.bound_seeds)])[0].below_bound
    assert found.seen is not None
    assert found.limit is not None
    assert found.limit < found.seen
    assert found.limit > 0.004  # what no number of seeds sees
    (far,) = judge_claims([_sample(0.03, 0.05, n=5)])
    assert far.bound_seeds is None


def test_a_statement_is_false_where_it_excludes_the_truth() -> None:
    def said(verdict: str, *, below: bool = False, above: bool = False) -> ClaimJudgement:
        return ClaimJudgement(
            verdict=verdict, adjusted=None, seen=None, seeds=None, below_bound=below, above_bound=above,
            bound_seeds=None,
        )  # fmt: skip

    assert is_false(said("holds"), 0.0)
    assert not is_false(said("holds", above=True), BOUND)
    assert is_false(said("no gain", below=True), BOUND)
    assert not is_false(said("no gain", below=True), 0.0)
    assert is_false(said("holds", below=True, above=True), -BOUND)


@pytest.mark.parametrize("deviation", [0.004, 0.015])
def test_pages_of_independent_claims_hold_their_level(deviation: float) -> None:
    """400 pages of eight claims; without the correction a third of the pages would be false."""
    draw = np.random.default_rng(3)
    pages = [draw.normal(0, deviation, (8, 6)) for _ in range(400)]
    for truths in (*TRUTHS.values(), (0.0, BOUND, BOUND, BOUND)):
        assert count_false(pages, 0.0, truths)[0] <= 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5


def test_equal_methods_on_a_real_table_are_not_denied_the_bound() -> None:
    case = CASES["breast cancer, a third trains"]
    table = read_table(case.name)
    found = measure([differences(case, table, repeat, 5) for repeat in range(40)], case.ratio, (5,))
    line = found["5 seeds"]
    assert line["single"] <= 0.05 + 3 * (0.05 * 0.95 / 40) ** 0.5 / 3**0.5  # type: ignore[index]
    assert max(line[name] for name in TRUTHS) <= 0.05 + 3 * (0.05 * 0.95 / 40) ** 0.5  # type: ignore[index]


def test_the_whole_holds_the_level() -> None:
    found = false_verdicts_page.read(false_verdicts_page.BOUNDS)
    assert set(found) == {*CHOSEN, MEAN}
    for name, one in found.items():
        chance = (LEVEL * (1 - LEVEL) / one["repeats"]) ** 0.5
        for n in (5, 10, 20):
            line = one[f"{n} seeds"]
            assert line["single"] <= LEVEL + 3 * chance / 3**0.5, name
            for truth in TRUTHS:
                assert line[truth] <= LEVEL + 3 * chance, (name, truth)
            shares = [line["single"], *(line[truth] for truth in TRUTHS)]
            if name == "credit":  # as docs/verdicts.md says
                assert all(0.04 <= share <= 0.085 for share in shares)
            else:
                assert max(shares) < 0.055

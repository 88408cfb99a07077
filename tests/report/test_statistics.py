"""Verdicts on simulated data without any difference; the corrected t, Holm and power against other implementations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from statistics import fmean, stdev

import numpy as np
import pytest
from scipy import stats

from securevfl.errors import InputError
from securevfl.report import CellFigures, Claim, SweepRecord, list_verdicts
from securevfl.report.statistics import (
    LEVEL,
    Paired,
    adjust_p_values,
    compute_power,
    count_seeds,
    judge_family,
    run_paired_test,
    visible_distance,
)

PAGES = 400
_SLACK = 3  # standard deviations of a binomial count


def _most(pages: int) -> float:
    """The largest share of pages with a false decision that a family-wise 5 % explains."""
    return LEVEL + _SLACK * math.sqrt(LEVEL * (1 - LEVEL) / pages)


def _null(rng: np.random.Generator, seeds: int, *, rows: int | None) -> list[list[float]]:
    """Differences of all pairs of four methods of equal quality on four data sets, seeds differing more than methods.

    Args:
        rows: of a test set whose accuracies come in steps; None for normal ones.
    """
    found = []
    for _ in range(4):
        quality = np.clip(rng.normal(0.85, 0.03, size=(1, seeds)) + np.zeros((4, seeds)), 0.5, 0.99)
        scores = rng.normal(quality, 0.01) if rows is None else rng.binomial(rows, quality) / rows
        found += [(scores[i] - scores[k]).tolist() for i in range(4) for k in range(i)]
    return found


def _two_errors(differences: list[float]) -> bool:
    """The rule of earlier versions: decided beyond two standard errors."""
    return abs(fmean(differences)) > 2 * stdev(differences) / math.sqrt(len(differences)) + 1e-12


def _decided(differences: list[list[float]]) -> bool:
    return any(
        line.verdict != "undecided"
        for line in judge_family([run_paired_test(sample, ratio=0.0) for sample in differences])
    )


def _old(differences: list[list[float]]) -> bool:
    return any(map(_two_errors, differences))


def _share(decides: Callable[[list[list[float]]], bool], seeds: int, rows: int | None) -> float:
    """Of simulated pages without any difference, how many have a decision."""
    rng = np.random.default_rng(7)
    return sum(decides(_null(rng, seeds, rows=rows)) for _ in range(PAGES)) / PAGES


@pytest.mark.parametrize(("seeds", "rows"), [(5, None), (5, 150), (5, 2000), (8, None)])
def test_pages_without_differences_have_false_verdicts_in_five_of_a_hundred(seeds: int, rows: int | None) -> None:
    assert _share(_decided, seeds, rows) <= _most(PAGES)


@pytest.mark.parametrize("seeds", [3, 5])
def test_two_standard_errors_fail_the_same_simulation(seeds: int) -> None:
    assert _share(_old, seeds, None) > 0.5 > _most(PAGES)


def test_false_verdicts_are_not_rarer_than_need_be() -> None:
    """One test a page: the level is used up, so that the bound above is not met by deciding nothing."""
    rng = np.random.default_rng(3)
    false = [_decided([rng.normal(size=5).tolist()]) for _ in range(PAGES)]
    assert abs(sum(false) / PAGES - LEVEL) <= _most(PAGES) - LEVEL


def _cells(rng: np.random.Generator, differ: float) -> Iterator[CellFigures]:
    for data in ("mnist", "credit"):
        for x in (0.01, 0.05):
            split = rng.normal(0.55, 0.03, size=5)
            for k, method in enumerate("ABC"):
                values = split + rng.normal(0, 0.005, size=5) + differ * k
                for seed, value in enumerate(values.tolist()):
                    effort = {"epochs": 1, "best_epoch": 1, "seconds": 1.0}
                    other = {"valid": 0.5, "metric": "accuracy", "test_ratio": 0.0, **effort}
                    yield CellFigures(data=data, method=method, x=x, seed=seed, value=value, alone=value - 0.1, **other)


def _words(rng: np.random.Generator, differ: float) -> list[str]:
    """Verdicts of a whole sweep with 24 lines."""
    claims = [
        Claim(text="", source="", data="*", better=better, worse=worse, rows=rows)
        for better, worse in ("BA", "CB", "CA")
        for rows in ("common", "alone")
    ]
    settings = dict.fromkeys(("name", "title", "created", "command", "size", "axis", "axis_unit"), "")
    record = SweepRecord(cells=list(_cells(rng, differ)), claims=claims, versions={}, machine={}, **settings)
    return [line.verdict for line in list_verdicts(record)]


def test_sweeps_without_differences_decide_nothing_and_with_large_ones_all() -> None:
    rng = np.random.default_rng(11)
    sweeps = 60
    false = sum(set(_words(rng, 0.0)) != {"undecided"} for _ in range(sweeps))
    assert false / sweeps <= _most(sweeps)
    assert _words(rng, 0.15) == ["holds"] * 24
    assert _words(rng, -0.15) == ["does not hold"] * 24


def test_t_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    for n in (2, 3, 5, 10, 40):
        a, b = rng.normal(0.9, 0.02, size=(2, n))
        ours = run_paired_test((a - b).tolist(), 0.004, ratio=0.0)
        theirs = stats.ttest_rel(a - 0.004, b)
        interval = stats.ttest_rel(a, b).confidence_interval(0.95)
        assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
        assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
        assert ours.mean == pytest.approx((a - b).mean())


def _closed_holm(ps: list[Fraction]) -> list[Fraction]:
    """Holm as the closure of Bonferroni: a hypothesis has the largest Bonferroni p of all sets that hold it."""
    sets = [[i for i in range(len(ps)) if mask >> i & 1] for mask in range(1, 1 << len(ps))]
    return [max(min(Fraction(1), len(s) * min(ps[k] for k in s)) for s in sets if i in s) for i in range(len(ps))]


def test_holm_is_the_closure_of_bonferroni() -> None:
    rng = np.random.default_rng(1)
    for n in (0, 1, 2, 3, 7):
        for _ in range(5):
            ps = [Fraction(int(number), 1000) for number in rng.integers(0, 200, size=n)]
            assert adjust_p_values([float(p) for p in ps]) == pytest.approx([float(p) for p in _closed_holm(ps)])
    # Holm (1979) by hand: 0.01 · 4, 0.013 · 3 (no less than before), 0.014 · 2, 0.19
    assert adjust_p_values([0.19, 0.01, 0.014, 0.013]) == pytest.approx([0.19, 0.04, 0.04, 0.04])


def test_power_is_that_of_simulation_and_of_the_noncentral_t() -> None:
    rng = np.random.default_rng(2)
    samples = rng.normal(0.012, 0.01, size=(20_000, 5))
    t = samples.mean(axis=1) / (samples.std(axis=1, ddof=1) / math.sqrt(5))
    seen = float((np.abs(t) > stats.t.ppf(1 - 0.01 / 2, 4)).mean())
    assert compute_power(5, 0.01, 0.012, level=0.01) == pytest.approx(seen, abs=0.011)
    other = stats.nct(4, 1.2 * math.sqrt(5))
    bound = stats.t.ppf(0.995, 4)
    assert compute_power(5, 0.01, 0.012, level=0.01) == pytest.approx(other.sf(bound) + other.cdf(-bound), rel=1e-6)
    assert compute_power(5, 0.01, 0.0, level=0.01) == pytest.approx(0.01)
    assert compute_power(5, 0.01, visible_distance(5, 0.01, level=0.003), level=0.003) == pytest.approx(0.8)
    assert visible_distance(5, 0.02) == pytest.approx(2 * visible_distance(5, 0.01))


def test_what_an_undecided_test_could_have_seen() -> None:
    clear = [run_paired_test([0.2, 0.21, 0.19, 0.2, 0.205], ratio=0.0)] * 3
    vague = [run_paired_test([0.01, -0.01, 0.02, -0.02, 0.0], ratio=0.0)] * 2
    lines = judge_family([*clear, *vague])
    assert [line.verdict for line in lines] == ["holds"] * 3 + ["undecided"] * 2
    assert lines[-1].seen == pytest.approx(visible_distance(5, stdev([0.01, -0.01, 0.02, -0.02, 0.0]), level=0.05 / 2))
    assert (lines[-1].seen or 0) > visible_distance(5, 0.0158)


def test_effect_sizes_are_corrected_for_few_seeds() -> None:
    differences = [0.02, 0.04, 0.06, 0.04, 0.04]
    found = run_paired_test(differences, ratio=0.0).effect
    assert found == pytest.approx(fmean(differences) / stdev(differences) * (1 - 3 / 15))
    assert run_paired_test([0.1, 0.2], ratio=0.0).effect is None


@pytest.mark.parametrize("few", [1, 2, 3, 4])
def test_fewer_than_five_seeds_decide_nothing_and_burden_nobody(few: int) -> None:
    clear = [0.2, 0.21, 0.19, 0.2, 0.205]
    lines = judge_family([run_paired_test(clear[:few], ratio=0.0), run_paired_test(clear, ratio=0.0)])
    assert [line.verdict for line in lines] == ["undecided", "holds"]
    assert lines[0].adjusted is None
    assert lines[1].adjusted == run_paired_test(clear, ratio=0.0).p


def test_equal_differences_say_nothing_of_chance() -> None:
    for value in (0.0, 0.0025, -0.3):
        sample = run_paired_test([value] * 5, ratio=0.0)
        assert (sample.p, sample.effect) == (1.0, None)
        assert judge_family([sample])[0].verdict == "undecided"
        assert judge_family([sample])[0].seen is None


def test_margins_move_the_null_hypothesis() -> None:
    """Non-inferiority is a claim with a negative margin: 0.3 points behind, no more than a point."""
    behind = [-0.001, -0.005, -0.003, -0.004, -0.002]
    words = {
        margin: judge_family([run_paired_test(behind, margin, ratio=0.0)])[0].verdict for margin in (-0.01, -0.003, 0.0)
    }
    assert words == {-0.01: "holds", -0.003: "undecided", 0.0: "does not hold"}


def test_what_is_no_sample_is_refused() -> None:
    with pytest.raises(InputError, match="expected one or more finite numbers"):
        run_paired_test([], ratio=0.0)
    with pytest.raises(InputError, match="expected one or more finite numbers"):
        run_paired_test([0.1, math.nan], ratio=0.0)
    for n, deviation, level in ((1, 0.1, 0.05), (5, 0.0, 0.05), (5, 0.1, 0.0)):
        with pytest.raises(InputError, match="it needs two or more"):
            compute_power(n, deviation, 0.1, level=level)
    with pytest.raises(InputError, match=r"the power is 0\.01"):
        visible_distance(5, 0.1, chance=0.01)


def test_one_seed_has_a_mean_and_nothing_else() -> None:
    assert run_paired_test([0.1], ratio=0.0) == Paired(
        n=1, margin=0.0, ratio=0.0, mean=0.1, deviation=None, low=None, high=None, p=None, effect=None
    )


def test_test_rows_in_common_decide_too_often_without_the_correction() -> None:
    """Two methods that are right equally often, over 2,000 tables of 200 rows: each seed tests 40 of the same rows.
    Student's t decides in twice as many as the 5 % that it should, the corrected test in 5 %."""
    generator = np.random.default_rng(0)
    decided = {0.0: 0, 0.25: 0}
    for _ in range(2_000):
        one, two = (generator.random((2, 200)) < 0.7).astype(float)
        tested = [generator.permutation(200)[:40] for _ in range(5)]
        differences = [float((one - two)[rows].mean()) for rows in tested]
        for ratio in decided:
            decided[ratio] += (run_paired_test(differences, ratio=ratio).p or 0.0) <= LEVEL
    assert decided[0.0] > 220  # 13 %
    assert 70 < decided[0.25] < 130  # 5 % of 2,000, and three standard errors


def _correlated(rng: np.random.Generator, shape: tuple[int, int], correlation: float) -> np.ndarray:
    """Normal samples, a row each, any two of whose values have this correlation."""
    common, own = rng.normal(size=(shape[0], 1)), rng.normal(size=shape)
    return np.asarray(math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own)


@pytest.mark.parametrize("n", [5, 20])
def test_the_corrected_test_is_exact_for_equal_correlations(n: int) -> None:
    """More seeds of the same rows make the uncorrected test worse, and leave the corrected one at its level."""
    samples = _correlated(np.random.default_rng(8), (3_000, n), 0.2)
    shares = {r: fmean((run_paired_test(s.tolist(), ratio=r).p or 0.0) <= LEVEL for s in samples) for r in (0.0, 0.25)}
    assert abs(shares[0.25] - LEVEL) < _SLACK * math.sqrt(LEVEL * (1 - LEVEL) / len(samples))
    assert shares[0.0] > (0.1 if n == 5 else 0.3)


def test_the_power_counts_rows_in_common() -> None:
    rng = np.random.default_rng(9)
    samples = 0.02 + 0.01 / math.sqrt(0.8) * _correlated(rng, (3_000, 8), 0.2)  # the sample's deviation is 0.01
    seen = fmean((run_paired_test(s.tolist(), ratio=0.25).p or 0.0) <= 0.01 for s in samples)
    assert compute_power(8, 0.01, 0.02, ratio=0.25, level=0.01) == pytest.approx(seen, abs=0.025)
    far = visible_distance(8, 0.01, ratio=0.25, level=0.01)
    assert far == pytest.approx(visible_distance(8, 0.01, level=0.01) * math.sqrt((1 / 8 + 0.25) * 8))
    assert compute_power(8, 0.01, far, ratio=0.25, level=0.01) == pytest.approx(0.8)


def test_seeds_that_would_decide() -> None:
    sample = run_paired_test([0.01, 0.03, 0.0, 0.02, 0.03], ratio=0.0)
    wanted = count_seeds(sample, level=0.001)
    assert wanted is not None
    powers = [compute_power(n, sample.deviation or 0.0, sample.mean, level=0.001) for n in (wanted - 1, wanted)]
    assert powers[0] < 0.8 <= powers[1]
    # what all seeds share stays: with the ratio 1 the error never falls below the deviation, and no number helps
    shared = run_paired_test([0.01, 0.03, 0.0, 0.02, 0.03], ratio=1.0)
    assert count_seeds(shared, level=0.001) is None
    assert count_seeds(run_paired_test([0.1] * 5, ratio=0.0)) is None
    (undecided,) = judge_family([sample], level=0.001)
    assert (undecided.verdict, undecided.seeds) == ("undecided", wanted)
    assert judge_family([sample])[0].seeds is None  # decided


def test_without_a_ratio_nothing_is_decided() -> None:
    clear = [0.2, 0.21, 0.19, 0.2, 0.205]
    unknown = run_paired_test(clear, ratio=None)
    assert (unknown.p, unknown.low, unknown.half_width) == (None, None, None)
    assert unknown.mean == pytest.approx(fmean(clear))
    lines = judge_family([unknown, run_paired_test(clear, ratio=0.25)])
    assert [line.verdict for line in lines] == ["undecided", "holds"]
    assert lines[0].adjusted is lines[0].seen is lines[0].seeds is None
    for wrong in (-0.1, math.nan, math.inf):
        with pytest.raises(InputError, match="ratio of test rows to other rows"):
            run_paired_test(clear, ratio=wrong)

"""One accountant per party: equal to Opacus for the same releases, exact where a closed form exists, never mixed."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import PRVAccountant, RDPAccountant
from opacus.accountants.analysis import rdp
from scipy import stats

from securevfl.errors import InputError
from securevfl.privacy import Accountant, GaussianRelease, PureRelease, calibrate_sigma, epsilon_prv, epsilon_rdp

DELTA = 1e-5
HISTORIES = [
    [(2.0, 1.0, 5)],
    [(2.0, 1.0, 5), (3.5, 1.0, 10), (9.0, 1.0, 40)],
    [(1.1, 0.01, 500)],
    [(1.1, 0.01, 500), (6.0, 1.0, 3), (0.8, 0.05, 20)],
]


def _releases(history: list[tuple[float, float, int]]) -> list[GaussianRelease]:
    return [GaussianRelease(sigma, times, rate) for sigma, rate, times in history]


@pytest.mark.parametrize("history", HISTORIES)
def test_epsilon_equals_that_of_opacus_for_the_same_releases(history: list[tuple[float, float, int]]) -> None:
    rdp, prv = RDPAccountant(), PRVAccountant()
    rdp.history, prv.history = list(history), sorted((s, q, n) for s, q, n in history)
    mine = Accountant("bank", DELTA)
    for release in _releases(history):
        mine.add(release, ["features"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert mine.epsilon_rdp("features") == pytest.approx(rdp.get_epsilon(DELTA), rel=1e-9)
        assert mine.epsilon_prv("features") == pytest.approx(prv.get_epsilon(DELTA), rel=1e-9)
    assert mine.epsilon_prv() <= mine.epsilon_rdp()


@given(
    history=st.dictionaries(st.floats(0.3, 50.0), st.integers(1, 500), min_size=1, max_size=4),
    delta=st.sampled_from([1e-9, 1e-5, 0.01]),
)
def test_the_formula_for_releases_of_every_row_is_that_of_opacus_to_the_last_bit(
    history: dict[float, int], delta: float
) -> None:
    """It stands in for `compute_rdp` and `get_privacy_spent`, so that a proposal need not load them."""
    orders = np.array([*RDPAccountant.DEFAULT_ALPHAS, *range(64, 2048, 32)])
    curve = np.zeros(len(orders))
    for sigma, times in sorted(history.items()):
        curve = curve + rdp.compute_rdp(q=1.0, noise_multiplier=sigma, steps=times, orders=orders)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "optimal order is the largest alpha"
        expected, _ = rdp.get_privacy_spent(orders=orders, rdp=curve, delta=delta)
    found = epsilon_rdp([GaussianRelease(sigma, times) for sigma, times in history.items()], delta)
    assert found == max(float(expected), 0.0)


def test_stepping_opacus_one_release_after_the_other_gives_the_same() -> None:
    opacus, mine = RDPAccountant(), Accountant("bank", DELTA)
    for epoch in range(6):
        for sigma in (2.0, 4.0):
            opacus.step(noise_multiplier=sigma, sample_rate=1.0)
            mine.add(GaussianRelease(sigma, 1), ["labels"])
        assert mine.epsilon_rdp("labels") == pytest.approx(opacus.get_epsilon(DELTA), rel=1e-9), epoch


def test_equal_releases_add_up_and_their_order_is_of_no_matter() -> None:
    one, two = GaussianRelease(2.0, 3), GaussianRelease(5.0, 4)
    assert epsilon_rdp([one, two, one], DELTA) == epsilon_rdp([two, GaussianRelease(2.0, 6)], DELTA)
    together = GaussianRelease(1 / math.sqrt(3 / 4 + 4 / 25), 1)  # Gaussian releases compose to one of Σ 1/σ²
    assert epsilon_rdp([one, two], DELTA) == pytest.approx(epsilon_rdp(together, DELTA))


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_the_curve_of_randomised_response_is_its_renyi_divergence(classes: int, epsilon: float) -> None:
    whole = math.exp(epsilon) + classes - 1
    p, q = (np.full(classes, 1 / whole) for _ in range(2))
    p[0], q[1] = math.exp(epsilon) / whole, math.exp(epsilon) / whole
    orders = np.array([1.1, 2.0, 7.5, 40.0])
    exact = [math.log((p**a * q ** (1 - a)).sum()) / (a - 1) for a in orders]
    assert PureRelease(epsilon, 3, classes).rdp(orders) == pytest.approx(3 * np.array(exact))
    assert (PureRelease(epsilon, 1, classes).rdp(orders) <= PureRelease(epsilon).rdp(orders) + 1e-12).all()


def test_many_small_pure_releases_cost_less_than_their_sum_and_few_never_more() -> None:
    assert epsilon_rdp(PureRelease(0.1, 200), DELTA) < 0.6 * 20
    for release in (PureRelease(2.0), PureRelease(0.5, 4, 10)):
        assert epsilon_rdp(release, DELTA) <= release.epsilon * release.times + 1e-12
        assert epsilon_prv(release, DELTA) == pytest.approx(release.epsilon * release.times)


@pytest.mark.parametrize(("sigma", "times", "pure"), [(1.0, 1, 1.0), (3.0, 8, 0.5), (8.0, 4, 3.0)])
def test_both_accountants_bound_the_exact_composition_of_noise_and_randomised_response(
    sigma: float, times: int, pure: float
) -> None:
    """The loss of randomised response is ±ε₀, that of the Gaussian mechanism is known (Balle and Wang 2018)."""
    mu = math.sqrt(times) / sigma

    def gaussian(e: float) -> float:
        return float(stats.norm.cdf(mu / 2 - e / mu) - math.exp(e) * stats.norm.cdf(-mu / 2 - e / mu))

    stay = math.exp(pure) / (math.exp(pure) + 1)
    releases = [GaussianRelease(sigma, times), PureRelease(pure)]
    for epsilon in (epsilon_rdp(releases, DELTA), epsilon_prv(releases, DELTA)):
        assert stay * gaussian(epsilon - pure) + (1 - stay) * gaussian(epsilon + pure) <= DELTA * 1.001


_RELEASE = st.one_of(
    st.builds(GaussianRelease, st.floats(0.5, 50), st.integers(0, 30)),
    st.builds(PureRelease, st.floats(0.01, 5), st.integers(0, 5), st.integers(2, 10)),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(_RELEASE, max_size=4), _RELEASE)
def test_one_more_release_never_costs_less(
    releases: list[GaussianRelease | PureRelease], more: GaussianRelease
) -> None:
    before, after = epsilon_rdp(releases, DELTA), epsilon_rdp([*releases, more], DELTA)
    assert before <= after + 1e-9
    assert after >= epsilon_rdp(more, DELTA) - 1e-9
    again = replace(more, times=more.times + 1)
    assert epsilon_rdp([*releases, again], DELTA) >= after - 1e-9


def test_features_and_labels_are_never_mixed_and_a_model_counts_with_both() -> None:
    mine = Accountant("bank", DELTA)
    features, labels, model = GaussianRelease(2.0, 5), PureRelease(1.0), GaussianRelease(4.0, 3)
    mine.add(features, ["features"])
    mine.add(labels, ["labels"])
    assert mine.epsilon_rdp("features") == epsilon_rdp(features, DELTA)
    assert mine.epsilon_rdp("labels") == epsilon_rdp(labels, DELTA)
    mine.add(model, ["features", "labels"])
    assert mine.epsilon_rdp("features") == epsilon_rdp([features, model], DELTA)
    assert mine.epsilon_rdp("labels") == epsilon_rdp([model, labels], DELTA)
    assert mine.epsilon_rdp() == epsilon_rdp([features, labels, model], DELTA)
    assert [(t.protects, t.releases) for t in mine.compute_totals()] == [
        ("features", 8),
        ("labels", 4),
        ("features and labels", 9),
    ]
    assert {t.adjacency for t in mine.compute_totals()} == {"the content of one row is replaced"}


def test_a_sampled_release_says_that_rows_are_added_or_removed() -> None:
    mine = Accountant("bank", DELTA)
    mine.add(GaussianRelease(1.0, 10, 0.1), ["labels"])
    (total,) = mine.compute_totals()
    assert total.adjacency == "one row is added or removed"
    assert Accountant("bank", DELTA).compute_totals() == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: GaussianRelease(1.0, 1, 0.0),
        lambda: GaussianRelease(1.0, -1),
        lambda: PureRelease(0.0),
        lambda: PureRelease(math.inf),
        lambda: PureRelease(1.0, classes=1),
        lambda: PureRelease(1.0, times=-1),
        lambda: Accountant("bank", 0.0),
        lambda: Accountant("bank", DELTA).add(PureRelease(1.0), []),
        lambda: Accountant("bank", DELTA).add(PureRelease(1.0), ["rows"]),
        lambda: Accountant("bank", DELTA).add("a laplace release", ["labels"]),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_counted_is_refused(call: object) -> None:
    with pytest.raises(InputError):
        call()  # type: ignore[operator]


def _exact_delta(epsilon: float, sigma: float, times: int) -> float:
    """δ(ε) of the T-fold Gaussian mechanism, exactly: Balle and Wang 2018, arXiv 1805.06530, Theorem 8, with μ =
    √T/σ."""
    mu = math.sqrt(times) / sigma
    return float(stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize(("sigma", "times"), [(0.64, 1), (1.0, 1), (1.4, 5), (5.0, 40), (9.0, 10)])
def test_both_accountants_bound_the_exact_value_and_prv_is_tight(sigma: float, times: int) -> None:
    delta = 1e-5
    release = GaussianRelease(sigma, times)
    rdp, prv = epsilon_rdp(release, delta), epsilon_prv(release, delta)
    assert _exact_delta(rdp, sigma, times) <= delta
    assert _exact_delta(prv, sigma, times) <= delta * 1.001
    assert prv <= rdp
    assert _exact_delta(prv - 0.05, sigma, times) > delta  # within 0.05 of the exact ε


def test_rdp_agrees_with_opacus_stepping_once_a_release() -> None:
    accountant = RDPAccountant()
    for _ in range(7):
        accountant.step(noise_multiplier=2.0, sample_rate=1.0)
    assert epsilon_rdp(GaussianRelease(2.0, 7), 1e-6) == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.3, 50), st.integers(1, 60))
def test_calibration_spends_the_budget_and_no_more(epsilon: float, times: int) -> None:
    sigma = calibrate_sigma(epsilon, 1e-5, times)
    spent = epsilon_rdp(GaussianRelease(sigma, times), 1e-5)
    assert 0.99 * epsilon <= spent <= epsilon


def test_no_release_costs_nothing() -> None:
    assert epsilon_rdp(GaussianRelease(1.0, 0), 1e-5) == epsilon_prv(GaussianRelease(1.0, 0), 1e-5) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: calibrate_sigma(0.0, 1e-5, 1),
        lambda: calibrate_sigma(1.0, 0.0, 1),
        lambda: calibrate_sigma(1.0, 1e-5, 0),
        lambda: calibrate_sigma(1e-6, 1e-5, 10),
    ],
)
def test_impossible_budgets_are_the_users_mistake(call: object) -> None:
    with pytest.raises(InputError):
        call()  # type: ignore[operator]


@pytest.mark.parametrize("sigma", [0.06, 0.05, 0.02, 0.005])
@pytest.mark.parametrize("times", [1, 4, 40])
def test_so_little_noise_that_prv_fails_has_the_bound_of_rdp(sigma: float, times: int) -> None:
    """Opacus' PRV accountant raises there, or returns infinity: a run must not end with that."""
    release = GaussianRelease(sigma, times)
    assert 0 < epsilon_prv(release, 1e-5) <= epsilon_rdp(release, 1e-5) < math.inf

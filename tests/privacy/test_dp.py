"""Differential privacy: ε against closed forms and Opacus, the noise against its distribution, counting, budgets."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import RDPAccountant
from scipy import stats

from securevfl.errors import InputError, PolicyError
from securevfl.privacy import DP, GaussianRelease, RowRelease, calibrate, clip_rows, epsilon_prv, epsilon_rdp, gaussian


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
    sigma = calibrate(epsilon, 1e-5, times)
    spent = epsilon_rdp(GaussianRelease(sigma, times), 1e-5)
    assert 0.99 * epsilon <= spent <= epsilon


def test_no_release_costs_nothing() -> None:
    assert epsilon_rdp(GaussianRelease(1.0, 0), 1e-5) == epsilon_prv(GaussianRelease(1.0, 0), 1e-5) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: calibrate(0.0, 1e-5, 1),
        lambda: calibrate(1.0, 0.0, 1),
        lambda: calibrate(1.0, 1e-5, 0),
        lambda: calibrate(1e-6, 1e-5, 10),
        lambda: GaussianRelease(0.0, 1),
        lambda: GaussianRelease(math.nan, 1),
        lambda: DP(epsilon=-1),
        lambda: DP(delta=1.0),
        lambda: DP(clip_activations=0),
        lambda: DP(noise_multiplier=0),
        lambda: DP(activations=False, gradients=False),
    ],
)
def test_impossible_budgets_are_the_users_mistake(call: object) -> None:
    with pytest.raises(InputError):
        call()  # type: ignore[operator]


def test_the_noise_is_normal_with_the_stated_deviation() -> None:
    noise = gaussian((200, 500), 2.5).numpy().ravel()
    assert noise.std() == pytest.approx(2.5, rel=0.02)
    assert stats.kstest(noise / 2.5, "norm").pvalue > 1e-6
    assert np.abs(noise / 2.5).max() < 8.5  # the bound that the fixed-point range at the cut relies on


def test_the_noise_is_new_each_time_and_comes_from_the_given_source() -> None:
    assert not torch.equal(gaussian((4, 4), 1.0), gaussian((4, 4), 1.0))
    assert torch.equal(gaussian((4,), 1.0, lambda n: b"\x07" * n), gaussian((4,), 1.0, lambda n: b"\x07" * n))
    extreme = gaussian((2,), 1.0, lambda n: b"\xff" * (n // 2) + b"\x00" * (n - n // 2))
    assert torch.isfinite(extreme).all()
    assert extreme.abs().max() < 8.5


@given(st.integers(1, 6), st.integers(1, 6), st.floats(0.1, 10))
def test_clipping_bounds_the_norm_and_leaves_short_rows(rows: int, columns: int, bound: float) -> None:
    values = torch.linspace(-3, 4, rows * columns, dtype=torch.float64).reshape(rows, columns)
    clipped = clip_rows(values, bound)
    assert (torch.linalg.vector_norm(clipped, dim=1) <= bound * (1 + 1e-9)).all()
    short = torch.linalg.vector_norm(values, dim=1) <= bound
    assert torch.allclose(clipped[short], values[short])


def _release(**changes: object) -> RowRelease:
    options = {"rows": 10, "times": 3, "sigma": 0.5, "clip": 2.0, "delta": 1e-5} | changes
    return RowRelease("activations", **options)  # type: ignore[arg-type]


def test_a_release_is_clipped_value_plus_noise_of_sigma_times_sensitivity() -> None:
    release = _release(rows=4000, clip=2.0, sigma=0.5)
    values = torch.full((4000, 3), 100.0)
    residual = (release(values, np.arange(4000)) - clip_rows(values, 2.0)).double()
    assert residual.std() == pytest.approx(0.5 * 2 * 2.0, rel=0.03)  # Δ = 2·clip: one row's content is replaced
    assert abs(residual.mean()) < 0.1


def test_a_smaller_sensitivity_than_twice_the_clip_can_be_given_and_a_larger_one_cannot() -> None:
    assert _release(clip=1.0, sensitivity=1.0).sensitivity == 1.0
    assert _release(clip=0.25, sensitivity=1.0).sensitivity == 0.5
    residual = _release(rows=4000, clip=1.0, sigma=2.0, sensitivity=1.0)(torch.zeros(4000, 2), np.arange(4000)).double()
    assert residual.std() == pytest.approx(2.0, rel=0.05)


def test_gradients_flow_through_the_clip() -> None:
    values = torch.tensor([[0.3, 0.4], [30.0, 40.0]], requires_grad=True)
    _release(clip=1.0)(values, np.array([0, 1])).sum().backward()
    assert torch.allclose(values.grad[0], torch.ones(2))
    assert values.grad[1].abs().max() < 0.1


def test_the_most_released_row_is_what_counts_and_the_budget_ends() -> None:
    release = _release()
    values = torch.ones(2, 2)
    release(values, np.array([0, 1]))
    release(values, np.array([1, 2]))
    assert release.spent.times == 2
    assert release.spent.epsilon_rdp == epsilon_rdp(GaussianRelease(0.5, 2), 1e-5)
    release(values, np.array([1, 3]))
    with pytest.raises(PolicyError, match="released 4 times; the budget was planned for 3"):
        release(values, np.array([1, 4]))
    assert release.planned_epsilon == release.spent.epsilon_rdp


def test_noise_drawn_once_stays_the_same_and_costs_once() -> None:
    release = _release(times=1, once=True)
    values = torch.arange(8.0).reshape(4, 2)
    first = release(values, np.arange(4))
    again = release(values[[2, 0]], np.array([2, 0]))
    assert torch.equal(again, first[[2, 0]])
    mixed = release(values[:2], np.array([3, 7]))
    assert torch.equal(mixed[0], first[3])
    assert release.spent.times == 1


def test_what_leaves_lies_on_the_grid_whatever_the_value_and_the_gradient_flows() -> None:
    release = _release(rows=4000, times=1, clip=1.0, sigma=1.0)
    values = (torch.rand(4000, 3) - 0.5).requires_grad_()  # float32, and as good as never on the grid
    sent = release(values, np.arange(4000))
    steps = sent.detach().double() / (release.sensitivity * 2.0**-20)
    assert torch.equal(steps, steps.round())
    sent.sum().backward()
    assert torch.allclose(values.grad, torch.ones(4000, 3))


def test_what_a_broken_run_may_have_released_is_counted_and_no_more_than_it_could() -> None:
    release = _release(times=3)
    values = torch.ones(2, 2)
    release(values, np.array([0, 1]))
    release(values, np.array([0, 2]))
    release.lose(np.arange(10), 2)  # row 0 has one left of three, the others two
    assert (release.counts.lost, release.counts.most, release.spent.times) == (2, 3, 3)
    again = _release(times=3)
    again.load(release.state())
    again(values, np.array([0, 1]))  # planned releases go on as planned
    assert again.spent.times == 4
    with pytest.raises(PolicyError, match="4 times"):
        again(values, np.array([0, 1]))
    with pytest.raises(TypeError, match="state"):
        again.load({"counts": torch.zeros(10), "kept": []})


def test_noise_that_is_drawn_once_and_remembered_is_not_lost() -> None:
    release = _release(times=1, once=True)
    release(torch.ones(2, 2), np.array([0, 1]))
    release.lose(np.array([0, 1]), 1)
    assert release.spent.times == 1
    release.lose(np.array([1, 2]), 1)
    release(torch.ones(1, 2), np.array([2]))
    assert release.spent.times == 2

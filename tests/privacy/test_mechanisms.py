"""What a job asks for: mechanisms and their budgets, what `DP` refuses, titles."""

from __future__ import annotations

import tomllib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securevfl.errors import InputError
from securevfl.privacy import DP, Gaussian, GaussianRelease, JointNoise, RandomisedResponse, epsilon_rdp


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: Gaussian(epsilon=-1), r"gaussian.epsilon is -1; a number above 0 was expected: 1 is strong"),
        (lambda: Gaussian(epsilon=float("inf")), "epsilon is inf"),
        (lambda: Gaussian(delta=1.0), "delta is 1.0; a number above 0 and below 1 was expected: well below one over"),
        (lambda: Gaussian(clip=0), "clip is 0"),
        (lambda: Gaussian(noise_multiplier=0), "noise_multiplier is 0; a number from 0.1 .*protects nothing"),
        (lambda: Gaussian(on_budget="stops", noise_multiplier=1), "did you mean 'stop'"),
        (lambda: Gaussian(on_budget="stop"), "but noise_multiplier is not set"),
        (lambda: JointNoise(weight_bound=1.0, on_budget="stop"), "joint.on_budget is 'stop'"),
        (lambda: JointNoise(epsilon=2), "joint.weight_bound is missing"),
        (lambda: RandomisedResponse(epsilon=21), "a number above 0 and up to 20 was expected"),
        (lambda: RandomisedResponse(clip=1.0), "randomised_response has no 'clip'"),
        (DP, "dp protects nothing"),
        (lambda: DP(features=RandomisedResponse()), "dp.features is RandomisedResponse"),
        (lambda: DP(labels=JointNoise(weight_bound=1.0)), "dp.labels is JointNoise"),
        (lambda: DP(model=RandomisedResponse()), "dp.model is RandomisedResponse"),
        (lambda: DP(model=Gaussian(), labels=RandomisedResponse()), "releases nothing else"),
    ],
)
def test_what_cannot_be_is_refused_with_the_bound(call: Callable[[], object], match: str) -> None:
    with pytest.raises(InputError, match=match):
        call()


@settings(max_examples=20, deadline=None)
@given(st.floats(0.3, 50), st.integers(1, 60))
def test_the_noise_of_a_budget_spends_it_and_a_fixed_one_says_what_it_affords(epsilon: float, times: int) -> None:
    budget = Gaussian(epsilon=epsilon)
    assert budget.affords(times)
    assert 0.99 * epsilon <= epsilon_rdp(GaussianRelease(budget.sigma(times), times), 1e-5) <= epsilon
    fixed = Gaussian(epsilon=epsilon, noise_multiplier=3.0)
    assert fixed.sigma(times) == 3.0
    assert fixed.affords(times) == (epsilon_rdp(GaussianRelease(3.0, times), 1e-5) <= epsilon)


def test_drawn_labels_are_paid_once() -> None:
    assert RandomisedResponse(epsilon=1.0).affords(10**6)
    assert RandomisedResponse(epsilon=1.0).sigma(5) == 0.0


def test_each_mechanism_is_found_under_what_it_is() -> None:
    gaussian, joint, response = Gaussian(), JointNoise(weight_bound=2.0), RandomisedResponse()
    dp = DP(features=gaussian, labels=Gaussian(clip=0.5))
    assert (dp.activation_noise, dp.joint_noise, dp.gradient_noise) == (gaussian, None, Gaussian(clip=0.5))
    dp = DP(features=joint, labels=response)
    assert (dp.activation_noise, dp.joint_noise, dp.gradient_noise, dp.label_draw) == (None, joint, None, response)


@pytest.mark.parametrize(
    ("dp", "title"),
    [
        (DP(features=Gaussian(), labels=Gaussian()), "DP on features + labels, ε = 8"),
        (DP(labels=Gaussian(epsilon=0.5)), "DP on labels, ε = 0.5"),
        (DP(features=JointNoise(weight_bound=3.0)), "DP on features at z, ε = 8"),
        (DP(labels=RandomisedResponse(epsilon=2)), "DP on randomised labels, ε = 2"),
        (DP(features=Gaussian(noise_multiplier=3)), "DP on features, σ/Δ = 3"),
        (DP(model=Gaussian(epsilon=4)), "DP on the local model, ε = 4"),
        (
            DP(
                features=Gaussian(epsilon=5, noise_multiplier=3, on_budget="stop"),
                labels=Gaussian(epsilon=5, noise_multiplier=3, on_budget="stop"),
            ),
            "DP on features + labels, σ/Δ = 3, up to ε = 5",
        ),
        (
            DP(features=Gaussian(noise_multiplier=3), labels=RandomisedResponse()),
            "DP on features (σ/Δ = 3) + randomised labels (ε = 8)",
        ),
    ],
)
def test_titles(dp: DP, title: str) -> None:
    assert dp.title == title


def test_a_job_file_names_the_mechanism() -> None:
    text = """
    [dp.features]
    mechanism = "joint"
    weight_bound = 5
    [dp.labels]
    mechanism = "randomised_response"
    epsilon = 1.0
    """
    dp = DP.from_values(tomllib.loads(text)["dp"], "protection.dp")
    assert dp == DP(features=JointNoise(weight_bound=5.0), labels=RandomisedResponse(epsilon=1.0))
    assert DP.from_values(dp.describe()) == dp
    assert DP.from_values({"model": {"epsilon": 4}}) == DP(
        model=Gaussian(epsilon=4.0)
    )  # nothing else is possible there
    with pytest.raises(InputError, match=r"protection.dp.labels.mechanism is 'gausian'; did you mean 'gaussian'"):
        DP.from_values({"labels": {"mechanism": "gausian"}}, "protection.dp")
    with pytest.raises(InputError, match=r"protection.dp.labels has no mechanism; add mechanism = one of 'gaussian'"):
        DP.from_values({"labels": {"epsilon": 3}}, "protection.dp")
    with pytest.raises(InputError, match=r"protection.dp.features has no 'epsilom'; did you mean 'epsilon'"):
        DP.from_values({"features": {"mechanism": "gaussian", "epsilom": 3}}, "protection.dp")
    with pytest.raises(InputError, match=r"protection.dp has no 'epsilon'"):
        DP.from_values({"epsilon": 4.0}, "protection.dp")
    with pytest.raises(InputError, match="did you mean 'features'"):
        DP(feature=Gaussian())

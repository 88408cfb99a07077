"""What a job asks for: mechanisms and their budgets, what `DP` refuses, titles, and keywords that it had before."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securevfl.errors import InputError
from securevfl.privacy import DP, Gaussian, GaussianRelease, JointNoise, Marvell, RandomisedResponse, epsilon_rdp


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: Gaussian(epsilon=-1), r"gaussian.epsilon is -1; a number above 0 was expected: 1 is strong"),
        (lambda: Gaussian(epsilon=float("inf")), "epsilon is inf"),
        (lambda: Gaussian(delta=1.0), "delta is 1.0; a number above 0 and below 1 was expected: well below one over"),
        (lambda: Gaussian(clip=0), "clip is 0"),
        (lambda: Gaussian(noise_multiplier=0), "noise_multiplier is 0; a number from 0.1 .*protects nothing"),
        (lambda: Gaussian(on_budget="stops", noise_multiplier=1), "did you mean 'stop'"),
        (lambda: Gaussian(on_budget="stop"), "there is no noise_multiplier"),
        (lambda: JointNoise(weight_bound=1.0, on_budget="stop"), "joint.on_budget is 'stop'"),
        (lambda: JointNoise(epsilon=2), "joint.weight_bound is missing"),
        (lambda: RandomisedResponse(epsilon=21), "a number above 0 and up to 20 was expected"),
        (lambda: RandomisedResponse(clip=1.0), "randomised_response has no 'clip'"),
        (lambda: Marvell(power=0), "marvell.power is 0"),
        (DP, "dp protects nothing"),
        (lambda: DP(features=RandomisedResponse()), "dp.features is RandomisedResponse"),
        (lambda: DP(labels=JointNoise(weight_bound=1.0)), "dp.labels is JointNoise"),
        (lambda: DP(model=Marvell()), "dp.model is Marvell"),
        (lambda: DP(model=Gaussian(), labels=Marvell()), "releases nothing else"),
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
    gaussian, joint, response, marvell = Gaussian(), JointNoise(weight_bound=2.0), RandomisedResponse(), Marvell()
    dp = DP(features=gaussian, labels=Gaussian(clip=0.5))
    assert (dp.activations, dp.joint, dp.gradients) == (gaussian, None, Gaussian(clip=0.5))
    dp = DP(features=joint, labels=response)
    assert (dp.activations, dp.joint, dp.gradients, dp.randomised, dp.marvell) == (None, joint, None, response, None)
    dp = DP(labels=marvell)
    assert (dp.gradients, dp.randomised, dp.marvell, dp.features) == (None, None, marvell, None)
    assert not dp.private
    for dp in (DP(features=gaussian, labels=marvell), DP(labels=gaussian), DP(labels=response), DP(model=gaussian)):
        assert dp.private


@pytest.mark.parametrize(
    ("dp", "title"),
    [
        (DP(features=Gaussian(), labels=Gaussian()), "DP on features + labels, ε = 8"),
        (DP(labels=Gaussian(epsilon=0.5)), "DP on labels, ε = 0.5"),
        (DP(features=JointNoise(weight_bound=3.0)), "DP on features at z, ε = 8"),
        (DP(labels=RandomisedResponse(epsilon=2)), "DP on randomised labels, ε = 2"),
        (DP(features=Gaussian(noise_multiplier=3)), "DP on features, σ/Δ = 3"),
        (DP(model=Gaussian(epsilon=4)), "DP on the local model, ε = 4"),
        (DP(labels=Marvell()), "Marvell on labels, power 4"),
        (DP(features=Gaussian(), labels=Marvell(power=25)), "DP on features, ε = 8; Marvell on labels, power 25"),
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
    dp = DP.of(tomllib.loads(text)["dp"], "protection.dp")
    assert dp == DP(features=JointNoise(weight_bound=5.0), labels=RandomisedResponse(epsilon=1.0))
    assert DP.of(dp.describe()) == dp
    assert DP.of({"model": {"epsilon": 4}}) == DP(model=Gaussian(epsilon=4.0))  # nothing else is possible there
    with pytest.raises(InputError, match=r"protection.dp.labels.mechanism is 'marvel'; did you mean 'marvell'"):
        DP.of({"labels": {"mechanism": "marvel"}}, "protection.dp")
    with pytest.raises(InputError, match=r"protection.dp.labels names none; add mechanism = one of 'gaussian', 'marv"):
        DP.of({"labels": {"epsilon": 3}}, "protection.dp")
    with pytest.raises(InputError, match=r"protection.dp.features has no 'epsilom'; did you mean 'epsilon'"):
        DP.of({"features": {"mechanism": "gaussian", "epsilom": 3}}, "protection.dp")


OLD: list[tuple[dict[str, object], DP]] = [
    ({"epsilon": 4.0}, DP(features=Gaussian(epsilon=4.0), labels=Gaussian(epsilon=4.0))),
    ({"epsilon": 8.0, "activations": False}, DP(labels=Gaussian(epsilon=8.0))),
    ({"gradients": False}, DP(features=Gaussian())),
    ({"activations": True, "gradients": True}, DP(features=Gaussian(), labels=Gaussian())),
    (
        {"delta": 1e-6, "clip_activations": 4.0, "clip_gradients": 0.5},
        DP(features=Gaussian(delta=1e-6, clip=4.0), labels=Gaussian(delta=1e-6, clip=0.5)),
    ),
    (
        {"where": "z", "weight_bound": 5.0, "gradients": False, "clip_activations": 2.0},
        DP(features=JointNoise(weight_bound=5.0, clip=2.0)),
    ),
    (
        {"epsilon": 2.0, "activations": False, "labels": "randomised_response"},
        DP(labels=RandomisedResponse(epsilon=2.0)),
    ),
    ({"labels": "marvell"}, DP(features=Gaussian(), labels=Marvell())),
    ({"activations": False, "labels": "marvell", "power": 25.0}, DP(labels=Marvell(power=25.0))),
    ({"local": True, "epsilon": 4.0, "clip_model": 0.3}, DP(model=Gaussian(epsilon=4.0, clip=0.3))),
    (
        {"activations": False, "epsilon": 5.0, "noise_multiplier": 3.0, "on_budget": "stop"},
        DP(labels=Gaussian(epsilon=5.0, noise_multiplier=3.0, on_budget="stop")),
    ),
]


@pytest.mark.parametrize(("old", "new"), OLD)
def test_old_keywords_are_answered_with_the_same_request_as_it_is_spelled_now(old: dict[str, object], new: DP) -> None:
    with pytest.raises(InputError) as python:
        DP(**old)
    expression = str(python.value).splitlines()[1].strip()
    names = {"DP": DP, "Gaussian": Gaussian, "JointNoise": JointNoise}
    names |= {"RandomisedResponse": RandomisedResponse, "Marvell": Marvell}
    assert eval(expression.replace("sv.", ""), names) == new  # noqa: S307
    with pytest.raises(InputError) as file:
        DP.of(old, "protection.dp")
    first, section = str(file.value).split("\n", 1)
    assert first.startswith("protection.dp takes mechanisms now")
    assert DP.of(tomllib.loads(section)["protection"]["dp"]) == new


def test_old_and_new_keywords_together_say_where_the_old_ones_belong() -> None:
    with pytest.raises(InputError, match=re.escape("budgets and norms belong into features=sv.Gaussian(epsilon=…)")):
        DP(features=Gaussian(), epsilon=3.0)
    with pytest.raises(InputError, match="protects neither features nor labels"):
        DP(activations=False, gradients=False)
    with pytest.raises(InputError, match="did you mean 'features'"):
        DP(feature=Gaussian())


def test_a_marvell_by_name_alone_is_not_taken_for_less_than_it_was() -> None:
    """It used to noise features too; silence would switch that off."""
    with pytest.raises(InputError, match=re.escape("sv.DP(features=sv.Gaussian(), labels=sv.Marvell())")):
        DP(labels="marvell")

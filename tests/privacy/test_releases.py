"""What one party plans to release, against its policy; what it cost; what a broken run may have cost besides."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from securevfl.errors import PolicyError, ProtectionInactive
from securevfl.privacy import (
    Gaussian,
    GaussianRelease,
    JointNoise,
    Policy,
    RandomisedResponse,
    Releases,
    calibrate_sigma,
    epsilon_rdp,
)
from securevfl.privacy.journal import Journal
from securevfl.privacy.releases import check_total_plan

FIXED = Gaussian(noise_multiplier=3.0, epsilon=5.0, on_budget="stop")
ALLOWED = max(t for t in range(1, 30) if epsilon_rdp(GaussianRelease(3.0, t), 1e-5) <= 5.0)


def _each(count: int, epochs: int) -> list[int]:
    """So many mechanisms, each once an epoch."""
    return [epochs] * count


VALUES, ROWS = torch.ones(4, 2), np.arange(4)


def test_the_noise_follows_from_the_budget_and_the_plan() -> None:
    releases = Releases("bank", Policy())
    release = releases.plan_rows("activations", Gaussian(epsilon=2.0, delta=1e-6, clip=0.5), rows=4, times=7)
    assert release.sigma == calibrate_sigma(2.0, 1e-6, 7)
    assert (release.clip, release.sensitivity) == (0.5, 1.0)
    assert release(VALUES, ROWS).multiplier == release.sigma
    (spent,) = releases.costs_so_far()
    assert (spent.what, spent.times, spent.delta) == ("activations", 1, 1e-6)
    joint = releases.plan_joint(JointNoise(epsilon=2.0, clip=0.5, weight_bound=3.0), rows=4, times=7, parties=2)
    assert joint.draw_share(ROWS, 3).sensitivity == 2 * 0.5 * 3.0
    steps = releases.plan_steps(Gaussian(noise_multiplier=1.5, clip=0.2), nn.Linear(2, 1), rows=4, times=3)
    assert (steps.sigma, steps.clip) == (1.5, 0.2)
    drawn = releases.plan_labels(RandomisedResponse(epsilon=1.0), torch.tensor([0, 1, 1, -1]), ROWS, 2)
    assert drawn.epsilon == 1.0
    assert len(releases) == 4


def test_a_plan_beyond_the_policy_is_refused_before_anything_is_released() -> None:
    strict = Policy(max_epsilon=3.0)
    with pytest.raises(PolicyError, match=r"releasing activations as planned spends ε = 4.* allows 3"):
        Releases("shop", strict).plan_rows("activations", Gaussian(epsilon=4.0), rows=4, times=2)
    with pytest.raises(PolicyError, match=r"as planned spends ε = 4; the policy allows 3"):
        Releases("bank", strict).plan_labels(RandomisedResponse(epsilon=4.0), torch.zeros(4).long(), ROWS, 2)
    with pytest.raises(PolicyError, match="releasing model as planned"):
        Releases("bank", strict).plan_steps(Gaussian(epsilon=4.0), nn.Linear(2, 1), rows=4, times=2)
    with pytest.raises(PolicyError, match="releasing z as planned"):
        Releases("shop", strict).plan_joint(JointNoise(epsilon=4.0, weight_bound=1.0), rows=4, times=2, parties=1)


def test_what_protects_the_same_is_added_up_and_what_does_not_is_not() -> None:
    releases = Releases("bank", Policy(max_epsilon=3.0))
    releases.plan_rows("representations", Gaussian(epsilon=2.0), rows=4, times=1)
    releases.plan_rows("gradients", Gaussian(epsilon=2.5), rows=4, times=1)
    with pytest.raises(PolicyError, match="releasing activations as planned"):
        releases.plan_rows("activations", Gaussian(epsilon=2.5), rows=4, times=1)


def test_plans_for_several_label_owners_add_up() -> None:
    """Each one alone keeps the bound; the data owner's rows pay for both."""
    policy, every = Policy(max_epsilon=3.0), []
    for _ in range(2):
        releases = Releases("shop", policy)
        releases.plan_rows("activations", Gaussian(epsilon=2.5), rows=4, times=1)
        check_total_plan("shop", policy, [releases])
        every.append(releases)
    for order in (every, every[::-1]):
        with pytest.raises(PolicyError, match="to all label owners"):
            check_total_plan("shop", policy, order)


def test_the_least_delta_of_several_mechanisms_is_that_of_the_sum() -> None:
    first, second = Gaussian(epsilon=2.0, delta=1e-3), Gaussian(epsilon=2.0, delta=1e-7)
    both = [GaussianRelease(first.sigma(1), 1), GaussianRelease(second.sigma(1), 1)]
    assert epsilon_rdp(both, 1e-7) > epsilon_rdp(both, 1e-3)
    limit = (epsilon_rdp(both, 1e-7) + epsilon_rdp(both, 1e-3)) / 2
    for order in ((first, second), (second, first)):
        releases = Releases("bank", Policy(max_epsilon=limit, max_delta=1e-2))
        releases.plan_rows("activations", order[0], rows=4, times=1)
        with pytest.raises(PolicyError):
            releases.plan_rows("representations", order[1], rows=4, times=1)


def test_a_budget_that_ends_training_finds_the_last_epoch() -> None:
    releases = Releases("bank", Policy())
    assert 3 < ALLOWED < 25
    assert releases.epochs_within([FIXED, FIXED], lambda epochs: [epochs, epochs], 30, 1) == ALLOWED
    assert releases.end_of_plan == f"the privacy budget ε = 5 is spent after {ALLOWED} of 30 epochs"
    assert releases.epochs_within([FIXED], lambda epochs: [2 * epochs], 30, 1) == ALLOWED // 2
    wide = Gaussian(noise_multiplier=3.0, epsilon=1e3, on_budget="stop")
    assert releases.epochs_within([wide, FIXED], lambda epochs: [epochs, 3 * epochs], 30, 1) == ALLOWED // 3


def test_a_budget_that_suffices_or_ends_nothing_leaves_the_plan() -> None:
    for mechanisms, epochs in (([FIXED], ALLOWED), ([Gaussian(noise_multiplier=0.2)], 30), ([Gaussian()], 30), ([], 9)):
        releases = Releases("bank", Policy())
        count = len(mechanisms)
        assert releases.epochs_within(mechanisms, partial(_each, count), epochs, 1) == epochs
        assert releases.end_of_plan == ""
    releases = Releases("bank", Policy())
    assert releases.epochs_within([FIXED], lambda epochs: [1], 300, 1) == 300  # drawn once, paid once


def test_a_budget_for_fewer_epochs_than_the_algorithm_needs_is_refused() -> None:
    with pytest.raises(PolicyError, match=rf"allows {ALLOWED} epochs, and {ALLOWED + 1} are needed"):
        Releases("bank", Policy()).epochs_within([FIXED], lambda epochs: [epochs], 30, ALLOWED + 1)
    small = FIXED.replace(epsilon=0.5)
    with pytest.raises(PolicyError, match=r"dp.epsilon = 0.5 with noise multiplier 3.0 allows 0 epochs, and 1 are"):
        Releases("bank", Policy()).epochs_within([small], lambda epochs: [epochs], 30, 1)
    with pytest.raises(PolicyError, match=r"with noise multiplier 3.0 spends more than dp.epsilon = 5"):
        Releases("bank", Policy()).plan_rows("gradients", FIXED, rows=4, times=ALLOWED + 1)


def test_what_was_planned_has_to_happen() -> None:
    releases = Releases("bank", Policy())
    releases.plan_rows("activations", Gaussian(), rows=4, times=2)(VALUES, ROWS)
    assert [spent.what for spent in releases.final_costs()] == ["activations"]
    releases.plan_rows("gradients", Gaussian(), rows=4, times=2)
    assert [spent.what for spent in releases.costs_so_far()] == ["activations"]
    with pytest.raises(ProtectionInactive, match="on gradients was requested, but nothing was released"):
        releases.final_costs()
    assert Releases("bank", Policy()).final_costs() == []


def _pair(policy: Policy, epsilon: float = 4.0) -> tuple[Releases, list[object]]:
    releases = Releases("shop", policy)
    made = [
        releases.plan_rows(what, Gaussian(epsilon=epsilon), rows=6, times=6) for what in ("activations", "gradients")
    ]
    return releases, [*made]


def test_what_attempts_that_broke_off_may_have_released_is_counted() -> None:
    journal = Journal("shop")
    first, (features, labels) = _pair(Policy())
    first.begin_attempt(journal, 0)
    features(VALUES, ROWS)
    first.end_epoch()
    features(VALUES[:1], ROWS[:1])
    labels(VALUES[:1], ROWS[:1])  # and it broke off
    journal._begun = False
    releases, _ = _pair(Policy())
    releases.begin_attempt(journal, 1)
    assert [spent.times for spent in releases.costs_so_far()] == [2, 1]  # epoch 2 was reserved for every row
    (note, other) = releases.interruption_notes()
    assert "up to 1 releases of a row's activations by interrupted attempts" in note
    assert note.startswith("this run resumed an interrupted run of 'shop'")
    assert "besides the 6 planned ones" in other
    assert releases.interruption_notes("market")[0].startswith("this run resumed an interrupted run of 'market'")
    anew, _ = _pair(Policy())
    journal._begun = False
    anew.begin_attempt(journal, 0)
    assert anew._every[0].counts.max_lost == 2


def test_losses_beyond_the_policy_are_refused() -> None:
    journal = Journal("shop")
    journal.begin_attempt(0)
    journal.reserve_releases(1, "0 activations", 6, 4)
    journal._begun = False
    releases, _ = _pair(Policy(max_epsilon=4.5))
    with pytest.raises(PolicyError, match=r"allows 4.5.* a row 4 times more than planned.*'shop' must allow"):
        releases.begin_attempt(journal, 0)


def test_lists_of_releases_in_one_journal_are_kept_apart() -> None:
    journal = Journal("shop")
    for scope, count in (("bank", 1), ("lender", 2)):
        releases, (features, _) = _pair(Policy())
        releases.begin_attempt(journal, 0, scope)
        for _ in range(count):
            features(VALUES, ROWS)
    journal._begun = False
    found = []
    for scope in ("bank", "lender"):
        releases, _ = _pair(Policy())
        releases.begin_attempt(journal, 0, scope)
        found.append(releases._every[0].counts.max_lost)
    assert found == [1, 2]


def test_a_state_goes_on_and_another_one_is_refused() -> None:
    releases, (features, _) = _pair(Policy())
    features(VALUES, ROWS)
    again, _ = _pair(Policy())
    again.load_state(releases.get_state())
    assert again.costs_so_far() == []  # a state holds no counts: the journal does
    other = Releases("shop", Policy())
    other.plan_rows("gradients", Gaussian(), rows=6, times=6)
    for state in (releases.get_state(), {}, {"releases": None}):
        with pytest.raises(TypeError, match="state"):
            other.load_state(state)

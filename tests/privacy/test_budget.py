"""A budget that ends training: all parties find the same last epoch, what was spent stays below, one more would not."""

from __future__ import annotations

import pytest
from support.helpers import low_overlap_parties, make_parties

import securevfl as sv
from securevfl.errors import InputError, PolicyError
from securevfl.privacy import GaussianRelease, epsilon_rdp
from securevfl.run.simulation import RunOutcome, join_parties, run_parties

FIXED = sv.Gaussian(epsilon=5.0, noise_multiplier=3.0, on_budget="stop")


def _both(mechanism: sv.Gaussian) -> sv.DP:
    return sv.DP(features=mechanism, labels=mechanism)


DP = _both(FIXED)
JOB = sv.Job(
    algorithm=sv.SplitNN(hidden=4, top=(), bottom=(3,)), protection=sv.Plain(dp=DP), epochs=30, batch_size=32, seed=2
)
ALLOWED = max(t for t in range(1, 30) if epsilon_rdp(GaussianRelease(3.0, t), 1e-5) <= 5.0)


def _ran(job: sv.Job, people: sv.Parties | None = None) -> RunOutcome:
    people = people or make_parties()
    return run_parties(job, people, join_parties(people, job), run="run")


def test_training_ends_at_all_parties_with_the_last_epoch_that_the_budget_allows() -> None:
    assert 3 < ALLOWED < 25
    ran = _ran(JOB)
    assert {len(t.readings) for t in ran.trained.values()} == {ALLOWED}
    bank = ran.trained["bank"]
    assert bank.stopped == f"the privacy budget ε = 5 is spent after {ALLOWED} of 30 epochs"
    assert 0 <= bank.test["auc"] <= 1
    for trained in ran.trained.values():
        (spent,) = trained.spent
        assert spent.times == ALLOWED
        assert spent.epsilon_rdp <= 5.0 < epsilon_rdp(GaussianRelease(3.0, ALLOWED + 1), 1e-5)


@pytest.mark.parametrize("kind", ["features", "labels"])
def test_one_kind_of_release_alone_ends_it_too(kind: str) -> None:
    ran = _ran(JOB.replace(protection=sv.Plain(dp=sv.DP(**{kind: FIXED}))))
    assert {len(t.readings) for t in ran.trained.values()} == {ALLOWED}


def test_a_plan_within_the_budget_ends_as_planned_and_patience_still_ends_it() -> None:
    ran = _ran(JOB.replace(epochs=3))
    assert (len(ran.trained["bank"].epochs), ran.trained["bank"].stopped) == (3, "all epochs done")
    short = _ran(JOB.replace(patience=1, protection=sv.Plain(dp=_both(FIXED.replace(epsilon=30.0)))))
    assert "no gain" in short.trained["bank"].stopped


def test_a_row_that_is_used_several_times_in_an_epoch_ends_it_sooner() -> None:
    once = len(_ran(JOB).trained["bank"].epochs)
    often = _ran(JOB.replace(steps=8))  # of about 2 batches that one pass has
    assert len(often.trained["bank"].epochs) < once
    assert all(s.epsilon_rdp <= 5.0 for t in often.trained.values() for s in t.spent)


def test_fixed_features_are_released_once_and_never_end_it() -> None:
    job = JOB.replace(algorithm=sv.SplitNN(hidden=4, top=()), epochs=12, protection=sv.Plain(dp=sv.DP(features=FIXED)))
    ran = _ran(job)
    assert len(ran.trained["bank"].epochs) == 12
    assert ran.trained["shop1"].spent[0].times == 1


def test_dp_sgd_ends_too() -> None:
    dp = sv.DP(model=FIXED)
    ran = _ran(
        JOB.replace(algorithm=sv.Local(hidden=4, top=()), protection=sv.Plain(dp=dp)), low_overlap_parties(1, rows=200)
    )
    assert {len(t.readings) for t in ran.trained.values()} == {ALLOWED}
    assert ran.trained["bank"].spent[0].epsilon_rdp <= 5.0


def test_a_budget_for_not_one_epoch_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(PolicyError, match=r"allows 0 epochs, and 1 are needed"):
        _ran(JOB.replace(protection=sv.Plain(dp=_both(FIXED.replace(epsilon=0.5)))))


def test_a_policy_still_refuses_a_plan_that_the_job_would_allow() -> None:
    with pytest.raises(PolicyError, match="the policy allows 3"):
        _ran(JOB.replace(policies={"shop1": sv.Policy(max_epsilon=3.0)}))
    ran = _ran(JOB.replace(policies={"shop1": sv.Policy(max_epsilon=5.0)}))
    assert len(ran.trained["bank"].epochs) == ALLOWED


def test_stopping_needs_an_algorithm_that_can() -> None:
    with pytest.raises(InputError, match="on_budget='stop'"):
        JOB.replace(algorithm=sv.RISA())

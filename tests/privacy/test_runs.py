"""Whole runs with differential privacy: what is released, what the record says that it cost, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from opacus.accountants import RDPAccountant
from support.helpers import low_overlap_parties, make_parties, ready_keys

import securevfl as sv
from securevfl.algorithms.splitnn import Active
from securevfl.cut import plain
from securevfl.cut.base import initial_weights
from securevfl.errors import InputError, PolicyError, RangeError
from securevfl.party_context import PartyContext
from securevfl.privacy import (
    CrossEntropy,
    GaussianRelease,
    JointRelease,
    Loss,
    Noised,
    RowRelease,
    clip_rows,
    epsilon_rdp,
)
from securevfl.run.simulation import join_parties, run_parties
from securevfl.training import ActiveProgram, ActiveRole, Setting
from securevfl.training.state import State


def test_totals_of_each_party_are_in_the_record_and_the_report() -> None:
    dp = sv.DP(features=sv.Gaussian(epsilon=20.0), labels=sv.Gaussian(epsilon=20.0))
    job = sv.Job(
        protection=sv.Plain(dp=dp),
        epochs=2,
        batch_size=32,
        seed=1,
    )
    result = sv.simulate(job, make_parties(), baselines=())
    run = result.record.runs[-1]
    assert [(t.party, t.protects) for t in run.epsilon_totals] == [
        ("bank", "labels"),
        ("shop1", "features"),
        ("shop2", "features"),
    ]
    for total in run.epsilon_totals:
        (line,) = [e for e in run.epsilon if e.party == total.party]
        assert (total.epsilon_rdp, total.epsilon_prv) == (line.epsilon_rdp, line.epsilon_prv)
        assert total.epsilon_rdp <= 20.0


# gradients of a loss that states no sensitivity


class EightTimes(CrossEntropy):
    """Steeper than the loss whose sensitivity is known."""

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 8 * super().__call__(logits, targets)


class SteepActive(Active):
    def build_loss(self) -> Loss:
        return EightTimes(self.task.classes)


class Steep(sv.SplitNN):
    """What somebody writes who wants another loss and never thought of differential privacy."""

    def active(self, setting: Setting) -> ActiveRole:
        return SteepActive(self, setting)


@pytest.mark.parametrize(("kind", "sensitivity"), [(sv.SplitNN, 1.0), (Steep, 1.5)])
def test_another_loss_gets_the_noise_that_its_epsilon_needs(
    kind: type[sv.SplitNN], sensitivity: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a sensitivity Δ is twice the clip; what labels move and what noise there is give no more than the ε that
    the ledger tells."""
    added, planned, moved = [], set(), [0.0]
    release, made = RowRelease.__call__, kind.active

    def active(self: sv.SplitNN, setting: Setting) -> ActiveRole:
        roles.append(made(self, setting))
        return roles[-1]

    def watched(self: RowRelease, values: torch.Tensor, rows: np.ndarray, **more: object) -> Noised[torch.Tensor]:
        sent = release(self, values, rows, **more)  # type: ignore[arg-type]
        added.append((sent.value - clip_rows(values, self.clip)).ravel())
        planned.add(self.sensitivity)
        for logit in (-9.0, -1.0, 0.0, 1.0, 9.0):  # labels move the gradient by as much as these say, at least
            at = torch.full((2, 1), logit, requires_grad=True)
            (both,) = torch.autograd.grad(roles[-1].loss(at, torch.tensor([0, 1])).sum(), at)
            zero, one = clip_rows(both, self.clip)
            moved.append(float(torch.linalg.vector_norm(zero - one)))
        return sent

    roles: list[ActiveRole] = []
    monkeypatch.setattr(kind, "active", active)
    monkeypatch.setattr(RowRelease, "__call__", watched)
    dp = sv.DP(labels=sv.Gaussian(epsilon=9.0, clip=0.75))
    job = sv.Job(algorithm=kind(hidden=4, top=()), protection=sv.Plain(dp=dp), epochs=4, batch_size=64, seed=1)
    people = make_parties(rows=600)
    ran = run_parties(job, people, join_parties(people, job), run="run")
    assert planned == {sensitivity}
    lines = map(json.loads, ran.ledgers["bank"].to_jsonl().splitlines())
    (note,) = (line["values"] for line in lines if line.get("note") == "epsilon")
    deviation = float(torch.cat(added).std())
    assert deviation == pytest.approx(note["noise_multiplier"] * sensitivity, rel=0.1)  # five deviations
    assert epsilon_rdp(GaussianRelease(deviation / max(moved), 4), 1e-5) <= note["epsilon_rdp"] * 1.15
    assert note["epsilon_rdp"] == pytest.approx(9.0, rel=1e-3)
    assert max(moved) == pytest.approx(sensitivity, rel=1e-2)


# noise on z


@pytest.mark.parametrize("bottom", [(), (3,)])
def test_a_run_with_noise_on_z_counts_every_use_and_says_on_what_it_depends(bottom: tuple[int, ...]) -> None:
    dp = sv.DP(features=sv.JointNoise(epsilon=30.0, weight_bound=20.0))
    job = sv.Job(algorithm=sv.SplitNN(hidden=4, top=(), bottom=bottom), protection=sv.Plain(dp=dp), epochs=3, seed=1)
    run = sv.simulate(job, make_parties(), baselines=()).record.runs[-1]
    assert [(e.party, e.what, e.releases) for e in run.epsilon] == [("shop1", "z", 3), ("shop2", "z", 3)]
    assert all(29 < e.epsilon_rdp <= 30 for e in run.epsilon)
    assert any("below the declared 20:" in note for note in run.notes)
    weights = "weights of the cut and of the bottoms" if bottom else "weights of the cut,"
    assert any(weights in note and "given the weights" in note for note in run.notes)


def test_a_passive_party_that_does_not_keep_to_the_bound_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def unscaled(site: PartyContext, width: int, columns: int, bound: float) -> np.ndarray:
        return 1e4 * initial_weights(site, width, columns)

    monkeypatch.setattr(plain, "initial_weights", unscaled)
    dp = sv.DP(features=sv.JointNoise(epsilon=30.0, weight_bound=2.0))
    job = sv.Job(algorithm=sv.SplitNN(hidden=4, top=()), protection=sv.Plain(dp=dp), epochs=3, seed=1)
    with pytest.raises(RangeError, match="weight_bound"):
        sv.simulate(job, make_parties(), baselines=())


def test_a_bound_below_what_rounding_moves_is_refused() -> None:
    dp = sv.DP(features=sv.JointNoise(epsilon=30.0, weight_bound=1e-7))
    job = sv.Job(algorithm=sv.SplitNN(hidden=4, top=()), protection=sv.Plain(dp=dp), epochs=3, seed=1)
    with pytest.raises(sv.InputError, match="declare a larger bound"):
        sv.simulate(job, make_parties(), baselines=())


def test_sealed_and_plain_share_the_noise_in_their_own_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    ready_keys(monkeypatch)
    seen = []
    original = JointRelease.__init__

    def watched(self: JointRelease, **options: object) -> None:
        seen.append(options["parties"])
        original(self, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(JointRelease, "__init__", watched)
    dp = sv.DP(features=sv.JointNoise(epsilon=30.0, weight_bound=20.0))
    for protection in (sv.Plain(dp=dp), sv.Plain(dp=dp, fixed_point=True), sv.Paillier(bits=2048, dp=dp)):
        job = sv.Job(algorithm=sv.SplitNN(hidden=2, top=()), protection=protection, epochs=1, steps=1, seed=1)
        run = sv.simulate(job, make_parties(rows=60), baselines=()).record.runs[-1]
        assert run.epsilon_totals[0].protects == "features"
    assert seen == [1, 1, 1, 1, 2, 2]


# randomised response


RESPONSE = sv.DP(labels=sv.RandomisedResponse(epsilon=2.0))
JOB = sv.Job(algorithm=sv.SplitNN(hidden=6, top=()), protection=sv.Plain(dp=RESPONSE), epochs=6, batch_size=32, seed=2)


def test_training_sees_drawn_labels_only_and_scoring_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    people = make_parties(rows=400)
    exact = {}
    original = ActiveRole.plan_and_build

    def watched(self: ActiveRole) -> None:
        original(self)
        assert self.table.y is not None
        exact[self.site.name] = (self.table.y, self.y, self.table.split)

    monkeypatch.setattr(ActiveRole, "plan_and_build", watched)
    result = sv.simulate(JOB, people, baselines=())
    y, used, split = exact["bank"]
    changed = (y != used).numpy()
    assert 0.02 < changed[split.train].mean() < 0.25  # 1 / (e² + 1) = 0.12; of 240 rows, so ± 0.02
    assert not changed[split.valid].any()
    assert not changed[split.test].any()
    run = result.record.runs[-1]
    (line,) = run.epsilon
    assert (line.party, line.what, line.releases, line.noise_multiplier) == ("bank", "labels", 1, 0)
    assert line.epsilon_prv == 2.0
    assert [t.protects for t in run.epsilon_totals] == ["labels"]
    assert run.test["auc"] > 0.7  # 0.85 ± 0.02, by which labels are drawn
    assert any("randomised response (ε = 2" in line.learns and line.severity == "leak" for line in run.learned)


@pytest.mark.parametrize(
    "algorithm", [sv.EntityAugmentation(hidden=4, top=()), sv.FedCVT(bottom=(3,)), sv.AllLabels(hidden=4, top=())]
)
def test_algorithms_that_use_labels_in_other_ways_train_on_drawn_ones_too(algorithm: object) -> None:
    job = JOB.replace(algorithm=algorithm, epochs=2)
    people = low_overlap_parties(1, rows=160)
    ran = run_parties(job, people, join_parties(people, job), run="run")
    (spent,) = ran.trained["bank"].spent
    assert (spent.what, spent.times) == ("labels", 1)


def test_a_run_that_goes_on_keeps_the_labels_that_were_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    people = make_parties(rows=200)
    used = []
    original = ActiveProgram.prepare_training

    async def watched(self: ActiveProgram) -> State | None:
        saved = await original(self)
        used.append(self.role.y.clone())
        return saved

    monkeypatch.setattr(ActiveProgram, "prepare_training", watched)
    sv.simulate(JOB, people, baselines=(), checkpoints=tmp_path)
    sv.simulate(JOB, people, baselines=(), checkpoints=tmp_path)
    sv.simulate(JOB, people, baselines=())
    assert torch.equal(used[0], used[1])
    assert not torch.equal(used[0], used[2])


def test_a_policy_bounds_the_price_of_labels() -> None:
    job = JOB.replace(policies={"bank": sv.Policy(max_epsilon=1.0)})
    with pytest.raises(PolicyError, match="as planned spends ε = 2"):
        sv.simulate(job, make_parties(), baselines=())


# DP-SGD


LOCAL = sv.Job(
    algorithm=sv.Local(hidden=6, top=(), lr=0.05),
    protection=sv.Plain(dp=sv.DP(model=sv.Gaussian(epsilon=4.0))),
    epochs=3,
    batch_size=32,
    seed=4,
)


def test_a_party_alone_trains_with_dp_sgd_and_the_record_says_its_price() -> None:
    people = low_overlap_parties(1, rows=1600)
    result = sv.simulate(LOCAL, people, baselines=())
    run = result.record.runs[-1]
    (line,) = run.epsilon
    assert (line.party, line.what, line.releases, line.clip) == ("bank", "model", 3, 1.0)
    opacus = RDPAccountant()
    opacus.history = [(line.noise_multiplier, 1.0, 3)]
    assert line.epsilon_rdp == pytest.approx(opacus.get_epsilon(1e-5), rel=1e-6)
    assert 3.9 < line.epsilon_rdp <= 4.0
    assert [t.protects for t in run.epsilon_totals] == ["features", "labels", "features and labels"]
    assert len({t.epsilon_rdp for t in run.epsilon_totals}) == 1  # one model, one price
    assert "DP on the local model" in run.title
    exact = sv.simulate(LOCAL.replace(protection=sv.Plain()), people, baselines=()).record.runs[-1]
    assert 0.6 < run.test["auc"] <= exact.test["auc"] + 0.05


def test_dp_sgd_is_for_a_model_of_one_party() -> None:
    with pytest.raises(InputError, match="only 'local' trains a model that a party has by itself"):
        LOCAL.replace(algorithm=sv.SplitNN())
    with pytest.raises(InputError, match="exchanges no training messages"):
        LOCAL.replace(protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(), labels=sv.Gaussian())))
    strict = LOCAL.replace(policies={"bank": sv.Policy(max_epsilon=1.0)})
    with pytest.raises(PolicyError, match=r"releasing model as planned spends"):
        sv.simulate(strict, low_overlap_parties(1, rows=200), baselines=())

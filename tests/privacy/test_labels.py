"""Label privacy: randomised response (its probabilities, its correction, drawn once) and Marvell (its optimum, its
bound, and what an attack still finds)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import parties, scarce
from scipy import stats
from scipy.optimize import minimize
from sklearn.metrics import roc_auc_score

import securevfl as sv
from securevfl.algorithms.base import ActiveRole
from securevfl.cut.plain import FloatActive
from securevfl.errors import InputError, PolicyError
from securevfl.jobs.simulation import join_parties, run_parties
from securevfl.privacy import LabelRelease, Marvell, PureRelease, randomised_response
from securevfl.privacy.labels import forward_correction, probabilities
from securevfl.privacy.marvell import leak_auc_bound, least_divergence, sum_kl

# randomised response


@pytest.mark.parametrize(("classes", "epsilon"), [(2, 1.0), (2, 0.2), (5, 2.0)])
def test_labels_are_drawn_with_the_stated_probabilities(classes: int, epsilon: float) -> None:
    n, true = 60_000, classes - 1
    drawn = randomised_response(np.full(n, true), classes, epsilon)
    stay, swap = probabilities(classes, epsilon)
    assert stay / swap == pytest.approx(math.exp(epsilon))
    expected = np.full(classes, swap * n)
    expected[true] = stay * n
    assert stats.chisquare(np.bincount(drawn, minlength=classes), expected).pvalue > 1e-6


def test_every_class_is_drawn_alike_from_every_other() -> None:
    labels = np.tile(np.arange(4), 20_000)
    drawn = randomised_response(labels, 4, 1.5)
    table = np.zeros((4, 4))
    np.add.at(table, (labels, drawn), 1)
    stay, swap = probabilities(4, 1.5)
    expected = np.full((4, 4), swap * 20_000) + np.eye(4) * (stay - swap) * 20_000
    assert 1e-7 < stats.chi2.cdf(((table - expected) ** 2 / expected).sum(), 12) < 1 - 1e-7


def test_the_correction_is_the_draw_of_the_models_probabilities() -> None:
    logits = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    stay, swap = probabilities(4, 1.0)
    transition = torch.full((4, 4), swap) + torch.eye(4) * (stay - swap)
    expected = torch.softmax(logits, 1) @ transition.double()
    assert torch.allclose(torch.softmax(forward_correction(logits, 4, 1.0), 1), expected, atol=1e-7)
    two = forward_correction(logits[:, :1], 2, 1.0)
    stay, swap = probabilities(2, 1.0)
    p = torch.sigmoid(logits[:, :1])
    assert torch.allclose(torch.sigmoid(two), stay * p + swap * (1 - p))
    assert torch.isfinite(forward_correction(torch.tensor([[1e4], [-1e4]]), 2, 8.0)).all()


def test_the_corrected_loss_is_least_at_the_true_probability() -> None:
    """Without the correction it would be least at the drawn labels' frequency."""
    share, epsilon = 0.2, 1.0
    labels = (np.arange(50_000) < share * 50_000).astype(np.int64)
    drawn = torch.from_numpy(randomised_response(labels, 2, epsilon)).double()
    logits = torch.linspace(-4, 2, 601, dtype=torch.float64)[:, None]
    q = torch.sigmoid(forward_correction(logits, 2, epsilon))[:, 0]
    loss = -(drawn.mean() * torch.log(q) + (1 - drawn.mean()) * torch.log(1 - q))
    assert float(torch.sigmoid(logits[loss.argmin(), 0])) == pytest.approx(share, abs=0.02)
    assert abs(float(drawn.mean()) - share) > 0.1


def test_one_person_is_drawn_for_once_and_held_out_labels_stay() -> None:
    labels = torch.tensor([0, 1] * 200 + [-1] * 3)
    person = np.arange(403)
    person[200:400] = np.arange(200)  # each by two numbers
    rows = np.r_[0:100, 200:300, 400:403]
    release = LabelRelease(labels, rows, classes=2, epsilon=0.5, delta=1e-5, person=person)
    drawn = release.apply(labels)
    assert torch.equal(drawn[:100], drawn[200:300])
    assert torch.equal(drawn[100:200], labels[100:200])
    assert torch.equal(drawn[400:], labels[400:])
    assert 10 < int((drawn != labels)[:100].sum()) < 70  # 38 of 100 on average
    again = LabelRelease(labels, rows, classes=2, epsilon=0.5, delta=1e-5, person=person)
    again.load(release.state())
    assert torch.equal(again.apply(labels), drawn)
    spent = release.spent
    assert (spent.times, spent.protects, spent.release) == (1, ("labels",), PureRelease(0.5, 1, 2))
    assert spent.epsilon_prv == 0.5
    assert spent.epsilon_rdp <= 0.5
    with pytest.raises(TypeError):
        again.load({"drawn": torch.zeros(3)})


@pytest.mark.parametrize(
    ("labels", "classes", "epsilon"), [([0, 2], 2, 1.0), ([0, -1], 2, 1.0), ([0], 2, 0), ([0], 2, 21), ([0], 1, 1)]
)
def test_what_cannot_be_randomised_is_refused(labels: list[int], classes: int, epsilon: float) -> None:
    with pytest.raises(InputError):
        randomised_response(np.array(labels), classes, epsilon)


RESPONSE = sv.DP(epsilon=2.0, activations=False, labels="randomised_response")
JOB = sv.Job(algorithm=sv.SplitNN(hidden=6, top=()), protection=sv.Plain(dp=RESPONSE), epochs=4, batch_size=32, seed=2)


def test_training_sees_drawn_labels_only_and_scoring_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    people = parties(rows=400)
    exact = {}
    original = ActiveRole.__init__

    def watched(self: ActiveRole, *args: object) -> None:
        original(self, *args)  # type: ignore[arg-type]
        exact[self.site.name] = (self.table.y, self.y, self.table.split)

    monkeypatch.setattr(ActiveRole, "__init__", watched)
    result = sv.simulate(JOB, people, baselines=())
    y, used, split = exact["bank"]
    changed = (y != used).numpy()
    assert 0.04 < changed[split.train].mean() < 0.25  # 1 / (e² + 1) = 0.12
    assert not changed[split.valid].any()
    assert not changed[split.test].any()
    run = result.record.runs[-1]
    (line,) = run.epsilon
    assert (line.party, line.what, line.releases, line.noise_multiplier) == ("bank", "labels", 1, 0)
    assert line.epsilon_prv == 2.0
    assert [t.protects for t in run.epsilon_totals] == ["labels"]
    assert run.test["auc"] > 0.8
    assert any("randomised response (ε = 2" in line.learns and line.severity == "note" for line in run.learned)


@pytest.mark.parametrize(
    "algorithm", [sv.EntityAugmentation(hidden=4, top=()), sv.FedCVT(bottom=(3,)), sv.AllLabels(hidden=4, top=())]
)
def test_algorithms_that_use_labels_in_other_ways_train_on_drawn_ones_too(algorithm: object) -> None:
    job = replace(JOB, algorithm=algorithm, epochs=2)  # type: ignore[arg-type]
    people = scarce(1, rows=160)
    ran = run_parties(job, people, join_parties(people, job), run="run")
    (spent,) = ran.trained["bank"].spent
    assert (spent.what, spent.times) == ("labels", 1)


def test_a_run_that_goes_on_keeps_the_labels_that_were_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    people = parties(rows=200)
    used = []
    original = ActiveRole.prepare

    async def watched(self: ActiveRole) -> object:
        saved = await original(self)
        used.append(self.y.clone())
        return saved

    monkeypatch.setattr(ActiveRole, "prepare", watched)
    sv.simulate(JOB, people, baselines=(), checkpoints=tmp_path)
    sv.simulate(JOB, people, baselines=(), checkpoints=tmp_path)
    sv.simulate(JOB, people, baselines=())
    assert torch.equal(used[0], used[1])
    assert not torch.equal(used[0], used[2])


def test_a_policy_bounds_the_price_of_labels() -> None:
    job = replace(JOB, policies={"bank": sv.Policy(max_epsilon=1.0)})
    with pytest.raises(PolicyError, match="as planned spends ε = 2"):
        sv.simulate(job, parties(), baselines=())


# Marvell


def test_the_bound_is_that_of_the_theorem() -> None:
    assert leak_auc_bound(0.0) == 0.5
    assert leak_auc_bound(0.04) == pytest.approx(0.5 + 0.1 - 0.005)
    assert leak_auc_bound(4.0) == leak_auc_bound(math.inf) == 1.0
    bounds = [leak_auc_bound(d) for d in np.linspace(0, 4, 50)]
    assert bounds == sorted(bounds)


def test_sum_kl_is_that_of_two_gaussians() -> None:
    width, spread, along, across = 3, (0.5, 1.5), (2.0, 0.3), (0.1, 0.7)
    direction = np.array([1.0, -2.0, 0.5])
    gap = float(direction @ direction)
    unit = np.outer(direction, direction) / gap
    zero, one = ((spread[k] + across[k]) * np.eye(width) + (along[k] - across[k]) * unit for k in (0, 1))

    def kl(a: np.ndarray, b: np.ndarray) -> float:
        inverse = np.linalg.inv(b)
        volumes = math.log(np.linalg.det(b) / np.linalg.det(a))
        return float(np.trace(inverse @ a) + direction @ inverse @ direction - width + volumes) / 2

    assert sum_kl(gap, spread, along, across, width) == pytest.approx(kl(zero, one) + kl(one, zero))


@pytest.mark.parametrize("seed", range(6))
def test_no_other_covariances_of_the_same_power_are_better(seed: int) -> None:
    """Against a general optimiser on all four variances."""
    rng = np.random.default_rng(seed)
    width, share, power = int(rng.integers(1, 12)), rng.uniform(0.05, 0.95), math.exp(rng.normal(1, 1))
    spread = tuple(np.exp(rng.normal(-2, 2, 2)))
    found = least_divergence(1.0, spread, share, width, power)
    weights = np.array([1 - share, share, (1 - share) * (width - 1), share * (width - 1)])
    assert weights @ [*found.along, *found.across] <= power * (1 + 1e-9)
    assert found.divergence == pytest.approx(sum_kl(1.0, spread, found.along, found.across, width))
    best = math.inf
    for _ in range(5):
        start = rng.dirichlet(np.ones(4)) * power / np.maximum(weights, 1)
        result = minimize(
            lambda v: sum_kl(1.0, spread, (v[0], v[1]), (v[2], v[3]), width),
            start,
            bounds=[(0, None)] * 4,
            constraints=[{"type": "ineq", "fun": lambda v: power - weights @ v}],
            method="SLSQP",
            options={"maxiter": 400, "ftol": 1e-12},
        )
        best = min(best, float(result.fun)) if result.success else best
    assert found.divergence <= best * (1 + 1e-3) + 1e-9


def _gradients(n: int, share: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of a logistic top model early in training: long for the rare class, short for the other."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(np.int64)
    p = np.clip(share + 0.05 * rng.normal(size=n), 0.01, 0.99)
    w = rng.normal(size=8)
    g = (p - y)[:, None] * w + 0.02 * rng.normal(size=(n, 8))
    return torch.from_numpy(g), torch.from_numpy(y)


def _norm_attack(g: torch.Tensor, y: torch.Tensor) -> float:
    auc = float(roc_auc_score(y, torch.linalg.vector_norm(g, dim=1)))
    return max(auc, 1 - auc)


def _direction_attack(g: torch.Tensor, y: torch.Tensor) -> float:
    """The best linear score there is: it knows the class means."""
    auc = float(roc_auc_score(y, g @ (g[y == 1].mean(dim=0) - g[y == 0].mean(dim=0))))
    return max(auc, 1 - auc)


@pytest.mark.parametrize("power", [1.0, 4.0, 25.0])
def test_attacks_on_perturbed_gradients_stay_below_the_theorems_bound(power: float) -> None:
    g, y = _gradients(4000, 0.2, seed=1)
    assert _norm_attack(g, y) > 0.99
    assert _direction_attack(g, y) > 0.99
    marvell = Marvell(power)
    sent = marvell(g, y)
    error = 3 * 0.5 / math.sqrt(800)
    norm, direction = _norm_attack(sent, y), _direction_attack(sent, y)
    assert norm <= marvell.worst + error
    assert direction <= marvell.worst + error
    assert direction > marvell.worst - 0.2  # the bound says something
    if power == 25.0:
        assert max(norm, direction) < 0.65


def test_the_noise_has_the_power_and_the_shape_that_were_found() -> None:
    g, y = _gradients(40_000, 0.3, seed=2)
    wider = torch.from_numpy(np.random.default_rng(3).normal(scale=0.4, size=g.shape))
    g = torch.where((y == 1)[:, None], g + wider, g)  # so that the other class gets noise across the means, too
    gap = g[y == 1].mean(dim=0) - g[y == 0].mean(dim=0)
    marvell = Marvell(4.0)
    noise = marvell(g, y) - g
    assert float(noise.square().sum(dim=1).mean()) == pytest.approx(4.0 * float(gap @ gap), rel=0.05)
    unit = gap / torch.linalg.vector_norm(gap)
    along = noise @ unit
    spread = tuple(float(g[y == k].var(dim=0, correction=0).mean()) for k in (0, 1))
    share = (int(y.sum()) + 1) / (len(y) + 2)
    found = least_divergence(float(gap @ gap), spread, share, 8, 4.0 * float(gap @ gap))
    assert found.across[0] > 0.1
    for kind in (0, 1):
        values = along[y == kind].numpy() / math.sqrt(found.along[kind])
        assert stats.kstest(values, "norm").pvalue > 1e-6
        across = (noise[y == kind] - along[y == kind, None] * unit).square().sum(dim=1).mean()
        assert float(across) == pytest.approx(7 * found.across[kind], rel=0.05, abs=1e-9)


def test_batches_of_one_class_are_perturbed_too() -> None:
    marvell = Marvell(4.0)
    g = torch.full((6, 3), 0.5)
    zeros, ones = torch.zeros(6, dtype=torch.int64), torch.ones(6, dtype=torch.int64)
    assert not torch.equal(marvell(g, zeros), g)  # nothing known of the other class
    assert not torch.equal(marvell(-g, ones), -g)
    assert not torch.equal(marvell(g, zeros), g)
    assert marvell.batches == 3
    assert torch.equal(marvell(torch.zeros(0, 3), zeros[:0]), torch.zeros(0, 3))
    assert 0.5 < marvell.worst <= 1.0
    with pytest.raises(InputError):
        Marvell(0.0)


def test_what_a_passive_party_receives_was_perturbed_and_tells_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the gradients of a run in the best direction: with Marvell its AUC falls to near the bound."""
    leaks: dict[bool, list[float]] = {True: [], False: []}
    kept: dict[str, torch.Tensor] = {}
    losses, backward = sv.algorithms.splitnn.Active.losses, FloatActive.backward

    def noted(self: object, logits: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        kept["y"] = self.labels(rows)  # type: ignore[attr-defined]
        return losses(self, logits, rows)  # type: ignore[arg-type]

    def perturbed(self: Marvell, gradients: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        kept["clean"] = gradients
        return perturb(self, gradients, labels)

    async def watched(self: FloatActive, gradient: torch.Tensor) -> None:
        y, clean = kept["y"], kept.pop("clean", gradient)
        if len(y) > 100:  # the attacker knows the direction in which the classes lie apart
            direction = clean[y == 1].mean(dim=0) - clean[y == 0].mean(dim=0)
            leaks[marvell].append(float(roc_auc_score(y, gradient @ direction)))
        await backward(self, gradient)

    perturb = Marvell.__call__
    monkeypatch.setattr(Marvell, "__call__", perturbed)
    monkeypatch.setattr(sv.algorithms.splitnn.Active, "losses", noted)
    monkeypatch.setattr(FloatActive, "backward", watched)
    people = parties(rows=900, seed=1)
    algorithm = sv.SplitNN(hidden=4, top=(), bottom=(4,))
    for marvell in (False, True):
        dp = sv.DP(activations=False, labels="marvell", power=25.0) if marvell else None
        job = replace(JOB, algorithm=algorithm, batch_size=400, epochs=4, protection=sv.Plain(dp=dp))
        result = sv.simulate(job, people, baselines=())
    assert np.mean(leaks[False]) > 0.95
    assert len(leaks[True]) >= 4
    run = result.record.runs[-1]
    assert run.epsilon == []
    assert run.title.endswith("Marvell on labels, power 25")
    bound = float(next(note for note in run.notes if "leak AUC of a batch" in note).split(": ")[1])
    assert bound - 0.1 < np.mean(leaks[True]) < bound + 0.06  # 0.06: four deviations of the mean of four such AUCs
    assert bound < 0.75
    assert any("no differential privacy" in note for note in run.notes)
    assert any("Marvell" in line.learns and line.severity == "leak" for line in run.learned)


def test_marvell_is_for_two_classes_and_for_gradients_at_one_cut() -> None:
    dp = sv.DP(activations=False, labels="marvell")
    assert not dp.private
    with pytest.raises(InputError, match="two classes and there are 3"):
        sv.simulate(replace(JOB, protection=sv.Plain(dp=dp)), parties(classes=3), baselines=())
    for algorithm in (sv.RISA(), sv.EntityAugmentation(), sv.FedCVT(), sv.FedDA(), sv.MultiVFL()):
        with pytest.raises(InputError, match="labels='marvell'"):
            replace(JOB, algorithm=algorithm, protection=sv.Plain(dp=dp))
    with pytest.raises(InputError, match="randomised_response"):
        sv.DP(labels="randomized_response")

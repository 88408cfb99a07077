"""Marvell: its optimum, its bound, and what an attack on one batch still finds."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import minimize
from sklearn.metrics import roc_auc_score

from securevfl.errors import InputError
from securevfl.privacy import MarvellNoise
from securevfl.privacy.marvell import leak_auc_bound, least_divergence, sum_kl


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
    marvell = MarvellNoise(power)
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
    marvell = MarvellNoise(4.0)
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
    marvell = MarvellNoise(4.0)
    g = torch.full((6, 3), 0.5)
    zeros, ones = torch.zeros(6, dtype=torch.int64), torch.ones(6, dtype=torch.int64)
    assert not torch.equal(marvell(g, zeros), g)  # nothing known of the other class
    assert not torch.equal(marvell(-g, ones), -g)
    assert not torch.equal(marvell(g, zeros), g)
    assert marvell.batches == 3
    assert torch.equal(marvell(torch.zeros(0, 3), zeros[:0]), torch.zeros(0, 3))
    assert 0.5 < marvell.worst <= 1.0
    with pytest.raises(InputError):
        MarvellNoise(0.0)

"""DP-SGD: clipping row by row, the noise's scale, counting."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from opacus.accountants import RDPAccountant
from scipy import stats
from torch import nn

from securevfl.errors import InputError, PolicyError
from securevfl.privacy import PrivateSteps
from securevfl.privacy.counts import EarlierCounts
from securevfl.training.networks import build_active_block, build_bottom, build_mlp

ROWS = 12


def _model() -> nn.ModuleList:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        bottom, width = build_bottom((4,), (3,))
        return nn.ModuleList([bottom, build_active_block(width, 5), build_mlp([5, 4, 1])])


def _losses(model: nn.ModuleList, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    logits = model[2](torch.relu(model[1](model[0](x))))[:, 0]
    return nn.functional.binary_cross_entropy_with_logits(logits, y, reduction="none")


def _steps(model: nn.Module, **changes: object) -> PrivateSteps:
    options = {"rows": 100, "times": 3, "sigma": 1e-9, "clip": 0.4, "delta": 1e-5} | changes
    return PrivateSteps(model, **options)  # type: ignore[arg-type]


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(ROWS, 3, generator=generator), (torch.arange(ROWS) % 2).float()


def test_the_step_is_the_sum_of_clipped_gradients_row_by_row() -> None:
    model, plain = _model(), _model()
    x, y = _batch()
    clip = 0.55
    _steps(model, clip=clip).backward(_losses(model, x, y), np.arange(ROWS), divide=16)
    expected = [torch.zeros_like(p) for p in plain.parameters()]
    clipped = 0
    for i in range(ROWS):
        gradients = torch.autograd.grad(_losses(plain, x[i : i + 1], y[i : i + 1]).sum(), list(plain.parameters()))
        norm = torch.sqrt(sum(g.square().sum() for g in gradients))
        clipped += bool(norm > clip)
        expected = [e + g * min(1.0, clip / float(norm)) / 16 for e, g in zip(expected, gradients, strict=True)]
    assert 0 < clipped < ROWS  # both kinds are in it
    for parameter, e in zip(model.parameters(), expected, strict=True):
        assert torch.allclose(parameter.grad, e, atol=1e-6)


def test_the_noise_is_normal_of_sigma_times_twice_the_clip() -> None:
    layer = nn.Linear(300, 200)
    steps = _steps(layer, sigma=1.7, clip=0.25)
    losses = layer(torch.zeros(2, 300)).sum(dim=1) * 0
    steps.backward(losses, np.array([0, 1]), divide=4)
    values = layer.weight.grad.double().numpy().ravel() * 4 / (1.7 * 2 * 0.25)
    assert stats.kstest(values, "norm").pvalue > 1e-6
    assert 1e-7 < stats.chi2.cdf((values**2).sum(), len(values)) < 1 - 1e-7
    before = layer.weight.grad.clone()
    steps.backward(layer(torch.zeros(2, 300)).sum(dim=1) * 0, np.array([0, 1]), divide=4)
    assert not torch.equal(before, layer.weight.grad)


def test_replacing_a_row_moves_the_sum_by_no_more_than_the_sensitivity() -> None:
    model = _model()
    steps = _steps(model, times=9, clip=0.3)
    x, y = _batch()

    def released(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        steps.backward(_losses(model, x, y), np.arange(ROWS), divide=1)
        return torch.cat([p.grad.ravel() for p in model.parameters()])

    first = released(x, y)
    for value in (100.0, -100.0):
        other, label = x.clone(), y.clone()
        other[5], label[5] = value, 1 - label[5]
        assert float(torch.linalg.vector_norm(released(other, label) - first)) <= 2 * 0.3 * (1 + 1e-5)


def test_each_use_of_a_row_is_one_release_as_opacus_counts_it() -> None:
    model = _model()
    steps = _steps(model, sigma=2.0)
    x, y = _batch()
    opacus = RDPAccountant()
    for _ in range(3):  # an epoch each: two batches, and every row is in one of them
        for rows in (np.arange(5), np.arange(5, ROWS)):
            steps.backward(_losses(model, x[rows], y[rows]), rows, divide=6)
        opacus.step(noise_multiplier=2.0, sample_rate=1.0)
    assert steps.cost_so_far.epsilon_rdp == pytest.approx(opacus.get_epsilon(1e-5), rel=1e-9)
    assert steps.cost_so_far.protects == ("features", "labels")
    again = _steps(_model(), sigma=2.0)
    counts = steps.counts.end_epoch()
    again.counts.begin_attempt(EarlierCounts(kept=counts, lost=np.zeros_like(counts)), lambda most: None)
    before = [p.grad.clone() for p in model.parameters()]
    with pytest.raises(PolicyError, match="would train 4 times; the budget was planned for 3"):
        steps.backward(_losses(model, x[:1], y[:1]), np.array([0]), divide=6)
    assert all(torch.equal(p.grad, b) for p, b in zip(model.parameters(), before, strict=True))
    assert again.cost_so_far == steps.cost_so_far


def test_what_has_no_gradient_by_row_is_refused() -> None:
    with pytest.raises(InputError, match="gradient of each row"):
        _steps(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))
    model = _model()
    x, y = _batch()
    with pytest.raises(InputError, match="twice"):
        _steps(model).backward(_losses(model, x[:2], y[:2]), np.array([1, 1]), divide=2)

"""The Adam of small networks against torch's, bit by bit; and where torch's has to step."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from securevfl.training.networks import build_mlp
from securevfl.training.optimizers import Adam, backpropagate

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int, *, but: int = -1) -> None:
    """A step on gradients that depend on its number alone; parameter `but` has none."""
    generator = torch.Generator().manual_seed(number)
    for i, parameter in enumerate(model.parameters()):
        drawn = torch.randn(parameter.shape, generator=generator)
        parameter.grad = None if i == but else drawn
    optimizer.step()


def same(model: nn.Module, optimizer: torch.optim.Optimizer, other: nn.Module, others: torch.optim.Optimizer) -> bool:
    """Weights and moments, bit by bit."""
    pairs = list(zip(model.parameters(), other.parameters(), strict=True))
    moments = all(torch.equal(optimizer.state[a][k], others.state[b][k]) for a, b in pairs for k in MOMENTS)
    return moments and all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("decay", [0.0, 1e-2])
@pytest.mark.parametrize("widths", [(16, 16, 1), (3, 7, 2), (33, 1)])
def test_every_bit_is_torch_s(widths: tuple[int, ...], decay: float) -> None:
    ours = build_mlp(widths)
    theirs = copy.deepcopy(ours)
    mine, reference = (
        kind(m.parameters(), lr=0.01, weight_decay=decay) for kind, m in ((Adam, ours), (torch.optim.Adam, theirs))
    )
    for number in range(50):
        step(ours, mine, number)
        step(theirs, reference, number)
    assert mine._moments
    assert same(ours, mine, theirs, reference)


def test_states_go_back_and_forth_between_the_two() -> None:
    ours = build_mlp((5, 4, 2))
    theirs = copy.deepcopy(ours)
    mine, reference = Adam(ours.parameters(), lr=0.01), torch.optim.Adam(theirs.parameters(), lr=0.01)
    for number in range(5):
        step(ours, mine, number)
    kept, weights = copy.deepcopy(mine.state_dict()), copy.deepcopy(ours.state_dict())
    reference.load_state_dict(copy.deepcopy(kept))
    theirs.load_state_dict(weights)
    for number in range(5, 10):
        step(theirs, reference, number)
    for number in range(50, 53):
        step(ours, mine, number)  # somewhere else
    mine.load_state_dict(kept)
    ours.load_state_dict(weights)
    for number in range(5, 10):
        step(ours, mine, number)
    assert same(ours, mine, theirs, reference)


def test_a_parameter_without_a_gradient_stays() -> None:
    ours = build_mlp((5, 4, 2))
    theirs = copy.deepcopy(ours)
    mine, reference = Adam(ours.parameters(), lr=0.01), torch.optim.Adam(theirs.parameters(), lr=0.01)
    for number, but in enumerate([-1, -1, 2, -1, -1]):
        step(ours, mine, number, but=but)
        step(theirs, reference, number, but=but)
    assert same(ours, mine, theirs, reference)


def test_two_groups_step_by_their_own_rates() -> None:
    ours = build_mlp((5, 4, 2))
    theirs = copy.deepcopy(ours)
    mine, reference = (
        kind([{"params": list(m[0].parameters())}, {"params": list(m[2].parameters()), "lr": 0.3}], lr=0.01)
        for kind, m in ((Adam, ours), (torch.optim.Adam, theirs))
    )
    for number in range(6):
        step(ours, mine, number)
        step(theirs, reference, number)
    for group in (*mine.param_groups, *reference.param_groups):
        group["lr"] /= 2
    step(ours, mine, 6)
    step(theirs, reference, 6)
    assert len(mine._moments) == 2
    assert same(ours, mine, theirs, reference)


def test_what_is_not_plain_is_left_to_torch() -> None:
    for settings in ({"amsgrad": True}, {"maximize": True}, {"fused": True}):
        model = build_mlp((3, 2))
        optimizer = Adam(model.parameters(), lr=0.01, **settings)
        for number in range(3):
            step(model, optimizer, number)
        assert not optimizer._moments


@pytest.mark.parametrize("shape", [(7, 3), (1, 1), (5,), (0, 4)])
def test_a_gradient_goes_back_as_torch_takes_it(shape: tuple[int, ...]) -> None:
    """Bit by bit, numbers included whose product with the outputs is infinite or none."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, requires_grad=True)
    gradient = 1e30 * torch.randn(shape, generator=generator)
    gradient.view(-1)[:1] = -0.0
    got = []
    for take in (backpropagate, torch.autograd.backward):
        x.grad = None
        take(1e20 + torch.tanh(x), gradient)
        got.append(x.grad)
    assert got[0].shape == shape
    assert torch.isfinite(got[0]).all()
    assert torch.equal(got[0].view(torch.int32), got[1].view(torch.int32))


def test_a_gradient_of_another_shape_is_refused() -> None:
    outputs = torch.zeros((3, 2), requires_grad=True)
    with pytest.raises(ValueError, match=r"shape \(2,\), and the outputs \(3, 2\)"):
        backpropagate(outputs, torch.zeros(2))

"""Losses: the numbers of torch, the sensitivity that they state, and that nobody inherits one for another loss."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from securevfl.errors import InputError
from securevfl.privacy import CrossEntropy, Gaussian, Loss, Policy, Releases, clip_rows


class EightTimes(CrossEntropy):
    """Steeper than what it is derived from; it states nothing."""

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 8 * super().__call__(logits, targets)


class Stated(EightTimes):
    sensitivity = 8.0

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().__call__(logits, targets)


class Steeper:
    """A mixin."""

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 8 * CrossEntropy(2)(logits, targets)


class Mixed(Steeper, CrossEntropy):
    """Overrides nothing itself; what computes its loss stands before what states the sensitivity."""


class Renamed(CrossEntropy):
    """Another name for the same loss."""


def test_cross_entropy_is_torchs_to_the_last_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    two, five = torch.randn(40, 1, generator=generator) * 5, torch.randn(40, 5, generator=generator) * 5
    y2, y5 = torch.arange(40) % 2, torch.arange(40) % 5
    soft2, soft5 = torch.rand(40, 2, generator=generator), torch.softmax(five, 1)
    binary = functional.binary_cross_entropy_with_logits
    assert torch.equal(CrossEntropy(2)(two, y2), binary(two[:, 0], y2.float(), reduction="none"))
    assert torch.equal(CrossEntropy(2)(two, soft2), binary(two[:, 0], soft2[:, 1], reduction="none"))
    assert torch.equal(CrossEntropy(5)(five, y5), functional.cross_entropy(five, y5, reduction="none"))
    assert torch.equal(CrossEntropy(5)(five, soft5), functional.cross_entropy(five, soft5, reduction="none"))
    with pytest.raises(InputError, match="give at least 2"):
        CrossEntropy(1)


def test_targets_of_another_shape_are_refused_with_the_shapes_that_are_accepted() -> None:
    with pytest.raises(InputError, match=r"torch.float32 with shape \(3,\); expected a Tensor: classes, torch.int64 "):
        CrossEntropy(2)(torch.zeros(3, 1), torch.zeros(3))


def test_a_loss_that_was_changed_loses_the_sensitivity_that_it_inherits() -> None:
    assert CrossEntropy(2).sensitivity == 1.0
    assert CrossEntropy(3).sensitivity == math.sqrt(2)
    assert EightTimes(2).sensitivity is None
    assert Mixed(2).sensitivity is None
    assert Stated(2).sensitivity == 8.0
    assert Renamed(3).sensitivity == math.sqrt(2)

    class Again(Stated):
        def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return 2 * super().__call__(logits, targets)

    assert Again(2).sensitivity is None
    with pytest.raises(TypeError, match="abstract"):
        Loss()  # type: ignore[abstract]


def _moved(loss: Loss, logits: torch.Tensor, labels: tuple[int, int], clip: float) -> float:
    """How far the clipped gradient of one row moves when its label is replaced."""
    gradients = []
    for label in labels:
        at = logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(at, torch.tensor([label])).sum(), at)
        gradients.append(clip_rows(gradient, clip))
    return float(torch.linalg.vector_norm(gradients[0] - gradients[1]))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(CrossEntropy, 2), (EightTimes, 2), (Stated, 2), (Mixed, 2), (CrossEntropy, 4), (EightTimes, 4)]),
    st.floats(0.1, 20),
    st.lists(st.floats(-15, 15), min_size=4, max_size=4),
    st.tuples(st.integers(0, 1), st.integers(2, 3)),
)
def test_a_label_moves_the_released_gradient_by_no_more_than_the_noise_is_sized_for(
    case: tuple[type[CrossEntropy], int], clip: float, logits: list[float], labels: tuple[int, int]
) -> None:
    kind, classes = case
    loss = kind(classes)
    at = torch.tensor([logits[: 1 if classes == 2 else classes]], dtype=torch.float64)
    both = (0, 1) if classes == 2 else labels
    release = Releases("bank", Policy()).plan_rows(
        "gradients", Gaussian(clip=clip), rows=1, times=1, sensitivity=loss.sensitivity
    )
    assert _moved(loss, at, both, clip) <= release.sensitivity * (1 + 1e-9)
    sent = release(at, np.array([0]))
    assert sent.sensitivity == release.sensitivity <= 2 * clip


def test_the_audit_above_would_notice_an_inherited_sensitivity() -> None:
    logits = torch.zeros(1, 1, dtype=torch.float64)
    inherited = CrossEntropy(2).sensitivity
    assert inherited is not None
    assert _moved(EightTimes(2), logits, (0, 1), clip=1.0) == 2.0 > inherited
    release = Releases("bank", Policy()).plan_rows("gradients", Gaussian(), rows=1, times=1, sensitivity=inherited)
    assert release.sensitivity == 1.0

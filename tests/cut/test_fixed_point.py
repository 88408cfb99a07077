"""What the integers of a cut can hold: noise on z, sizes that no integer has room for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from securevfl.cut.integers import fixed_noise
from securevfl.cut.spec import CutSpec
from securevfl.errors import InputError, RangeError


def test_noise_on_z_is_what_was_drawn_or_refused() -> None:
    """At small learning rates z has so many fractional bits that larger noise leaves a word; a cast would make all of
    it one number, which hides nothing."""
    point = CutSpec(width=3, lr=1e-3, batch_size=1024, activation_bound=512.0).fixed_point
    assert point.z_bits > 64
    largest = 2.0 ** (62 - point.z_fraction_bits)
    noise = torch.tensor([[0.999 * largest, -0.999 * largest, 0.3]], dtype=torch.float64)
    assert fixed_noise(noise, point) * 2.0**-point.z_fraction_bits == pytest.approx(noise.numpy())
    for value in (largest, -largest, 1e3 * largest):
        with pytest.raises(RangeError, match="noise on z"):
            fixed_noise(torch.full((1, 3), value, dtype=torch.float64), point)


@pytest.mark.parametrize(
    "change",
    [
        {"batch_size": 0},
        {"batch_size": 1 << 25},
        {"activation_bound": 0.0},
        {"activation_bound": float("nan")},
        {"gradient_bound": float("inf")},
        {"gradient_bound": -1.0},
    ],
)
def test_impossible_sizes_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"at the cut|the cut's batch"):
        CutSpec(**{"width": 3, "lr": 0.5, "batch_size": 8} | change)

"""Fixed point at the cut: how activations, weights and gradients become integers, the same for every exact cut."""

from __future__ import annotations

import numpy as np
import torch

from securevfl.cut.spec import FixedPoint
from securevfl.errors import RangeError

__all__ = [
    "fixed_activations",
    "fixed_noise",
    "fixed_weights",
    "input_gradient",
    "scaled_gradient",
    "to_float",
]


_MOST_BITS = 62
"""Magnitude of what an int64 carries here: a cast of a larger float gives one and the same number for all of them."""


def _to_fixed(values: torch.Tensor, fractional_bits: int, bound_bits: int, what: str, cure: str) -> np.ndarray:
    """Round to integers with `fractional_bits`, int64.

    Raises:
        RangeError: a value is not finite, or its integer does not fit in `bound_bits` bits, of 62 at most, and a sign.
    """
    bound_bits = min(bound_bits, _MOST_BITS)
    array = values.detach().to("cpu", torch.float64).numpy()
    scaled = np.rint(array * 2.0**fractional_bits)
    largest = float(np.abs(scaled).max(initial=0.0))
    if not largest < 2.0**bound_bits:  # also when NaN
        found = float(np.abs(array).max(initial=0.0))
        bound = 2.0 ** (bound_bits - fractional_bits)
        raise RangeError(f"{what} reach {found:.4g}; the fixed-point range ends at {bound:.4g}: {cure}")
    return scaled.astype(np.int64)


def to_float(integers: np.ndarray, fractional_bits: int, device: str = "cpu") -> torch.Tensor:
    """Integers (int64 or Python's) with `fractional_bits` as float32, rounded once through float64."""
    return torch.from_numpy(integers.astype(np.float64) * 2.0**-fractional_bits).to(device, torch.float32)


def fixed_weights(share: np.ndarray, point: FixedPoint) -> np.ndarray:
    """A float share of the initial weights as integers with fw fractional bits, an object array."""
    scaled = np.rint(share * 2.0**24).astype(np.int64).astype(object)
    return np.asarray(scaled << (point.weight_fraction_bits - 24), dtype=object)


def fixed_activations(activations: torch.Tensor, point: FixedPoint) -> np.ndarray:
    """Activations as int64 with fx fractional bits.

    Raises:
        RangeError: an activation is as large as the job's bound, or not a number.
    """
    cure = "clip the features (clip=5 keeps standardised ones below), or end the bottom with a bounded activation"
    return _to_fixed(activations, point.fx, point.fx + point.x_int_bits, "activations", cure)


def scaled_gradient(gradient: torch.Tensor, point: FixedPoint) -> np.ndarray:
    """S = η ∂L/∂z as int64 with fs fractional bits.

    Raises:
        RangeError: a row's gradient is 16 or more, or not a number.
    """
    cure = "training diverges; lower the learning rates, or, of rows with weights or far-off numbers, clip these"
    return _to_fixed(gradient.double() * point.lr, point.fs, point.s_bits, "steps η ∂L/∂z", cure)


def fixed_noise(noise: torch.Tensor, point: FixedPoint) -> np.ndarray:
    """Noise on z as int64 with fz fractional bits.

    Raises:
        RangeError: it does not fit in z's range, or not in 62 bits.
    """
    cure = "add less noise, or take a smaller batch or a higher learning rate at the cut, which leave it more room"
    return _to_fixed(noise, point.z_fraction_bits, point.z_bits - 2, "noise on z", cure)


def input_gradient(product: np.ndarray, point: FixedPoint) -> torch.Tensor:
    """∂L/∂a from the integers S Wᵀ, which still carry the learning rate."""
    exact = product.astype(np.float64) * 2.0 ** -(point.fs + point.weight_fraction_bits) / point.lr
    return torch.from_numpy(exact).float()

"""Clipping, and Gaussian noise from the operating system's random bytes.

The noise goes through the inverse normal distribution function, and what `noised` releases is rounded to a grid of 2⁻²⁰
sensitivities: the low bits of a float would otherwise tell about the value below the noise (Mironov 2012, "On
significance of the least significant bits for differential privacy"). The grid keeps that channel narrow; it does not
make the sampler exactly discrete.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import torch

__all__ = ["GRID", "Entropy", "clip_rows", "gaussian", "noised", "uniform"]

GRID = 2.0**-20
"""Width of the grid that released rows lie on, and of the dither on shares of noise, over the sensitivity."""

Entropy = Callable[[int], bytes]
"""Gives that many random bytes; the operating system's unless a test replaces it."""


def clip_rows(rows: torch.Tensor, bound: float) -> torch.Tensor:
    """Scale rows (n, d) that are longer than `bound` in L2 norm down to it; differentiable."""
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows * torch.clamp(bound / norms.clamp_min(1e-12), max=1.0)


def uniform(shape: tuple[int, ...], entropy: Entropy = os.urandom) -> np.ndarray:
    """Independent numbers strictly between 0 and 1, float64, of 52 random bits each."""
    count = int(np.prod(shape))
    words = np.frombuffer(entropy(8 * count), dtype="<u8").reshape(shape) >> np.uint64(12)
    found: np.ndarray = (words.astype(np.float64) + 0.5) * 2.0**-52
    return found


def gaussian(shape: tuple[int, ...], std: float, entropy: Entropy = os.urandom) -> torch.Tensor:
    """Independent N(0, std²), float64, from `entropy` (52 random bits a value, inverse distribution function)."""
    noise: torch.Tensor = torch.special.ndtri(torch.from_numpy(uniform(shape, entropy))) * std
    return noise


def noised(values: torch.Tensor, sigma: float, sensitivity: float, entropy: Entropy = os.urandom) -> torch.Tensor:
    """`values` plus N(0, (σΔ)²), on the grid of 2⁻²⁰ Δ; float64, detached.

    Args:
        values: clipped before, of any shape.
        sigma: noise multiplier σ.
        sensitivity: Δ.
        entropy: source of random bytes.
    """
    noise = gaussian(tuple(values.shape), sigma * sensitivity, entropy).to(values.device)
    grid = sensitivity * GRID
    return torch.round((values.detach().double() + noise) / grid) * grid

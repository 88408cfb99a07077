"""DP-SGD for two parties: each adds noise to its summand of every sum of gradients, which nobody sees without it.

The gradient of a row is ``f (x, 1)ᵀ`` with f the error of its prediction. Each party clips its own block of x, so that
‖x‖ ≤ C over both, as on three shares (`securevfl.shares.dp_steps`). The error needs no condition: a sum of sines is
bounded for *every* logit, one that wrapped included, so |f| ≤ D whatever the weights are. Replacing one row moves the
sum over its batch by at most Δ = 2 D √(C² + 1).

Only the other party's draw protects from a party, which knows its own. So *each* adds N(0, (σΔ)²): full σ, where three
add half of the variance each. An outsider faces twice the variance.

Rows stay in their batch, and every epoch is one release of a row: T epochs are T releases, without amplification.
"""

from __future__ import annotations

import math
import os

import numpy as np
import torch
from securevfl_crypto.two.online import ROW_BITS, WEIGHT_BITS, StepRule, encode_values

from securevfl.errors import InputError, RangeError
from securevfl.privacy.noise import Entropy, clip_rows, noise_share
from securevfl.shares.network_ranges import NetworkShape

__all__ = ["TwoStepNoise", "check_held_norms", "clip_held_rows", "find_sensitivity"]

_PARTIES = 1
"""Draws that have to reach σ: the other party's alone."""


def find_sensitivity(shape: NetworkShape, rule: StepRule, clip: float) -> float:
    """Δ of a sum of gradients before it is multiplied by `StepRule.rate`.

    Args:
        shape: of the model.
        rule: of a step: with its curve's largest value, and what rounding of sines and factors adds.
        clip: C.
    """
    largest = rule.factors.bound_values() + (0.0 if shape.is_numeric else 0.5)
    return 2 * largest * math.sqrt(shape.outputs) * math.hypot(clip, 1.0)


def clip_held_rows(party: str, rows: torch.Tensor, bound: float) -> torch.Tensor:
    """Clip a party's rows to L2 norm `bound`, what rounding to ten bits can add included; float64 (n, d).

    Raises:
        InputError: rounding alone can add as much as the bound.
    """
    wide = rows.detach().reshape(len(rows), -1).cpu().double()
    added = math.sqrt(wide.shape[1]) * 2.0 ** -(ROW_BITS + 1)
    if wide.shape[1] and not added < bound:
        raise InputError(
            f"rows of {party!r} are clipped to {bound:.4g}, and rounding adds up to {added:.2g}: take a larger clip"
        )
    return clip_rows(wide, bound - added)


def check_held_norms(party: str, rows: np.ndarray, bound: float) -> None:
    """Check rows in fixed point before anything is computed with them.

    Args:
        party: the owner of the rows.
        rows: int64 (n, d).
        bound: largest L2 norm.

    Raises:
        RangeError: a row is longer.
    """
    longest = math.sqrt(int(np.square(rows).sum(axis=1).max(initial=0))) * 2.0**-ROW_BITS
    if longest > bound:
        raise RangeError(
            f"{party!r} would use a row of norm {longest:.6g}, but the noise is sized for rows of norm {bound:.6g}: "
            "the stated ε would be wrong. Nothing was computed with these rows"
        )


class TwoStepNoise:
    """One party's noise.

    Args:
        sigma: noise multiplier σ.
        sensitivity: Δ, see `find_sensitivity`.
        rate: `StepRule.rate`, by which sums are multiplied before noise is added.
        entropy: source of random bytes.

    Attributes:
        draws: number of noisy steps so far.
    """

    def __init__(self, sigma: float, sensitivity: float, rate: float, entropy: Entropy = os.urandom) -> None:
        self.sigma, self.sensitivity, self._rate, self._entropy = sigma, sensitivity, rate, entropy
        self.draws = 0

    def draw_words(self, shape: tuple[int, ...]) -> np.ndarray:
        """Draw noise for a sum of gradients of one party's columns, uint64 with `WEIGHT_BITS`; see `count_step`."""
        drawn = noise_share(shape, self.sigma, self.sensitivity, _PARTIES, self._entropy)
        return encode_values(drawn.noise.numpy() * self._rate, WEIGHT_BITS)

    def count_step(self) -> None:
        """Count a step, once noise was drawn for both parties' columns."""
        self.draws += 1

"""One computing party's part of the noise on sums.

Each of the three adds a discrete Gaussian of variance σ²/2 to its own summand of every sum (Kairouz, Liu and Steinke
2021). A party knows its own draws; those of the other two add up to σ, which is what ε is stated for.
"""

from __future__ import annotations

import os

import numpy as np

from securevfl.privacy.discrete_gaussian import draw_discrete_gaussian
from securevfl.privacy.noise import Entropy
from securevfl.training.sum_plan import SumPlan

__all__ = ["PartyNoise"]


class PartyNoise:
    """One computing party's part of the noise.

    Args:
        plan: of the sums.
        entropy: source of random bytes.

    Attributes:
        sigma: noise multiplier σ / Δ that the draws of any two parties reach.
        sensitivity: Δ: how far replacing one row moves all sums of an epoch; a row adds 1 to a sum at most.
        draws: number of epochs that got noise.
    """

    def __init__(self, plan: SumPlan, entropy: Entropy = os.urandom) -> None:
        self.sigma = plan.sigma / plan.sensitivity
        self.sensitivity = plan.sensitivity / (plan.one * plan.contrast)
        self.draws = 0
        self._own = plan.own_sigma
        self._entropy = entropy

    def draw(self, shape: tuple[int, ...]) -> np.ndarray:
        """This party's part for one epoch, int64, in units of a sum."""
        self.draws += 1
        return draw_discrete_gaussian(shape, self._own, self._entropy)

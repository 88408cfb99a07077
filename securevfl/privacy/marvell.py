"""Marvell: noise at the cut that makes the gradients of two classes hard to tell apart (Li et al. 2022, "Label leakage
and protection in two-party split learning", arXiv 2102.08504, section 4).

It is *not* differential privacy. Gradients of a class are modelled as N(ḡ, v I); each class gets Gaussian noise of its
own covariance, as much as a budget of power allows and so shaped that the symmetrised Kullback–Leibler divergence
``sumKL = KL(P₁‖P₀) + KL(P₀‖P₁)`` of what is sent is least. Theorem 1: no scoring function tells the labels of one
batch apart with an AUC above ``1/2 + √sumKL/2 − sumKL/8``. The bound is for the fitted model and for one look at a row:
an attacker who averages over epochs does better, and the top model learns from exact labels.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np
import torch

from securevfl.errors import InputError
from securevfl.privacy.noise import Entropy, gaussian

__all__ = ["Covariances", "MarvellNoise", "leak_auc_bound", "least_divergence", "sum_kl"]

_ROUNDS, _GRID = 8, 41


def leak_auc_bound(divergence: float) -> float:
    """Theorem 1: the largest AUC with which anything computed from a gradient tells its label."""
    return 1.0 if divergence >= 4 else min(0.5 + math.sqrt(max(divergence, 0.0)) / 2 - divergence / 8, 1.0)


@dataclass(frozen=True, slots=True)
class Covariances:
    """Noise of both classes: variances along the distance of the class means and across it (theorem 2).

    Attributes:
        along: λ₁ of the negative and of the positive class.
        across: λ₂ of the negative and of the positive class, in each of the other d − 1 directions.
        divergence: sumKL of the perturbed gradients.
    """

    along: tuple[float, float]
    across: tuple[float, float]
    divergence: float


def sum_kl(
    gap: float,
    spread: tuple[float, float],
    along: tuple[float, float],
    across: tuple[float, float],
    width: int,
) -> float:
    """sumKL of two perturbed classes; the objective of theorem 2 is twice this plus 2 d.

    Args:
        gap: ``‖ḡ₁ − ḡ₀‖²``.
        spread: (u, v): variance of each coordinate in the negative and in the positive class, without noise.
        along: λ₁ of both.
        across: λ₂ of both.
        width: d.
    """
    a0, a1, b0, b1 = spread[0] + along[0], spread[1] + along[1], spread[0] + across[0], spread[1] + across[1]
    whole = (width - 1) * (b0 / b1 + b1 / b0) + (a0 + gap) / a1 + (a1 + gap) / a0
    return whole / 2 - width


def least_divergence(gap: float, spread: tuple[float, float], share: float, width: int, power: float) -> Covariances:
    """The covariances of least sumKL with ``p tr Σ₁ + (1 − p) tr Σ₀ ≤ P`` (theorem 2).

    Across the means only the narrower class gets noise, and none beyond the other's spread. Along them all the rest of
    the power is spent, so two numbers are left: how much goes across, and the positive class's part of the rest. They
    are found by a grid that zooms in.

    Args:
        gap: ``‖ḡ₁ − ḡ₀‖²``, positive.
        spread: (u, v), positive: variance of each coordinate in the negative and in the positive class.
        share: p, of the positive class, between 0 and 1.
        width: d.
        power: P.
    """
    u, v = spread
    weights = np.array([1 - share, share])
    narrow = int(v < u)
    most = min(power, weights[narrow] * (width - 1) * abs(u - v))

    def variances(spent: np.ndarray, part: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        rest = power - spent
        across = spent / (weights[narrow] * max(width - 1, 1))
        zero = np.zeros_like(across)
        return (
            (1 - part) * rest / weights[0],
            part * rest / weights[1],
            zero if narrow else across,
            across if narrow else zero,
        )

    def objective(spent: np.ndarray, part: np.ndarray) -> np.ndarray:
        along0, along1, across0, across1 = variances(spent, part)
        a0, a1, b0, b1 = u + along0, v + along1, u + across0, v + across1
        whole: np.ndarray = (width - 1) * (b0 / b1 + b1 / b0) + (a0 + gap) / a1 + (a1 + gap) / a0
        return whole

    low, high = np.array([0.0, 0.0]), np.array([most, 1.0])
    best = (low + high) / 2
    for _ in range(_ROUNDS):
        spent, part = np.meshgrid(*(np.linspace(a, b, _GRID) for a, b in zip(low, high, strict=True)), indexing="ij")
        at = np.unravel_index(int(np.argmin(objective(spent, part))), spent.shape)
        best = np.array([spent[at], part[at]])
        reach = 2 * (high - low) / (_GRID - 1)
        low, high = np.maximum(best - reach, 0.0), np.minimum(best + reach, [most, 1.0])
    along0, along1, across0, across1 = (float(value) for value in variances(best[0], best[1]))
    along, across = (along0, along1), (across0, across1)
    return Covariances(along, across, sum_kl(gap, spread, along, across, width))


class MarvellNoise:
    """Perturbs the gradients of batches of two classes.

    Args:
        power: s; the noise's power is s times the squared distance of the classes' mean gradients.
        entropy: source of random bytes.

    Attributes:
        batches: how many it perturbed.
        worst: the largest bound of the leak AUC of any of them.
    """

    def __init__(self, power: float, entropy: Entropy = os.urandom) -> None:
        if not 0 < power < math.inf:
            raise InputError(f"Marvell's power is {power}; it has to be a positive number")
        self.power = power
        self.batches = 0
        self.worst = 0.5
        self._entropy = entropy
        self._counts = np.ones(2)  # of both classes so far, and one more, so that neither has none
        self._means: list[torch.Tensor | None] = [None, None]
        self._spreads = [0.0, 0.0]

    def __call__(self, gradients: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The gradients (n, d) of rows with these labels, (n,) 0 or 1, with noise.

        A class that is missing from the batch is taken as it last was; if it never was, as the mirror image of the
        other.
        """
        g = gradients.detach().double()
        for kind in (0, 1):
            own = g[labels == kind]
            self._counts[kind] += len(own)
            if len(own):
                self._means[kind] = own.mean(dim=0)
                self._spreads[kind] = float(own.var(dim=0, correction=0).mean())
        negative, positive = self._means
        if negative is None and positive is None:
            return gradients
        m0 = negative if negative is not None else -positive if positive is not None else g.new_zeros(g.shape[1])
        m1 = positive if positive is not None else -m0
        gap = float((m1 - m0).square().sum())
        self.batches += 1
        if gap == 0:
            return gradients
        floor = 1e-9 * gap
        u, v = (max(spread, floor) for spread in self._spreads)
        share = float(self._counts[1] / self._counts.sum())
        found = least_divergence(gap, (u, v), share, g.shape[1], self.power * gap)
        self.worst = max(self.worst, leak_auc_bound(found.divergence))
        kinds = (labels == 1).long()
        along, across = (
            torch.tensor(pair, dtype=torch.float64, device=g.device).sqrt()[kinds, None]
            for pair in (found.along, found.across)
        )
        direction = ((m1 - m0) / math.sqrt(gap))[:, None]
        noise = gaussian(tuple(g.shape), 1.0, self._entropy).to(g.device)
        onto = (noise @ direction) * direction.T
        return (g + along * onto + across * (noise - onto)).to(gradients.dtype)

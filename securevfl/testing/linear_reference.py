"""A reference for the cut in ten lines: one matrix product for each party and SGD with momentum, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from securevfl.cut import CutSpec

__all__ = ["LinearReference"]


class LinearReference:
    """``z = Σ_p a_p W_p``, ``M ← μ M + η (aᵀg + λ W)``, ``W ← W − M``.

    Args:
        spec: of the cut.
        weights: party → initial W_p (d_p, h).
    """

    def __init__(self, spec: CutSpec, weights: Mapping[str, torch.Tensor]) -> None:
        self.spec = spec
        self.weights = {name: value.double() for name, value in weights.items()}
        self._velocity = {name: torch.zeros_like(value) for name, value in self.weights.items()}

    def forward(self, activations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """z (rows, h), or (parties, rows, h) with ``reduce="none"``."""
        parts = torch.stack([activations[name].double() @ w for name, w in self.weights.items()])
        return parts.sum(dim=0) if self.spec.reduce == "sum" else parts

    def backward(self, activations: Mapping[str, torch.Tensor], gradient: torch.Tensor) -> dict[str, torch.Tensor]:
        """Take a step; return party → ∂L/∂a_p (rows, d_p) from before it."""
        back = {}
        for i, (name, w) in enumerate(self.weights.items()):
            g = (gradient[i] if self.spec.reduce == "none" else gradient).double()
            back[name] = g @ w.T
            change = self.spec.lr * (activations[name].double().T @ g + self.spec.weight_decay * w)
            self._velocity[name] = self.spec.momentum * self._velocity[name] + change
            self.weights[name] = w - self._velocity[name]
        return back

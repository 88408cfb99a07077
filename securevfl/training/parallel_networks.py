"""Train networks of one shape at the same time, each on its own rows: a party's folds take half the time this way."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from securevfl.training.optimizers import Adam

__all__ = ["ParallelNetworks"]


class ParallelNetworks:
    """Several networks with stacked parameters and one Adam for all, which updates each number independently.

    Args:
        models: networks of one shape, on one device, with their initial weights.
        lr: Adam's learning rate.
        weight_decay: L2 penalty.
    """

    def __init__(self, models: Sequence[nn.Module], lr: float, weight_decay: float) -> None:
        stacked, _ = stack_module_state(list(models))
        self._shape = models[0]
        self._weights = {name: weight.detach().requires_grad_() for name, weight in stacked.items()}
        self._all = vmap(self._forward_one)
        self.optimizer = Adam(self._weights.values(), lr=lr, weight_decay=weight_decay, fused=True)

    def _forward_one(self, weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = functional_call(self._shape, weights, (x,))
        return out

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs (models, n, outputs) of each network on its rows, (models, n, …)."""
        out: torch.Tensor = self._all(self._weights, x)
        return out

    def evaluate_one(self, number: int, x: torch.Tensor) -> torch.Tensor:
        """Outputs (n, outputs) of one network, without gradients."""
        with torch.no_grad():
            return self._forward_one({name: weight[number] for name, weight in self._weights.items()}, x)

    def step(self, loss: torch.Tensor) -> None:
        """Take one step on the sum of the networks' losses."""
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        self.optimizer.step()

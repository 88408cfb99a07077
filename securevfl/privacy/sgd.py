"""DP-SGD (Abadi et al. 2016, arXiv 1607.00133, algorithm 1) for a model that one party trains alone.

Opacus computes the gradient of each row; each is clipped to norm C, they are added up, and Gaussian noise of standard
deviation σΔ with Δ = 2C is added, from the operating system's random bytes.

*Accounting without amplification.* Batches are shuffled partitions of the rows, not Poisson samples, and the shuffle
comes from a seed that others know, so no amplification by sampling is claimed. Replacing one row's content changes the
one batch of an epoch that the row is in: T epochs are T releases of the row (batches without it see earlier noisy
weights and nothing else of it). `RowRelease` counts the same way, with the same adjacency.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn

from securevfl.errors import InputError
from securevfl.privacy.noise import Entropy, add_noise
from securevfl.privacy.uses import GaussianUses

__all__ = ["PrivateSteps"]


class PrivateSteps(GaussianUses):
    """Computes private gradients for an optimiser and counts how often each row was used.

    Args:
        model: its parameters are released; a row's loss may depend on that row only (no batch statistics).
        rows: number of rows that exist; uses are counted per row number.
        times: planned number of uses of one row; one more is refused.
        sigma: noise multiplier over Δ = 2 · clip.
        clip: C, largest L2 norm of one row's gradient over all parameters.
        delta: δ of the accounting.
        entropy: source of random bytes.

    Raises:
        InputError: a layer mixes rows, so that there is no gradient of a single row.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        rows: int,
        times: int,
        sigma: float,
        clip: float,
        delta: float,
        entropy: Entropy = os.urandom,
    ) -> None:
        from opacus import GradSampleModule

        try:
            GradSampleModule(model, loss_reduction="sum")  # installs hooks in the model's layers
        except NotImplementedError as error:
            raise InputError(
                f"DP-SGD needs the gradient of each row, which this model does not have: {error}"
            ) from None
        self._parameters: list[Any] = [p for p in model.parameters() if p.requires_grad]  # Opacus adds `grad_sample`
        super().__init__("model", "a row would train", rows=rows, times=times, sigma=sigma, clip=clip, delta=delta)
        self._entropy = entropy

    def backward(self, losses: torch.Tensor, rows: np.ndarray, *, divide: float) -> None:
        """Set each parameter's ``grad`` to ``(Σ_i clip(g_i) + N(0, (2Cσ)²)) / divide``.

        Args:
            losses: of each row, (n,).
            rows: their numbers, (n,), each once.
            divide: the nominal batch size, because the actual one is private.

        Raises:
            PolicyError: a row would be used more often than planned; nothing was released.
            InputError: a row twice in the batch: its two gradients would move the sum twice as far.
        """
        if len(np.unique(rows)) != len(rows) or losses.shape != (len(rows),):
            raise InputError(f"a batch of {len(rows)} rows contains a row twice, or has {tuple(losses.shape)} losses")
        self.counts.add(rows)
        samples = self._row_gradients(losses)
        # One norm over all parameters: clipping layer by layer would have a larger sensitivity.
        norms = torch.stack([s.flatten(1).square().sum(dim=1) for s in samples]).sum(dim=0).sqrt()
        factors = (self.clip / norms.clamp_min(1e-12)).clamp(max=1.0)
        for parameter, sample in zip(self._parameters, samples, strict=True):
            exact = torch.tensordot(factors, sample.double(), dims=1)
            private = add_noise(exact, self.sigma, 2 * self.clip, self._entropy).value / divide
            parameter.grad = private.to(parameter.dtype)

    def _row_gradients(self, losses: torch.Tensor) -> list[torch.Tensor]:
        """Each parameter's gradient of each row, (n, …); zeros where the losses do not depend on it."""
        for parameter in self._parameters:
            parameter.grad = None
            parameter.grad_sample = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hooks of the first layer: features need no gradient
            torch.autograd.backward(losses.sum())
        found = []
        for parameter in self._parameters:
            sample = parameter.grad_sample
            parameter.grad_sample = None
            if sample is None:
                if parameter.grad is not None:
                    raise InputError(
                        f"a parameter of shape {tuple(parameter.shape)} has no per-row gradients; DP-SGD needs "
                        "layers that Opacus supports"
                    )
                sample = parameter.new_zeros((len(losses), *parameter.shape))
            if not isinstance(sample, torch.Tensor) or len(sample) != len(losses):
                raise InputError("a layer was used several times in one step; DP-SGD supports each layer once")
            found.append(sample.double())
        return found

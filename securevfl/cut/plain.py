"""The plain cut: no protection beyond the ledger. Each passive party keeps its weights and sends ``z_p = a_p W_p``.

In floats, on any device; in a simulation tensors never leave it. `exact.py` is the same in integers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np
import torch

from securevfl.cut.base import check_block, initial_weights
from securevfl.cut.handshake import announce_width, check_shape, receive_widths, require_fed
from securevfl.cut.spec import CutSpec
from securevfl.party_context import PartyContext
from securevfl.privacy import Link, Noised, NoiseShare, fan_out, map_noised, send_all, strip_noise_mark
from securevfl.transport import Array, Kind, to_device

__all__ = ["FloatActive", "FloatPassive", "split_by_party"]


def to_tensor(array: Array, device: str) -> torch.Tensor:
    """As a float32 tensor on `device`; by reference when it is one already."""
    if isinstance(array, torch.Tensor) and array.is_cpu and device == "cpu" and array.dtype is torch.float32:
        return array  # asking torch for it takes longer
    value = array if isinstance(array, torch.Tensor) else torch.from_numpy(np.array(array))
    return to_device(value, device).to(torch.float32)


def split_by_party(
    gradient: torch.Tensor | Noised[torch.Tensor], passive: Sequence[str]
) -> dict[str, torch.Tensor | Noised[torch.Tensor]]:
    """Passive party → its part of ∂L/∂z (parties, rows, h)."""
    return {name: map_noised(gradient, operator.itemgetter(i)) for i, name in enumerate(passive)}


class FloatActive:
    """The active party's side, in floats."""

    protection = "plain"
    step_error = 0.0

    def __init__(self, site: PartyContext, spec: CutSpec) -> None:
        self._site = site
        self._spec = spec
        self._links = site.passive_links
        self.widths: dict[str, int] = {}

    async def setup(self) -> None:
        """See `ActiveCut.setup`."""
        widths = await receive_widths(self._site, self._spec, self.protection)
        self.widths = {name: width for name, (width, _) in widths.items()}

    async def forward(self, rows: int, *, train: bool) -> torch.Tensor:
        """See `ActiveCut.forward`."""
        shape = (rows, self._spec.width)
        parts = []
        for link in self._links:
            message = await link.receive(Kind.ACTIVATION, "cut/forward", "z")
            parts.append(to_tensor(check_shape(link.peer, message.arrays["z"], shape), self._spec.device))
        if self._spec.reduce == "none":
            return torch.stack(parts) if parts else torch.zeros((0, *shape), device=self._spec.device)
        if not parts:
            return torch.zeros(shape, device=self._spec.device)
        first, *others = parts
        return sum(others, first.detach())  # its own tensor: the caller may ask for its gradient

    async def backward(self, gradient: torch.Tensor | Noised[torch.Tensor]) -> None:
        """See `ActiveCut.backward`."""
        if self._spec.reduce == "none":
            parts = split_by_party(gradient, self._site.passive)

            async def send_gradient(link: Link) -> None:
                await link.send(Kind.GRADIENT, "cut/backward", gradient=parts[link.peer])

            await fan_out(self._links, send_gradient)
        else:
            await send_all(self._links, Kind.GRADIENT, "cut/backward", gradient=gradient)

    def snapshot(self) -> object:
        """See `ActiveCut.snapshot`."""
        return None

    def restore(self, state: object) -> None:
        """See `ActiveCut.restore`."""
        pass


class FloatPassive:
    """A passive party's side, in floats."""

    protection = "plain"

    def __init__(self, site: PartyContext, spec: CutSpec) -> None:
        self._site = site
        self._link = site.links[site.active]
        self._spec = spec
        self._trainable = False
        self._weights = torch.empty(0)
        self._rounds = spec.optimiser_rule.rounds
        self._velocity: torch.Tensor | None = None
        self._fed: torch.Tensor | None = None

    async def setup(self, width: int, *, trainable: bool) -> None:
        """See `PassiveCut.setup`."""
        self._trainable = trainable
        await announce_width(self._site, self._spec, self.protection, width, trainable)
        first = initial_weights(self._site, width, self._spec.width, self._spec.weight_bound)
        self._weights = torch.from_numpy(first).to(self._spec.device, torch.float32)

    async def forward(
        self, activations: torch.Tensor | Noised[torch.Tensor], *, train: bool, noise: NoiseShare | None = None
    ) -> None:
        """See `PassiveCut.forward`."""
        self._fed = strip_noise_mark(activations) if train else None
        z = map_noised(activations, lambda a: a @ self._weights)
        if noise is not None:
            part = strip_noise_mark(z)  # rounded as a sum, so that its low bits tell of no part
            z = noise.add_to(lambda drawn: (part.double() + drawn.to(part.device)).to(part.dtype))
        await self._link.send(Kind.ACTIVATION, "cut/forward", z=z)

    async def backward(self) -> torch.Tensor | None:
        """See `PassiveCut.backward`."""
        message = await self._link.receive(Kind.GRADIENT, "cut/backward", "gradient")
        fed, self._fed = require_fed(self._fed), None
        gradient = check_shape(self._link.peer, message.arrays["gradient"], (fed.shape[0], self._spec.width))
        g = to_tensor(gradient, self._spec.device)
        back = g @ self._weights.T if self._trainable else None
        if self._rounds:
            self._velocity = self._momentum_step(fed.T @ g)
            self._weights = self._weights - self._velocity
        else:
            self._weights = torch.addmm(self._weights, fed.T, g, alpha=-self._spec.lr)
        if self._spec.weight_bound < math.inf:
            check_block(self._weights.double().cpu().numpy(), self._spec.weight_bound, self._site.active)
        return back

    def _momentum_step(self, gradient: torch.Tensor) -> torch.Tensor:
        """``M ← μ M + η (g + λ W)``."""
        spec = self._spec
        change = spec.lr * (gradient + spec.weight_decay * self._weights)
        return change if self._velocity is None else change + spec.momentum * self._velocity

    def opened_weights(self, other: np.ndarray | None) -> np.ndarray:
        """See `OpensWeights.opened_weights`."""
        found: np.ndarray = self._weights.double().cpu().numpy()
        return found

    def snapshot(self) -> object:
        """See `PassiveCut.snapshot`."""
        return self._weights, self._velocity

    def restore(self, state: object) -> None:
        """See `PassiveCut.restore`."""
        if not isinstance(state, tuple | list) or len(state) != 2 or not isinstance(state[0], torch.Tensor):
            raise TypeError(f"a {type(state).__name__} is no snapshot of this block")
        weights, velocity = state
        self._weights = weights.to(self._spec.device)
        self._velocity = None if velocity is None else velocity.to(self._spec.device)

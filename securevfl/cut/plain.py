"""The plain cut: no protection beyond the ledger. Each passive party keeps its weights and sends ``z_p = a_p W_p``.

In floats, on any device; in a simulation tensors never leave it. `exact.py` is the same in integers.
"""

from __future__ import annotations

import numpy as np
import torch

from securevfl.cut.base import CutSpec, initial_share
from securevfl.cut.handshake import announce, checked, once, receive_widths
from securevfl.site import Site
from securevfl.transport import Array, Guard, Kind

__all__ = ["FloatActive", "FloatPassive"]


def tensor(array: Array, device: str) -> torch.Tensor:
    """As a float32 tensor on `device`; by reference when it is one already."""
    value = array if isinstance(array, torch.Tensor) else torch.from_numpy(np.array(array))
    return value.to(device, torch.float32)


class FloatActive:
    """The active party's side, in floats."""

    protection = "plain"

    def __init__(self, site: Site, spec: CutSpec, noise: float = 0.0) -> None:
        self._site = site
        self._spec = spec
        self._guard = Guard(noise=noise)
        self._rows = 0
        self.widths: dict[str, int] = {}

    async def setup(self) -> None:
        widths = await receive_widths(self._site, self._spec, self.protection)
        self.widths = {name: width for name, (width, _) in widths.items()}
        for name, (width, _) in widths.items():
            share = initial_share(self._site.private_seed, name, width, self._spec.width)
            await self._site.links[name].send(Kind.MASKED_SHARE, "cut/initial weights", share=share)

    async def forward(self, rows: int, *, train: bool) -> torch.Tensor:
        self._rows = rows
        shape = (rows, self._spec.width)
        parts = []
        for name in self._site.passive:
            message = await self._site.links[name].receive(Kind.ACTIVATION, "cut/forward", "z")
            parts.append(tensor(checked(name, message.arrays["z"], shape), self._spec.device))
        if self._spec.reduce == "none":
            return torch.stack(parts) if parts else torch.zeros((0, *shape), device=self._spec.device)
        if not parts:
            return torch.zeros(shape, device=self._spec.device)
        first, *others = parts
        return sum(others, first.detach())  # its own tensor: the caller may ask for its gradient

    async def backward(self, gradient: torch.Tensor) -> None:
        for i, name in enumerate(self._site.passive):
            part = gradient[i] if self._spec.reduce == "none" else gradient
            await self._site.links[name].send(Kind.GRADIENT, "cut/backward", guard=self._guard, gradient=part)

    def snapshot(self) -> object:
        return None

    def restore(self, state: object) -> None:
        pass


class FloatPassive:
    """A passive party's side, in floats."""

    protection = "plain"

    def __init__(self, site: Site, spec: CutSpec, noise: float = 0.0) -> None:
        self._site = site
        self._link = site.links[site.active]
        self._spec = spec
        self._guard = Guard(noise=noise)
        self._trainable = False
        self._weights = torch.empty(0)
        self._rounds = spec.rule.rounds
        self._velocity: torch.Tensor | None = None
        self._fed: torch.Tensor | None = None

    async def setup(self, width: int, *, trainable: bool) -> None:
        self._trainable = trainable
        await announce(self._site, self._spec, self.protection, width, trainable)
        message = await self._link.receive(Kind.MASKED_SHARE, "cut/initial weights", "share")
        theirs = checked(self._link.peer, message.arrays["share"], (width, self._spec.width))
        mine = initial_share(self._site.private_seed, self._site.name, width, self._spec.width)
        self._weights = torch.from_numpy(mine + np.asarray(theirs)).to(self._spec.device, torch.float32)

    async def forward(self, activations: torch.Tensor, *, train: bool, noise: torch.Tensor | None = None) -> None:
        self._fed = activations if train else None
        z = activations @ self._weights
        if noise is not None:
            z = (z.double() + noise.to(z.device)).to(z.dtype)  # rounded as a sum, so that its low bits tell of no part
        await self._link.send(Kind.ACTIVATION, "cut/forward", guard=self._guard, z=z)

    async def backward(self) -> torch.Tensor | None:
        message = await self._link.receive(Kind.GRADIENT, "cut/backward", "gradient")
        fed, self._fed = once(self._fed), None
        gradient = checked(self._link.peer, message.arrays["gradient"], (fed.shape[0], self._spec.width))
        g = tensor(gradient, self._spec.device)
        back = g @ self._weights.T if self._trainable else None
        if self._rounds:
            self._velocity = self._stepped(fed.T @ g)
            self._weights = self._weights - self._velocity
        else:
            self._weights = torch.addmm(self._weights, fed.T, g, alpha=-self._spec.lr)
        return back

    def _stepped(self, gradient: torch.Tensor) -> torch.Tensor:
        """``M ← μ M + η (g + λ W)``."""
        spec = self._spec
        change = spec.lr * (gradient + spec.weight_decay * self._weights)
        return change if self._velocity is None else change + spec.momentum * self._velocity

    def snapshot(self) -> object:
        return self._weights, self._velocity

    def restore(self, state: object) -> None:
        if not isinstance(state, tuple | list) or len(state) != 2 or not isinstance(state[0], torch.Tensor):
            raise TypeError(f"a {type(state).__name__} is no snapshot of this block")
        self._weights, self._velocity = state

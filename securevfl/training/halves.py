"""The two halves of a split network, on either side of the cut: what all algorithms at the cut layer are made of.

A half holds networks, their optimiser and its side of the cut; it neither chooses rows nor knows labels.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from securevfl.algorithms.networks import Bottom, block, build_bottom, mlp
from securevfl.cut import CutSpec, Protection
from securevfl.site import Site

__all__ = ["ActiveHalf", "Architecture", "PassiveHalf", "State"]

State = dict[str, object]
"""What a half has learned and what its optimiser remembers; a tree of dicts, lists, numbers, texts and tensors."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Shapes and learning rates of a split network.

    Attributes:
        hidden: width h of the cut.
        top: widths of the top model's hidden layers; None for no top model at all: z are the logits.
        bottom: each party's bottom.
        lr: Adam's learning rate, for bottoms, top and the active party's own block.
        weight_decay: L2 penalty of Adam's parameters.
    """

    hidden: int
    top: Sequence[int] | None
    bottom: Bottom
    lr: float
    weight_decay: float = 0.0


class ActiveHalf:
    """The active party's half: its bottom and own block of the cut, and the top model.

    Args:
        shape: of the active party's features.
        outputs: width of the logits.
    """

    def __init__(
        self,
        architecture: Architecture,
        site: Site,
        spec: CutSpec,
        protection: Protection,
        noise: float,
        shape: Sequence[int],
        outputs: int,
    ) -> None:
        self.cut = protection.active_cut(site, spec, noise)
        self.bottom, self.own_width = build_bottom(architecture.bottom, shape)
        self.own = block(self.own_width, architecture.hidden)
        self.top = self.build_top(architecture, len(site.passive), outputs)
        self.model = nn.ModuleList([self.bottom, self.own, self.top]).to(spec.device)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=architecture.lr, weight_decay=architecture.weight_decay
        )
        self._remote: torch.Tensor | None = None

    def build_top(self, architecture: Architecture, passive: int, outputs: int) -> nn.Module:
        """The network above the cut."""
        if architecture.top is None:
            return nn.Identity()
        return mlp([architecture.hidden, *architecture.top, outputs])

    async def setup(self) -> None:
        await self.cut.setup()

    def join(self, remote: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Logits from the passive parties' part of z and the active party's own."""
        z = remote + own
        out: torch.Tensor = self.top(z if isinstance(self.top, nn.Identity) else torch.relu(z))
        return out

    async def forward(self, activations: torch.Tensor, *, train: bool) -> torch.Tensor:
        """Logits (n, outputs) of rows whose activations at the active party are these, (n, d)."""
        remote = await self.cut.forward(activations.shape[0], train=train)
        if not train:
            with torch.no_grad():
                return self.join(remote, self.own(activations))
        self._remote = remote.requires_grad_()
        return self.join(self._remote, self.own(activations))

    async def backward(self, outputs: torch.Tensor, gradient: torch.Tensor | None = None) -> None:
        """Step the whole network on the derivative of `outputs` (a loss, or logits with their `gradient`)."""
        remote, self._remote = self._remote, None
        if remote is None:
            raise ValueError("backward without a training forward before it")
        forget_gradients(self.optimizer)
        torch.autograd.backward(outputs, gradient)
        if remote.grad is not None:
            await self.cut.backward(remote.grad)
        elif remote.numel():
            raise ValueError("the top model does not depend on z")
        self.optimizer.step()

    def snapshot(self) -> object:
        return copy.deepcopy(self.model.state_dict()), self.cut.snapshot()

    def restore(self, state: object) -> None:
        weights, cut = as_pair(state)
        self.model.load_state_dict(weights)
        self.cut.restore(cut)

    def state(self) -> State:
        """All of it, to go on later as if nothing had happened."""
        weights, cut = as_pair(self.snapshot())
        return {"weights": weights, "cut": cut, "optimizer": copy.deepcopy(self.optimizer.state_dict())}

    def load(self, state: Mapping[str, object]) -> None:
        """Go on from `state`."""
        self.restore((state["weights"], state["cut"]))
        self.optimizer.load_state_dict(as_dict(state["optimizer"]))


class PassiveHalf:
    """A passive party's half: its bottom, below the cut.

    Args:
        shape: of the party's features.
    """

    def __init__(
        self,
        architecture: Architecture,
        site: Site,
        spec: CutSpec,
        protection: Protection,
        noise: float,
        shape: Sequence[int],
    ) -> None:
        self.cut = protection.passive_cut(site, spec, noise)
        self.bottom, self.width = build_bottom(architecture.bottom, shape)
        self.bottom.to(spec.device)
        parameters = list(self.bottom.parameters())
        self.trainable = bool(parameters)
        self.optimizer = (
            torch.optim.Adam(parameters, lr=architecture.lr, weight_decay=architecture.weight_decay)
            if parameters
            else None
        )

    async def setup(self) -> None:
        await self.cut.setup(self.width, trainable=self.trainable)

    async def forward(self, activations: torch.Tensor, *, train: bool) -> None:
        await self.cut.forward(activations.detach(), train=train)

    async def backward(self, activations: torch.Tensor) -> None:
        """Step the cut's block and the bottom that `activations` came from."""
        gradient = await self.cut.backward()
        if self.optimizer is not None and gradient is not None and activations.requires_grad:
            forget_gradients(self.optimizer)
            torch.autograd.backward(activations, gradient)
            self.optimizer.step()

    def snapshot(self) -> object:
        return copy.deepcopy(self.bottom.state_dict()), self.cut.snapshot()

    def restore(self, state: object) -> None:
        weights, cut = as_pair(state)
        self.bottom.load_state_dict(weights)
        self.cut.restore(cut)

    def state(self) -> State:
        """All of it, to go on later as if nothing had happened."""
        weights, cut = as_pair(self.snapshot())
        optimizer = None if self.optimizer is None else copy.deepcopy(self.optimizer.state_dict())
        return {"weights": weights, "cut": cut, "optimizer": optimizer}

    def load(self, state: Mapping[str, object]) -> None:
        """Go on from `state`."""
        self.restore((state["weights"], state["cut"]))
        if self.optimizer is not None:
            self.optimizer.load_state_dict(as_dict(state["optimizer"]))


def forget_gradients(optimizer: torch.optim.Optimizer) -> None:
    """What `zero_grad(set_to_none=True)` does, without its bookkeeping: of each step's Python, it was the most."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def as_pair(state: object) -> tuple[dict[str, torch.Tensor], object]:
    """A snapshot that a half made of its networks' weights and of its side of the cut.

    Raises:
        TypeError: something else.
    """
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise TypeError("not a snapshot of this half")
    return state[0], state[1]


def as_dict(state: object) -> dict[str, object]:
    """A dict.

    Raises:
        TypeError: something else.
    """
    if not isinstance(state, dict):
        raise TypeError("not a state of this half")
    return state


def as_tensor(state: object) -> torch.Tensor:
    """A tensor.

    Raises:
        TypeError: something else.
    """
    if not isinstance(state, torch.Tensor):
        raise TypeError("not a state of this role")
    return state


def as_list(state: object) -> list[list[Any]]:
    """A list.

    Raises:
        TypeError: something else.
    """
    if not isinstance(state, list):
        raise TypeError("not a state of this role")
    return state

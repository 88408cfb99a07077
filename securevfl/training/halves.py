"""The two halves of a split network, one on each side of the cut layer.

A half has networks, their optimiser and its side of the cut. It does not choose rows and does not know labels.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from securevfl.cut import ActiveCut, CutSpec, Protection
from securevfl.party_context import PartyContext
from securevfl.privacy import Noised, strip_noise_mark
from securevfl.privacy.noise import NoiseShare
from securevfl.training.bottoms import Architecture, Frozen
from securevfl.training.frozen import frozen_bottom
from securevfl.training.networks import build_active_block, build_bottom, build_mlp
from securevfl.training.optimizers import Adam, backpropagate, forget_gradients
from securevfl.training.state import State, as_dict, as_pair

__all__ = ["ActiveHalf", "Networks", "PassiveHalf"]


class ActiveHalf:
    """The active party's half: its bottom and own block of the cut, and the top model.

    Args:
        architecture: shapes and rates.
        cut: this party's side of the cut.
        spec: of the cut.
        passive: how many passive parties there are.
        shape: of a row of the active party's features.
        outputs: width of the logits.
    """

    def __init__(
        self,
        architecture: Architecture,
        cut: ActiveCut,
        spec: CutSpec,
        passive: int,
        shape: Sequence[int],
        outputs: int,
    ) -> None:
        self.cut = cut
        self.bottom, self.own_width = self.build_bottom(architecture, shape)
        self.own = build_active_block(self.own_width, architecture.hidden)
        self.top = self.build_top(architecture, passive, outputs)
        self.model = nn.ModuleList([self.bottom, self.own, self.top]).to(spec.device)
        self.optimizer = Adam(self.model.parameters(), lr=architecture.lr, weight_decay=architecture.weight_decay)
        self._remote: torch.Tensor | None = None

    def build_bottom(self, architecture: Architecture, shape: Sequence[int]) -> tuple[nn.Module, int]:
        """This party's bottom for features of `shape`, and the width of its activations."""
        return build_bottom(architecture.bottom, shape)

    def build_top(self, architecture: Architecture, passive: int, outputs: int) -> nn.Module:
        """The network above the cut."""
        if architecture.top is None:
            return nn.Identity()
        return build_mlp([architecture.hidden, *architecture.top, outputs])

    async def setup(self) -> None:
        """See `Part.setup`."""
        await self.cut.setup()

    def join_parts(self, remote: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Logits from the passive parties' part of z and the active party's own."""
        z = remote + own
        out: torch.Tensor = self.top(z if isinstance(self.top, nn.Identity) else torch.relu(z))
        return out

    def forward_alone(self, activations: torch.Tensor) -> torch.Tensor:
        """Logits (n, outputs) with zeros for the passive parties' part of z, without any message."""
        with torch.no_grad():
            own = self.own(activations)
            return self.join_parts(torch.zeros_like(own), own)

    async def forward(self, activations: torch.Tensor, *, train: bool) -> torch.Tensor:
        """Logits (n, outputs) of rows whose activations at the active party are these, (n, d)."""
        remote = await self.cut.forward(activations.shape[0], train=train)
        if not train:
            with torch.no_grad():
                return self.join_parts(remote, self.own(activations))
        self._remote = remote.requires_grad_()
        return self.join_parts(self._remote, self.own(activations))

    async def backward(self, outputs: torch.Tensor, gradient: Noised[torch.Tensor] | None = None) -> None:
        """Step the whole network on the derivative of `outputs`: a loss, or logits with their noised `gradient`.

        Raises:
            ValueError: no training forward before it, or a top model that does not depend on z.
        """
        remote, self._remote = self._remote, None
        if remote is None:
            raise ValueError("backward without a training forward before it")
        forget_gradients(self.optimizer)

        def at_the_cut(above: torch.Tensor | None) -> torch.Tensor:
            backpropagate(outputs, above)
            if remote.grad is None and remote.numel():
                raise ValueError("the top model does not depend on z")
            return remote if remote.grad is None else remote.grad

        below = at_the_cut(None) if gradient is None else gradient.map(at_the_cut)
        if remote.grad is not None and remote.numel():  # a batch without exchanged rows sends nothing back
            await self.cut.backward(below)
        self.optimizer.step()

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        return copy.deepcopy(self.model.state_dict()), self.cut.snapshot()

    def restore(self, state: object) -> None:
        """See `Part.restore`."""
        weights, cut = as_pair(state)
        self.model.load_state_dict(weights)
        self.cut.restore(cut)

    def get_state(self) -> State:
        """All that training needs to resume exactly."""
        weights, cut = as_pair(self.snapshot())
        return {"weights": weights, "cut": cut, "optimizer": copy.deepcopy(self.optimizer.state_dict())}

    def load_state(self, state: Mapping[str, object]) -> None:
        """Resume from `state`."""
        self.restore((state["weights"], state["cut"]))
        self.optimizer.load_state_dict(as_dict(state["optimizer"]))


class PassiveHalf:
    """A passive party's half: its bottom, below the cut.

    Args:
        architecture: shapes and rates.
        site: the party's context.
        spec: of the cut.
        protection: of what crosses it.
        shape: of a row of the party's features.
        own_rows: features of all of its rows that may train, (n, …), for a frozen bottom that is learned from them;
            otherwise None.
    """

    def __init__(
        self,
        architecture: Architecture,
        site: PartyContext,
        spec: CutSpec,
        protection: Protection,
        shape: Sequence[int],
        own_rows: torch.Tensor | None = None,
    ) -> None:
        self.cut = protection.passive_cut(site, spec)
        self.cut_width = spec.width
        self.site = site
        self.own_rows = own_rows
        self.bottom, self.width = self.build_bottom(architecture, shape)
        self.bottom.to(spec.device)
        parameters = list(self.bottom.parameters())
        self.trainable = bool(parameters)
        if site.observer.listening and not isinstance(architecture.bottom, Frozen):
            site.observer.network_built(site.name, site.active, self.bottom)
        self.optimizer = (
            Adam(parameters, lr=architecture.lr, weight_decay=architecture.weight_decay) if parameters else None
        )

    def build_bottom(self, architecture: Architecture, shape: Sequence[int]) -> tuple[nn.Module, int]:
        """This party's bottom for features of `shape`, and the width of its activations."""
        if isinstance(architecture.bottom, Frozen):
            if math.prod(shape) == 0:
                return nn.Identity(), 0
            return frozen_bottom(architecture.bottom, self.site.secret, shape, self.own_rows), architecture.bottom.width
        return build_bottom(architecture.bottom, shape)

    async def setup(self) -> None:
        """See `Part.setup`."""
        await self.cut.setup(self.width, trainable=self.trainable)

    async def forward(
        self, activations: torch.Tensor | Noised[torch.Tensor], *, train: bool, noise: NoiseShare | None = None
    ) -> None:
        """Feed the cut with activations (n, d), and with this party's share of the noise on z where there is one."""
        cut_off = activations.map(torch.Tensor.detach) if isinstance(activations, Noised) else activations.detach()
        await self.cut.forward(cut_off, train=train, noise=noise)

    async def backward(self, activations: torch.Tensor | Noised[torch.Tensor]) -> None:
        """Step the cut's block and the bottom that `activations` came from."""
        gradient = await self.cut.backward()
        if gradient is not None and self.site.observer.listening:
            self.site.observer.values_opened(self.site.name, self.site.active, "gradient", gradient, train=True)
        a = strip_noise_mark(activations)
        if self.optimizer is not None and gradient is not None and a.requires_grad:
            forget_gradients(self.optimizer)
            backpropagate(a, gradient)
            self.optimizer.step()

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        return copy.deepcopy(self.bottom.state_dict()), self.cut.snapshot()

    def restore(self, state: object) -> None:
        """See `Part.restore`."""
        weights, cut = as_pair(state)
        self.bottom.load_state_dict(weights)
        self.cut.restore(cut)

    def get_state(self) -> State:
        """All that training needs to resume exactly."""
        weights, cut = as_pair(self.snapshot())
        optimizer = None if self.optimizer is None else copy.deepcopy(self.optimizer.state_dict())
        return {"weights": weights, "cut": cut, "optimizer": optimizer}

    def load_state(self, state: Mapping[str, object]) -> None:
        """Resume from `state`."""
        self.restore((state["weights"], state["cut"]))
        if self.optimizer is not None:
            self.optimizer.load_state_dict(as_dict(state["optimizer"]))


class Networks:
    """Networks and their optimiser without a cut, for a role that sends their outputs itself.

    Args:
        model: the networks.
        lr: Adam's learning rate.
        weight_decay: L2 penalty.
        device: where they live.
    """

    def __init__(self, model: nn.Module, lr: float, weight_decay: float, device: str) -> None:
        self.model = model.to(device)
        self.optimizer = Adam(self.model.parameters(), lr=lr, weight_decay=weight_decay)

    async def setup(self) -> None:
        """Nothing to exchange."""

    def step(self, outputs: torch.Tensor, gradient: torch.Tensor | None = None) -> None:
        """One step on the derivative of `outputs`, which is a loss unless a `gradient` comes with it."""
        self.optimizer.zero_grad(set_to_none=True)
        backpropagate(outputs, gradient)
        self.optimizer.step()

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        return copy.deepcopy(self.model.state_dict())

    def restore(self, state: object) -> None:
        """See `Part.restore`."""
        self.model.load_state_dict(as_dict(state))

    def get_state(self) -> State:
        """See `Part.get_state`."""
        return {"weights": self.snapshot(), "optimizer": copy.deepcopy(self.optimizer.state_dict())}

    def load_state(self, state: Mapping[str, object]) -> None:
        """See `Part.load_state`."""
        self.restore(state["weights"])
        self.optimizer.load_state_dict(as_dict(state["optimizer"]))

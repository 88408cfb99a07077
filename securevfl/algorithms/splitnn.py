"""SplitNN: vertical federated learning on the aligned rows (Ceballos et al. 2020, arXiv 2008.04137).

Every party has a bottom model from its features to its activations; the cut layer joins them,
``z = Σ_p a_p W_p + b``; the active party's top model turns z into logits. With ``bottom=()`` the bottoms are the
identity, the cut is the model's first layer, and a passive party receives no gradient of its own at all.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from securevfl.algorithms.base import ActiveRole, PassiveRole, Plan, Table, as_pair, cut_spec, mlp, seeded
from securevfl.algorithms.leakage import Finding, at_the_cut
from securevfl.cut import Protection
from securevfl.errors import InputError
from securevfl.party import Site

__all__ = ["SplitNN"]


@dataclass(frozen=True, kw_only=True)
class SplitNN:
    """Configuration of SplitNN.

    Attributes:
        hidden: width h of the cut, the first hidden layer that all parties share.
        top: widths of the top model's hidden layers.
        bottom: widths of each party's bottom model, the last one being its activations; ``()`` for the identity.
        lr: Adam's learning rate, for bottoms, top and the active party's own block of the cut.
        cut_lr: SGD's learning rate η, for the passive parties' blocks of the cut.
        weight_decay: L2 penalty of Adam's parameters.
    """

    name: ClassVar[str] = "splitnn"
    hidden: int = 16
    top: tuple[int, ...] = (16,)
    bottom: tuple[int, ...] = ()
    lr: float = 0.01
    cut_lr: float = 0.5
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for name in ("top", "bottom"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        widths = {"hidden": [self.hidden], "top": self.top, "bottom": self.bottom}
        for name, values in widths.items():
            for value in values:
                if not isinstance(value, int) or not 1 <= value <= 1 << 16:
                    raise InputError(
                        f"splitnn.{name} has a width of {value!r}; widths are whole numbers from 1 to {1 << 16}"
                    )
        for name in ("lr", "cut_lr"):
            if not 0 < getattr(self, name) <= 100:
                raise InputError(f"splitnn.{name} is {getattr(self, name)}; a learning rate lies between 0 and 100")
        if not 0 <= self.weight_decay < 1:
            raise InputError(f"splitnn.weight_decay is {self.weight_decay}; it lies between 0 and 1")

    @property
    def title(self) -> str:
        return "SplitNN"

    def active(self, site: Site, plan: Plan, protection: Protection, table: Table) -> Active:
        """The active party's program."""
        return Active(self, site, plan, protection, table)

    def passive(self, site: Site, plan: Plan, protection: Protection, table: Table) -> Passive:
        """A passive party's program."""
        return Passive(self, site, plan, protection, table)

    def findings(self, protection: Protection, passive: Sequence[str], active: str) -> list[Finding]:
        """Who learns what from the messages of this algorithm under `protection`."""
        return at_the_cut(protection, active=active, passive=passive, trainable=bool(self.bottom))

    def notes(self, protection: Protection) -> list[str]:
        """What a reader of the figures has to know."""
        dp = protection.dp
        if dp is None or not dp.activations or not self.bottom:
            return []
        return [
            "ε of activations covers a row's own releases, not what the bottoms' weights carry of it into other "
            "rows' activations"
        ]

    def releases(self, plan: Plan) -> int:
        """How often one row's activations are released: noise on fixed features is drawn once, see `RowRelease`."""
        return plan.epochs if self.bottom else 1

    def build_bottom(self, inputs: int) -> tuple[nn.Module, int]:
        """A party's bottom model and its width. It ends with ReLU6: the sealed cut needs bounded activations."""
        if not self.bottom:
            return nn.Identity(), inputs
        return mlp([inputs, *self.bottom], last=nn.ReLU6()), self.bottom[-1]


class Active(ActiveRole):
    """Owns the labels, its own bottom and block of the cut, and the top model."""

    def __init__(self, config: SplitNN, site: Site, plan: Plan, protection: Protection, table: Table) -> None:
        super().__init__(site, plan, protection, table)
        dp = protection.dp
        noise = 0.0
        if dp is not None and dp.gradients and site.passive:
            self.release = self.row_release(
                "gradients",
                dp,
                clip=dp.clip_gradients,
                times=plan.epochs,
                sensitivity=self.task.label_sensitivity,
            )
            noise = self.release.sigma
        spec = cut_spec(config.hidden, config.cut_lr, plan, dp, config.releases(plan))
        self.cut = protection.active_cut(site, spec, noise)
        with seeded(self.seed("model")):
            self.bottom, width = config.build_bottom(self.x.shape[1])
            self.own = nn.Linear(width, config.hidden)
            self.top = mlp([config.hidden, *config.top, self.task.outputs])
        self.model = nn.ModuleList([self.bottom, self.own, self.top]).to(plan.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay)

    async def setup(self) -> None:
        await self.cut.setup()

    def logits(self, remote: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Logits from the passive parties' part of z and the active party's own rows."""
        z = remote + self.own(self.bottom(self.x[rows]))
        out: torch.Tensor = self.top(torch.relu(z))
        return out

    async def train_batch(self, rows: np.ndarray) -> float:
        index = torch.from_numpy(rows)
        remote = (await self.cut.forward(len(rows), train=True)).requires_grad_()
        logits = self.logits(remote, index)
        losses = self.task.losses(logits, self.y[index])
        self.optimizer.zero_grad(set_to_none=True)
        if self.release is None:
            torch.autograd.backward(losses.sum() / self.plan.batch_size)
        else:
            # Labels enter here and nowhere else: everything below learns from the noised gradient at the logits.
            (exact,) = torch.autograd.grad(losses.sum(), logits)
            torch.autograd.backward(logits, self.release(exact, rows) / self.plan.batch_size)
        if remote.grad is None:
            raise ValueError("the top model does not depend on z")
        await self.cut.backward(remote.grad)
        self.optimizer.step()
        return float(losses.detach().sum())

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        remote = await self.cut.forward(len(rows), train=False)
        with torch.no_grad():
            return self.logits(remote, torch.from_numpy(rows))

    def snapshot(self) -> object:
        return copy.deepcopy(self.model.state_dict()), self.cut.snapshot()

    def restore(self, state: object) -> None:
        weights, cut = as_pair(state)
        self.model.load_state_dict(weights)
        self.cut.restore(cut)


class Passive(PassiveRole):
    """Owns features and a bottom model; its block of the cut is its own (plain) or shared with the active party
    (sealed)."""

    def __init__(self, config: SplitNN, site: Site, plan: Plan, protection: Protection, table: Table) -> None:
        super().__init__(site, plan, protection, table)
        dp = protection.dp
        times = config.releases(plan)
        noise = 0.0
        if dp is not None and dp.activations:
            self.release = self.row_release(
                "activations", dp, clip=dp.clip_activations, times=times, once=not config.bottom
            )
            noise = self.release.sigma
        self.cut = protection.passive_cut(site, cut_spec(config.hidden, config.cut_lr, plan, dp, times), noise)
        with seeded(self.seed("model")):
            self.bottom, self.width = config.build_bottom(self.x.shape[1])
        self.bottom.to(plan.device)
        parameters = list(self.bottom.parameters())
        self.trainable = bool(parameters)
        self.optimizer = (
            torch.optim.Adam(parameters, lr=config.lr, weight_decay=config.weight_decay) if parameters else None
        )

    async def setup(self) -> None:
        await self.cut.setup(self.width, trainable=self.trainable)

    def activations(self, rows: np.ndarray) -> torch.Tensor:
        """a_p of these rows, clipped and noised where the job says so."""
        a: torch.Tensor = self.bottom(self.x[torch.from_numpy(rows)])
        return a if self.release is None else self.release(a, rows)

    async def train_batch(self, rows: np.ndarray) -> None:
        a = self.activations(rows)
        await self.cut.forward(a.detach(), train=True)
        gradient = await self.cut.backward()
        if self.optimizer is not None and gradient is not None:
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(a, gradient)
            self.optimizer.step()

    async def answer(self, rows: np.ndarray) -> None:
        with torch.no_grad():
            a = self.activations(rows)
        await self.cut.forward(a, train=False)

    def snapshot(self) -> object:
        return copy.deepcopy(self.bottom.state_dict()), self.cut.snapshot()

    def restore(self, state: object) -> None:
        weights, cut = as_pair(state)
        self.bottom.load_state_dict(weights)
        self.cut.restore(cut)

"""FedDA: federated data augmentation by generative networks (WCMC 2022, article 6596925).

Each of two parties trains a generator of the other's representations: real pairs ``[u_o^A; u_o^B]`` are those of
aligned rows, fake ones ``[u_n^A; G(u_n^A)]`` those of its own other rows (equations 5 to 9, WGAN-GP). The parts that it
generates complete its rows, and the training set grows to ``{(A, B̃), (A, B), (Ã, B)}``.

How the representations come to be, and how the model goes on, the paper leaves open. Here a split network is trained
first (stage 1, with the active party's other rows beside zeros), its activations are the representations, and it
goes on training with the completed rows (stage 2). The paper takes labels of the passive party's other rows for
granted; here the network labels those it is sure of. Generated parts are handed to the party whose place they take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from securevfl.algorithms.base import ActiveRole, PassiveRole, Plan, Table, Trained, seeded
from securevfl.algorithms.fedcvt import received
from securevfl.algorithms.halves import State, as_dict
from securevfl.algorithms.leakage import Finding
from securevfl.algorithms.networks import mlp
from securevfl.algorithms.risa import checked_rows
from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.cut import Protection
from securevfl.errors import InputError, ProtocolError
from securevfl.privacy import RowRelease
from securevfl.site import Site, derive_seed
from securevfl.transport import Guard, Kind

__all__ = ["FedDA", "gradient_penalty", "train_generator"]


@dataclass(frozen=True, kw_only=True)
class FedDA(SplitNN):
    """Configuration of FedDA; the bottoms need parameters.

    Attributes:
        first: epochs of stage 1.
        generator_steps: steps of each generator; its critic takes five times as many.
        generator_lr: Adam's learning rate α of both (the paper: 1e-4).
        penalty: λ of the gradient penalty.
        critic_steps: n_critic.
        width: of the hidden layers of generator and critic.
        confidence: least probability of a pseudo-label.
    """

    name: ClassVar[str] = "fedda"
    uses_others: ClassVar[bool] = True
    most_passive: ClassVar[int | None] = 1
    reveals: ClassVar[str] = "hands each party the other's representations of aligned rows, and generated ones"
    bottom: tuple[int, ...] | str = (64,)
    first: int = 5
    generator_steps: int = 500
    generator_lr: float = 1e-3
    penalty: float = 10.0
    critic_steps: int = 5
    width: int = 128
    confidence: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.bottom:
            raise InputError("fedda.bottom is (); it would hand over the features themselves: give widths, or 'cnn'")
        for name in ("first", "generator_steps", "critic_steps", "width"):
            if isinstance(getattr(self, name), bool) or not 1 <= getattr(self, name) <= 1_000_000:
                raise InputError(f"fedda.{name} is {getattr(self, name)}; a whole number from 1 was expected")
        if not 0 < self.generator_lr <= 1 or not 0 <= self.penalty <= 1000 or not 0 < self.confidence <= 1:
            raise InputError(
                f"fedda has generator_lr {self.generator_lr}, penalty {self.penalty}, confidence {self.confidence}; up "
                "to 1, up to 1000, and a probability"
            )

    @property
    def title(self) -> str:
        return "FedDA"

    @property
    def least_epochs(self) -> int:
        return self.first + 1

    def active(self, site: Site, plan: Plan, protection: Protection, table: Table) -> ActiveRole:
        return _Active(self, site, plan, protection, table)

    def passive(self, site: Site, plan: Plan, protection: Protection, table: Table) -> PassiveRole:
        return _Passive(self, site, plan, protection, table)

    def findings(self, protection: Protection, passive: Sequence[str], active: str) -> list[Finding]:
        found = super().findings(protection, passive, active)
        noisy = protection.dp is not None and protection.dp.activations
        noise = ", with differentially private noise in them" if noisy else ", in the clear"
        for name in passive:
            for one, other in ((active, name), (name, active)):
                text = f"its representations of aligned rows once{noise}, and what it generates for its other rows"
                found.append(Finding(one, other, text, "leak" if one == name or not noisy else "note"))
        return found


def gradient_penalty(critic: nn.Module, real: torch.Tensor, fake: torch.Tensor, mix: torch.Tensor) -> torch.Tensor:
    """``mean (‖∇_x D(x̂)‖₂ − 1)²`` at ``x̂ = ε x + (1 − ε) x̃`` (equation 4), (n, d) each, ε `mix` (n, 1)."""
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    (gradient,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    norm: torch.Tensor = torch.linalg.vector_norm(gradient, dim=1)
    return (norm - 1).square().mean()


def _mixing(rows: int, like: torch.Tensor) -> torch.Tensor:
    return torch.rand(rows, 1, device=like.device)


def train_generator(
    own: torch.Tensor, others: torch.Tensor, peer: torch.Tensor, config: FedDA, *, batch: int, seed: int
) -> nn.Module:
    """Algorithm 1: a generator from a party's representations to the peer's.

    Args:
        own: the party's representations of aligned rows, (n, d).
        others: of its other rows, (m, d); those of the aligned ones where it has none.
        peer: the peer's of the aligned rows, (n, e).
        config: widths, steps and rates.
        batch: rows in a batch.
        seed: of weights and batches.
    """
    source = others if len(others) else own
    with seeded(seed):
        generator = mlp([own.shape[1], config.width, config.width, peer.shape[1]], last=nn.ReLU6()).to(own.device)
        wide = own.shape[1] + peer.shape[1]
        critic = nn.Sequential(
            nn.Linear(wide, config.width),
            nn.LeakyReLU(0.2),
            nn.Linear(config.width, config.width),
            nn.LeakyReLU(0.2),
            nn.Linear(config.width, 1),
        ).to(own.device)
        critic_step = torch.optim.Adam(critic.parameters(), lr=config.generator_lr, betas=(0.0, 0.9))
        generator_step = torch.optim.Adam(generator.parameters(), lr=config.generator_lr, betas=(0.0, 0.9))
        for _ in range(config.generator_steps):
            for _ in range(config.critic_steps):
                i, j = torch.randint(len(own), (batch,)), torch.randint(len(source), (batch,))
                real = torch.cat([own[i], peer[i]], dim=1)
                with torch.no_grad():
                    fake = torch.cat([source[j], generator(source[j])], dim=1)
                penalty = gradient_penalty(critic, real, fake, _mixing(batch, real))
                loss = critic(fake).mean() - critic(real).mean() + config.penalty * penalty
                critic_step.zero_grad(set_to_none=True)
                loss.backward()
                critic_step.step()
            u = source[torch.randint(len(source), (batch,))]
            loss = -critic(torch.cat([u, generator(u)], dim=1)).mean()
            generator_step.zero_grad(set_to_none=True)
            loss.backward()
            generator_step.step()
    return generator


_ONCE_MORE = 2
"""Releases of a row beside the steps: as a representation, or what is generated from it, and to be labelled."""


class _Made:
    """Where both roles keep what the peer generated for rows that they lack."""

    site: Site
    table: Table
    config: FedDA
    made: torch.Tensor | None = None
    chosen: np.ndarray | None = None

    @property
    def peer(self) -> str:
        others = self.site.passive if self.site.name == self.site.active else (self.site.active,)
        return others[0] if others else ""

    def rows_of(self, table: Table) -> np.ndarray:
        if self.chosen is not None:
            return self.chosen
        return np.concatenate([table.split.train, table.others(self.site.active)])

    def completed(self, a: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        """`a` with the generated activations in the peer's rows."""
        theirs = self.table.others(self.peer)
        if self.made is None or not len(theirs):
            return a
        missing = (rows >= theirs[0]) & (rows <= theirs[-1])
        if not missing.any():
            return a
        at = torch.from_numpy(np.where(missing, rows - theirs[0], 0))
        return torch.where(torch.from_numpy(missing)[:, None].to(a.device), self.made[at].to(a.device), a)


async def _augment(role: _Active | _Passive, bottom: nn.Module, release: RowRelease | None) -> torch.Tensor:
    """Exchange representations of aligned rows, train a generator, hand over what it makes; what the peer made."""
    link, table, config = role.site.links[role.peer], role.table, role.config
    guard = Guard() if release is None else Guard(noise=release.sigma)
    train = table.split.train
    with torch.no_grad():
        own = bottom(role.features(train))
        sent = own if release is None else release(own, train)
        mine = table.others(role.site.name)
        others = bottom(role.features(mine)) if len(mine) else own[:0]
    await link.send(Kind.REPRESENTATION, "fedda/aligned", guard=guard, u=sent)
    message = await link.receive(Kind.REPRESENTATION, "fedda/aligned", "u")
    width = int(message.arrays["u"].shape[-1]) if message.arrays["u"].ndim == 2 else 0
    if not 1 <= width <= 1 << 16:
        raise ProtocolError(f"{role.peer!r} sent representations {width} wide; between 1 and {1 << 16} are possible")
    peer = received(message.arrays["u"], (len(train), width), role.peer, role.plan.device)
    seed = derive_seed(role.site.private_seed, "generator")
    generator = train_generator(own, others, peer, config, batch=min(64, len(train)), seed=seed)
    with torch.no_grad():
        made = generator(others)
        made = made if release is None or not len(mine) else release(made, mine)
    await link.send(Kind.REPRESENTATION, "fedda/generated", guard=guard, u=made)
    answer = await link.receive(Kind.REPRESENTATION, "fedda/generated", "u")
    return received(answer.arrays["u"], (len(table.others(role.peer)), own.shape[1]), role.peer, role.plan.device)


class _Active(_Made, Active):
    config: FedDA

    def __init__(self, config: FedDA, site: Site, plan: Plan, protection: Protection, table: Table) -> None:
        super().__init__(config, site, plan, protection, table)
        dp = protection.dp
        self.representations: RowRelease | None = None
        if dp is not None and dp.activations and site.passive:
            self.representations = self.row_release("representations", dp, clip=dp.clip_activations, times=1)

    def activation_times(self, trainable: bool) -> int:
        return super().activation_times(trainable) + _ONCE_MORE

    def ended(self) -> Trained:
        if self.representations is not None:
            self.trained.spent.append(self.representations.spent)
        return super().ended()

    def training_rows(self, table: Table, epoch: int) -> np.ndarray:
        return self.rows_of(table)

    def may_stop(self, epoch: int) -> bool:
        return epoch > self.config.first

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch != self.config.first + 1 or not self.site.passive:
            return False
        self.made = await _augment(self, self.half.bottom, self.representations)
        rows = [self.table.split.train, self.table.others(self.site.active)]
        self.y = self.y.clone()
        others = self.table.others(self.peer)
        for start in range(0, len(others), self.plan.eval_rows):
            part = others[start : start + self.plan.eval_rows]
            p = self.task.probabilities(await self.score(part))
            sure = p.max(axis=1) >= self.config.confidence
            self.y[torch.from_numpy(part[sure])] = torch.from_numpy(p.argmax(axis=1)[sure]).to(self.y)
            rows.append(part[sure])
        self.chosen = np.concatenate(rows)
        await self.site.links[self.peer].send(Kind.CONTROL, "fedda/rows", rows=self.chosen)
        return True

    def activations(self, rows: np.ndarray) -> torch.Tensor:
        return self.completed(super().activations(rows), rows)

    def state(self) -> State:
        chosen = None if self.chosen is None else torch.from_numpy(self.chosen)
        told = None if self.representations is None else self.representations.state()
        return {**super().state(), "made": self.made, "chosen": chosen, "y": self.y, "told": told}

    def load(self, state: State) -> None:
        super().load(state)
        y = state["y"]
        if isinstance(y, torch.Tensor) and len(y) == len(self.y):
            self.y = y.clone()
            self.made, self.chosen = _kept(state)
            if self.representations is not None:
                self.representations.load(as_dict(state["told"]))


class _Passive(_Made, Passive):
    config: FedDA

    def training_rows(self, table: Table, epoch: int) -> np.ndarray:
        return self.rows_of(table)

    def activation_times(self, trainable: bool) -> int:
        return super().activation_times(trainable) + _ONCE_MORE

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch != self.config.first + 1:
            return False
        self.made = await _augment(self, self.half.bottom, self.release)
        others = self.table.others(self.site.name)
        for start in range(0, len(others), self.plan.eval_rows):
            await self.answer(others[start : start + self.plan.eval_rows])
        message = await self.site.links[self.peer].receive(Kind.CONTROL, "fedda/rows", "rows")
        self.chosen = checked_rows(np.asarray(message.arrays["rows"]), self.table.rows, self.peer)
        return False

    def activations(self, rows: np.ndarray) -> torch.Tensor:
        return self.completed(super().activations(rows), rows)

    def state(self) -> State:
        chosen = None if self.chosen is None else torch.from_numpy(self.chosen)
        return {**super().state(), "made": self.made, "chosen": chosen}

    def load(self, state: State) -> None:
        super().load(state)
        self.made, self.chosen = _kept(state)


def _kept(state: State) -> tuple[torch.Tensor | None, np.ndarray | None]:
    made, chosen = state["made"], state["chosen"]
    return (
        made if isinstance(made, torch.Tensor) else None,
        chosen.numpy().copy() if isinstance(chosen, torch.Tensor) else None,
    )

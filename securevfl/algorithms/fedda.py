"""FedDA: federated data augmentation by generative networks (WCMC 2022, article 6596925).

Each of two parties trains a generator of the other's representations. Real pairs ``[u_o^A; u_o^B]`` come from aligned
rows, fake pairs ``[u_n^A; G(u_n^A)]`` from the party's other rows (equations 5 to 9, WGAN-GP). The generated parts
complete these rows, and the training set grows to ``{(A, B̃), (A, B), (Ã, B)}``.

The paper does not say where the representations come from or how training continues. Here a split network trains first
(stage 1, with the active party's other rows beside zeros). Its activations are the representations, and it continues
training with the completed rows (stage 2). In stage 2 the bottoms are frozen, like the paper's networks h, because the
generated parts fit the activations of stage 1. The paper assumes labels of the passive party's other rows; here the
network labels those it is confident of. A generated part is sent to the party whose part it replaces.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta
from torch import nn

from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.cut import Protection
from securevfl.cut.leakage import describe_representations
from securevfl.errors import ProtocolError
from securevfl.privacy import Noised, RowRelease, map_noised
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import ReleaseCounts
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.bottoms import HANDED_OVER, Bottom
from securevfl.training.fits import Fits
from securevfl.training.halves import ActiveHalf, PassiveHalf
from securevfl.training.networks import build_mlp
from securevfl.training.optimizers import Adam
from securevfl.training.passive_role import PassiveRole
from securevfl.training.plan import Plan
from securevfl.training.pseudo_labels import SelfTraining, answer_rows, label_rows
from securevfl.training.received_tensors import checked_rows, read_tensor
from securevfl.training.role import Role
from securevfl.training.seeding import seed_torch
from securevfl.training.setting import Setting
from securevfl.training.state import State, as_dict, as_rows, as_tensor, kept_rows
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind, Sight

__all__ = ["FedDA", "gradient_penalty", "train_generator"]

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
REPRESENTATIONS = "representations, FedDA"
"""What ``measured.json`` calls what a party sees."""
_OF_LABELS = Sight(of="labels", severity="leak", through="representations of networks trained on labels")


class FedDA(SplitNN):
    """Data augmentation of two parties by generated representations. The bottoms need parameters.

    Attributes:
        first: epochs of stage 1.
        generator_steps: steps of each generator; its critic takes `critic_steps` times as many.
        generator_lr: Adam's learning rate α of both (the paper: 1e-4).
        penalty: λ of the gradient penalty.
        critic_steps: n_critic.
        width: of the hidden layers of generator and critic.
        confidence: least probability of a pseudo-label.
        frozen: whether the bottoms stay as they are in stage 2; the paper's algorithm changes generator and critic
            only. If they train on, what was generated for their activations of stage 1 goes stale.
    """

    name: ClassVar[str] = "fedda"
    label: ClassVar[str] = "FedDA"
    fits: ClassVar[Fits] = Fits()
    not_frozen: ClassVar[str] = HANDED_OVER
    uses_others: ClassVar[bool] = True
    most_passive: ClassVar[int | None] = 1
    reveals: ClassVar[str] = "sends each party the other's representations of aligned rows, and generated ones"
    bottom: Bottom = (64,)
    first: Count = 5
    generator_steps: Count = 500
    generator_lr: Annotated[float, Meta(gt=0, le=1)] = 1e-3
    penalty: Annotated[float, Meta(ge=0, le=1000)] = 10.0
    critic_steps: Count = 5
    width: Count = 128
    confidence: Annotated[float, Meta(gt=0, le=1)] = 0.9
    frozen: bool = True

    def problems(self) -> list[str]:
        found = super().problems()
        if not self.bottom:
            found += ["fedda.bottom is (), which would send the features themselves: give widths, or 'cnn'"]
        return found

    @property
    def least_epochs(self) -> int:
        return self.first + 1

    def max_releases(self, protection: Protection, plan: Plan, passive: int) -> ReleaseCounts:
        known = super().max_releases(protection, plan, passive)
        return replace(known, features=None if known.features is None else known.features + _ONCE_MORE)

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        found = super().exchanges(protection, passive)
        if not passive:
            return found
        dp = protection.dp
        noisy = dp is not None and dp.activation_noise is not None
        what = "its representations of aligned rows once, and what it generates for its other rows"
        told = describe_representations(dp, what, REPRESENTATIONS)
        trained = f"{told.text}; they come of networks that are trained on labels"
        for sender, receiver in ((PASSIVE, ACTIVE), (ACTIVE, PASSIVE)):
            found += (
                Exchange(
                    "fedda/aligned",
                    Kind.REPRESENTATION,
                    sender,
                    receiver,
                    "representations of aligned rows",
                    reveals=told.text if receiver == ACTIVE else trained,
                    severity=told.severity if receiver == ACTIVE else "leak",
                    noised=noisy,
                    sights=told.sights if receiver == ACTIVE else (*told.sights, _OF_LABELS),
                ),
                Exchange(
                    "fedda/generated", Kind.REPRESENTATION, sender, receiver, "generated representations", noised=noisy
                ),
            )
        labelled = "which of its other rows were labelled with confidence"
        rows = Exchange(
            "fedda/rows",
            Kind.CONTROL,
            ACTIVE,
            PASSIVE,
            "which rows train",
            reveals=labelled,
            severity="note",
            sights=(Sight(of="rows", severity="note", through="which rows train"),),
        )
        return (*found, rows)

    def active(self, setting: Setting) -> ActiveRole:
        return _Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Passive(self, setting)


def gradient_penalty(critic: nn.Module, real: torch.Tensor, fake: torch.Tensor, mix: torch.Tensor) -> torch.Tensor:
    """``mean (‖∇_x D(x̂)‖₂ − 1)²`` at ``x̂ = ε x + (1 − ε) x̃`` (equation 4), (n, d) each, ε `mix` (n, 1)."""
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    (gradient,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    norm: torch.Tensor = torch.linalg.vector_norm(gradient, dim=1)
    return (norm - 1).square().mean()


def _draw_mixing(rows: int, like: torch.Tensor) -> torch.Tensor:
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
    with seed_torch(seed):
        generator = build_mlp([own.shape[1], config.width, config.width, peer.shape[1]], last=nn.ReLU6()).to(own.device)
        wide = own.shape[1] + peer.shape[1]
        critic = nn.Sequential(
            nn.Linear(wide, config.width),
            nn.LeakyReLU(0.2),
            nn.Linear(config.width, config.width),
            nn.LeakyReLU(0.2),
            nn.Linear(config.width, 1),
        ).to(own.device)
        critic_step = Adam(critic.parameters(), lr=config.generator_lr, betas=(0.0, 0.9))
        generator_step = Adam(generator.parameters(), lr=config.generator_lr, betas=(0.0, 0.9))
        for _ in range(config.generator_steps):
            for _ in range(config.critic_steps):
                i, j = torch.randint(len(own), (batch,)), torch.randint(len(source), (batch,))
                real = torch.cat([own[i], peer[i]], dim=1)
                with torch.no_grad():
                    fake = torch.cat([source[j], generator(source[j])], dim=1)
                penalty = gradient_penalty(critic, real, fake, _draw_mixing(batch, real))
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
"""Releases of a row in addition to the training steps: one as a representation or generated part, one for its label."""


class _Books(Bookkeeping):
    """Between the stages representations are released once more."""

    def activation_times(self, epochs: int) -> int:
        return super().activation_times(epochs) + _ONCE_MORE


class _CompletingRole(Role):
    """Base of both roles: the second stage, and the peer's generated parts for rows that this party lacks.

    Attributes:
        made: the peer's generated activations in the order of its other rows, (n, d); None in the first stage.
        chosen: numbers of the rows of the second stage, once it has started.
    """

    bookkeeping = _Books
    config: FedDA
    half: ActiveHalf | PassiveHalf
    made: torch.Tensor | None = None
    chosen: np.ndarray | None = None

    @property
    def peer(self) -> str:
        """Name of the other party; empty if there is none."""
        others = self.site.passive if self.site.name == self.site.active else (self.site.active,)
        return others[0] if others else ""

    def starts_second_stage(self, epoch: int) -> bool:
        """Whether the second stage starts with this epoch."""
        return epoch == self.config.first + 1 and bool(self.peer)

    def training_rows(self, epoch: int) -> np.ndarray:
        if self.chosen is not None:
            return self.chosen
        return np.concatenate([self.table.split.train, self.table.rows_only_at(self.site.active)])

    def complete_activations(self, a: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        """Replace the activations (n, d) of the peer's rows by the generated ones."""
        theirs = self.table.rows_only_at(self.peer)
        if self.made is None or not len(theirs):
            return a
        missing = (rows >= theirs[0]) & (rows <= theirs[-1])
        if not missing.any():
            return a
        at = torch.from_numpy(np.where(missing, rows - theirs[0], 0))
        return torch.where(torch.from_numpy(missing)[:, None].to(a.device), self.made[at].to(a.device), a)

    async def complete_rows(self, release: RowRelease | None) -> None:
        """Exchange representations of aligned rows, train a generator, and exchange the generated parts.

        Args:
            release: adds noise to outgoing representations, if the job asks for it.

        Raises:
            ProtocolError: the peer sent a malformed message.
        """
        train, mine = self.table.split.train, self.table.rows_only_at(self.site.name)
        with torch.no_grad():
            own: torch.Tensor = self.half.bottom(self.features(train))
            others = self.half.bottom(self.features(mine)) if len(mine) else own[:0]
        sent = own if release is None else release(own, train)
        theirs = await self.swap_representations("fedda/aligned", sent, len(train))
        size, seed = min(64, len(train)), self.seed("generator")
        generator = train_generator(own, others, theirs, self.config, batch=size, seed=seed)
        with torch.no_grad():
            made: torch.Tensor = generator(others)
        given = made if release is None else release(made, mine)
        self.made = await self.swap_representations(
            "fedda/generated", given, len(self.table.rows_only_at(self.peer)), own.shape[1]
        )
        self.freeze_bottom()

    def freeze_bottom(self) -> None:
        """Stop training the bottom, if the configuration asks for it."""
        if self.config.frozen:
            self.half.bottom.requires_grad_(False)

    async def swap_representations(
        self, step: str, mine: torch.Tensor | Noised[torch.Tensor], rows: int, width: int | None = None
    ) -> torch.Tensor:
        """Send representations and receive the peer's, (rows, width), at the same time.

        Raises:
            ProtocolError: the peer sent a malformed message.
        """
        link = self.site.links[self.peer]
        outgoing = link.send(Kind.REPRESENTATION, step, u=mine)
        message = await link.exchange(outgoing, link.receive(Kind.REPRESENTATION, step, "u"))
        array = message.arrays["u"]
        wide = int(array.shape[-1]) if array.ndim == 2 else 0
        if width is None and not 1 <= wide <= 1 << 16:
            raise ProtocolError(f"{self.peer!r} sent representations of width {wide}; 1 to {1 << 16} is allowed")
        return read_tensor(array, (rows, wide if width is None else width), self.peer, self.plan.device)

    def remember(self) -> State:
        return {"made": self.made, "chosen": kept_rows(self.chosen)}

    def recall(self, memory: State) -> None:
        self.made = None if memory["made"] is None else as_tensor(memory["made"]).to(self.plan.device)
        self.chosen = as_rows(memory["chosen"])
        if self.made is not None:
            self.freeze_bottom()


class _Active(_CompletingRole, Active):
    """Labels the passive party's other rows, and announces which rows train."""

    config: FedDA
    half: ActiveHalf

    def build(self) -> None:
        super().build()
        self.y = self.y.clone()
        self.tally = SelfTraining(self.config.confidence)
        self.books.tally = lambda: self.tally if self.peer else None
        self.books.after_validation.append(self._assess_labels)
        self.release: RowRelease | None = None
        dp = self.protection.dp
        if dp is not None and dp.activation_noise is not None and self.peer:
            rows = self.books.release_rows()
            self.release = self.releases.plan_rows("representations", dp.activation_noise, rows=rows, times=1)

    async def begin_epoch(self, epoch: int) -> bool:
        if not self.starts_second_stage(epoch):
            return False
        await self.complete_rows(self.release)
        theirs = self.table.rows_only_at(self.peer)
        labelled = await label_rows(self, theirs, self.tally)
        self.tally.dropped = len(theirs) - len(labelled)
        self.chosen = np.concatenate([self.training_rows(epoch), labelled])
        await self.site.links[self.peer].send(Kind.CONTROL, "fedda/rows", rows=self.chosen)
        return True

    def activations(self, rows: np.ndarray, *, train: bool) -> torch.Tensor:
        return self.complete_activations(super().activations(rows, train=train), rows)

    def remember(self) -> State:
        return super().remember() | {"y": self.y, "tally": self.tally.get_state()}

    def recall(self, memory: State) -> None:
        super().recall(memory)
        self.y = as_tensor(memory["y"]).clone().to(self.plan.device)
        self.tally.load_state(as_dict(memory["tally"]))

    def _assess_labels(self, p: np.ndarray, labels: np.ndarray) -> None:
        if self.chosen is None:
            self.tally.assess_validation(p, labels)


class _Passive(_CompletingRole, Passive):
    """Takes part in labelling its other rows, and trains on the rows that the active party announces."""

    config: FedDA
    half: PassiveHalf

    async def begin_epoch(self, epoch: int) -> bool:
        if not self.starts_second_stage(epoch):
            return False
        await self.complete_rows(self.noise.release)
        await answer_rows(self, self.table.rows_only_at(self.site.name))
        message = await self.upstream.receive(Kind.CONTROL, "fedda/rows", "rows")
        self.chosen = checked_rows(message.arrays["rows"], self.table.total_count, self.peer)
        return False

    def activations(self, rows: np.ndarray, *, train: bool) -> torch.Tensor | Noised[torch.Tensor]:
        return map_noised(super().activations(rows, train=train), lambda a: self.complete_activations(a, rows))

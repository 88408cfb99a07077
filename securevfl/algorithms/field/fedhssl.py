"""FedHSSL: hybrid self-supervised learning for VFL (He et al. 2022, arXiv 2208.08934), with SimSiam (Chen and He 2021,
arXiv 2011.10566).

Each party has a cross-party encoder f_c and a local encoder f_l. The lower part of f_l is private to the party, its
upper part is shared. Pretraining takes rounds of three steps, without labels:

1. On aligned rows, a party's predictor h_c, above the projection z of f_c, predicts the other side's z. Passive parties
   exchange projections with the active party only (cross-party SSL).
2. On all of a party's rows, two views of a row predict each other by f_l, and the projections of f_c (guided local
   SSL).
3. The parties average the upper parts of f_l and the heads above them (partial model aggregation).

A split network then trains on the labels of aligned rows. Its activations are the mean of both encoders' outputs.

Projections and upper parts are sent in the clear, so the method reveals them by design. The heads normalise each row
separately, not by its batch as in the paper: the values sent for a row then depend only on that row and the weights, so
its noise can be accounted for.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta
from torch import nn
from torch.nn import functional

from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.cut import Protection
from securevfl.cut.leakage import describe_representations
from securevfl.errors import InputError, ProtocolError
from securevfl.party_context import derive_seed
from securevfl.privacy import Link, Noised, RowRelease, fan_out
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import ReleaseCounts
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.bottoms import Architecture, Bottom
from securevfl.training.cut_noise import active_side
from securevfl.training.fits import Fits
from securevfl.training.halves import ActiveHalf, PassiveHalf
from securevfl.training.networks import build_bottom
from securevfl.training.optimizers import Adam
from securevfl.training.passive_role import PassiveRole
from securevfl.training.plan import Plan
from securevfl.training.received_tensors import read_tensor
from securevfl.training.role import Role
from securevfl.training.seeding import seed_torch
from securevfl.training.self_supervised import augment_rows
from securevfl.training.setting import Setting
from securevfl.training.split import epoch_batches
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind

__all__ = ["FedHSSL", "cross_loss", "guided_loss", "negative_cosine"]

Width = Annotated[int, Meta(ge=1, le=1 << 16)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
PROJECTIONS = "projections, FedHSSL"
"""Name in ``measured.json`` for the values that the other side sees."""
_SHARED = "the upper part of its local encoder after each round, in the clear: weights that its own rows trained"


class FedHSSL(SplitNN):
    """Self-supervised pretraining of all parties' encoders. The bottoms need parameters.

    Attributes:
        rounds: of pretraining; 0 for none.
        cross_steps: batches of aligned rows in a round.
        local_steps: batches of each party's own rows in a round.
        pretraining_lr: Adam's learning rate of pretraining.
        projection: width of the projections z.
        squeeze: width of a predictor's hidden layer.
        guide: γ, weight of the cross-party encoder in local SSL; 0 for local SSL alone.
        aggregate: whether upper parts are averaged.
        corruption: share of a table's columns exchanged in a view.
    """

    name: ClassVar[str] = "fedhssl"
    label: ClassVar[str] = "FedHSSL"
    fits: ClassVar[Fits] = Fits()
    not_frozen: ClassVar[str] = "fedhssl pretrains its encoders with the other parties and goes on training them"
    uses_others: ClassVar[bool] = True
    reveals: ClassVar[str] = "sends each side the other's projections of aligned rows, and weights of its encoders"
    bottom: Bottom = (64,)
    rounds: Count = 10
    cross_steps: Count = 20
    local_steps: Count = 20
    pretraining_lr: Annotated[float, Meta(gt=0, le=1)] = 1e-3
    projection: Width = 64
    squeeze: Width = 16
    guide: Annotated[float, Meta(ge=0, le=100)] = 0.5
    aggregate: bool = True
    corruption: Annotated[float, Meta(ge=0, lt=1)] = 0.4

    def problems(self) -> list[str]:
        found = super().problems()
        if not self.bottom:
            found += ["fedhssl.bottom is (); there is nothing to pretrain: give widths, such as [64], or 'cnn'"]
        return found

    @property
    def title(self) -> str:
        return self.label if self.aggregate else f"{self.label} (no aggregation)"

    def max_releases(self, protection: Protection, plan: Plan, passive: int) -> ReleaseCounts:
        known, more = super().max_releases(protection, plan, passive), self.rounds * self.cross_steps
        return replace(known, features=None if more or known.features is None else known.features)

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: the job asks for noise on features, and `aggregate` would send weights without noise.
        """
        super().check_protection(protection)
        dp = protection.dp
        if dp is not None and dp.features is not None and self.aggregate and self.rounds:
            raise InputError(
                "fedhssl.aggregate hands over weights that features trained, without noise, so no ε of features would "
                "hold: give aggregate=False beside sv.DP(features=…)"
            )

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        found = super().exchanges(protection, passive)
        if not passive or not self.rounds:
            return found
        dp = protection.dp
        told = describe_representations(
            dp, "its projections of aligned rows, in every step of pretraining", PROJECTIONS
        )
        noisy = dp is not None and dp.activation_noise is not None
        for sender, receiver in ((PASSIVE, ACTIVE), (ACTIVE, PASSIVE)):
            if self.cross_steps:
                found += (
                    Exchange(
                        "fedhssl/projections",
                        Kind.REPRESENTATION,
                        sender,
                        receiver,
                        "projections of aligned rows",
                        reveals=told.text,
                        severity=told.severity,
                        noised=noisy,
                        sights=told.sights,
                    ),
                )
            if self.aggregate:
                mean = "the mean of the parties' upper parts: with one passive party, the weights of the active one"
                words = "weights of the local encoders' upper parts"
                told_weights = _SHARED if receiver == ACTIVE else mean
                found += (Exchange("fedhssl/weights", Kind.STATISTIC, sender, receiver, words, told_weights, "leak"),)
        return found

    def notes(self, protection: Protection) -> list[str]:
        found = ["the projections that are exchanged and the weights that are averaged come of no labels"]
        return [*super().notes(protection), *(found if self.rounds else [])]

    def active(self, setting: Setting) -> ActiveRole:
        return _Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Passive(self, setting)


def negative_cosine(p: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """``D(p, z)``: the mean over rows of the negative cosine of predictions and their targets, (n, d) each.

    No gradient flows into the targets z.
    """
    return -functional.cosine_similarity(p, z.detach(), dim=1).mean()


def cross_loss(p: torch.Tensor, theirs: Sequence[torch.Tensor]) -> torch.Tensor:
    """A party's loss on aligned rows: the mean of D over the parties that sent projections, (n, d) each."""
    return torch.stack([negative_cosine(p, z) for z in theirs]).mean()


def guided_loss(
    p: Sequence[torch.Tensor], z: Sequence[torch.Tensor], guides: Sequence[torch.Tensor], weight: float
) -> torch.Tensor:
    """A party's loss on its own rows: ``½ [D(p₁, z₂) + D(p₂, z₁)] + γ [D(p₁, v₁) + D(p₂, v₂)]``.

    Args:
        p: predictions of the two views, (n, d) each.
        z: their projections.
        guides: projections v of the same views by the cross-party encoder.
        weight: γ.
    """
    between = (negative_cosine(p[0], z[1]) + negative_cosine(p[1], z[0])) / 2
    return between + weight * (negative_cosine(p[0], guides[0]) + negative_cosine(p[1], guides[1]))


class Encoders(nn.Module):
    """A party's two encoders. A row's activation is the mean of both outputs.

    Args:
        bottom: widths or name of each encoder's lower part.
        shape: shape of a row of features.

    Attributes:
        width: of their output.
    """

    def __init__(self, bottom: Bottom, shape: Sequence[int]) -> None:
        super().__init__()
        lower, self.width = build_bottom(bottom, shape)
        self.cross = nn.Sequential(lower, self.build_upper())
        self.local_lower, self.local_upper = build_bottom(bottom, shape)[0], self.build_upper()

    def build_upper(self) -> nn.Module:
        """Build an upper part."""
        return nn.Sequential(nn.Linear(self.width, self.width), nn.ReLU6())

    def forward_local(self, x: torch.Tensor) -> torch.Tensor:
        """f_l of rows, (n, width)."""
        found: torch.Tensor = self.local_upper(self.local_lower(x))
        return found

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The mean of f_c and f_l, (n, width)."""
        found: torch.Tensor = (self.cross(x) + self.forward_local(x)) / 2
        return found


class PretrainingHeads(nn.Module):
    """A projector and a predictor above an encoder, for pretraining only."""

    def __init__(self, width: int, projection: int, squeeze: int) -> None:
        super().__init__()
        self.projector = nn.Sequential(
            nn.Linear(width, projection),
            nn.LayerNorm(projection),
            nn.ReLU(),
            nn.Linear(projection, projection),
            nn.LayerNorm(projection, elementwise_affine=False),
        )
        self.predictor = nn.Sequential(
            nn.Linear(projection, squeeze), nn.LayerNorm(squeeze), nn.ReLU(), nn.Linear(squeeze, projection)
        )


class _ActiveHalf(ActiveHalf):
    """With two encoders for a bottom."""

    def build_bottom(self, architecture: Architecture, shape: Sequence[int]) -> tuple[nn.Module, int]:
        return _build_encoders(architecture, shape)


class _PassiveHalf(PassiveHalf):
    """With two encoders for a bottom."""

    def build_bottom(self, architecture: Architecture, shape: Sequence[int]) -> tuple[nn.Module, int]:
        return _build_encoders(architecture, shape)


def _build_encoders(architecture: Architecture, shape: Sequence[int]) -> tuple[nn.Module, int]:
    if not np.prod(shape):
        raise InputError("fedhssl pretrains each party's encoders on its own columns, and a party has none")
    encoders = Encoders(architecture.bottom, shape)
    return encoders, encoders.width


class _Books(Bookkeeping):
    """Pretraining releases projections of the aligned rows."""

    role: _Pretraining

    def activation_times(self, epochs: int) -> int:
        return super().activation_times(epochs) + self.role.projected_times()


class _Pretraining(Role):
    """Base of both roles: the rounds of pretraining."""

    bookkeeping = _Books
    config: FedHSSL
    half: ActiveHalf | PassiveHalf

    def projected_times(self) -> int:
        """How often one aligned row's projection is sent, at most."""
        return self.config.rounds * -(
            -self.config.cross_steps // max(len(self.table.split.train) // self.batch_rows, 1)
        )

    @property
    def batch_rows(self) -> int:
        """Rows in a batch of aligned rows."""
        return max(min(self.nominal_batch, len(self.table.split.train)), 1)

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch == 1 and self.config.rounds:
            await self.run_rounds()
        return False

    async def run_rounds(self) -> None:
        """Run all rounds. The encoders are kept, the heads are discarded."""
        config, encoders = self.config, self.half.bottom
        if not isinstance(encoders, Encoders):
            raise TypeError("the half has no encoders")
        with seed_torch(self.seed("heads")):
            across, within = (
                PretrainingHeads(encoders.width, config.projection, config.squeeze).to(self.plan.device)
                for _ in range(2)
            )
        lr = config.pretraining_lr
        cross = Adam([*encoders.cross.parameters(), *across.parameters()], lr=lr)
        lower, upper = encoders.local_lower, nn.ModuleList([encoders.local_upper, within])
        local = Adam([*lower.parameters(), *upper.parameters()], lr=lr)
        table, seed = self.table, derive_seed(self.site.seed, "fedhssl")
        own = self.features(np.concatenate([table.split.train, table.rows_only_at(self.site.name)]))
        for number in range(config.rounds):
            for rows in epoch_batches(table.split.train, self.batch_rows, config.cross_steps, seed=seed, epoch=number):
                self.site.observer.batch_begun(self.site.name, self.site.active, 1, rows)
                z = across.projector(encoders.cross(self.features(rows)))
                theirs = await self.swap_projections(z, rows)
                if theirs:
                    _step_optimizer(cross, cross_loss(across.predictor(z), theirs))
            with seed_torch(self.seed("views", number)):
                for _ in range(config.local_steps):
                    _step_optimizer(
                        local,
                        self.guided_step_loss(
                            own[torch.randperm(len(own))[: self.nominal_batch]], encoders, across, within
                        ),
                    )
            if config.aggregate:
                await self.average_weights(upper)

    def guided_step_loss(
        self, x: torch.Tensor, encoders: Encoders, across: PretrainingHeads, within: PretrainingHeads
    ) -> torch.Tensor:
        """The loss of step 2 (guided local SSL) for rows (n, …)."""
        views = [augment_rows(x, self.config.corruption) for _ in range(2)]
        z = [within.projector(encoders.forward_local(each)) for each in views]
        with torch.no_grad():
            guides = [across.projector(encoders.cross(each)) for each in views]
        return guided_loss([within.predictor(each) for each in z], z, guides, self.config.guide)

    @abstractmethod
    def release_projections(self, z: torch.Tensor, rows: np.ndarray) -> torch.Tensor | Noised[torch.Tensor]:
        """Projections (n, projection) as they may leave."""

    @property
    def partner_links(self) -> list[Link]:
        """Links to the parties whose projections this party predicts: the active party, or all passive ones."""
        names = self.site.passive if self.site.name == self.site.active else (self.site.active,)
        return [self.site.links[name] for name in names]

    async def swap_projections(self, z: torch.Tensor, rows: np.ndarray) -> list[torch.Tensor]:
        """Send this party's projections z of `rows`, and receive its partners', (n, projection) each."""
        sent = self.release_projections(z.detach(), rows)
        found = []
        for link in self.partner_links:
            outgoing = link.send(Kind.REPRESENTATION, "fedhssl/projections", z=sent)
            message = await link.exchange(outgoing, link.receive(Kind.REPRESENTATION, "fedhssl/projections", "z"))
            shape = (len(rows), self.config.projection)
            found.append(read_tensor(message.arrays["z"], shape, link.peer, self.plan.device))
        return found

    async def average_weights(self, upper: nn.Module) -> None:
        """Replace these weights by their mean over the parties, which the active party computes (step 3)."""
        own = nn.utils.parameters_to_vector(upper.parameters()).detach()
        if self.site.name == self.site.active:
            theirs = [await self.weights_of(link, len(own)) for link in self.partner_links]
            mean = torch.stack([own, *theirs]).mean(dim=0)
            await fan_out(self.partner_links, lambda link: link.send(Kind.STATISTIC, "fedhssl/weights", weights=mean))
        else:
            (link,) = self.partner_links
            await link.send(Kind.STATISTIC, "fedhssl/weights", weights=own)
            mean = await self.weights_of(link, len(own))
        _load_weights(upper, mean)

    async def weights_of(self, link: Link, count: int) -> torch.Tensor:
        """A peer's weights, (count,).

        Raises:
            ProtocolError: they do not fit this party's upper part.
        """
        message = await link.receive(Kind.STATISTIC, "fedhssl/weights", "weights")
        try:
            return read_tensor(message.arrays["weights"], (count,), link.peer, self.plan.device)
        except ProtocolError as error:
            raise ProtocolError(
                f"{error}: upper parts are averaged only where bottoms end in the same width at all parties; give "
                "widths, or aggregate=False"
            ) from error


def _step_optimizer(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    optimizer.step()


@torch.no_grad()
def _load_weights(module: nn.Module, weights: torch.Tensor) -> None:
    """Copy weights (count,) into a module; in a simulation, a received array may be the sender's memory."""
    at = 0
    for parameter in module.parameters():
        parameter.copy_(weights[at : at + parameter.numel()].view_as(parameter))
        at += parameter.numel()


class _Active(_Pretraining, Active):
    """Exchanges projections with all passive parties, and averages."""

    config: FedHSSL
    half: ActiveHalf

    def build(self) -> None:
        super().build()
        dp, times = self.protection.dp, self.projected_times()
        self.release: RowRelease | None = None
        if dp is not None and dp.activation_noise is not None and self.site.passive and times:
            self.release = self.releases.plan_rows(
                "representations", dp.activation_noise, rows=self.table.total_count, times=times
            )

    def release_projections(self, z: torch.Tensor, rows: np.ndarray) -> torch.Tensor | Noised[torch.Tensor]:
        return z if self.release is None else self.release(z, rows)

    def build_half(self, architecture: Architecture) -> ActiveHalf:
        spec = self.config.cut_spec(self, architecture.hidden)
        cut, passive = active_side(self, spec), len(self.site.passive)
        return _ActiveHalf(architecture, cut, spec, passive, self.features.row_shape, self.task.outputs)


class _Passive(_Pretraining, Passive):
    """Exchanges projections with the active party."""

    config: FedHSSL
    half: PassiveHalf

    def release_projections(self, z: torch.Tensor, rows: np.ndarray) -> torch.Tensor | Noised[torch.Tensor]:
        return self.noise(z, rows)

    def build_half(self, architecture: Architecture) -> PassiveHalf:
        spec = self.config.cut_spec(self, architecture.hidden)
        return _PassiveHalf(architecture, self.site, spec, self.protection, self.features.row_shape)

"""APC-VFL: active participant centric vertical federated learning (Irureta et al. 2024, arXiv 2410.17648).

Each party trains an autoencoder on its own rows, without labels. Passive parties send the codes of the aligned rows
once, and nothing afterwards. The active party trains an autoencoder on all parties' codes, concatenated. A student
encoder then reconstructs the active party's columns and imitates the joint codes on aligned rows, and a classifier on
the student's codes trains on all of the active party's labels. Scoring a row needs no other party.

The paper chooses widths, steps and the weight of the imitation for each data set. Here the joint codes are
standardised, so that one weight fits all data. Each step of the student draws one batch of aligned rows and one of all
rows: with 1 % of the rows aligned, most common batches would contain none of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta
from torch import nn
from torch.nn import functional

from securevfl.cut import Protection
from securevfl.cut.leakage import describe_representations
from securevfl.errors import InputError, ProtocolError
from securevfl.privacy import Finding, map_noised
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import Algorithm, ReleaseCounts, Subsets
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.bottoms import Bottom, bottom_problems
from securevfl.training.halves import Networks
from securevfl.training.networks import build_bottom, build_mlp
from securevfl.training.noise import FeatureNoise
from securevfl.training.optimizers import Adam
from securevfl.training.passive_role import PassiveRole
from securevfl.training.plan import Plan
from securevfl.training.received_tensors import read_tensor
from securevfl.training.representations import representation_exchange
from securevfl.training.role import Role
from securevfl.training.seeding import seed_torch
from securevfl.training.setting import Setting
from securevfl.transport import Exchange, Kind

__all__ = ["APCVFL", "imitation_loss", "standardise_codes"]

Width = Annotated[int, Meta(ge=1, le=1 << 16)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
CODES = "codes, APC-VFL"
"""Name in ``measured.json`` for the values that the active party sees."""


_NOT_FROZEN = "each party trains its encoder alone, so a frozen one would hide nothing more"


class APCVFL(Algorithm):
    """A model of the active party's columns that imitates all parties' joint codes.

    Attributes:
        bottom: of each encoder, below its code: widths, or the name of a convolutional one.
        code: width of each party's code, and of the joint one.
        top: widths of the classifier's hidden layers.
        lr: Adam's learning rate, at all parties.
        weight_decay: L2 penalty of the classifier.
        steps: training steps of each party's autoencoder and of the joint one.
        student_steps: training steps of the student.
        imitation: λ, weight of the distance from the joint codes; 0 for an autoencoder of the active party alone.
        fine_tune: whether the classifier's loss also trains the student's encoder; not in the paper.
    """

    name: ClassVar[str] = "apc_vfl"
    label: ClassVar[str] = "APC-VFL"
    uses_others: ClassVar[bool] = True
    subsets: ClassVar[Subsets] = "alone"
    asks_partner: ClassVar[bool] = False
    reveals: ClassVar[str] = "sends the passive parties' codes of aligned rows to the active party"
    bottom: Bottom = (64,)
    code: Width = 32
    top: tuple[Width, ...] = (64,)
    lr: Annotated[float, Meta(gt=0, le=100)] = 0.003
    weight_decay: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    steps: Count = 200
    student_steps: Count = 250
    imitation: Annotated[float, Meta(ge=0, le=1000)] = 1.0
    fine_tune: bool = False

    def problems(self) -> list[str]:
        return super().problems() + bottom_problems(self.bottom, "apc_vfl.bottom", not_frozen=_NOT_FROZEN)

    def max_releases(self, protection: Protection, plan: Plan, passive: int) -> ReleaseCounts:
        return ReleaseCounts(features=1)

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: the job asks for noise on labels, which never leave the active party in any form.
        """
        super().check_protection(protection)
        if protection.dp is not None and protection.dp.labels is not None:
            raise InputError(
                "apc_vfl sends nothing that was made from labels, so noise on them would protect nobody: use "
                "sv.DP(features=sv.Gaussian(…)) without labels, for noise on the passive parties' codes"
            )

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        if not passive:
            return ()
        dp = protection.dp
        told = describe_representations(dp, "the code of each aligned training row, once", CODES)
        codes = representation_exchange("apc/codes", "codes of aligned rows", told, dp)
        return (*super().exchanges(protection, passive), codes)

    def findings(self, protection: Protection, passive: Sequence[str], active: str) -> list[Finding]:
        nothing = "how many epochs it trains and which it keeps; nothing that was made from its rows or labels"
        found = [Finding(name, active, nothing, "ok") for name in passive]
        return [*super().findings(protection, passive, active), *found]

    def notes(self, protection: Protection) -> list[str]:
        found = ["every row is scored from the active party's own columns, even if all parties have it"]
        if protection.dp is not None and protection.dp.activation_noise is not None:
            found += [
                "ε of codes covers a row's own code, but not the row's influence on other codes through the encoder"
            ]
        return found

    def active(self, setting: Setting) -> ActiveRole:
        return _Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Passive(self, setting)


def imitation_loss(
    rebuilt: torch.Tensor, x: torch.Tensor, codes: torch.Tensor, joint: torch.Tensor, weight: float
) -> torch.Tensor:
    """The student's loss: ``MSE(x̂, x) + λ MSE(code, joint code)``, means over rows and columns.

    Args:
        rebuilt: reconstructions of a batch of rows, (n, d).
        x: their features, (n, d).
        codes: the student's of aligned rows, (m, c).
        joint: the joint codes of those, (m, c).
        weight: λ.
    """
    return functional.mse_loss(rebuilt, x) + weight * functional.mse_loss(codes, joint)


def standardise_codes(codes: torch.Tensor) -> torch.Tensor:
    """Codes (n, c) with mean 0 and deviation 1 in each column; columns that do not vary become 0."""
    return (codes - codes.mean(dim=0)) / (codes.std(dim=0, correction=0) + 1e-6)


def _minimise_loss(parameters: Iterable[nn.Parameter], lr: float, steps: int, loss: Callable[[], torch.Tensor]) -> None:
    optimizer = Adam(parameters, lr=lr)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss())
        optimizer.step()


def _draw_batch(rows: torch.Tensor, size: int) -> torch.Tensor:
    """A batch of rows, without repeats."""
    return rows[torch.randperm(len(rows))[:size]]


class _Books(Bookkeeping):
    """Codes are handed over once."""

    def activation_times(self, epochs: int) -> int:
        return 1


class _EncodingRole(Role):
    """What both roles share: encoders and how they are trained."""

    bookkeeping = _Books
    config: APCVFL

    def training_rows(self, epoch: int) -> np.ndarray:
        return np.concatenate([self.table.split.train, self.table.rows_only_at(self.site.active)])

    def own_rows(self) -> torch.Tensor:
        """Features of all rows of this party's own that may train, the aligned ones first."""
        return self.features(np.concatenate([self.table.split.train, self.table.rows_only_at(self.site.name)]))

    def build_encoder(self) -> nn.Module:
        """From features to codes, (n, code)."""
        bottom, width = build_bottom(self.config.bottom, self.features.row_shape)
        return nn.Sequential(bottom, nn.Linear(width, self.config.code)).to(self.plan.device)

    def build_decoder(self) -> nn.Module:
        """From codes back to features without their shape, (n, d)."""
        hidden = [*reversed(self.config.bottom)] if isinstance(self.config.bottom, tuple) else []
        return build_mlp([self.config.code, *(hidden or [64]), math.prod(self.features.row_shape)]).to(self.plan.device)

    def train_autoencoder(self, encoder: nn.Module) -> None:
        """Train an encoder, and a decoder that is forgotten, to rebuild this party's own rows."""
        x, size, decoder = self.own_rows(), self.nominal_batch, self.build_decoder()

        def compute_loss() -> torch.Tensor:
            batch = _draw_batch(x, size)
            return functional.mse_loss(decoder(encoder(batch)), batch.flatten(1))

        _minimise_loss([*encoder.parameters(), *decoder.parameters()], self.config.lr, self.config.steps, compute_loss)


class _Active(_EncodingRole, ActiveRole):
    """Joins the codes, teaches its student, and trains a classifier on the student's codes."""

    def build(self) -> None:
        with seed_torch(self.seed("model")):
            self.student = self.build_encoder()
            self.classifier = build_mlp([self.config.code, *self.config.top, self.task.outputs])
        model = nn.ModuleList([self.student, self.classifier])
        self.networks = Networks(model, self.config.lr, self.config.weight_decay, self.plan.device)
        self.parts["networks"] = self.networks

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch == 1:
            self.site.observer.batch_begun(self.site.name, self.site.active, epoch, self.table.split.train)
            theirs = [await self.receive_codes(name) for name in self.site.passive]
            with seed_torch(self.seed("codes")):
                self.train_student(self.joint_codes(theirs) if theirs else None)
        return False

    async def receive_codes(self, peer: str) -> torch.Tensor:
        """A passive party's codes of the aligned rows that train, (n, code).

        Raises:
            ProtocolError: it sent something else.
        """
        message = await self.site.links[peer].receive(Kind.REPRESENTATION, "apc/codes", "codes")
        shape = (len(self.table.split.train), self.config.code)
        try:
            return read_tensor(message.arrays["codes"], shape, peer, self.plan.device)
        except ProtocolError as error:
            raise ProtocolError(f"{error}: apc_vfl needs one code width at all parties") from error

    def joint_codes(self, theirs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Codes of aligned rows that know all parties' columns, (n, code): an autoencoder's on the parties' codes."""
        encoder, aligned = self.build_encoder(), self.features(self.table.split.train)
        self.train_autoencoder(encoder)
        with torch.no_grad():
            side_by_side = standardise_codes(torch.cat([encoder(aligned), *theirs], dim=1))
        width, size = side_by_side.shape[1], self.nominal_batch
        encode, decode = (
            build_mlp(widths).to(self.plan.device)
            for widths in ([width, 64, self.config.code], [self.config.code, 64, width])
        )

        def compute_loss() -> torch.Tensor:
            batch = _draw_batch(side_by_side, size)
            return functional.mse_loss(decode(encode(batch)), batch)

        _minimise_loss([*encode.parameters(), *decode.parameters()], self.config.lr, self.config.steps, compute_loss)
        with torch.no_grad():
            return standardise_codes(encode(side_by_side))

    def train_student(self, joint: torch.Tensor | None) -> None:
        """Train the student on all of this party's rows, towards the joint codes (n, code) on the aligned ones."""
        x, aligned, decoder = self.own_rows(), self.features(self.table.split.train), self.build_decoder()
        size, weight = self.nominal_batch, self.config.imitation

        def compute_loss() -> torch.Tensor:
            batch = _draw_batch(x, size)
            rebuilt = decoder(self.student(batch))
            if joint is None or not weight:
                return functional.mse_loss(rebuilt, batch.flatten(1))
            some = _draw_batch(torch.arange(len(aligned), device=aligned.device), size)
            return imitation_loss(rebuilt, batch.flatten(1), self.student(aligned[some]), joint[some], weight)

        _minimise_loss(
            [*self.student.parameters(), *decoder.parameters()], self.config.lr, self.config.student_steps, compute_loss
        )

    def compute_logits(self, rows: np.ndarray, *, train: bool) -> torch.Tensor:
        """Logits (n, outputs) from this party's own columns."""
        with torch.set_grad_enabled(train and self.config.fine_tune):
            codes = self.student(self.features(rows))
        with torch.set_grad_enabled(train):
            found: torch.Tensor = self.classifier(codes)
        return found

    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        loss = self.loss(self.compute_logits(rows, train=True), self.labels(rows)).sum()
        self.networks.step(loss / self.plan.batch_size)
        return loss.detach()

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        return self.score_alone(rows)

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        return self.compute_logits(rows, train=False)


class _Passive(_EncodingRole, PassiveRole):
    """Hands its codes of aligned rows over, once, and sends nothing after that."""

    def build(self) -> None:
        self.noise = FeatureNoise(self)
        with seed_torch(self.seed("model")):
            self.encoder = self.build_encoder()
        if self.site.observer.listening:
            self.site.observer.network_built(self.site.name, self.site.active, self.encoder)

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch > 1:
            return False
        with seed_torch(self.seed("codes")):
            self.train_autoencoder(self.encoder)
        aligned = self.table.split.train
        self.site.observer.batch_begun(self.site.name, self.site.active, epoch, aligned)
        with torch.no_grad():
            codes = self.noise(self.encoder(self.features(aligned)), aligned)
        cut_off = map_noised(codes, torch.Tensor.detach)
        await self.upstream.send(Kind.REPRESENTATION, "apc/codes", codes=cut_off)
        return False

    async def train_batch(self, rows: np.ndarray) -> None: ...

    async def answer(self, rows: np.ndarray) -> None: ...

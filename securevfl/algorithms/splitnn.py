"""SplitNN: vertical federated learning on the aligned rows (Ceballos et al. 2020, arXiv 2008.04137).

Every party has a bottom model from its features to its activations. The cut layer joins the activations,
``z = Σ_p a_p W_p + b``, and the active party's top model turns z into logits. With ``bottom=()`` the bottoms are the
identity, the cut is the model's first layer, and passive parties receive no gradients of their activations.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta

from securevfl.cut import CutSpec, CutUse, Protection
from securevfl.privacy import Noised
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import Algorithm, ReleaseCounts
from securevfl.training.cut_noise import active_side, widen_ranges
from securevfl.training.fits import Fits
from securevfl.training.frozen import Frozen, rows_to_pretrain
from securevfl.training.halves import ActiveHalf, Architecture, PassiveHalf
from securevfl.training.multilabel import Labels
from securevfl.training.networks import Bottom, bottom_problems
from securevfl.training.noise import FeatureNoise
from securevfl.training.passive_role import PassiveRole
from securevfl.training.rows import Plan
from securevfl.training.seeding import seed_torch
from securevfl.training.setting import Setting
from securevfl.training.task import Task

__all__ = ["Active", "Passive", "Rate", "SplitNN"]

Width = Annotated[int, Meta(ge=1, le=1 << 16)]
Rate = Annotated[float, Meta(gt=0, le=100)]
Decay = Annotated[float, Meta(ge=0, lt=1)]


class SplitNN(Algorithm):
    """Split learning on the aligned rows.

    Attributes:
        hidden: width h of the cut, the first hidden layer that all parties share.
        top: widths of the top model's hidden layers.
        bottom: widths of each party's bottom model, the last one that of its activations; ``()`` for the identity; or
            the name of a convolutional network: ``"cnn"``, ``"cnn-fedcvt"``, ``"cnn-multivfl"``, ``"resnet18"``,
            ``"resnet56"``; or `Frozen`: features that passive parties draw and never train.
        lr: Adam's learning rate, for bottoms, top and the active party's own block of the cut.
        cut_lr: SGD's learning rate η, for the passive parties' blocks of the cut.
        cut_momentum: that SGD's momentum μ.
        cut_weight_decay: that SGD's L2 penalty λ.
        weight_decay: L2 penalty of the parameters that Adam trains.
    """

    name: ClassVar[str] = "splitnn"
    label: ClassVar[str] = "SplitNN"
    fits: ClassVar[Fits] = Fits(dp={"joint", "stop"}, learns={"labels", "numbers", "weights"}, shares=True, counts=True)
    not_frozen: ClassVar[str] = ""
    hidden: Width = 16
    top: tuple[Width, ...] = (16,)
    bottom: Bottom = ()
    lr: Rate = 0.01
    cut_lr: Rate = 0.5
    cut_momentum: Annotated[float, Meta(ge=0, le=0.99)] = 0.0
    cut_weight_decay: Decay = 0.0
    weight_decay: Decay = 0.0

    def problems(self) -> list[str]:
        found = bottom_problems(self.bottom, f"{self.name}.bottom", not_frozen=self.not_frozen)
        return super().problems() + found

    @property
    def trainable(self) -> bool:
        return bool(self.bottom) and not isinstance(self.bottom, Frozen)

    @property
    def draws_secretly(self) -> bool:
        return isinstance(self.bottom, Frozen)

    @property
    def learns_alone(self) -> bool:
        return isinstance(self.bottom, Frozen) and self.bottom.learned is not None

    @property
    def cut(self) -> CutUse:
        rounds = bool(self.cut_momentum or self.cut_weight_decay)
        return CutUse(trainable=self.trainable, frozen=isinstance(self.bottom, Frozen), rounds=rounds)

    def max_releases(self, protection: Protection, plan: Plan, passive: int) -> ReleaseCounts:
        times = plan.epochs * (
            plan.steps or 1
        )  # the number of rows is unknown here, so each of `steps` may be a pass over all of them
        moves = self.trainable or (protection.dp is not None and protection.dp.joint_noise is not None)
        numbers = (
            1 + passive if self.uses_book else 1
        )  # a person in a label book has a row at each party, see `NumberedRows.shared`
        return ReleaseCounts(features=times if moves else 1, labels=times * numbers)

    def values_opened(self, plan: Plan) -> int:
        return self.hidden * (plan.epochs if plan.steps is None else 1)

    def build_architecture(self, outputs: int) -> Architecture:
        """Shapes and rates of the split network.

        Args:
            outputs: width of the logits.
        """
        return Architecture(
            hidden=self.hidden, top=self.top, bottom=self.bottom, lr=self.lr, weight_decay=self.weight_decay
        )

    def cut_spec(self, role: ActiveRole | PassiveRole, width: int) -> CutSpec:
        """The parameters that both sides of a cut of this width agree on."""
        spec = CutSpec(
            width=width,
            lr=self.cut_lr,
            batch_size=role.plan.batch_size,
            momentum=self.cut_momentum,
            weight_decay=self.cut_weight_decay,
        )
        return widen_ranges(spec, role)

    def active(self, setting: Setting) -> ActiveRole:
        return Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return Passive(self, setting)

    def notes(self, protection: Protection) -> list[str]:
        dp = protection.dp
        found = []
        if dp is not None and dp.activation_noise is not None and self.trainable:
            found += [
                "ε of activations covers a row's own releases. It does not cover the row's influence on other rows' "
                "activations through the bottoms' weights"
            ]
        if dp is not None and dp.joint_noise is not None:
            found += [
                "ε of z is valid while the norm of the cut's weights is below the declared "
                f"{dp.joint_noise.weight_bound:g}: passive parties start at half of it, and the active party shortens "
                "its steps; under a sealed cut nobody can check that it does",
                "ε of z covers a row's own releases, given the weights. It does not cover the row's influence on other "
                f"rows' z through the weights of the cut{' and of the bottoms' if self.trainable else ''}, which train "
                "on exact features",
            ]
        if dp is not None and dp.model is not None and protection.on_shares:
            found += [
                "ε of the model covers the training rows. Validation metrics and test predictions use the noisy model, "
                "but the validation and test rows themselves get no noise"
            ]
        return found


class Active(ActiveRole):
    """The active party: has the labels, its bottom, its block of the cut, and the top model."""

    config: SplitNN
    half: ActiveHalf

    def build(self) -> None:
        self.label_noise.plan_gradients()
        with seed_torch(self.seed("model")):
            self.half = self.build_half(self.config.build_architecture(self.task.outputs))
        self.parts["half"] = self.half
        # A sealed cut sizes its shares by the widest party, also in a prediction without that party.
        self.books.model_facts["widest"] = lambda: max(self.half.cut.widths.values(), default=0)

    def build_half(self, architecture: Architecture) -> ActiveHalf:
        """This party's half of the network."""
        spec = self.config.cut_spec(self, architecture.hidden)
        cut, passive = active_side(self, spec), len(self.site.passive)
        return ActiveHalf(architecture, cut, spec, passive, self.features.row_shape, self.task.outputs)

    def activations(self, rows: np.ndarray, *, train: bool) -> torch.Tensor:
        """The active party's activations of these rows, (n, d).

        Args:
            rows: their numbers, (n,).
            train: whether the rows train; False where they are scored.
        """
        a: torch.Tensor = self.half.bottom(self.features(rows))
        return a

    def targets(self, rows: np.ndarray) -> torch.Tensor:
        """Targets of a batch: classes (n,), probabilities of the classes (n, classes), or scaled numbers (n,)."""
        return self.task.make_targets(self.labels(rows))

    def adjust_logits(self, logits: torch.Tensor, rows: np.ndarray, *, train: bool) -> torch.Tensor:
        """Final logits of numbered rows, (n, outputs), from the network's logits.

        Returns them unchanged, unless an algorithm adds an offset.
        """
        return logits

    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        a = self.activations(self.feed(rows), train=True)
        logits = self.adjust_logits(await self.half.forward(a, train=True), rows, train=True)
        targets = self.targets(rows)
        loss = self.weight_losses(self.loss(self.label_noise.correct_logits(logits), targets), rows).sum()
        noised = self.label_noise.noised_gradient(logits, targets, rows)
        if noised is None:
            await self.half.backward(loss / self.plan.batch_size)
        else:
            await self.half.backward(logits, noised)
        return loss.detach()

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        with torch.no_grad():
            a = self.activations(rows, train=False)
        return self.adjust_logits(await self.half.forward(a, train=False), rows, train=False)

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        """Logits (n, outputs) with zeros for the passive parties' part of z.

        SplitNN never trains on such rows; see `Algorithm.subsets` for algorithms that do.
        """
        with torch.no_grad():
            return self.half.forward_alone(self.activations(rows, train=False))


class Passive(PassiveRole):
    """A passive party: has features and a bottom; its block of the cut is its own (plain) or shared with the active
    party (sealed)."""

    config: SplitNN
    half: PassiveHalf

    def build(self) -> None:
        self.noise = FeatureNoise(self)
        self.books.before_checkpoint.append(self.noise.draw_ahead)
        task = Labels if self.plan.several else Task
        with seed_torch(self.seed("model")):
            self.half = self.build_half(self.config.build_architecture(task(self.table.classes).outputs))
        self.parts["half"] = self.half

    def build_half(self, architecture: Architecture) -> PassiveHalf:
        """This party's half of the network."""
        spec = self.config.cut_spec(self, architecture.hidden)
        return PassiveHalf(
            architecture, self.site, spec, self.protection, self.features.row_shape, rows_to_pretrain(self)
        )

    @property
    def values_per_release(self) -> int:
        return self.half.cut_width

    def activations(self, rows: np.ndarray, *, train: bool) -> torch.Tensor | Noised[torch.Tensor]:
        """Activations a_p of these rows, (n, d), clipped and noised if the job asks for it; see
        `PassiveRole.activations`."""
        return self.noise(self.half.bottom(self.features(rows)), rows)

    async def train_batch(self, rows: np.ndarray) -> None:
        fed = self.feed(rows)
        a = self.activations(fed, train=True)
        await self.half.forward(a, train=True, noise=self.noise.noise_share(fed, self.half.cut_width))
        await self.half.backward(a)

    async def answer(self, rows: np.ndarray) -> None:
        with torch.no_grad():
            a = self.activations(rows, train=False)
        await self.half.forward(a, train=False, noise=self.noise.noise_share(rows, self.half.cut_width))

"""The two roles of SplitNN: what each party computes in a batch."""

from __future__ import annotations

import numpy as np
import torch

from securevfl.algorithms.splitnn.settings import SplitNNSettings
from securevfl.privacy import Noised
from securevfl.training.active_role import ActiveRole
from securevfl.training.bottoms import Architecture
from securevfl.training.cut_noise import active_side
from securevfl.training.frozen import rows_to_pretrain
from securevfl.training.halves import ActiveHalf, PassiveHalf
from securevfl.training.multilabel import Labels
from securevfl.training.noise import FeatureNoise
from securevfl.training.passive_role import PassiveRole
from securevfl.training.seeding import seed_torch
from securevfl.training.task import Task

__all__ = ["Active", "Passive"]


class Active(ActiveRole):
    """The active party: has the labels, its bottom, its block of the cut, and the top model."""

    config: SplitNNSettings
    half: ActiveHalf

    def build(self) -> None:
        self.label_noise.plan_gradients()
        with seed_torch(self.seed("model")):
            self.half = self.build_half(self.config.build_architecture(self.task.outputs))
        self.parts["half"] = self.half
        # A sealed cut sizes its shares by the widest party, also in a prediction without that party.
        self.books.model_facts["widest"] = lambda: max([self.books.widest, *self.half.cut.widths.values()])

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

    config: SplitNNSettings
    half: PassiveHalf
    answers_each_row = True

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

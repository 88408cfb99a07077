"""Distillation of a joint model into the active party's own (Hinton et al. 2015, arXiv 1503.02531, across parties).

A split network, the teacher, trains on the aligned rows. The active party's own network, the student, then trains on
all of its rows; on the aligned ones it also follows the teacher's probabilities, softened by a temperature. Only the
teacher's training sends messages, and scoring a row needs no other party.

On rows that it was trained on, a teacher is confident and adds nothing to their labels. So by default the aligned rows
are split into folds, and each row gets its probabilities from a teacher that was trained without its fold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta

from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.cut import CutSpec, Plain, Protection
from securevfl.party_context import derive_seed
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import ReleaseCounts, Subsets
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.bottoms import Architecture
from securevfl.training.cut_noise import active_side
from securevfl.training.fits import Fits
from securevfl.training.frozen import rows_to_pretrain
from securevfl.training.halves import ActiveHalf, PassiveHalf
from securevfl.training.noise import FeatureNoise
from securevfl.training.passive_role import PassiveRole
from securevfl.training.plan import Plan
from securevfl.training.role import Role
from securevfl.training.seeding import seed_torch
from securevfl.training.setting import Setting
from securevfl.training.split import epoch_batches, split_chunks
from securevfl.training.state import State, as_tensor
from securevfl.training.task import Task

__all__ = ["Distilled", "distillation_loss", "log_probabilities"]


class Distilled(SplitNN):
    """Distillation of a split network. Teacher and student have the same widths.

    Attributes:
        teacher_steps: training steps of each teacher.
        folds: number of teachers. Each trains without one fold of the aligned rows, and scores that fold. 1 trains a
            single teacher on all of them, which scores the same rows.
        share: α, weight of the teacher's probabilities on aligned rows; the label weighs 1 − α.
        temperature: T.
    """

    name: ClassVar[str] = "distilled"
    label: ClassVar[str] = "distilled"
    fits: ClassVar[Fits] = Fits(counts=True)
    uses_others: ClassVar[bool] = True
    subsets: ClassVar[Subsets] = "alone"
    asks_partner: ClassVar[bool] = False
    teacher_steps: Annotated[int, Meta(ge=1, le=1_000_000)] = 250
    folds: Annotated[int, Meta(ge=1, le=100)] = 4
    share: Annotated[float, Meta(ge=0, le=1)] = 0.7
    temperature: Annotated[float, Meta(gt=0, le=100)] = 2.0

    @property
    def title(self) -> str:
        return self.label if self.folds > 1 else f"{self.label} (fitted teacher)"

    def values_opened(self, plan: Plan) -> int:
        return self.hidden  # when its teachers' fold is scored, and more in training them

    def max_releases(self, protection: Protection, plan: Plan, passive: int) -> ReleaseCounts:
        return ReleaseCounts()  # steps of a teacher are given, and not passes: it depends on how many rows are aligned

    def notes(self, protection: Protection) -> list[str]:
        found = ["every row is scored from the active party's own columns, even if all parties have it"]
        return [*super().notes(protection), *found]

    def active(self, setting: Setting) -> ActiveRole:
        return _Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Passive(self, setting)


def log_probabilities(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Softened log-probabilities (n, classes) from logits (n, outputs), of which two classes have one."""
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
    return torch.log_softmax(logits / temperature, dim=1)


def distillation_loss(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """``T² Σ_k q_k (log q_k − log p_k)`` of each row, (n,): the divergence of softened probabilities.

    Args:
        student: its logits, (n, outputs).
        teacher: the teacher's, (n, outputs).
        temperature: T.
    """
    log_p, log_q = log_probabilities(student, temperature), log_probabilities(teacher, temperature)
    return temperature**2 * (log_q.exp() * (log_q - log_p)).sum(dim=1)


class _Books(Bookkeeping):
    """Rows are released to train the teachers, and once more to score the rows that they teach."""

    role: _DistilledRole

    def activation_times(self, epochs: int) -> int:
        return self.role.max_row_uses() + 1 if self.role.config.trainable else 1

    def label_times(self, epochs: int) -> int:
        return self.role.max_row_uses()

    def opening_times(self, epochs: int) -> int:
        return self.role.max_row_uses() + 1 if epochs else 0


class _DistilledRole(Role):
    """Base of both roles: the folds, and the rows of a teacher's steps."""

    bookkeeping = _Books
    config: Distilled

    @property
    def teacher_folds(self) -> list[np.ndarray]:
        """The aligned training rows by the teacher that scores them, the same at all parties."""
        rows = self.table.split.train
        count = max(min(self.config.folds, len(rows)), 1)
        order = np.random.default_rng(derive_seed(self.site.seed, "folds")).permutation(rows)
        return [order[number::count] for number in range(count)]

    @property
    def teacher_rows(self) -> list[np.ndarray]:
        """The training rows of each teacher: those of the other folds, or all rows if there is one fold."""
        folds = self.teacher_folds
        return [
            np.concatenate([fold for number, fold in enumerate(folds) if number != own] or folds)
            for own in range(len(folds))
        ]

    def steps_of(self, number: int, rows: np.ndarray) -> Iterator[np.ndarray]:
        """The batches of a teacher."""
        size, seed = self.teacher_batch(rows), derive_seed(self.site.seed, "teacher", number)
        return iter(epoch_batches(rows, size, self.config.teacher_steps, seed=seed, epoch=0))

    def teacher_batch(self, rows: np.ndarray) -> int:
        """Rows in a batch of a teacher."""
        return max(min(self.nominal_batch, len(rows)), 1)

    def teacher_spec(self, rows: np.ndarray) -> CutSpec:
        """The parameters that both sides of a teacher's cut agree on."""
        spec = self.config.cut_spec(self, self.config.hidden)  # type: ignore[arg-type]
        return replace(spec, batch_size=self.teacher_batch(rows))

    def training_rows(self, epoch: int) -> np.ndarray:
        return np.concatenate([self.table.split.train, self.table.rows_only_at(self.site.active)])

    def max_row_uses(self) -> int:
        """How often the teachers' steps use one row, at most."""
        used = [
            -(-self.config.teacher_steps // max(len(rows) // self.teacher_batch(rows), 1)) for rows in self.teacher_rows
        ]
        return sum(used) - (min(used) if len(used) > 1 else 0)


class _Active(_DistilledRole, Active):
    """Trains the teachers with the passive parties, and the student alone.

    Attributes:
        taught: logits of the teachers for the aligned rows by their numbers, (aligned, outputs).
    """

    config: Distilled

    def build(self) -> None:
        super().build()
        shape = (self.table.aligned_count, self.task.outputs)
        self.taught = torch.zeros(shape, device=self.plan.device)

    def build_half(self, architecture: Architecture) -> ActiveHalf:
        spec = self.config.cut_spec(self, architecture.hidden)
        cut = Plain().active_cut(replace(self.site, passive=(), links={}), spec)
        return ActiveHalf(architecture, cut, spec, 0, self.features.row_shape, self.task.outputs)

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch == 1:
            for number, (rows, fold) in enumerate(zip(self.teacher_rows, self.teacher_folds, strict=True)):
                await self.train_teacher(number, rows, fold)
        return False

    async def train_teacher(self, number: int, rows: np.ndarray, fold: np.ndarray) -> None:
        """Train a split network on aligned rows, and keep its logits for the rows of a fold."""
        spec, architecture = self.teacher_spec(rows), self.config.build_architecture(self.task.outputs)
        with seed_torch(self.seed("teacher", number)):
            passive = len(self.site.passive)
            cut = active_side(self, spec)
            teacher = ActiveHalf(architecture, cut, spec, passive, self.features.row_shape, self.task.outputs)
        await teacher.setup()
        for batch in self.steps_of(number, rows):
            self.site.observer.batch_begun(self.site.name, self.site.active, 1, batch)
            logits = await teacher.forward(teacher.bottom(self.features(batch)), train=True)
            targets = self.labels(batch)
            noised = self.label_noise.noised_gradient(logits, targets, batch)
            if noised is None:
                loss = self.loss(self.label_noise.correct_logits(logits), targets).sum()
                await teacher.backward(loss / spec.batch_size)
            else:
                await teacher.backward(logits, noised)
        for part in split_chunks(fold, self.plan.eval_rows):
            self.site.observer.batch_begun(self.site.name, self.site.active, 0, part)
            with torch.no_grad():
                a = teacher.bottom(self.features(part))
            said = await teacher.forward(a, train=False)
            self.taught[torch.from_numpy(part).to(said.device)] = said

    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        logits = await self.half.forward(self.activations(rows, train=True), train=True)
        losses = self.loss(logits, self.labels(rows))
        aligned = torch.from_numpy(np.flatnonzero(rows < self.table.aligned_count)).to(logits.device)
        if len(aligned) and self.config.share:
            numbers = torch.from_numpy(rows[rows < self.table.aligned_count]).to(logits.device)
            followed = distillation_loss(logits[aligned], self.taught[numbers], self.config.temperature)
            alpha = self.config.share
            losses = losses.index_copy(0, aligned, (1 - alpha) * losses[aligned] + alpha * followed)
        loss = losses.sum()
        await self.half.backward(loss / self.plan.batch_size)
        return loss.detach()

    def remember(self) -> State:
        return super().remember() | {"taught": self.taught}

    def recall(self, memory: State) -> None:
        super().recall(memory)
        self.taught = as_tensor(memory["taught"])


class _Passive(_DistilledRole, Passive):
    """Trains the teachers with the active party, and sends nothing after that.

    Attributes:
        half: its half of the current teacher.
    """

    config: Distilled
    answers_each_row = False

    def build(self) -> None:
        self.noise = FeatureNoise(self)  # never drawn ahead of a checkpoint: nothing is fed after the teachers

    @property
    def values_per_release(self) -> int:
        return self.config.hidden

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch == 1:
            for number, (rows, fold) in enumerate(zip(self.teacher_rows, self.teacher_folds, strict=True)):
                await self.train_teacher(number, rows, fold)
        return False

    async def train_teacher(self, number: int, rows: np.ndarray, fold: np.ndarray) -> None:
        """Take part in training a split network on aligned rows, and in scoring those of a fold."""
        architecture = self.config.build_architecture(Task(self.table.classes).outputs)
        spec = self.teacher_spec(rows)
        with seed_torch(self.seed("teacher", number)):
            own = rows_to_pretrain(self)
            self.half = PassiveHalf(architecture, self.site, spec, self.protection, self.features.row_shape, own)
        await self.half.setup()
        for batch in self.steps_of(number, rows):
            self.site.observer.batch_begun(self.site.name, self.site.active, 1, batch)
            await Passive.train_batch(self, batch)
        for part in split_chunks(fold, self.plan.eval_rows):
            self.site.observer.batch_begun(self.site.name, self.site.active, 0, part)
            await Passive.answer(self, part)

    async def train_batch(self, rows: np.ndarray) -> None: ...

    async def answer(self, rows: np.ndarray) -> None: ...

"""What the papers compare with: logistic regression, the active party alone, and simple ways to use rows that are not
aligned."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch

from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.cut import CutUse, Plain, Protection
from securevfl.errors import InputError
from securevfl.privacy import PrivateSteps
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import Looks, Subsets
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.fits import Fits
from securevfl.training.halves import ActiveHalf, Architecture
from securevfl.training.objectives import LossOfNumber
from securevfl.training.passive_role import PassiveRole
from securevfl.training.rows import NumberedRows, Plan
from securevfl.training.setting import Setting
from securevfl.transport import Exchange

__all__ = ["AllLabels", "Local", "LogisticRegression", "RandomMatch", "ZeroImputation"]


_LINEAR = {
    "squared": "linear regression",
    "huber": "linear regression (Huber)",
    "poisson": "Poisson regression",
    "tweedie": "Tweedie regression",
}
"""What logistic regression is called where it learns a number by one of these losses."""


class LogisticRegression(SplitNN):
    """Logistic regression, or linear regression of a numeric target: the identity or frozen features as bottom, a cut
    as wide as the logits, and nothing above it.

    Attributes:
        hidden: not used; the cut is one wide, or one for each class.
        top: not used.
        bottom: ``()``, or `Frozen` for logistic regression on features that each passive party draws.
    """

    name: ClassVar[str] = "logistic_regression"
    label: ClassVar[str] = "logistic regression"
    fits: ClassVar[Fits] = Fits(dp={"joint", "stop"}, learns={"labels", "numbers", "weights"}, shares=True, counts=True)

    def problems(self) -> list[str]:
        found = super().problems()
        if self.trainable:
            found += [f"{self.name}.bottom is {self.bottom!r}; logistic regression trains none: use splitnn, or Frozen"]
        return found

    def values_opened(self, plan: Plan) -> int:
        return plan.epochs if plan.steps is None else 1

    def title_for(self, number: LossOfNumber | None) -> str:
        return self.title if number is None else _LINEAR[number.name]

    def architecture(self, outputs: int) -> Architecture:
        return Architecture(hidden=outputs, top=None, bottom=self.bottom, lr=self.lr, weight_decay=self.weight_decay)


class Local(SplitNN):
    """The active party alone, on all rows of its own; the passive parties send nothing."""

    name: ClassVar[str] = "local"
    label: ClassVar[str] = "local"
    fits: ClassVar[Fits] = Fits(dp={"model", "stop"}, learns={"labels", "numbers", "weights"}, counts=True)
    uses_others: ClassVar[bool] = True
    subsets: ClassVar[Subsets] = "alone"

    def active(self, setting: Setting) -> ActiveRole:
        return _LocalActive(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Idle(self, setting)

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        return ()

    def values_opened(self, plan: Plan) -> int:
        return 0

    def check(self, protection: Protection) -> None:
        """See `Algorithm.check`.

        Raises:
            InputError: differential privacy of what is never released.
        """
        super().check(protection)
        if protection.dp is not None and protection.dp.model is None:
            raise InputError(
                "local sends nothing to train with, so noise would protect nobody: leave dp out, or protect the "
                "model's rows from whoever gets the model by sv.DP(model=sv.Gaussian(…))"
            )


class _LocalActive(Active):
    """The same network with a cut to nobody; with DP-SGD where the job says so."""

    def build(self) -> None:
        super().build()
        self.private: PrivateSteps | None = None
        dp = self.protection.dp
        if dp is not None and dp.model is not None:
            times = self.books.times(self.plan.epochs)
            self.private = self.releases.plan_steps(dp.model, self.half.model, rows=self.table.total_count, times=times)

    def build_half(self, architecture: Architecture) -> ActiveHalf:
        spec = self.config.cut_spec(self, architecture.hidden)
        cut = Plain().active_cut(replace(self.site, passive=(), links={}), spec)
        return ActiveHalf(architecture, cut, spec, 0, self.features.shape, self.task.outputs)

    def training_rows(self, epoch: int) -> np.ndarray:
        return np.concatenate([self.table.split.train, self.table.rows_only_at(self.site.active)])

    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        if self.private is None:
            return await super().train_batch(rows)
        losses = self.loss(await self.half.forward(self.activations(rows, train=True), train=True), self.targets(rows))
        self.private.backward(losses, rows, divide=self.plan.batch_size)
        self.half.optimizer.step()
        return losses.detach().sum()


class _Idle(PassiveRole):
    """Counts the epochs and sends nothing."""

    def build(self) -> None: ...

    async def train_batch(self, rows: np.ndarray) -> None: ...

    async def answer(self, rows: np.ndarray) -> None: ...


class ZeroImputation(SplitNN):
    """ "Local + VFL": the active party's other rows train too; for the missing features a passive party puts zeros,
    which are the means of standardised features."""

    name: ClassVar[str] = "zero_imputation"
    label: ClassVar[str] = "local + VFL (zeros)"
    fits: ClassVar[Fits] = Fits(dp={"stop"}, learns={"labels", "numbers", "weights"}, shares=True, counts=True)
    uses_others: ClassVar[bool] = True
    subsets: ClassVar[Subsets] = "alone"

    def active(self, setting: Setting) -> ActiveRole:
        return _ZeroActive(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _ZeroPassive(self, setting)


class _ZeroActive(Active):
    def training_rows(self, epoch: int) -> np.ndarray:
        return np.concatenate([self.table.split.train, self.table.rows_only_at(self.site.active)])


class _ZeroPassive(Passive):
    def training_rows(self, epoch: int) -> np.ndarray:
        return np.concatenate([self.table.split.train, self.table.rows_only_at(self.site.active)])


class RandomMatch(SplitNN):
    """The active party's other rows train, each beside random other rows of the passive parties: a new random order of
    them in each epoch, over again where there are too few."""

    name: ClassVar[str] = "random_match"
    label: ClassVar[str] = "random match"
    fits: ClassVar[Fits] = Fits(dp={"stop"}, learns={"labels", "numbers", "weights"}, shares=True, counts=True)
    uses_others: ClassVar[bool] = True

    def active(self, setting: Setting) -> ActiveRole:
        return _MatchActive(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _MatchPassive(self, setting)

    def max_releases(self, protection: Protection, plan: Plan, passive: int) -> Looks:
        known = super().max_releases(protection, plan, passive)
        return replace(known, features=None) if self.trainable else known

    def max_matches(self, table: NumberedRows, active: str) -> int:
        """How often one passive row is put in, at most, in one pass over the active party's rows."""
        if not self.trainable:
            return 1
        wanted, train = len(table.rows_only_at(active)), max(len(table.split.train), 1)
        others = [n for name, n in table.rest.items() if name != active]
        return max(1, *(-(-wanted // n) if n else 1 + -(-wanted // train) for n in others))


class _MatchBooks(Bookkeeping):
    """A passive row is fed beside several of the active party's."""

    role: _MatchActive | _MatchPassive

    def activation_times(self, epochs: int) -> int:
        role = self.role
        return super().activation_times(epochs) * role.config.max_matches(role.table, role.site.active)


class _MatchActive(_ZeroActive):
    bookkeeping = _MatchBooks
    config: RandomMatch


class _MatchPassive(_ZeroPassive):
    bookkeeping = _MatchBooks
    config: RandomMatch

    async def begin_epoch(self, epoch: int) -> bool:
        mine, wanted = self.table.rows_only_at(self.site.name), self.table.rows_only_at(self.site.active)
        source = mine if len(mine) else self.table.split.train
        generator = np.random.default_rng(self.seed("match", epoch))
        rounds = [generator.permutation(source) for _ in range(-(-len(wanted) // len(source)))]
        self._beside = np.arange(self.table.total_count)
        if rounds:
            self._beside[wanted] = np.concatenate(rounds)[: len(wanted)]
        return False

    def feed(self, rows: np.ndarray) -> np.ndarray:
        fed: np.ndarray = self._beside[rows]
        return fed


class AllLabels(SplitNN):
    """The control that the papers lack: zeros for what is missing, and all the labels that Entity Augmentation
    assumes."""

    name: ClassVar[str] = "all_labels"
    label: ClassVar[str] = "all labels (zeros)"
    fits: ClassVar[Fits] = Fits(dp={"stop"}, shares=True, counts=True)
    uses_others: ClassVar[bool] = True
    uses_book: ClassVar[bool] = True

    @property
    def cut(self) -> CutUse:
        """Of a row that one passive party alone has, the others feed zeros."""
        return replace(super().cut, alone=True)

    def active(self, setting: Setting) -> ActiveRole:
        return _AllActive(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _AllPassive(self, setting)


def _labelled_rows(table: NumberedRows, active: str) -> np.ndarray:
    others = [table.rows_only_at(name)[:count] for name, count in table.labelled.items()]
    return np.concatenate([table.split.train, table.rows_only_at(active), *others])


class _AllActive(Active):
    def training_rows(self, epoch: int) -> np.ndarray:
        return _labelled_rows(self.table, self.site.active)


class _AllPassive(Passive):
    def training_rows(self, epoch: int) -> np.ndarray:
        return _labelled_rows(self.table, self.site.active)

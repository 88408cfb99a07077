"""Baselines: logistic regression, the active party alone, and simple ways to use rows that are not aligned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch

from securevfl.algorithms.linear_terms import STAYS_IN_SHARES, name_sum, read_weights
from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.cut import CutUse, Plain, Protection
from securevfl.data.column_terms import ColumnTerms, multiply_columns
from securevfl.errors import InputError
from securevfl.privacy import PrivateSteps
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import ReleaseCounts, Subsets
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.bottoms import Architecture
from securevfl.training.fits import Fits
from securevfl.training.halves import ActiveHalf
from securevfl.training.objectives import LossOfNumber
from securevfl.training.passive_role import PassiveRole
from securevfl.training.plan import Plan
from securevfl.training.rows import NumberedRows
from securevfl.training.setting import Setting
from securevfl.transport import Exchange

__all__ = ["AllLabels", "Local", "LogisticRegression", "RandomMatch", "ZeroImputation"]


_LINEAR = {
    "squared": "linear regression",
    "huber": "linear regression (Huber)",
    "poisson": "Poisson regression",
    "tweedie": "Tweedie regression",
}
"""Loss → the name of the regression in titles and reports, where the target is a number."""


class LogisticRegression(SplitNN):
    """Logistic regression, or linear regression if the target is a number.

    The bottom is the identity or frozen features, the cut is as wide as the logits, and there is no top model.

    Attributes:
        hidden: not used. The cut has one column, or one for each class.
        top: not used.
        bottom: ``()``, or `Frozen` for logistic regression on features that each passive party draws.
    """

    name: ClassVar[str] = "logistic_regression"
    label: ClassVar[str] = "logistic regression"
    fits: ClassVar[Fits] = Fits(
        dp={"joint", "stop"},
        learns={"labels", "numbers", "weights"},
        shares=True,
        counts=True,
        exports=True,
        starts=True,
    )

    def problems(self) -> list[str]:
        found = super().problems()
        if self.trainable:
            found += [
                f"{self.name}.bottom is {self.bottom!r}; logistic regression has no trainable bottom: use splitnn, or "
                "Frozen"
            ]
        return found

    def values_opened(self, plan: Plan) -> int:
        return plan.epochs if plan.steps is None else 1

    def title_for(self, number: LossOfNumber | None) -> str:
        return self.title if number is None else _LINEAR[number.name]

    def column_terms(
        self, part: Mapping[str, Any], x: np.ndarray, party: str, number: LossOfNumber | None
    ) -> ColumnTerms:
        """See `Algorithm.column_terms`."""
        self.check_reasons(None)
        flat = x.reshape(len(x), -1)
        weights, start = read_weights(part, flat.shape[1], party)
        return ColumnTerms(values=multiply_columns(flat, weights), start=start, unit=name_sum(number))

    def check_reasons(self, protection: Protection | None) -> None:
        """See `Algorithm.check_reasons`."""
        if self.bottom:
            raise InputError(
                f"{self.name}.bottom is Frozen, and each of its features mixes columns: no column has a term of its "
                "own; sv.explain splits scores among parties"
            )
        if protection is not None and protection.on_shares and not protection.hands_out:
            raise InputError(f"no party would see the terms of its own columns: {STAYS_IN_SHARES}")

    def build_architecture(self, outputs: int) -> Architecture:
        return Architecture(hidden=outputs, top=None, bottom=self.bottom, lr=self.lr, weight_decay=self.weight_decay)


class Local(SplitNN):
    """The active party's own model, trained on all of its rows. The passive parties send nothing."""

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

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: the job asks for noise on activations or gradients, which this algorithm never sends.
        """
        super().check_protection(protection)
        if protection.dp is not None and protection.dp.model is None:
            raise InputError(
                "local exchanges no training messages, so this noise would protect nobody. Leave dp out. To protect "
                "the training rows from those who receive the model, use sv.DP(model=sv.Gaussian(…))"
            )


class _LocalActive(Active):
    """SplitNN's network without passive parties. Trains with DP-SGD if the job protects the model."""

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
        return ActiveHalf(architecture, cut, spec, 0, self.features.row_shape, self.task.outputs)

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
    """Takes part in each epoch without sending anything."""

    def build(self) -> None: ...

    async def train_batch(self, rows: np.ndarray) -> None: ...

    async def answer(self, rows: np.ndarray) -> None: ...


class ZeroImputation(SplitNN):
    """ "Local + VFL": the active party's other rows also train. The passive parties feed zeros for them.

    Zero is the mean of a standardised column.
    """

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
    """Trains each of the active party's other rows beside a random unaligned row of every passive party.

    The order is drawn again for each epoch. A passive party with too few rows starts over.
    """

    name: ClassVar[str] = "random_match"
    label: ClassVar[str] = "random match"
    fits: ClassVar[Fits] = Fits(dp={"stop"}, learns={"labels", "numbers", "weights"}, shares=True, counts=True)
    uses_others: ClassVar[bool] = True

    def active(self, setting: Setting) -> ActiveRole:
        return _MatchActive(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _MatchPassive(self, setting)

    def max_releases(self, protection: Protection, plan: Plan, passive: int) -> ReleaseCounts:
        known = super().max_releases(protection, plan, passive)
        return replace(known, features=None) if self.trainable else known

    def max_matches(self, table: NumberedRows, active: str) -> int:
        """How often a passive party feeds one row, at most, in one pass over the active party's rows."""
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
    """A control for Entity Augmentation: the same labels, with zeros for missing features.

    It needs a label book, as Entity Augmentation does. The papers do not have this comparison.
    """

    name: ClassVar[str] = "all_labels"
    label: ClassVar[str] = "all labels (zeros)"
    fits: ClassVar[Fits] = Fits(dp={"stop"}, shares=True, counts=True)
    uses_others: ClassVar[bool] = True
    uses_book: ClassVar[bool] = True

    @property
    def cut(self) -> CutUse:
        """The other parties feed zeros for a row that only one passive party has, which opens that party's part of
        z."""
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

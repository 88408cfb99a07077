"""What the papers compare with: logistic regression, the active party alone, and simple ways to use rows that are not
aligned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from securevfl.algorithms.base import ActiveRole, PassiveRole, Plan, Table
from securevfl.algorithms.halves import ActiveHalf, Architecture, State
from securevfl.algorithms.leakage import Finding
from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.cut import CutSpec, Plain, Protection
from securevfl.errors import InputError
from securevfl.privacy import PrivateSteps
from securevfl.site import Site, derive_seed

__all__ = ["AllLabels", "Local", "LogisticRegression", "RandomMatch", "ZeroImputation"]


@dataclass(frozen=True, kw_only=True)
class LogisticRegression(SplitNN):
    """Logistic regression: the identity as bottom, a cut as wide as the logits, and nothing above it.

    Attributes:
        hidden: not used; the cut is one wide, or one for each class.
        top: not used.
        bottom: stays ``()``.
    """

    name: ClassVar[str] = "logistic_regression"
    protects: ClassVar[frozenset[str]] = frozenset({"marvell", "stop", "z"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bottom:
            raise InputError(f"{self.name}.bottom is {self.bottom!r}; logistic regression has none: use splitnn")

    @property
    def title(self) -> str:
        return "logistic regression"

    def architecture(self, outputs: int) -> Architecture:
        return Architecture(hidden=outputs, top=None, bottom=(), lr=self.lr, weight_decay=self.weight_decay)


@dataclass(frozen=True, kw_only=True)
class Local(SplitNN):
    """The active party alone, on all rows of its own; the passive parties send nothing."""

    name: ClassVar[str] = "local"
    protects: ClassVar[frozenset[str]] = frozenset({"local", "stop"})
    uses_others: ClassVar[bool] = True
    exchanges: ClassVar[bool] = False

    @property
    def title(self) -> str:
        return "local"

    def active(self, site: Site, plan: Plan, protection: Protection, table: Table) -> ActiveRole:
        return _LocalActive(self, site, plan, protection, table)

    def passive(self, site: Site, plan: Plan, protection: Protection, table: Table) -> PassiveRole:
        return _Idle(site, plan, protection, table)

    def check(self, protection: Protection) -> None:
        """See `Algorithm.check`.

        Raises:
            InputError: differential privacy of what is never released.
        """
        super().check(protection)
        if protection.dp is not None and not protection.dp.local:
            raise InputError(
                "local sends nothing to train with, so noise would protect nobody: leave dp out, or protect the "
                "model's rows from whoever gets the model by sv.DP(local=True)"
            )

    def findings(self, protection: Protection, passive: Sequence[str], active: str) -> list[Finding]:
        return [Finding(active, name, "which rows are common, and nothing from training", "ok") for name in passive]


class _LocalActive(Active):
    """The same network with a cut to nobody; with DP-SGD where the job says so."""

    def __init__(self, config: SplitNN, site: Site, plan: Plan, protection: Protection, table: Table) -> None:
        super().__init__(config, site, plan, protection, table)
        dp = protection.dp
        self.private: PrivateSteps | None = None
        if dp is not None and dp.local:
            times = self.times(self.plan.epochs)
            self.private = PrivateSteps(
                self.half.model,
                rows=table.rows,
                times=times,
                sigma=dp.sigma(times),
                clip=dp.clip_model,
                delta=dp.delta,
            )
            self.plan_release(self.private, dp)
            self.further.append(self.private)

    def planned_times(self, trainable: bool) -> list[int]:
        return [self.times(self.plan.epochs)]

    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        if self.private is None:
            return await super().train_batch(rows)
        losses = self.losses(await self.half.forward(self.activations(rows), train=True), rows)
        self.private.backward(losses, rows, divide=self.plan.batch_size)
        self.half.optimizer.step()
        return losses.detach().sum()

    def training_rows(self, table: Table, epoch: int) -> np.ndarray:
        return np.concatenate([table.split.train, table.others(self.site.active)])

    def build_half(self, architecture: Architecture, spec: CutSpec, noise: float) -> ActiveHalf:
        alone = replace(self.site, passive=(), links={})
        return ActiveHalf(architecture, alone, spec, Plain(), 0.0, self.x.shape[1:], self.task.outputs)


class _Idle(PassiveRole):
    """Counts the epochs and sends nothing."""

    async def setup(self) -> None: ...

    async def train_batch(self, rows: np.ndarray) -> None: ...

    async def answer(self, rows: np.ndarray) -> None: ...

    def snapshot(self) -> object:
        return None

    def restore(self, state: object) -> None: ...

    def state(self) -> State:
        return {}

    def load(self, state: State) -> None: ...


@dataclass(frozen=True, kw_only=True)
class ZeroImputation(SplitNN):
    """ "Local + VFL": the active party's other rows train too; for the missing features a passive party puts zeros,
    which are the means of standardised features."""

    name: ClassVar[str] = "zero_imputation"
    protects: ClassVar[frozenset[str]] = frozenset({"marvell", "stop"})
    uses_others: ClassVar[bool] = True

    @property
    def title(self) -> str:
        return "local + VFL (zeros)"

    def active(self, site: Site, plan: Plan, protection: Protection, table: Table) -> ActiveRole:
        return _ZeroActive(self, site, plan, protection, table)

    def passive(self, site: Site, plan: Plan, protection: Protection, table: Table) -> PassiveRole:
        return _ZeroPassive(self, site, plan, protection, table)


class _ZeroActive(Active):
    def training_rows(self, table: Table, epoch: int) -> np.ndarray:
        return np.concatenate([table.split.train, table.others(self.site.active)])


class _ZeroPassive(Passive):
    def training_rows(self, table: Table, epoch: int) -> np.ndarray:
        return np.concatenate([table.split.train, table.others(self.site.active)])


@dataclass(frozen=True, kw_only=True)
class RandomMatch(SplitNN):
    """The active party's other rows train, each beside random other rows of the passive parties: a new random order of
    them in each epoch, over again where there are too few."""

    name: ClassVar[str] = "random_match"
    protects: ClassVar[frozenset[str]] = frozenset({"marvell", "stop"})
    uses_others: ClassVar[bool] = True

    @property
    def title(self) -> str:
        return "random match"

    def active(self, site: Site, plan: Plan, protection: Protection, table: Table) -> ActiveRole:
        return _MatchActive(self, site, plan, protection, table)

    def passive(self, site: Site, plan: Plan, protection: Protection, table: Table) -> PassiveRole:
        return _MatchPassive(self, site, plan, protection, table)


def _matches(table: Table, active: str) -> int:
    """How often one passive row is put in, at most, in one pass over the active party's rows."""
    wanted, train = len(table.others(active)), max(len(table.split.train), 1)
    others = [n for name, n in table.rest.items() if name != active]
    return max(1, *(-(-wanted // n) if n else 1 + -(-wanted // train) for n in others))


class _MatchActive(_ZeroActive):
    def activation_times(self, trainable: bool) -> int:
        return super().activation_times(trainable) * (_matches(self.table, self.site.active) if trainable else 1)


class _MatchPassive(_ZeroPassive):
    async def begin_epoch(self, epoch: int) -> bool:
        mine, wanted = self.table.others(self.site.name), self.table.others(self.site.active)
        source = mine if len(mine) else self.table.split.train
        generator = np.random.default_rng(derive_seed(self.site.private_seed, "match", epoch))
        rounds = [generator.permutation(source) for _ in range(-(-len(wanted) // len(source)))]
        self._beside = np.arange(self.table.rows)
        if rounds:
            self._beside[wanted] = np.concatenate(rounds)[: len(wanted)]
        return False

    def feed(self, rows: np.ndarray) -> np.ndarray:
        fed: np.ndarray = self._beside[rows]
        return fed

    def activation_times(self, trainable: bool) -> int:
        return super().activation_times(trainable) * (_matches(self.table, self.site.active) if trainable else 1)


@dataclass(frozen=True, kw_only=True)
class AllLabels(SplitNN):
    """The control that the papers lack: zeros for what is missing, and all the labels that Entity Augmentation
    assumes."""

    name: ClassVar[str] = "all_labels"
    protects: ClassVar[frozenset[str]] = frozenset({"marvell", "stop"})
    uses_others: ClassVar[bool] = True
    uses_book: ClassVar[bool] = True

    @property
    def title(self) -> str:
        return "all labels (zeros)"

    def active(self, site: Site, plan: Plan, protection: Protection, table: Table) -> ActiveRole:
        return _AllActive(self, site, plan, protection, table)

    def passive(self, site: Site, plan: Plan, protection: Protection, table: Table) -> PassiveRole:
        return _AllPassive(self, site, plan, protection, table)


def _labelled(table: Table, active: str) -> np.ndarray:
    others = [table.others(name)[:count] for name, count in table.labelled.items()]
    return np.concatenate([table.split.train, table.others(active), *others])


class _AllActive(Active):
    def training_rows(self, table: Table, epoch: int) -> np.ndarray:
        return _labelled(table, self.site.active)


class _AllPassive(Passive):
    def training_rows(self, table: Table, epoch: int) -> np.ndarray:
        return _labelled(table, self.site.active)

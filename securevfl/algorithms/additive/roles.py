"""The roles of an additive model: the exchange of what is public, an epoch's residuals and parts, and scores."""

from __future__ import annotations

import math

import numpy as np
import torch

from securevfl.algorithms.additive.channel import ActivePlainSums, PassivePlainSums, SumsChannel
from securevfl.algorithms.additive.columns import BinnedColumn
from securevfl.algorithms.additive.role import AdditiveRole
from securevfl.algorithms.additive.settings import COLUMNS, START, TERMS
from securevfl.algorithms.additive.shapes import to_logits
from securevfl.algorithms.additive.units import PART_ONE, cap_parts, target_units
from securevfl.errors import InputError, ProtocolError
from securevfl.privacy import fan_out
from securevfl.privacy.discrete_gaussian import draw_discrete_gaussian
from securevfl.training.active_role import ActiveRole
from securevfl.training.passive_role import PassiveRole
from securevfl.training.regression import Regression
from securevfl.training.state import as_tensor
from securevfl.transport import Kind

__all__ = ["MOST_COLUMNS", "AdditiveActive", "AdditivePassive"]

MOST_COLUMNS = 1 << 16
"""The most columns that a party may bring."""


class AdditiveActive(AdditiveRole, ActiveRole):
    """The active party: owns the labels and the intercept, and adds up scores."""

    def make_channel(self) -> SumsChannel:
        return ActivePlainSums(self.site.passive_links)

    def scaled_targets(self, rows: np.ndarray) -> np.ndarray:
        """Targets of rows, (n,): classes, or numbers between 0 and 1 of the job's range."""
        labels, task = self.labels(rows), self.task
        if isinstance(task, Regression):
            found: np.ndarray = (task.make_targets(labels).double().cpu().numpy() + 1) / 2
            return found
        return labels.cpu().numpy()

    async def prepare(self) -> None:
        train = self.table.split.train
        self.targets = target_units(self.scaled_targets(train), self.outputs)
        counts = [1 + self.width]
        for name in self.site.passive:
            message = await self.site.links[name].receive(Kind.CONTROL, COLUMNS)
            count = message.meta.get("count")
            if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_COLUMNS:
                raise ProtocolError(f"{name!r} sent {count!r:.20} as its number of columns")
            counts.append(count)
        self.plan_budget(counts)
        units = self._start_units()
        told = np.array(counts, dtype=np.int64)
        await fan_out(self.site.passive_links, lambda link: link.send(Kind.CONTROL, START, columns=told, start=units))
        own = [BinnedColumn.intercept(), *self.bin_own_columns()]
        self.shapes.begin(self.plan_training(counts, units / PART_ONE), own, self.columns_of(train))

    def _start_units(self) -> np.ndarray:
        """The prediction that training begins with: the mean target, noisy where a budget is spent."""
        found: np.ndarray
        if (kept := self.kept) is not None:
            found = np.rint(as_tensor(kept["start"]).numpy() * PART_ONE).astype(np.int64)
            return found
        sums = self.targets.sum(axis=0)
        if self.budget is not None:
            sums = sums + draw_discrete_gaussian(sums.shape, math.ceil(self.budget.start_sigma * PART_ONE))
        found = cap_parts(sums[None] / len(self.targets), PART_ONE)[0]
        return found

    async def train_batch(self, rows: np.ndarray) -> float:
        shapes = self.shapes.training
        if shapes is None:
            raise InputError("an epoch of an additive model without training rows")
        part = shapes.part()
        await self.run_epoch(self.epoch, self.targets - part)
        return self.channel.loss

    @property
    def has_loss(self) -> bool:
        return self.sealed is None

    def sum_shapes(self, rows: np.ndarray) -> np.ndarray:
        return super().sum_shapes(rows) + self.shapes.start

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        sums = self.sum_shapes(rows)
        if self.scores is not None and self.site.links:
            sums = sums + await self.scores.receive(len(rows))
            return torch.from_numpy(to_logits(sums, numeric=self.task.is_numeric))
        for name in self.site.passive:
            message = await self.site.links[name].receive(Kind.ACTIVATION, TERMS, "terms")
            terms = np.asarray(message.arrays["terms"])
            if terms.dtype != np.float64 or terms.shape != sums.shape or not np.isfinite(terms).all():
                raise ProtocolError(f"{name!r} sent terms of {terms.dtype} {terms.shape} for {len(rows)} rows")
            sums = sums + terms
        return torch.from_numpy(to_logits(sums, numeric=self.task.is_numeric))


class AdditivePassive(AdditiveRole, PassiveRole):
    """A passive party: owns the shapes of its columns."""

    answers_each_row = True

    def make_channel(self) -> SumsChannel:
        return PassivePlainSums(self.upstream)

    @property
    def opens_only_answers(self) -> bool:
        return self.protection.is_sealed

    @property
    def values_per_release(self) -> int:
        return 0 if self.protection.on_shares else self.outputs

    async def prepare(self) -> None:
        await self.upstream.send(Kind.CONTROL, COLUMNS, meta={"count": self.width})
        message = await self.upstream.receive(Kind.CONTROL, START, "columns", "start")
        counts, start = np.asarray(message.arrays["columns"]), np.asarray(message.arrays["start"])
        parties = 1 + len(self.trained_with)
        mine = 1 + list(self.trained_with).index(self.site.name)
        if (
            counts.dtype != np.int64
            or counts.shape != (parties,)
            or not ((counts >= 0) & (counts <= MOST_COLUMNS)).all()
            or counts[0] < 1
            or counts[mine] != self.width
        ):
            raise ProtocolError(f"{self.upstream.peer!r} sent a malformed list of the parties' columns")
        if start.dtype != np.int64 or start.shape != (self.outputs,) or not ((start >= 0) & (start <= PART_ONE)).all():
            raise ProtocolError(f"{self.upstream.peer!r} sent a malformed start of the predictions")
        self.plan_budget(counts.tolist())
        plan = self.plan_training(counts.tolist(), start / PART_ONE)
        self.shapes.begin(plan, self.bin_own_columns(), self.columns_of(self.table.split.train))

    async def train_batch(self, rows: np.ndarray) -> None:
        shapes = self.shapes.training
        if shapes is None:
            raise InputError("an epoch of an additive model without training rows")
        if not self.opens_only_answers:
            self.count_release(rows, self.outputs)
        await self.run_epoch(self.epoch, shapes.part())

    async def answer(self, rows: np.ndarray) -> None:
        self.count_release(rows, self.outputs)
        terms = self.shapes.sum_terms(self.columns_of(rows))
        if self.scores is not None:
            await self.scores.send(terms)
        else:
            await self.upstream.send(Kind.ACTIVATION, TERMS, terms=terms)

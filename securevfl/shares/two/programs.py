"""The programs of two parties that train a model of one layer on shares, and nobody else computes. Each keeps its rows
and uses them where they are; the active party keeps its labels."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from securevfl.shares.programs import SharesActive, SharesPassive, bound_rows, deal_inputs
from securevfl.shares.sharing import SharedPlan, Sharing
from securevfl.shares.two.course import TwoCourse
from securevfl.shares.two.kept import HeldRows, TwoModel
from securevfl.shares.two.making import Made, make_course
from securevfl.training.active_program import Progress
from securevfl.training.active_role import ActiveRole
from securevfl.training.passive_role import PassiveRole

__all__ = ["TwoActive", "TwoPassive"]


class TwoActive(SharesActive):
    """The active party's program: it has labels, and asks a helper for random numbers where there is one."""

    deals_targets_again: ClassVar[bool] = True
    course: TwoCourse
    model: TwoModel

    def __init__(self, role: ActiveRole, sharing: Sharing) -> None:
        super().__init__(role, sharing)
        self.model = TwoModel()
        role.parts = {"shares": self.model}
        self._made: Made

    def make_dealer(self) -> HeldRows:
        return deal_inputs(self.role, self.sharing, HeldRows)

    async def make_network(self, sizes: SharedPlan) -> None:
        bound_rows(self, self.sharing.network_shape(sizes.widths, sizes.classes), 0)
        self._made = await make_course(self.sharing, sizes)
        self.course = self._made.course
        self.model.course, self.model.network = self.course, self.course.network

    async def announce_sizes(self, *sizes: object) -> None:
        """Nothing: a helper is asked for numbers, and gets no sizes beside."""

    async def train_epoch(self, epoch: int) -> float:
        loss = await super().train_epoch(epoch)
        await self._made.wire.flush()
        return loss

    async def score_probabilities(self, rows: np.ndarray) -> np.ndarray:
        found = await super().score_probabilities(rows)
        await self._made.wire.flush()
        await self._made.pause_helper()
        return found

    async def decide_epoch(self, progress: Progress, valid: dict[str, float]) -> None:
        await self._made.wire.flush()
        await self._made.pause_helper()
        await super().decide_epoch(progress, valid)


class TwoPassive(SharesPassive):
    """The passive party's program."""

    deals_targets_again: ClassVar[bool] = True
    course: TwoCourse
    model: TwoModel

    def __init__(self, role: PassiveRole, sharing: Sharing) -> None:
        super().__init__(role, sharing)
        self.model = TwoModel()
        role.parts = {"shares": self.model}
        self._made: Made

    def make_dealer(self) -> HeldRows:
        return deal_inputs(self.role, self.sharing, HeldRows)

    async def make_network(self, sizes: SharedPlan) -> None:
        bound_rows(self, self.sharing.network_shape(sizes.widths, sizes.classes), 1)
        self._made = await make_course(self.sharing, sizes)
        self.course = self._made.course
        self.model.course, self.model.network = self.course, self.course.network

    async def train_epoch(self, epoch: int) -> None:
        await super().train_epoch(epoch)
        await self._made.wire.flush()

    async def answer_all(self, rows: np.ndarray, *, judge: bool = False) -> None:
        await super().answer_all(rows, judge=judge)
        await self._made.wire.flush()

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
from securevfl.training.role import Role

__all__ = ["ProgramOfTwo", "TwoActive", "TwoPassive"]


class ProgramOfTwo:
    """What both parties' programs do alike, beside what they do on three shares.

    Attributes:
        place: of the party: 0 for the active one, 1 for the passive one.
        course: its way through the job; set once the sizes are known.
        model: keeps its summands.
        made: what `make_course` made; likewise.
    """

    deals_targets_again: ClassVar[bool] = True
    place: ClassVar[int]
    role: Role
    sharing: Sharing
    course: TwoCourse
    model: TwoModel
    made: Made

    def keep_model(self, model: TwoModel) -> None:
        """Take what keeps this party's summands, as its role's part."""
        self.model = model
        self.role.parts = {"shares": model}

    def make_dealer(self) -> HeldRows:
        """See `SharesActive.make_dealer`; the rows stay with the party."""
        return deal_inputs(self.role, self.sharing, HeldRows)

    async def make_network(self, sizes: SharedPlan) -> None:
        """See `SharesActive.make_network`."""
        bound_rows(self, self.sharing.network_shape(sizes.widths, sizes.classes), self.place)  # type: ignore[arg-type]
        self.made = await make_course(self.sharing, sizes)
        self.course = self.made.course
        self.model.course, self.model.network = self.course, self.course.network


class TwoActive(ProgramOfTwo, SharesActive):  # type: ignore[misc]
    """The active party's program: it has labels, and asks a helper for random numbers where there is one."""

    place = 0

    def __init__(self, role: ActiveRole, sharing: Sharing) -> None:
        super().__init__(role, sharing)
        self.keep_model(TwoModel())

    async def announce_sizes(self, *sizes: object) -> None:
        """Nothing: a helper is asked for numbers, and gets no sizes beside."""

    async def train_epoch(self, epoch: int) -> float:
        loss = await super().train_epoch(epoch)
        await self.made.wire.flush()
        return loss

    async def score_probabilities(self, rows: np.ndarray) -> np.ndarray:
        found = await super().score_probabilities(rows)
        await self.made.wire.flush()
        await self.made.pause_helper()
        return found

    async def decide_epoch(self, progress: Progress, valid: dict[str, float]) -> None:
        await self.made.wire.flush()
        await self.made.pause_helper()
        await super().decide_epoch(progress, valid)


class TwoPassive(ProgramOfTwo, SharesPassive):  # type: ignore[misc]
    """The passive party's program."""

    place = 1

    def __init__(self, role: PassiveRole, sharing: Sharing) -> None:
        super().__init__(role, sharing)
        self.keep_model(TwoModel())

    async def train_epoch(self, epoch: int) -> None:
        await super().train_epoch(epoch)
        await self.made.wire.flush()

    async def answer_all(self, rows: np.ndarray, *, judge: bool = False) -> None:
        await super().answer_all(rows, judge=judge)
        await self.made.wire.flush()

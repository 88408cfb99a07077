"""One party's way through training an additive model on shares: sums of epochs, metrics, usefulness, answers."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from securevfl_crypto.replicated import Share

from securevfl.errors import InputError
from securevfl.shares.additive.channel import SharedSums, sum_openings
from securevfl.shares.additive.noise import PartyNoise
from securevfl.shares.additive.scores import ScoreSum
from securevfl.shares.engine import ONE
from securevfl.shares.epochs import SharedTraining, Words
from securevfl.shares.kept_targets import TargetRule
from securevfl.shares.network_ranges import NetworkShape
from securevfl.shares.sharing import SharedPlan, Sharing
from securevfl.training.state import as_int
from securevfl.training.sum_plan import SumPlan, SumPlanner
from securevfl.training.task import Task

__all__ = ["AdditiveTraining", "begin_course"]


@dataclass
class AdditiveTraining(SharedTraining):
    """`SharedTraining` whose epochs open sums to the owners of columns. It is also the channel of a role.

    Attributes:
        sums: this party's side of them; None where a trained model predicts.
        loss: of the last epoch: not a number, since none is opened.
    """

    loss_bits: ClassVar[int] = 5
    network: ScoreSum | None  # type: ignore[assignment]
    sums: SharedSums | None = None
    loss: float = math.nan

    def begin_epoch(self, epoch: int, *, validates: bool) -> None:
        self.epoch = epoch
        engine = self.member.engine
        if engine is not None and self.sums is not None:
            metrics = ("metrics",) if validates and self.opens_metrics else ()
            engine.begin_stage(*self.sums.opening_names, *metrics)

    async def exchange(self, epoch: int, contrasts: np.ndarray, part: np.ndarray) -> np.ndarray:
        """See `training.sum_plan.SumChannel`."""
        found = await self._sum_rows(epoch, contrasts, part)
        if found is None:
            raise InputError("no sums were opened to a party with columns")
        return found

    async def train(
        self,
        sizes: Sequence[int],
        words: Words | None,
        places: Sequence[np.ndarray] = (),
        *,
        told: Callable[[int], None] = lambda done: None,
    ) -> None:
        """Take part in an epoch's sums at a coordinator, which deals nothing."""
        await self._sum_rows(self.epoch, None, None)
        told(1)

    async def _sum_rows(self, epoch: int, contrasts: np.ndarray | None, part: np.ndarray | None) -> np.ndarray | None:
        if self.sums is None:
            raise InputError("an epoch of an additive model without training rows")
        self.sums.targets = None if self.kept is None else self._scale_targets(self.kept.train)
        found = await self.sums.exchange(epoch, contrasts, part)
        self.rounds, self.sent = self.sums.rounds, self.sums.sent
        self.steps += 1
        return found

    @property
    def target_rule(self) -> TargetRule:
        """See `SharedCourse`: a number lies within its range, from −1 to 1, to the unit that residuals are made of."""
        if self.answer.classes > 1 or self.sums is None:
            return super().target_rule
        return TargetRule(1, self.sums.finer, bound=1.0)

    def _scale_targets(self, kept: Share) -> Share:
        """Targets from 0 to `SharedSums.scale`."""
        if self.answer.classes > 1 or self.network is None:
            return kept
        return kept + self.network.engine.constant(np.full(kept.shape, ONE, np.uint64))

    def reserve_sums(self, epoch: int) -> None:
        """Write down in the journal that this epoch's sums are opened.

        Raises:
            PolicyError: interrupted attempts may have opened them so often that this party allows no more.
        """
        self._reserve_opening("sums", epoch)

    async def _check_range(self, name: str) -> None:
        """Nothing: no weight is on shares, and sums of scores do not wrap."""

    async def share_valid(self, sizes: Sequence[int], words: Words | None) -> AsyncIterator[tuple[list[Share], Share]]:
        """The scores of the validation rows, which move from epoch to epoch, with their kept targets."""
        ends = np.cumsum(sizes)
        places = [np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)]
        kept = None if self.kept is None else self.kept.valid
        async for part in self.share_rows(sizes, words, kept=kept, places=places):
            yield part


async def begin_course(sharing: Sharing, sizes: SharedPlan, targets: np.ndarray | None = None) -> AdditiveTraining:
    """Set up the computing parties' engine, and return this party's way through training or a prediction.

    Args:
        sharing: of the job.
        sizes: of the job; widths are the sums of each data party.
        targets: at the active party that trains, in units, int64 (n, outputs).
    """
    outputs = Task(sizes.classes).outputs
    member = sharing.make_party(sizes.test, sizes.classes)
    plan, noise = _plan_sums(sharing, sizes, outputs), None
    if plan is not None:
        saved = sharing.site.keeper.load()
        left = sizes.epochs - (0 if saved is None else as_int(saved["epoch"]))
        member.openings = {**member.openings, **sum_openings(plan, member.sources, member.computing, left)}
        noise = PartyNoise(plan) if plan.own_sigma and member.computes else None
    await member.setup()
    network = None
    if member.engine is not None:
        shape = NetworkShape((outputs,) * len(member.sources), (), (), sizes.classes)
        network = ScoreSum(shape, member.engine, noise)
    course = AdditiveTraining(
        member,
        (outputs,) * len(member.sources),
        outputs,
        network,
        sharing.answer(sizes.classes),
        opens_metrics=sharing.protection.opens_metrics,
    )
    if plan is not None:
        bounded = plan.own_sigma > 0
        # A number is kept from −1 to 1, a class as 0 or 1.
        scale = 2 * ONE if sizes.classes == 1 else ONE
        course.sums = SharedSums(member, plan, noise, course.reserve_sums, bounded, scale=scale, own_targets=targets)
    return course


def _plan_sums(sharing: Sharing, sizes: SharedPlan, outputs: int) -> SumPlan | None:
    """The sums of the job; None where a trained model predicts."""
    if not sharing.trains:
        return None
    planner = cast(SumPlanner, sharing.algorithm)
    return planner.plan_sums(
        sharing.protection, rows=sizes.learned, outputs=outputs, columns=sizes.widths, epochs=sizes.epochs
    )

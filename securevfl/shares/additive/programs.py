"""The programs of an additive model on shares. A role owns its shapes, draws contrasts and moves its shapes by the sums
of its own columns; the computing parties add those sums up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from securevfl.errors import ProtocolError
from securevfl.privacy import fan_out
from securevfl.shares.additive.course import AdditiveTraining, begin_course
from securevfl.shares.additive.uses import plan_uses
from securevfl.shares.coordinator import SharesCoordinator
from securevfl.shares.dealt_rows import count_rows, target_words
from securevfl.shares.engine import ONE
from securevfl.shares.epochs import Words
from securevfl.shares.exchanges import PLAN
from securevfl.shares.programs import SharesActive, SharesPassive
from securevfl.shares.share_party import input_words
from securevfl.shares.shared_model import SharedModel
from securevfl.shares.sharing import SharedPlan, Sharing, receive_plan
from securevfl.training.active_program import ActiveProgram
from securevfl.training.active_role import ActiveRole
from securevfl.training.passive_program import PassiveProgram
from securevfl.training.passive_role import PassiveRole
from securevfl.training.regression import Regression
from securevfl.training.role import Role
from securevfl.training.split import split_chunks
from securevfl.training.sum_plan import SummedActive, SummedSide
from securevfl.transport import Kind

__all__ = ["AdditiveSharesActive", "AdditiveSharesCoordinator", "AdditiveSharesPassive", "number_words"]

_LARGEST_PART = 64.0
"""Parts of a score count as this at most: noise alone could make a shape larger, and answers are clipped anyway."""


class AdditiveSharesActive(SharesActive):
    """The active party's program."""

    course: AdditiveTraining

    def __init__(self, role: ActiveRole, sharing: Sharing) -> None:
        ActiveProgram.__init__(self, role)
        self.sharing = sharing
        self.side = cast(SummedActive, role)
        self.model = SharedModel()
        role.parts = {**role.parts, "shares": self.model}
        self.learned = role.table.split.train
        self.side.uses = plan_uses(role, sharing)

    async def setup(self) -> None:
        """Learn how many sums each party gets, tell the sizes of the job, and exchange keys."""
        role, split, sharing = self.role, self.role.table.split, self.sharing
        await role.setup()
        if sharing.trains:
            self.trained.warnings += sharing.check_rows(len(split.train), len(split.valid))
        sizes = _plan_sizes(role, self.side, sharing, role.task.classes)
        told = np.array(sizes.widths, dtype=np.int64)
        await fan_out(
            self.peers_to_notify(), lambda link: link.send(Kind.CONTROL, PLAN, meta=sizes.meta(), widths=told)
        )
        self.course = await begin_course(sharing, sizes, self.side.targets if sharing.trains else None)
        self.model.network = self.course.network
        self.side.channel = self.course

    async def train_epoch(self, epoch: int) -> float:
        """One epoch's sums; no loss is opened."""
        role, site = self.role, self.sharing.site
        self.course.begin_epoch(epoch, validates=role.plan.validates_after(epoch))
        judged = role.table.split.valid if self.course.opens_metrics else role.table.split.valid[:0]
        await self.announce_sizes([], count_rows(list(split_chunks(judged, role.plan.eval_rows))))
        for done, rows in enumerate(role.batches(epoch), 1):
            site.observer.batch_begun(site.name, site.active, epoch, rows)
            await role.train_batch(rows)
            site.observer.step(epoch, done, 1)
        self.trained.rows = role.books.rows_trained(epoch)
        return math.nan

    def _encode_targets(self, role: ActiveRole, rows: np.ndarray) -> np.ndarray:
        targets = role.task.make_targets(role.labels(rows))
        if role.task.is_numeric:
            return number_words(targets, self.course.target_rule.unit)
        return target_words(targets, role.task.classes)

    def _valid_targets(self, rows: np.ndarray) -> np.ndarray:
        role = self.role
        if role.task.is_numeric:
            return number_words(role.task.make_targets(role.labels(rows)).nan_to_num(), self.course.target_rule.unit)
        return super()._valid_targets(rows)

    def name_loss(self, opened: float, task: Regression) -> dict[str, float]:
        """The root of the mean squared error. Targets and what shapes are trained towards lie within the range, so
        that an error of 1.5 times the range, from where the opened loss is linear, does not occur."""
        return {"rmse": math.sqrt(2 * opened / 2**self.course.loss_bits) * task.scale}

    def _words_to_score(self, parts: Sequence[np.ndarray]) -> Words:
        return lambda number: [_score_words(self.role, self.side, parts[number])]


class AdditiveSharesPassive(SharesPassive):
    """A passive party's program."""

    course: AdditiveTraining

    def __init__(self, role: PassiveRole, sharing: Sharing) -> None:
        PassiveProgram.__init__(self, role)
        self.sharing = sharing
        self.side = cast(SummedSide, role)
        self.model = SharedModel()
        role.parts = {**role.parts, "shares": self.model}
        self.learned = role.table.split.train
        self.side.uses = plan_uses(role, sharing)
        self._counted = False

    async def setup(self) -> None:
        """Tell how many sums this party gets, learn the sizes of the job, and exchange keys."""
        role, split, sharing = self.role, self.role.table.split, self.sharing
        await role.setup()
        if sharing.trains:
            sharing.check_rows(len(split.train), len(split.valid))
        upstream = role.upstream
        sizes = await receive_plan(upstream, len(sharing.site.passive) + 1, numeric=role.plan.number is not None)
        wanted = _plan_sizes(role, self.side, sharing, role.table.classes)
        if sizes != wanted:
            raise ProtocolError(
                f"{upstream.peer!r} plans {sizes.meta()} and sums {sizes.widths}; {wanted.meta()} and {wanted.widths} "
                "were expected: use one job file"
            )
        self.course = await begin_course(sharing, sizes)
        self.model.network = self.course.network
        self.side.channel = self.course

    async def train_epoch(self, epoch: int) -> None:
        """Take part in an epoch's sums."""
        role, site = self.role, self.role.site
        await role.begin_epoch(epoch)
        self.course.begin_epoch(epoch, validates=role.plan.validates_after(epoch))
        for done, rows in enumerate(role.batches(epoch), 1):
            site.observer.batch_begun(site.name, site.active, epoch, rows)
            await role.train_batch(rows)
            site.observer.step(epoch, done, 1)

    def _words_to_score(self, parts: Sequence[np.ndarray]) -> Words:
        return lambda number: [_score_words(self.role, self.side, parts[number])]


class AdditiveSharesCoordinator(SharesCoordinator):
    """The coordinator's program."""

    async def _set_up(self) -> None:
        sharing, site = self.sharing, self.sharing.site
        sizes = await receive_plan(
            site.links[site.active], len(site.passive) + 1, numeric=sharing.plan.number is not None
        )
        self._take_sizes(sizes)
        self.course = await begin_course(sharing, sizes)
        self.model.network = self.course.network


def _plan_sizes(role: Role, side: SummedSide, sharing: Sharing, classes: int) -> SharedPlan:
    """The sizes of the job at a data party, which all have to agree on."""
    split = role.table.split
    return SharedPlan(
        widths=side.sum_counts if sharing.trains else (0,) * (1 + len(sharing.site.passive)),
        classes=classes,
        batch_size=role.plan.batch_size,
        test=len(split.test),
        times=role.books.times(role.plan.epochs),
        epochs=role.plan.epochs,
        learned=len(split.train),
        valid=len(split.valid) if sharing.judges else 0,
    )


def number_words(targets: torch.Tensor, unit: int) -> np.ndarray:
    """Numbers between −1 and 1, (n,), in whole units, as residuals are: uint64 (n, 1) with 16 fractional bits.

    Args:
        targets: as `Regression` scales a range.
        unit: units of the last place in one of these; divides 2^17.
    """
    most = 2 * ONE // unit
    # The very steps by which a plain run rounds its targets, so that both train on the same integers.
    whole = np.rint(np.clip((targets.detach().cpu().double().numpy() + 1) / 2, 0, 1) * most).astype(np.int64)
    return (whole * unit - ONE).view(np.uint64)[:, None]


def _score_words(role: Role, side: SummedSide, rows: np.ndarray) -> np.ndarray:
    """A party's part of the scores of numbered rows in fixed point, uint64 (n, outputs)."""
    found = np.clip(side.sum_shapes(rows), -_LARGEST_PART, _LARGEST_PART)
    return input_words(role.site.name, torch.from_numpy(found), _LARGEST_PART)

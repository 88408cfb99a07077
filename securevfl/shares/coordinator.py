"""The program of a computing party without data. The active party announces how many rows come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from securevfl.shares.course import SharedCourse
from securevfl.shares.shared_model import SharedModel
from securevfl.shares.sharing import (
    SharedPlan,
    Sharing,
    computing_notes,
    name_parties_in_errors,
    receive_epoch,
    receive_plan,
)
from securevfl.training.program import StagedHelper
from securevfl.training.rows import Trained
from securevfl.training.state import State, as_dict, as_flag, as_int
from securevfl.transport import Kind

__all__ = ["SharesCoordinator"]


class SharesCoordinator(StagedHelper):
    """The coordinator's program: it computes on shares and deals none of its own."""

    def __init__(self, sharing: Sharing) -> None:
        self.sharing = sharing
        self.trained = Trained()
        self.model = SharedModel()
        self.course: SharedCourse
        self._batch_size = 0
        self._classes = 0
        self._learned = 0
        self._valid = 0
        self._kept: object = None
        self._plan = sharing.plan

    async def train(self) -> None:
        with name_parties_in_errors(self.sharing.computing_parties):
            await self._train()

    async def finish(self) -> Trained:
        with name_parties_in_errors(self.sharing.computing_parties):
            return await self._finish()

    async def predict(self, model: State, rows: np.ndarray) -> np.ndarray:
        """Take part in a prediction; returns an empty array (0, 0), because only the active party gets predictions.

        Args:
            model: this party's part of the model.
            rows: not used; the active party announces the number of rows.
        """
        with name_parties_in_errors(self.sharing.computing_parties):
            await self.come_back(model)
            await self.answer()
        return np.empty((0, 0))

    async def come_back(self, model: State) -> None:
        """Set up, and restore this party's shares of a trained model."""
        await self._set_up()
        self.model.restore(as_dict(model["parts"])["shares"])

    async def answer(self) -> None:
        """Take part in scoring the rows that the active party announces."""
        await self.model.refresh_shares()
        site = self.sharing.site
        _, scored, _ = await receive_epoch(site.links[site.active], self.sharing.plan, 0)
        if self.sharing.judges_usefulness:
            await self.course.judge_usefulness(self._split_valid(), None)
        await self.course.predict(scored, None)

    def _split_valid(self) -> list[int]:
        """Rows of each part of the validation rows."""
        most = self.sharing.plan.eval_rows
        return [min(most, self._valid - start) for start in range(0, self._valid, most)]

    async def _set_up(self) -> None:
        sharing, site = self.sharing, self.sharing.site
        told = await receive_plan(
            site.links[site.active], len(site.passive) + 1, numeric=sharing.plan.number is not None
        )
        self._take_sizes(told)
        await self.make_network(told)

    async def make_network(self, told: SharedPlan) -> None:
        """Make the network, when the widths are known."""
        sharing = self.sharing
        shape = sharing.network_shape(told.widths, self._classes)
        member = sharing.make_party(told.test, self._classes, sharing.shape_if_released(shape))
        await member.setup()
        course = sharing.make_training(member, shape, self._batch_size, told.times)
        self.course, self.model.network = course, course.network
        self.model.handing = sharing.make_release(member, course, shape)

    def _take_sizes(self, told: SharedPlan) -> None:
        """Keep the sizes of the job, as the active party tells them.

        Raises:
            PolicyError: fewer rows than the job may train on.
        """
        sharing = self.sharing
        if sharing.trains:
            sharing.check_rows(told.learned, told.valid)
        self._classes, self._batch_size = told.classes, told.batch_size
        self._plan = replace(sharing.plan, epochs=min(told.epochs, sharing.plan.epochs))
        self._learned, self._valid = 0 if sharing.mixes else told.learned, told.valid

    async def _train(self) -> None:
        sharing, site, trained = self.sharing, self.sharing.site, self.trained
        observer, chief = site.observer, site.links[site.active]
        observer.phase("setup")
        site.clock.lap()
        saved = site.keeper.load()
        await self._set_up()
        course = self.course
        epoch, stop, kept = 0, False, self.model.snapshot()
        if saved is not None:
            self.model.load_state(as_dict(saved["shares"]))
            epoch, stop, kept = as_int(saved["epoch"]), self._is_finished(saved), saved["kept"]
            trained.restore_readings(saved["readings"])
        first = site.keeper.first_part
        if saved is None and first is not None:
            self.model.restore(as_dict(first["parts"])["shares"])
            kept = self.model.snapshot()
        await self.model.refresh_shares()
        if saved is None:
            await course.deal_targets(self._learned, self._valid, None, counted=sharing.counts_classes)
            self.model.kept = course.kept
        course.kept, course.best = self.model.kept, self.model.best
        await course.deal_rows(self._learned, None)
        trained.setup = site.clock.lap()
        observer.phase("training")
        while not stop:
            epoch += 1
            sizes, scored, places = await receive_epoch(chief, sharing.plan, self._learned)
            course.begin_epoch(epoch, validates=self._plan.validates_after(epoch))
            await course.train(sizes, None, places, told=partial(observer.step, epoch, total=len(sizes)))
            if self._plan.validates_after(epoch):
                await course.validate(scored, None)
            verdict = await chief.receive(Kind.CONTROL, "train/epoch")
            trained.readings.append(site.clock.lap())
            if verdict.meta.get("best"):
                kept = self.model.snapshot()
            stop = bool(verdict.meta.get("stop")) or epoch >= sharing.plan.epochs
            self._store_epoch(epoch, kept, stop=stop)
            observer.epoch(epoch, math.nan, {})
        self._kept = kept

    async def _finish(self) -> Trained:
        site, trained = self.sharing.site, self.trained
        self.model.restore(self._kept)
        site.observer.phase("test")
        await self.answer()
        await self.model.hand_out()
        trained.finish = site.clock.lap()
        trained.model = self._model_part()
        trained.notes += computing_notes(self.course, self.sharing)
        return trained

    def _model_part(self) -> State:
        """Return this party's part of the model: shares, without column encoders and class names."""
        part: State = {"parts": {"shares": self.model.snapshot()}, "batch_size": self._batch_size}
        part |= {"times": self.sharing.plan.epochs, "passive": list(self.sharing.site.passive)}
        return part | {"encoder": {}, "classes": self._classes, "names": []}

    def _store_epoch(self, epoch: int, kept: object, *, stop: bool) -> None:
        keeper = self.sharing.site.keeper
        if keeper.is_due(epoch):
            readings = [[r.compute, r.he, r.wait, r.sent] for r in self.trained.readings]
            where = {"epoch": epoch, "epochs": self.sharing.plan.epochs, "stop": stop, "readings": readings}
            keeper.save(epoch, where | {"shares": self.model.get_state(), "kept": kept})

    def _is_finished(self, saved: Mapping[str, object]) -> bool:
        """Return True if the saved run stopped early or completed all epochs."""
        epoch, epochs = as_int(saved["epoch"]), self.sharing.plan.epochs
        return as_flag(saved["stop"]) and (epoch < as_int(saved["epochs"]) or epoch >= epochs)

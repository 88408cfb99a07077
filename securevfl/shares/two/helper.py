"""The program of a helper: it deals random numbers to the two computing parties. It receives sizes and when an epoch is
over, and no share, no masked word and no result."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from securevfl.shares.sharing import Sharing, name_parties_in_errors, receive_plan
from securevfl.shares.two.dealt_lots import LotDealer
from securevfl.training.program import StagedHelper
from securevfl.training.rows import Trained
from securevfl.training.state import State, as_flag, as_int
from securevfl.transport import Kind

__all__ = ["TwoHelper"]


class TwoHelper(StagedHelper):
    """The helper's program.

    Args:
        sharing: of the job.
    """

    def __init__(self, sharing: Sharing) -> None:
        self.sharing = sharing
        self.trained = Trained()
        self._dealer: LotDealer
        self._batch_size = sharing.plan.batch_size
        self._classes = 0
        self._epochs = sharing.plan.epochs

    async def train(self) -> None:
        with name_parties_in_errors(self.sharing.computing_parties):
            await self._train()

    async def finish(self) -> Trained:
        with name_parties_in_errors(self.sharing.computing_parties):
            return await self._finish()

    async def predict(self, model: State, rows: np.ndarray) -> np.ndarray:
        """Deal what a prediction takes; returns an empty array (0, 0), because only the active party gets predictions.

        Args:
            model: this party's part of the model, which has no weights.
            rows: not used.
        """
        with name_parties_in_errors(self.sharing.computing_parties):
            await self.come_back(model)
            await self.answer()
        return np.empty((0, 0))

    async def come_back(self, model: State) -> None:
        """Learn the sizes and send seeds; there is nothing to restore."""
        await self._set_up()

    async def answer(self) -> None:
        """Deal what scoring the next rows takes."""
        await self._dealer.deal_until_pause()

    async def _set_up(self) -> None:
        sharing, site = self.sharing, self.sharing.site
        told = await receive_plan(
            site.links[site.active], len(site.passive) + 1, numeric=sharing.plan.number is not None
        )
        self._batch_size, self._classes = told.batch_size, told.classes
        self._epochs = min(told.epochs, sharing.plan.epochs)
        self._dealer = LotDealer(site)
        await self._dealer.send_seeds()

    async def _train(self) -> None:
        site, trained = self.sharing.site, self.trained
        observer, chief = site.observer, site.links[site.active]
        observer.phase("setup")
        site.clock.lap()
        saved = site.keeper.load()
        await self._set_up()
        epoch, stop = 0, False
        if saved is not None:
            epoch, stop = as_int(saved["epoch"]), self._is_finished(saved)
            trained.restore_readings(saved["readings"])
        trained.setup = site.clock.lap()
        observer.phase("training")
        while not stop:
            epoch += 1
            await self._dealer.deal_until_pause()
            verdict = await chief.receive(Kind.CONTROL, "train/epoch")
            trained.readings.append(site.clock.lap())
            stop = bool(verdict.meta.get("stop")) or epoch >= self._epochs
            self._store_epoch(epoch, stop=stop)
            observer.epoch(epoch, math.nan, {})

    async def _finish(self) -> Trained:
        site, trained = self.sharing.site, self.trained
        site.observer.phase("test")
        await self.answer()
        trained.finish = site.clock.lap()
        trained.model = self._model_part()
        trained.notes.append(self.describe_dealing())
        return trained

    def describe_dealing(self) -> str:
        """What it did, for the report."""
        dealer = self._dealer
        return (
            f"{self.sharing.site.name!r} dealt {dealer.lots:,} lots of random numbers, "
            f"{dealer.words * 8 / 1e6:.2f} MB, and received nothing but sizes"
        )

    def _model_part(self) -> State:
        """What predictions take from this party: sizes alone."""
        part: State = {"parts": {}, "batch_size": self._batch_size, "times": self.sharing.plan.epochs}
        part |= {"passive": list(self.sharing.site.passive)}
        return part | {"encoder": {}, "classes": self._classes, "names": []}

    def _store_epoch(self, epoch: int, *, stop: bool) -> None:
        """Write how far the run has come, so that all parties resume from the same epoch; no random numbers."""
        keeper = self.sharing.site.keeper
        if keeper.is_due(epoch):
            readings = [[r.compute, r.he, r.wait, r.sent] for r in self.trained.readings]
            keeper.save(epoch, {"epoch": epoch, "epochs": self.sharing.plan.epochs, "stop": stop, "readings": readings})

    def _is_finished(self, saved: Mapping[str, object]) -> bool:
        """Return True if the saved run stopped early or completed all epochs."""
        epoch, epochs = as_int(saved["epoch"]), self.sharing.plan.epochs
        return as_flag(saved["stop"]) and (epoch < as_int(saved["epochs"]) or epoch >= epochs)

"""A passive party's program: it follows the active party through epochs, validation and test."""

from __future__ import annotations

import math

import numpy as np

from securevfl.training.checkpoints import step_of
from securevfl.training.passive_role import PassiveRole
from securevfl.training.program import RoleProgram
from securevfl.training.rows import Trained
from securevfl.training.split import split_chunks
from securevfl.training.state import State, as_int
from securevfl.transport import Kind

__all__ = ["PassiveProgram"]

_COUNTED_TOGETHER = 8
"""Batches whose answers are counted with one line of the result book. A party that dies on the way has counted the rest
of them for nothing.
"""


class PassiveProgram(RoleProgram[PassiveRole]):
    """Follows the active party's epochs."""

    def __init__(self, role: PassiveRole) -> None:
        super().__init__(role)
        self._step = 0
        self._kept: object = None

    async def train(self) -> None:
        role, split, observer = self.role, self.role.table.split, self.role.site.observer
        observer.phase("setup")
        saved = await self.prepare_training()
        observer.phase("training")
        epoch = 0 if saved is None else as_int(saved["epoch"])
        kept = role.books.snapshot() if saved is None else saved["kept"]
        stop = saved is not None and self.checkpoints.is_finished(saved)
        if saved is not None and self.checkpoints.has_fewer_parties(saved):
            kept = await self.go_on_without(kept, over=stop)
        self._step = 0 if saved is None else step_of(saved)
        while not stop:
            epoch += 1
            self._kept = kept
            await self.train_epoch(epoch)
            if role.plan.validates_after(epoch):
                await self.answer_all(split.valid, judge=True)
            verdict = await role.upstream.receive(Kind.CONTROL, "train/epoch")
            self.trained.readings.append(self.lap_times())
            if verdict.meta.get("best"):
                kept = role.books.snapshot()
            stop = bool(verdict.meta.get("stop")) or epoch >= role.plan.epochs
            self.checkpoints.end_epoch(epoch, {"kept": kept, "stop": stop})
            observer.epoch(epoch, math.nan, {})
            self.report_spent()
        self._kept = kept

    async def finish(self) -> Trained:
        role = self.role
        role.books.restore(self._kept)
        role.site.observer.phase("test")
        await self.answer_all(role.table.split.test)
        await self.after_test()
        return self.close_books()

    async def train_epoch(self, epoch: int) -> None:
        """Take part in an epoch's batches."""
        await self.role.begin_epoch(epoch)
        site, batches = self.role.site, self.role.batches(epoch)
        first, self._step = self._step, 0
        for done, rows in enumerate(batches[first:], first + 1):
            site.observer.batch_begun(site.name, site.active, epoch, rows)
            await self.role.train_batch(rows)
            site.observer.step(epoch, done, len(batches))
            if self.checkpoints.is_checkpoint_due(done, len(batches)):
                self.checkpoints.keep_within(epoch, done, {"kept": self._kept, "stop": False})
        site.ledger.catch_up()

    async def predict(self, model: State, rows: np.ndarray) -> np.ndarray:
        """Take part in predicting aligned rows by a trained model. This party gets no probabilities: (0, classes)."""
        await self.come_back(model)
        await self.answer_all(rows)
        return np.empty((0, self.role.table.classes))

    async def answer_all(self, rows: np.ndarray, *, judge: bool = False) -> None:
        """Take part in scoring these rows, as many at a time as the active party scores.

        Args:
            rows: numbers of aligned rows.
            judge: whether they validate; some protections then open metrics only.
        """
        site, most = self.role.site, self.role.plan.eval_rows
        for group in split_chunks(rows, _COUNTED_TOGETHER * most):
            with self.role.count_answers_ahead(group):
                for part in split_chunks(group, most):
                    site.observer.batch_begun(site.name, site.active, 0, part)
                    await self.role.answer(part)

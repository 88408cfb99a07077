"""The programs of both sides that all algorithms share: epochs, validation, early stopping, restoring the best.

An algorithm's file holds its roles and its losses and nothing else: it subclasses `ActiveRole` and `PassiveRole` and
fills in how a batch is trained on and how rows are scored. What both have in common is in `role`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from securevfl.algorithms.config import Algorithm
from securevfl.algorithms.halves import State, as_dict, as_list
from securevfl.algorithms.role import Role, cut_spec, seeded
from securevfl.algorithms.split import chunks
from securevfl.algorithms.table import Epoch, Plan, Table, Trained
from securevfl.algorithms.task import Task
from securevfl.cut import Protection
from securevfl.errors import RangeError
from securevfl.privacy import LabelRelease, Link
from securevfl.site import Site
from securevfl.transport import Kind

__all__ = [
    "ActiveRole",
    "Algorithm",
    "Course",
    "Epoch",
    "PassiveRole",
    "Plan",
    "Role",
    "Table",
    "Trained",
    "cut_spec",
    "seeded",
]


@dataclass
class Course:
    """Where training stands, at the active party."""

    kept: object
    best: float = -math.inf
    since: int = 0
    epoch: int = 0
    stop: bool = False


class ActiveRole(Role):
    """The active party's program: it owns the labels, counts the epochs and decides when to stop."""

    drawn: LabelRelease | None = None

    def __init__(self, site: Site, plan: Plan, protection: Protection, table: Table) -> None:
        super().__init__(site, plan, protection, table)
        if table.y is None:
            raise ValueError("the active party's table has no labels")
        self.y = table.y.to(plan.device)
        self.task = Task(table.classes)
        dp = protection.dp
        if dp is not None and dp.labels == "randomised_response" and site.passive:
            held_out = np.concatenate([table.split.valid, table.split.test])
            training = np.setdiff1d(np.arange(table.rows), held_out)
            self.drawn = LabelRelease(
                table.y, training, classes=table.classes, epsilon=dp.epsilon, delta=dp.delta, person=table.person
            )
            self.plan_release(self.drawn, replace(dp, on_budget="refuse"))
            self.further.append(self.drawn)
            self.y = self.drawn.apply(self.y)

    @abstractmethod
    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        """Train on these rows; the sum of their losses, which may still be on its way on the device."""

    @abstractmethod
    async def score(self, rows: np.ndarray) -> torch.Tensor:
        """Logits of these rows, (n, outputs)."""

    async def prepare(self) -> State | None:
        saved = await super().prepare()
        if saved is not None and self.drawn is not None:  # the labels drawn at first, for a second draw would tell more
            self.y = self.drawn.apply(self.y)
        return saved

    async def run(self) -> Trained:
        self.site.observer.phase("setup")
        saved = await self.prepare()
        self.site.observer.phase("training")
        course = Course(kept=self.snapshot()) if saved is None else self._resumed(saved)
        while not course.stop:
            await self._one_epoch(course)
        self.restore(course.kept)
        self.site.observer.phase("test")
        self.trained.test = await self.evaluate(self.table.split.test, keep=True)
        return self.ended()

    async def _one_epoch(self, course: Course) -> None:
        course.epoch += 1
        epoch = course.epoch
        if await self.begin_epoch(epoch):
            course.best, course.since = -math.inf, 0
        loss = await self._epoch(epoch)
        valid = await self.evaluate(self.table.split.valid)
        await self.verdict(course, valid)
        self.trained.readings.append(self.lap())
        self.trained.epochs.append(Epoch(loss, valid))
        self.site.observer.epoch(epoch, loss, valid)
        self.note(course)

    async def verdict(self, course: Course, valid: dict[str, float]) -> None:
        """Decide whether this epoch's model is the best so far and whether training ends, and tell the others."""
        score = valid.get(self.task.score, -valid["log_loss"])
        better = score > course.best
        if better:
            course.best, course.kept, course.since = score, self.snapshot(), 0
            self.trained.best_epoch = course.epoch
        else:
            course.since += 1
        out_of_patience = self.plan.patience is not None and course.since >= self.plan.patience
        course.stop = (out_of_patience and self.may_stop(course.epoch)) or course.epoch >= self.plan.epochs
        for link in self.verdict_links():
            meta = {"epoch": course.epoch, "best": better, "stop": course.stop}
            await link.send(Kind.CONTROL, "train/epoch", meta=meta)
        if course.stop:
            self.trained.stopped = (
                f"no gain on validation rows for {course.since} epochs" if out_of_patience else self.end_of_plan
            )

    def verdict_links(self) -> list[Link]:
        """Whom the active party tells how it goes on."""
        return self.site.others

    def note(self, course: Course) -> None:
        """Write a checkpoint, where the run keeps any."""
        history = [[item.loss, item.valid] for item in self.trained.epochs]
        more = {"course": asdict(course), "best_epoch": self.trained.best_epoch, "history": history}
        self.keep(course.epoch, more | {"stopped": self.trained.stopped})

    def may_stop(self, epoch: int) -> bool:
        """Whether training may end after `epoch`: not before the last stage of an algorithm that has several."""
        return True

    def _resumed(self, saved: State) -> Course:
        self.trained.best_epoch = int(str(saved["best_epoch"]))
        self.trained.epochs = [Epoch(loss, valid) for loss, valid in as_list(saved["history"])]
        course = Course(**as_dict(saved["course"]))  # type: ignore[arg-type]
        course.stop = self.over(course.stop, course.epoch, saved)
        self.trained.stopped = str(saved["stopped"]) if course.stop else ""
        return course

    async def predict(self, model: State, rows: np.ndarray) -> np.ndarray:
        """Probabilities (n, classes) of aligned rows by a trained model."""
        await self.come_back(model)
        logits = [await self.score(part) for part in chunks(rows, self.plan.eval_rows)]
        return self.task.probabilities(torch.cat(logits))

    async def _epoch(self, epoch: int) -> float:
        losses, count = [], 0
        plan = self.batches(epoch)
        for done, rows in enumerate(plan, 1):
            losses.append(await self.train_batch(rows))
            count += len(rows)
            self.site.observer.step(epoch, done, len(plan))
        self.trained.rows = len(self.training_rows(self.table, epoch))
        mean = sum(map(float, losses)) / max(count, 1)
        if not math.isfinite(mean):
            raise RangeError(f"the loss of epoch {epoch} is {mean}; training diverged: lower the learning rates")
        return mean

    async def evaluate(self, rows: np.ndarray, *, keep: bool = False) -> dict[str, float]:
        """Metrics of the model as it is on these rows."""
        logits = [await self.score(part) for part in chunks(rows, self.plan.eval_rows)]
        scores = self.task.probabilities(torch.cat(logits))
        if keep:
            self.trained.scores = scores
        return self.task.metrics(scores, self.labels(rows).cpu().numpy())

    def labels(self, rows: np.ndarray) -> torch.Tensor:
        """Classes of numbered rows, int64, -1 where unknown."""
        return self.y.index_select(0, torch.from_numpy(rows).to(self.y.device, non_blocking=True))


class PassiveRole(Role):
    """A passive party's program: it feeds rows as the active party's epochs go."""

    @abstractmethod
    async def train_batch(self, rows: np.ndarray) -> None:
        """Take part in training on these rows."""

    @abstractmethod
    async def answer(self, rows: np.ndarray) -> None:
        """Take part in scoring these rows."""

    async def run(self) -> Trained:
        saved = await self.prepare()
        split = self.table.split
        epoch = 0 if saved is None else int(str(saved["epoch"]))
        kept = self.snapshot() if saved is None else saved["kept"]
        stop = saved is not None and self.over(bool(saved["stop"]), epoch, saved)
        while not stop:
            epoch += 1
            await self.begin_epoch(epoch)
            for rows in self.batches(epoch):
                await self.train_batch(rows)
            await self.answer_all(split.valid)
            verdict = await self.site.links[self.site.active].receive(Kind.CONTROL, "train/epoch")
            self.trained.readings.append(self.lap())
            if verdict.meta.get("best"):
                kept = self.snapshot()
            stop = bool(verdict.meta.get("stop")) or epoch >= self.plan.epochs
            self.keep(epoch, {"epoch": epoch, "kept": kept, "stop": stop})
        self.restore(kept)
        await self.answer_all(split.test)
        return self.ended()

    async def predict(self, model: State, rows: np.ndarray) -> None:
        """Take part in predicting aligned rows by a trained model."""
        await self.come_back(model)
        await self.answer_all(rows)

    async def answer_all(self, rows: np.ndarray) -> None:
        for part in chunks(rows, self.plan.eval_rows):
            await self.answer(part)

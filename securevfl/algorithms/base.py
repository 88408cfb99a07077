"""What all algorithms share: epochs, batches, validation, early stopping, releases with noise, restoring the best.

An algorithm's file holds its roles and its losses and nothing else: it subclasses `ActiveRole` and `PassiveRole` and
fills in how a batch is trained on and how rows are scored.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from securevfl.algorithms.split import Split, batches, chunks
from securevfl.algorithms.task import Task
from securevfl.cut import CutSpec, Protection
from securevfl.errors import ProtectionInactive, RangeError
from securevfl.party import Site, derive_seed
from securevfl.privacy import DP, Reading, RowRelease, Spent
from securevfl.transport import Kind

__all__ = [
    "ActiveRole",
    "Epoch",
    "PassiveRole",
    "Plan",
    "Role",
    "Table",
    "Trained",
    "as_pair",
    "cut_spec",
    "mlp",
    "seeded",
]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long and on what to train; every party has the same.

    Attributes:
        epochs: most epochs.
        batch_size: nominal rows in a batch; the loss of a batch is the sum over its rows divided by this.
        patience: epochs without a gain on the validation rows after which training stops, or None for never.
        eval_rows: rows scored at a time outside training.
        device: where plain tensors live, ``"cpu"`` or ``"cuda"``.
    """

    epochs: int
    batch_size: int
    patience: int | None
    eval_rows: int = 2048
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A party's rows in the common order, ready to train on.

    Attributes:
        x: features, (n, d) float32.
        y: labels, (n,) int64, at the active party.
        classes: number of classes, at the active party.
        split: which rows train, validate and test.
    """

    x: torch.Tensor
    split: Split
    y: torch.Tensor | None = None
    classes: int = 0


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch as the active party saw it."""

    loss: float
    valid: dict[str, float]


@dataclass(kw_only=True)
class Trained:
    """What one party has after its program ended.

    Attributes:
        readings: the party's clock, one reading an epoch.
        setup: its clock before the first epoch.
        finish: its clock for the test rows, after the last epoch.
        spent: what its releases cost in privacy.
        epochs: at the active party: the history.
        best_epoch: at the active party: the epoch whose weights were kept, from 1.
        stopped: at the active party: why training ended.
        test: at the active party: the metrics on the test rows.
        scores: at the active party: probabilities of the test rows, (n, classes).
    """

    readings: list[Reading] = field(default_factory=list)
    setup: Reading | None = None
    finish: Reading | None = None
    spent: list[Spent] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    best_epoch: int = 0
    stopped: str = ""
    test: dict[str, float] = field(default_factory=dict)
    scores: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's global generator seeded inside, as it was before outside."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def as_pair(state: object) -> tuple[dict[str, torch.Tensor], object]:
    """A snapshot that a role made of its networks' weights and of its side of the cut.

    Raises:
        TypeError: something else.
    """
    if not isinstance(state, tuple) or len(state) != 2:
        raise TypeError("not a snapshot of this role")
    return state


def mlp(widths: list[int], *, last: nn.Module | None = None) -> nn.Sequential:
    """Linear layers of these widths with ReLU between them, and `last` after the last."""
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        layers += [nn.ReLU()] if i else []
        layers.append(nn.Linear(inputs, outputs))
    return nn.Sequential(*layers, *([last] if last is not None else []))


class Role(ABC):
    """A party's program. `run` is the whole of it; subclasses fill in the parts."""

    def __init__(self, site: Site, plan: Plan, protection: Protection, table: Table) -> None:
        self.site = site
        self.plan = plan
        self.protection = protection
        self.table = table
        self.x = table.x.to(plan.device)
        self.release: RowRelease | None = None
        self.trained = Trained()

    def seed(self, label: str) -> int:
        """A seed of this party's own, for what `label` says."""
        return derive_seed(self.site.private_seed, label)

    def row_release(
        self, what: str, dp: DP, *, clip: float, times: int, once: bool = False, sensitivity: float | None = None
    ) -> RowRelease:
        """A noisy release of rows, planned for `times` of each row, checked against the party's policy."""
        sigma = dp.sigma(times)
        release = RowRelease(
            what,
            rows=len(self.x),
            times=times,
            sigma=sigma,
            clip=clip,
            delta=dp.delta,
            sensitivity=sensitivity,
            once=once,
        )
        self.site.policy.check_epsilon(release.planned_epsilon, what)
        return release

    def lap(self) -> Reading:
        return self.site.clock.lap()

    def ended(self) -> Trained:
        """Close the books: what was released must have been released with noise."""
        self.trained.finish = self.lap()
        if self.release is not None:
            spent = self.release.spent
            if spent.times == 0:
                raise ProtectionInactive(
                    f"differential privacy on {spent.what} was asked for and nothing was released through it"
                )
            self.trained.spent.append(spent)
        return self.trained

    @abstractmethod
    async def run(self) -> Trained:
        """Train, keep the best, test."""


class ActiveRole(Role):
    """The active party's program: it owns the labels, counts the epochs and decides when to stop."""

    def __init__(self, site: Site, plan: Plan, protection: Protection, table: Table) -> None:
        super().__init__(site, plan, protection, table)
        if table.y is None:
            raise ValueError("the active party's table has no labels")
        self.y = table.y.to(plan.device)
        self.task = Task(table.classes)

    @abstractmethod
    async def setup(self) -> None:
        """Exchange what is needed before the first batch."""

    @abstractmethod
    async def train_batch(self, rows: np.ndarray) -> float:
        """Train on these rows; the sum of their losses."""

    @abstractmethod
    async def score(self, rows: np.ndarray) -> torch.Tensor:
        """Logits of these rows, (n, outputs)."""

    @abstractmethod
    def snapshot(self) -> object:
        """This party's part of the model."""

    @abstractmethod
    def restore(self, state: object) -> None:
        """Go back to a snapshot."""

    async def run(self) -> Trained:
        self.site.observer.phase("setup")
        self.lap()
        await self.setup()
        self.trained.setup = self.lap()
        self.site.observer.phase("training")
        best, kept, since = -math.inf, self.snapshot(), 0
        for epoch in range(1, self.plan.epochs + 1):
            loss = await self._epoch(epoch)
            valid = await self.evaluate(self.table.split.valid)
            score = valid.get(self.task.score, -valid["log_loss"])
            better = score > best
            if better:
                best, kept, since, self.trained.best_epoch = score, self.snapshot(), 0, epoch
            else:
                since += 1
            out_of_patience = self.plan.patience is not None and since >= self.plan.patience
            stop = out_of_patience or epoch == self.plan.epochs
            for link in self.site.others:
                link.send(Kind.CONTROL, "train/epoch", meta={"epoch": epoch, "best": better, "stop": stop})
            self.trained.readings.append(self.lap())
            self.trained.epochs.append(Epoch(loss, valid))
            self.site.observer.epoch(epoch, loss, valid)
            if stop:
                self.trained.stopped = (
                    f"no gain on validation rows for {since} epochs" if out_of_patience else "all epochs done"
                )
                break
        self.restore(kept)
        self.site.observer.phase("test")
        self.trained.test = await self.evaluate(self.table.split.test, keep=True)
        return self.ended()

    async def _epoch(self, epoch: int) -> float:
        train = self.table.split.train
        total = 0.0
        steps = -(-len(train) // self.plan.batch_size)
        for done, rows in enumerate(batches(train, self.plan.batch_size, seed=self.site.seed, epoch=epoch), 1):
            total += await self.train_batch(rows)
            self.site.observer.step(epoch, done, steps)
        mean = total / len(train)
        if not math.isfinite(mean):
            raise RangeError(f"the loss of epoch {epoch} is {mean}; training diverged: lower the learning rates")
        return mean

    async def evaluate(self, rows: np.ndarray, *, keep: bool = False) -> dict[str, float]:
        """Metrics of the model as it is on these rows."""
        logits = [await self.score(part) for part in chunks(rows, self.plan.eval_rows)]
        scores = self.task.probabilities(torch.cat(logits))
        if keep:
            self.trained.scores = scores
        return self.task.metrics(scores, self.y[torch.from_numpy(rows)].cpu().numpy())


class PassiveRole(Role):
    """A passive party's program: it feeds rows as the active party's epochs go."""

    @abstractmethod
    async def setup(self) -> None:
        """Exchange what is needed before the first batch."""

    @abstractmethod
    async def train_batch(self, rows: np.ndarray) -> None:
        """Take part in training on these rows."""

    @abstractmethod
    async def answer(self, rows: np.ndarray) -> None:
        """Take part in scoring these rows."""

    @abstractmethod
    def snapshot(self) -> object:
        """This party's part of the model."""

    @abstractmethod
    def restore(self, state: object) -> None:
        """Go back to a snapshot."""

    async def run(self) -> Trained:
        self.lap()
        await self.setup()
        self.trained.setup = self.lap()
        split, kept = self.table.split, self.snapshot()
        for epoch in range(1, self.plan.epochs + 1):
            for rows in batches(split.train, self.plan.batch_size, seed=self.site.seed, epoch=epoch):
                await self.train_batch(rows)
            await self._answer(split.valid)
            verdict = await self.site.links[self.site.active].receive(Kind.CONTROL, "train/epoch")
            self.trained.readings.append(self.lap())
            if verdict.meta.get("best"):
                kept = self.snapshot()
            if verdict.meta.get("stop"):
                break
        self.restore(kept)
        await self._answer(split.test)
        return self.ended()

    async def _answer(self, rows: np.ndarray) -> None:
        for part in chunks(rows, self.plan.eval_rows):
            await self.answer(part)


def cut_spec(width: int, lr: float, plan: Plan, dp: DP | None, times: int) -> CutSpec:
    """What both sides of the cut agree on; ranges are widened by what clip and noise can amount to.

    Args:
        width: h.
        lr: η.
        plan: of the job.
        dp: of the job.
        times: releases of one row's activations.
    """
    activations, gradients = 8.0, 16.0
    tail = 8.5  # |Φ⁻¹| of 52 random bits is below 8.3
    if dp is not None and dp.activations:
        activations = max(activations, dp.clip_activations * (1 + 2 * tail * dp.sigma(times)))
    if dp is not None and dp.gradients:
        gradients *= dp.clip_gradients * (1 + 2 * tail * dp.sigma(plan.epochs))
    return CutSpec(
        width=width,
        lr=lr,
        batch_size=plan.batch_size,
        activation_bound=activations,
        gradient_bound=gradients,
        device=plan.device,
    )

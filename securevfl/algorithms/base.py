"""What all algorithms share: epochs, batches, validation, early stopping, releases with noise, restoring the best.

An algorithm's file holds its roles and its losses and nothing else: it subclasses `ActiveRole` and `PassiveRole` and
fills in how a batch is trained on and how rows are scored.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from securevfl.algorithms.halves import State, as_dict, as_list
from securevfl.algorithms.leakage import Finding, at_the_cut
from securevfl.algorithms.split import chunks, epoch_batches
from securevfl.algorithms.table import Epoch, Plan, Table, Trained
from securevfl.algorithms.task import Task
from securevfl.cut import CutSpec, Protection
from securevfl.errors import InputError, PolicyError, ProtectionInactive, RangeError
from securevfl.party import Site, derive_seed
from securevfl.privacy import DP, Accountant, Counted, LabelRelease, Link, Reading, RowRelease, protects
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


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's global generator seeded inside, as it was before outside."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC):
    """What a job trains: the configuration, which makes each party's program. Subclass it, and add one line to
    `ALGORITHMS`.

    Attributes:
        name: as in job files.
        uses_others: whether rows that are not aligned take part in training.
        uses_book: whether the labels that the active party knows of other parties' rows are used.
        most_passive: largest number of passive parties, or None for no bound.
        many_owners: whether several parties own labels.
        exchanges: whether training sends anything beside counts of rows; where it does not, nothing needs protection.
        reveals: what the algorithm hands to the peer in the clear by design; not empty: it cannot be sealed.
        protects: what of `DP` it can do beside noise on activations and gradients: ``"marvell"``, ``"z"``, ``"local"``,
            ``"stop"``; each class says it anew.
    """

    name: ClassVar[str]
    uses_others: ClassVar[bool] = False
    uses_book: ClassVar[bool] = False
    most_passive: ClassVar[int | None] = None
    many_owners: ClassVar[bool] = False
    exchanges: ClassVar[bool] = True
    reveals: ClassVar[str] = ""
    protects: ClassVar[frozenset[str]] = frozenset()

    @property
    @abstractmethod
    def title(self) -> str:
        """For tables and reports."""

    @property
    def least_epochs(self) -> int:
        """Fewest epochs in which the algorithm gets to its last stage."""
        return 1

    @property
    def trainable(self) -> bool:
        """Whether passive parties' bottoms have parameters."""
        return True

    @abstractmethod
    def active(self, site: Site, plan: Plan, protection: Protection, table: Table) -> ActiveRole:
        """The active party's program."""

    @abstractmethod
    def passive(self, site: Site, plan: Plan, protection: Protection, table: Table) -> PassiveRole:
        """A passive party's program."""

    def check(self, protection: Protection) -> None:
        """Refuse a protection that this algorithm cannot have.

        Raises:
            PolicyError: it hands over by design what the protection would seal.
            InputError: a kind of differential privacy that it cannot have.
        """
        for kind in sorted(_wanted(protection.dp) - type(self).__dict__.get("protects", frozenset())):
            raise InputError(
                f"{self.title} has no dp with {_KINDS[kind]}; leave it out, or use an algorithm that has it"
            )
        if self.reveals and protection.policy().sealed:
            raise PolicyError(
                f"{self.title} {self.reveals}, so {protection.name!r} cannot seal it: use protection 'plain', with "
                "dp=sv.DP(activations=True) for noise on what is handed over, or an algorithm that stays at the cut "
                "layer (splitnn, entity_augmentation, risa)"
            )

    def findings(self, protection: Protection, passive: Sequence[str], active: str) -> list[Finding]:
        """Who learns what from the messages of this algorithm under `protection`."""
        found = at_the_cut(protection, active=active, passive=passive, trainable=self.trainable)
        if self.uses_book:
            found += [
                Finding(active, name, "which of the people that it has labels for it knows", "note") for name in passive
            ]
            found += [Finding(name, active, "for which of its rows labels are known", "note") for name in passive]
        return found

    def notes(self, protection: Protection) -> list[str]:
        """What a reader of the figures has to know."""
        return []


_KINDS = {
    "local": "local=True (DP-SGD; only 'local' trains a model that a party has by itself)",
    "marvell": "labels='marvell' (for gradients at the cut of two classes, whose labels are used nowhere else)",
    "stop": "on_budget='stop' (all parties have to find the same last epoch from what is public)",
    "z": "where='z' (noise inside the ciphertext, on the sum over the parties)",
}


def _wanted(dp: DP | None) -> set[str]:
    """What of `_KINDS` this asks for."""
    if dp is None:
        return set()
    asked = {
        "local": dp.local,
        "marvell": dp.labels == "marvell",
        "stop": dp.on_budget == "stop",
        "z": dp.activations and dp.where == "z",
    }
    return {kind for kind, wanted in asked.items() if wanted}


class Role(ABC):
    """A party's program. `run` is the whole of it; subclasses fill in the parts."""

    def __init__(self, site: Site, plan: Plan, protection: Protection, table: Table) -> None:
        self.site = site
        self.table = table
        rows = len(self.training_rows(table, 1))
        self.nominal_batch = plan.batch_size
        self.plan = replace(plan, batch_size=min(plan.batch_size, rows)) if rows else plan
        self.protection = protection
        self.x = table.x.to(plan.device)
        self._at = np.append(table.own(np.arange(table.rows)), -1)  # the last: a row numbered -1 is nobody's
        self.fill = torch.zeros_like(self.x[:1])
        self.release: RowRelease | None = None
        self.further: list[Counted] = []
        self.accountant: Accountant | None = None
        self.end_of_plan = "all epochs done"
        self.trained = Trained()

    def training_rows(self, table: Table, epoch: int) -> np.ndarray:
        """Numbers of the rows that `epoch` trains on, the same at all parties: the aligned ones of training."""
        return table.split.train

    def feed(self, rows: np.ndarray) -> np.ndarray:
        """Numbers of the rows that this party puts in for those of a training batch: the same ones."""
        return rows

    def features(self, rows: np.ndarray) -> torch.Tensor:
        """Features of numbered rows, (n, …); `fill` where this party lacks them."""
        place = self._at[rows]
        at = torch.from_numpy(place).to(self.x.device, non_blocking=True)
        if not len(place) or place.min() >= 0:
            return self.x.index_select(0, at)
        found = self.x.index_select(0, at.clamp_min(0))
        found[at < 0] = self.fill
        return found

    def batches(self, epoch: int) -> list[np.ndarray]:
        """The batches of an epoch, the same at all parties."""
        rows = self.training_rows(self.table, epoch)
        return epoch_batches(rows, self.plan.batch_size, self.plan.steps, seed=self.site.seed, epoch=epoch)

    async def begin_epoch(self, epoch: int) -> bool:
        """What an algorithm does before `epoch` (from 1). True where a new model begins: the best so far is void."""
        return False

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
            rows=self.release_rows(),
            times=times,
            sigma=sigma,
            clip=clip,
            delta=dp.delta,
            sensitivity=sensitivity,
            once=once,
        )
        self.plan_release(release, dp)
        return release

    def plan_release(self, release: Counted, dp: DP) -> None:
        """Count what is planned, and check it against the party's policy: all that protects the same, together.

        Raises:
            PolicyError: the party's policy allows less; or the job's budget does, where it ends training.
        """
        if dp.on_budget == "stop" and not dp.affords(release.planned.times):
            raise PolicyError(
                f"releasing {release.what} {release.planned.times} times with noise multiplier {dp.noise_multiplier} "
                f"spends more than dp.epsilon = {dp.epsilon:g}: more noise, or a larger budget"
            )
        self.accountant = self.accountant or Accountant(self.site.name, dp.delta)
        subjects = protects(release.what)
        self.accountant.add(release.planned, subjects)
        for about in subjects:
            self.site.policy.check_epsilon(self.accountant.epsilon_rdp(about), release.what)

    def planned_times(self, trainable: bool) -> list[int]:
        """How often each kind of release releases one row in the plan as it is, the same at all parties."""
        dp = self.protection.dp
        if dp is None:
            return []
        features = [self.activation_times(trainable)] if dp.activations else []
        return features + ([self.label_times()] if dp.gradients else [])

    def keep_within_budget(self, trainable: bool, least: int) -> None:
        """Cut the plan to the epochs that the job's budget allows, where it ends training. All parties cut it alike,
        for it depends on nothing but the job and the numbers of rows.

        Args:
            trainable: whether the bottoms have parameters.
            least: fewest epochs that the algorithm needs.

        Raises:
            PolicyError: not even these.
        """
        dp, whole = self.protection.dp, self.plan
        if dp is None or dp.on_budget != "stop":
            return
        low, high = 0, whole.epochs  # the budget allows `low` epochs
        while low < high:
            middle = (low + high + 1) // 2
            self.plan = replace(whole, epochs=middle)
            if all(dp.affords(count) for count in self.planned_times(trainable)):
                low = middle
            else:
                high = middle - 1
        if low < least:
            raise PolicyError(
                f"dp.epsilon = {dp.epsilon:g} with noise multiplier {dp.noise_multiplier} allows {low} epochs, and "
                f"{least} are needed: more noise, or a larger budget"
            )
        self.plan = replace(whole, epochs=low)
        if low < whole.epochs:
            self.end_of_plan = f"the privacy budget ε = {dp.epsilon:g} is spent after {low} of {whole.epochs} epochs"

    def release_rows(self) -> int:
        """How many numbers of rows releases are counted by."""
        return self.table.rows

    def times(self, epochs: int) -> int:
        """How often `epochs` epochs use one training row, at most."""
        if self.plan.steps is None:
            return epochs
        full = max(len(self.training_rows(self.table, 1)) // self.plan.batch_size, 1)
        return epochs * -(-self.plan.steps // full)

    def activation_times(self, trainable: bool) -> int:
        """How often one row's activations are released, the same at all parties: noise on fixed features is drawn once,
        see `RowRelease`."""
        dp = self.protection.dp
        at_z = dp is not None and dp.activations and dp.where == "z"  # the weights move, and with them what is hidden
        return self.times(self.plan.epochs) if trainable or at_z else 1

    def label_times(self) -> int:
        """How often the gradient of one row's label is released, the same at all parties."""
        return self.times(self.plan.epochs) * self.table.shared

    def lap(self) -> Reading:
        return self.site.clock.lap()

    def ended(self) -> Trained:
        """Close the books: what was released must have been released with noise."""
        self.trained.finish = self.lap()
        self.trained.model = self.part()
        for release in [*([] if self.release is None else [self.release]), *self.further]:
            spent = release.spent
            if spent.times == 0:
                raise ProtectionInactive(
                    f"differential privacy on {spent.what} was asked for and nothing was released through it"
                )
            self.trained.spent.append(spent)
        return self.trained

    @abstractmethod
    async def run(self) -> Trained:
        """Train, keep the best, test."""

    @abstractmethod
    async def setup(self) -> None:
        """Exchange what is needed before the first batch."""

    @abstractmethod
    def snapshot(self) -> object:
        """This party's part of the model."""

    @abstractmethod
    def restore(self, state: object) -> None:
        """Go back to a snapshot."""

    @abstractmethod
    def state(self) -> State:
        """Everything that training needs to go on later: weights, optimisers, what was imputed or labelled."""

    @abstractmethod
    def load(self, state: State) -> None:
        """Go on from a state, after `setup`."""

    async def prepare(self) -> State | None:
        """Set up, and come back to the last checkpoint where there is one; what else it holds, or None."""
        self.lap()
        await self.setup()
        self.trained.setup = self.lap()
        saved = self.site.keeper.saved()
        if saved is None:
            return None
        self.load(as_dict(saved["role"]))
        self.trained.restore_readings(saved["readings"])
        if self.release is not None:
            self.release.load(as_dict(saved["release"]))
        for release, state in zip(self.further, as_list(saved["further"]), strict=True):
            release.load(as_dict(state))
        return saved

    def part(self) -> State:
        """This party's part of the model, to predict with."""
        return {"role": self.state(), "batch_size": self.plan.batch_size, "fill": self.fill}

    async def come_back(self, model: State) -> None:
        """Set up and take this party's part of a trained model."""
        await self.setup()
        self.load(as_dict(model["role"]))
        fill = model["fill"]
        if isinstance(fill, torch.Tensor):
            self.fill = fill.to(self.x.device)

    def keep(self, epoch: int, more: State) -> None:
        """Write a checkpoint after `epoch`, where the run keeps any."""
        if not self.site.keeper.wants(epoch):
            return
        readings = [[r.compute, r.he, r.wait, r.sent] for r in self.trained.readings]
        release = None if self.release is None else self.release.state()
        planned = self.plan.epochs
        kept = {"role": self.state(), "readings": readings, "release": release, "epochs": planned, **more}
        kept["further"] = [release.state() for release in self.further]
        self.site.keeper.save(epoch, kept)

    def over(self, stop: bool, epoch: int, saved: State) -> bool:
        """Whether a run kept after `epoch` has nothing left to do: it stopped early, or has had all epochs."""
        return stop and (epoch < int(str(saved["epochs"])) or epoch >= self.plan.epochs)


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
        self.verdict(course, valid)
        self.trained.readings.append(self.lap())
        self.trained.epochs.append(Epoch(loss, valid))
        self.site.observer.epoch(epoch, loss, valid)
        self.note(course)

    def verdict(self, course: Course, valid: dict[str, float]) -> None:
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
            link.send(Kind.CONTROL, "train/epoch", meta=meta)
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


def cut_spec(
    width: int,
    lr: float,
    plan: Plan,
    dp: DP | None,
    times: int,
    label_times: int,
    *,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    trainable: bool | None = None,
) -> CutSpec:
    """What both sides of the cut agree on; ranges are widened by what clip and noise can amount to.

    Args:
        width: h.
        lr: η.
        plan: of the job.
        dp: of the job.
        times: releases of one row's activations.
        label_times: releases of the gradient of one row's label.
        momentum: μ.
        weight_decay: λ.
        trainable: whether passive parties' bottoms have parameters.
    """
    activations, gradients = 8.0, 16.0
    tail = 8.5  # |Φ⁻¹| of 52 random bits is below 8.3
    if dp is not None and dp.activations:
        scale = max(dp.weight_bound, 1.0)
        activations = max(activations, dp.clip_activations * (1 + 2 * tail * dp.sigma(times) * scale))
    if dp is not None and dp.gradients:
        gradients *= dp.clip_gradients * (1 + 2 * tail * dp.sigma(label_times))
    if dp is not None and dp.labels == "marvell":
        gradients *= 1 + tail * math.sqrt(10 * dp.power)  # power spent on a class of a tenth of the rows
    return CutSpec(
        width=width,
        lr=lr,
        batch_size=plan.batch_size,
        activation_bound=activations,
        gradient_bound=gradients,
        device=plan.device,
        momentum=momentum,
        weight_decay=weight_decay,
        trainable=trainable,
    )

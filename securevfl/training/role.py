"""What the programs of all parties share: rows and batches, releases with noise and their budget, checkpoints."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch

from securevfl.algorithms.halves import State, as_dict, as_list
from securevfl.algorithms.split import epoch_batches
from securevfl.algorithms.table import Plan, Table, Trained
from securevfl.cut import CutSpec, Protection
from securevfl.errors import PolicyError, ProtectionInactive
from securevfl.privacy import (
    DP,
    Accountant,
    Counted,
    GaussianRelease,
    JointRelease,
    Reading,
    RowRelease,
    Spent,
    protects,
)
from securevfl.privacy.accountant import FEATURES
from securevfl.site import Site, derive_seed

__all__ = ["Role", "cut_spec", "seeded"]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's global generator seeded inside, as it was before outside."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


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
        for release in self.releases():
            spent = release.spent
            if spent.times == 0:
                raise ProtectionInactive(
                    f"differential privacy on {spent.what} was asked for and nothing was released through it"
                )
            self.trained.spent.append(spent)
            lost = release.counts.lost if isinstance(release, RowRelease | JointRelease) else 0
            if lost:
                self.trained.notes.append(
                    f"a run of {self.site.name!r} broke off and this one went on: up to {lost} releases of a row's "
                    f"{spent.what} that were not remembered are counted in its ε, beside the {release.planned.times} "
                    "that were planned"
                )
        return self.trained

    def releases(self) -> list[Counted]:
        """All that this party releases with noise."""
        return [*([] if self.release is None else [self.release]), *self.further]

    def spent(self) -> list[Spent]:
        """What was released so far and what it cost; releases that did not happen left out."""
        return [spent for spent in (release.spent for release in self.releases()) if spent.times]

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
        self.count_broken(saved)
        return saved

    def count_broken(self, saved: State) -> None:
        """Count what the run that wrote this checkpoint may have released after it, and write that into the checkpoint,
        for this run may break off too: of each row what the epochs up to the next checkpoint release, or, where
        training was over, one release of the test rows' features.

        The plan stays as it is, at all parties alike, so that ε can exceed what was planned; it is reported so.

        Raises:
            PolicyError: that would be more than the party's policy allows.
        """
        broken = [r for r in self.releases() if isinstance(r, RowRelease | JointRelease)]
        if not broken:
            return
        at, stop = int(str(saved["at"])), bool(as_dict(saved["course"])["stop"] if "course" in saved else saved["stop"])
        over = self.over(stop, at, saved)
        epochs = 1
        while not over and at + epochs < self.plan.epochs and not self.site.keeper.wants(at + epochs):
            epochs += 1
        own = self.own_rows()
        own = np.concatenate([own + start for start in range(0, self.release_rows(), self.table.rows)])
        for release in broken:
            features = FEATURES in protects(release.what)
            if over:
                release.lose(self.table.split.test if features else own[:0], 1)
            else:
                rows = own if features else np.arange(self.release_rows())
                release.lose(rows, -(-release.planned.times // self.plan.epochs) * epochs)
            self._check_lost(release)
        counted = None if self.release is None else self.release.state()
        self.site.keeper.save(at, saved | {"release": counted, "further": [r.state() for r in self.further]})

    def _check_lost(self, release: RowRelease | JointRelease) -> None:
        """Hold what may have been lost against the party's policy, with all that is planned."""
        if self.accountant is None or not release.counts.lost:
            return
        subjects, lost = protects(release.what), release.counts.lost
        self.accountant.add(GaussianRelease(release.sigma, lost), subjects)
        for about in subjects:
            try:
                self.site.policy.check_epsilon(self.accountant.epsilon_rdp(about), release.what)
            except PolicyError as error:
                raise PolicyError(
                    f"{error}; a run broke off and may have released a row {lost} times more than is remembered: to go "
                    f"on, {self.site.name!r} has to allow that too (beginning anew spends more, and nobody counts it)"
                ) from error

    def own_rows(self) -> np.ndarray:
        """Numbers of the rows whose features this party has, (n,)."""
        return np.flatnonzero(self._at[:-1] >= 0)

    def part(self) -> State:
        """This party's part of the model, to predict with."""
        return {"role": self.state(), "batch_size": self.plan.batch_size, "fill": self.fill}

    async def come_back(self, model: State) -> None:
        """Set up and take this party's part of a trained model.

        What was released in training does not come along: each prediction draws noise of its own, also where training
        drew it once, and is one more release of every row that is predicted. What the party's policy allows was held
        against the plan of training, of which one release is a part, when this program was made.
        """
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
        kept = {"role": self.state(), "readings": readings, "release": release, "epochs": planned, "at": epoch, **more}
        kept["further"] = [release.state() for release in self.further]
        self.site.keeper.save(epoch, kept)

    def over(self, stop: bool, epoch: int, saved: State) -> bool:
        """Whether a run kept after `epoch` has nothing left to do: it stopped early, or has had all epochs."""
        return stop and (epoch < int(str(saved["epochs"])) or epoch >= self.plan.epochs)


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

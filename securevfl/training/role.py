"""A role: what one party does in an algorithm. An algorithm's file fills in the hooks; programs run them.

A role is whole before anything overridable is called: its constructor stores what it was given, and `begin`, which the
program calls, fits the plan and lets `build` make the networks. It *has* features, releases and parts, and inherits
little.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from securevfl.cut import Protection
from securevfl.errors import InputError
from securevfl.privacy import Link, RowLooks
from securevfl.privacy.loss import Loss
from securevfl.privacy.releases import Releases
from securevfl.privacy.repeated import RepeatedNoise
from securevfl.site import Site
from securevfl.training.noise import LabelNoise
from securevfl.training.regression import Regression
from securevfl.training.rows import Features, NumberedRows, Numbers, Plan
from securevfl.training.several import Labels
from securevfl.training.split import epoch_batches
from securevfl.training.state import State, as_dict
from securevfl.training.task import Task
from securevfl.transport import to_device

__all__ = ["ActiveRole", "Configuration", "Part", "PassiveRole", "Role", "Setting", "seeded"]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's global generators seeded inside, as they were before outside: the CPU's, and CUDA's once it is in use."""
    in_use = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=in_use):
        torch.manual_seed(seed)
        yield


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a role is given.

    Attributes:
        site: the party's place, with links to its peers.
        plan: how long and on what to train.
        protection: of what crosses the cut.
        table: the party's numbered rows.
        repeated: in a prediction, what makes the noise on its rows the same whenever they are predicted.
        trained_with: in a prediction, the names of all passive parties that the model was trained with, in their order;
            those of the site are fewer where some hold none of the rows, or left. Empty: those of the site.
        widest: in a prediction at the active party, the largest width that any of them fed the cut in training.
    """

    site: Site
    plan: Plan
    protection: Protection
    table: NumberedRows
    repeated: RepeatedNoise | None = None
    trained_with: tuple[str, ...] = ()
    widest: int = 0


class Configuration(Protocol):
    """What a role has to know of its algorithm; see `securevfl.training.algorithm.Algorithm`."""

    @property
    def trainable(self) -> bool:
        """Whether passive parties' bottoms have parameters."""
        ...

    @property
    def least_epochs(self) -> int:
        """Fewest epochs in which the algorithm gets to its last stage."""
        ...

    @property
    def draws_secretly(self) -> bool:
        """Whether a party's secret hides features."""
        ...

    @property
    def learns_alone(self) -> bool:
        """Whether passive parties learn from rows of their own beside the numbered ones."""
        ...

    @property
    def subsets(self) -> str:
        """Which rows a trained model is fit to score."""
        ...


class Tally(Protocol):
    """What an algorithm that labels rows itself tells of it; see `securevfl.training.pseudo_labels.SelfTraining`."""

    @property
    def text(self) -> str:
        """One sentence."""
        ...

    @property
    def warnings(self) -> list[str]:
        """What a user has to know before reading the figures."""
        ...

    @property
    def figures(self) -> dict[str, float]:
        """For tables of many runs."""
        ...


class Part(Protocol):
    """A part of a role that learns: a half of a split network, or networks of its own."""

    async def setup(self) -> None:
        """Exchange what is needed before the first batch."""
        ...

    def snapshot(self) -> object:
        """What it has learned."""
        ...

    def restore(self, state: object) -> None:
        """Go back to a snapshot."""
        ...

    def state(self) -> State:
        """What it has learned, and what its optimiser remembers."""
        ...

    def load(self, state: State) -> None:
        """Go on from a state."""
        ...


class Role(ABC):
    """One party's part in an algorithm.

    Args:
        config: the algorithm.
        setting: where, how long, on which rows.

    Attributes:
        features: of this party's rows.
        releases: everything that this party releases with noise.
        parts: what learns, by name, in the order of their setup; `build` fills it.
        nominal_batch: rows in a batch as the job says, before they were fitted to the rows.
        trained_with: names of all passive parties of the model, in their order. In training these are the site's; where
            fewer take part in a prediction, weights are made for all of these, and those of the others are idle.
        widest: see `Setting`.
    """

    def __init__(self, config: Configuration, setting: Setting) -> None:
        self.config = config
        self.site = setting.site
        self.plan = setting.plan
        self.protection = setting.protection
        self.table = setting.table
        self.nominal_batch = setting.plan.batch_size
        self.trained_with = setting.trained_with or setting.site.passive
        self.widest = setting.widest
        self.features = Features(setting.table, setting.plan.device)
        self.releases = Releases(setting.site.name, setting.site.policy, repeated=setting.repeated)
        self.parts: dict[str, Part] = {}

    def begin(self) -> None:
        """Fit the plan to the rows and to the privacy budget, then `build`; the program calls it once.

        Raises:
            PolicyError: the budget allows fewer epochs than the algorithm needs, or the party's policy less than the
                plan spends.
        """
        rows = len(self.training_rows(1))
        if rows:
            self.plan = replace(self.plan, batch_size=min(self.plan.batch_size, rows))
        dp = self.protection.dp
        planned = [] if dp is None else [(dp.features, self.activation_times), (dp.gradients, self.label_times)]
        planned += [] if dp is None else [(dp.model, self.times)]
        counted = [(mechanism, times) for mechanism, times in planned if mechanism is not None]
        epochs = self.releases.epochs_within(
            [mechanism for mechanism, _ in counted],
            lambda count: [times(count) for _, times in counted],
            self.plan.epochs,
            self.config.least_epochs,
        )
        self.plan = replace(self.plan, epochs=epochs)
        self.build()

    @property
    def trainable(self) -> bool:
        """Whether passive parties' bottoms have parameters."""
        return self.config.trainable

    # What an algorithm says.

    @abstractmethod
    def build(self) -> None:
        """Plan the releases and make the networks, as `parts`."""

    def training_rows(self, epoch: int) -> np.ndarray:
        """Numbers of the rows that `epoch` (from 1) trains on, the same at all parties: aligned ones, by default."""
        return self.table.split.train

    def rows_trained(self, epoch: int) -> int:
        """How many rows `epoch` trains on, for the report: those of `training_rows`, and what an algorithm adds."""
        return len(self.training_rows(epoch))

    def feed(self, rows: np.ndarray) -> np.ndarray:
        """Numbers of the rows that this party puts in for those of a training batch: the same ones."""
        return rows

    async def begin_epoch(self, epoch: int) -> bool:
        """What an algorithm does before `epoch`. True where a new model begins: the best so far is void."""
        return False

    @property
    def goes_on_in_epochs(self) -> bool:
        """Whether a run can go on from a checkpoint inside an epoch: nothing happens when an epoch begins, or it is
        done again."""
        return type(self).begin_epoch is Role.begin_epoch

    def remember(self) -> State:
        """What has to be kept beside the parts: what was imputed, labelled or chosen."""
        return {}

    def recall(self, memory: State) -> None:  # noqa: B027 - nothing, unless an algorithm remembers
        """Go on from what `remember` gave."""

    def closing_notes(self) -> list[str]:
        """What the report should tell of this party's part in the run.

        Raises:
            ProtectionInactive: a protection was asked for and did not act.
        """
        return []

    def rows_to_pretrain(self) -> torch.Tensor | None:
        """Features of all rows of this party's own that may train, aligned or not, (n, …), for what it learns alone
        before training; None where nothing is, and in a prediction. A resumed run learns the same again."""
        table = self.table
        if not self.config.learns_alone or not len(table.split.train):
            return None
        own = self.features(np.concatenate([table.split.train, table.others(self.site.name)]))
        return own if table.spare is None else torch.cat([own, table.spare.to(own.device)])

    # How often a row is released: what noise is sized by.

    def times(self, epochs: int) -> int:
        """How often `epochs` epochs use one training row, at most."""
        if self.plan.steps is None:
            return epochs
        full = max(len(self.training_rows(1)) // self.plan.batch_size, 1)
        return epochs * -(-self.plan.steps // full)

    def activation_times(self, epochs: int) -> int:
        """How often one row's activations are released, the same at all parties: noise on fixed features is drawn once,
        unless it is on z, where the weights move, and with them what is hidden."""
        dp = self.protection.dp
        moves = self.trainable or (dp is not None and dp.joint is not None)
        return self.times(epochs) if moves else 1

    def label_times(self, epochs: int) -> int:
        """How often the gradient of one row's label is released, the same at all parties."""
        return self.times(epochs) * self.table.shared

    def release_rows(self) -> int:
        """How many row numbers releases are counted by."""
        return self.table.rows

    # What programs and algorithms use.

    def batches(self, epoch: int) -> list[np.ndarray]:
        """The batches of an epoch, the same at all parties."""
        rows = self.training_rows(epoch)
        return epoch_batches(rows, self.plan.batch_size, self.plan.steps, seed=self.site.seed, epoch=epoch)

    def seed(self, label: str | int, *more: str | int) -> int:
        """A seed of this party's own, for what the labels say."""
        return self.site.secret.seed(label, *more)

    async def setup(self) -> None:
        """Exchange what is needed before the first batch."""
        for part in self.parts.values():
            await part.setup()

    def snapshot(self) -> object:
        """This party's part of the model."""
        return {name: part.snapshot() for name, part in self.parts.items()}

    def restore(self, state: object) -> None:
        """Go back to a snapshot."""
        kept = as_dict(state)
        for name, part in self.parts.items():
            part.restore(kept[name])

    def state(self) -> State:
        """Everything that training needs to go on later."""
        return {"parts": {name: part.state() for name, part in self.parts.items()}, "memory": self.remember()}

    def load(self, state: State) -> None:
        """Go on from a state, after `setup`."""
        kept = as_dict(state["parts"])
        for name, part in self.parts.items():
            part.load(as_dict(kept[name]))
        self.recall(as_dict(state["memory"]))

    def before_checkpoint(self) -> None:  # noqa: B027 - nothing, unless a role has to
        """What has to happen before the state is kept."""

    def part_of_model(self) -> State:
        """This party's part of the model, to predict with: what its parts learned. Nothing of what training remembers,
        for that tells of rows: labels, which rows were chosen, what a peer handed over, an optimiser's last steps."""
        times = self.times(self.plan.epochs)
        part: State = {"parts": self.snapshot(), "batch_size": self.plan.batch_size, "times": times}
        part["passive"] = list(self.trained_with)
        dp = self.protection.dp
        if dp is not None and dp.activations is not None:
            part["noise key"] = RepeatedNoise.draw_key().hex()
        return part


class ActiveRole(Role):
    """The active party's part: it owns the labels.

    Attributes:
        y: classes of the numbered rows, int64, -1 where unknown; what training is told, so drawn ones where labels are
            protected by randomised response. Of a numeric target its numbers, float64, NaN where unknown; of several
            labels (rows, labels).
        task: what is learned.
        loss: what training minimises; it states its own sensitivity.
        label_noise: how labels are protected.

    Raises:
        ValueError: a table without labels.
    """

    def __init__(self, config: Configuration, setting: Setting) -> None:
        super().__init__(config, setting)
        if setting.table.y is None:
            raise ValueError("the active party's table has no labels")
        self.y = setting.table.y.to(setting.plan.device)
        self.task = self.build_task()
        self.loss: Loss
        self.label_noise: LabelNoise

    def begin(self) -> None:
        self.loss = self.build_loss()
        self.label_noise = LabelNoise(self)
        self.y = self.label_noise.applied(self.y)
        super().begin()

    def build_task(self) -> Task:
        """What is learned: classes, several labels, or a number, scaled by the training rows."""
        number, table = self.plan.number, self.table
        if number is None:
            return Labels(table.classes) if self.plan.several else Task(table.classes)
        train = torch.from_numpy(table.split.train)
        weight = None if table.weight is None else table.weight[train].numpy()
        return Regression.fitted(number, self.y.cpu()[train].numpy(), weight)

    def weigh(self, losses: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        """Losses of numbered rows, (n,), each times how much its row counts."""
        counts = self.table.counts
        return losses if counts is None else losses * to_device(counts[torch.from_numpy(rows)].numpy(), losses.device)

    def row_weights(self, rows: np.ndarray) -> np.ndarray | None:
        """How much numbered rows count in metrics, (n,); None where all count alike."""
        weight = self.table.weight
        return None if weight is None else weight[torch.from_numpy(rows)].numpy()

    def build_loss(self) -> Loss:
        """The loss of each row. One that does not state its sensitivity gets noise for Δ = 2·clip."""
        return self.task.build_loss()

    def judged(self, p: np.ndarray, labels: np.ndarray) -> None:
        """Hear how the model as it is scores the validation rows: probabilities (n, classes), classes (n,)."""

    def self_training(self) -> Tally | None:
        """What labelling rows did, for the report; None where the algorithm labels none."""
        return None

    def may_stop(self, epoch: int) -> bool:
        """Whether training may end after `epoch`: not before the last stage of an algorithm that has several."""
        return True

    def part_of_model(self) -> State:
        part = super().part_of_model()
        return part | {"target": self.task.state()} if self.task.numeric else part

    def labels(self, rows: np.ndarray) -> torch.Tensor:
        """Labels of numbered rows, as `y` has them."""
        return self.y.index_select(0, to_device(rows, self.y.device))

    def rows_to_learn_from(self) -> np.ndarray:
        """Numbers of the rows whose labels the first epoch learns from: of one class alone, nothing can be learned."""
        return self.training_rows(1)

    def labelled_by(self, rows: np.ndarray) -> list[np.ndarray]:
        """Numbers of the rows whose labels a batch uses: one array, or one for each party that gives a label."""
        return [rows]

    @abstractmethod
    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        """Train on these rows; the sum of their losses, which may still be on its way on the device."""

    @abstractmethod
    async def score(self, rows: np.ndarray) -> torch.Tensor:
        """Logits of these rows, (n, outputs)."""

    @property
    def scores_alone(self) -> bool:
        """Whether this role scores rows without the passive parties: it says how, and has columns to score from."""
        return type(self).score_alone is not ActiveRole.score_alone and self.features.shape.numel() > 0

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        """Logits of these rows from the active party's own columns, (n, outputs), without any message.

        Args:
            rows: numbers of rows that the active party has.

        Raises:
            InputError: the algorithm has no way to; says which do.
        """
        raise InputError(
            "the trained model cannot score rows by the active party's columns alone: predict common rows, or train an "
            "algorithm whose `subsets` is 'alone' or 'any'"
        )


class PassiveRole(Role):
    """A passive party's part: it feeds rows as the active party's epochs go.

    Attributes:
        looks: how much of each of its rows was given away.
    """

    def __init__(self, config: Configuration, setting: Setting) -> None:
        super().__init__(config, setting)
        site, table, shape = self.site, self.table, self.features.shape
        names = table.names or Numbers(len(self.features.x))
        most, columns = site.policy.max_looks, table.columns or shape.numel()
        self.looks = RowLooks(site.name, columns, names, most=most, book=site.looks)

    def begin(self) -> None:
        super().begin()
        done = 0 if self.site.keeper.saved() is None else self.site.keeper.start or 0
        if not len(self.table.split.train):
            return  # a prediction: each row is counted as it is asked for
        if self.protection.on_shares:  # final predictions alone are opened, once
            self.looks.plan(Task(self.table.classes).outputs)
            return
        self.looks.plan(self.opens * (self.look_times(self.plan.epochs) - self.look_times(done)))

    @property
    def opens(self) -> int:
        """How many values of a row one look at it opens; 0 where that depends on what is fed."""
        return 0

    def look_times(self, epochs: int) -> int:
        """How often so many epochs look at one row, at most, as far as that is known before."""
        return self.times(epochs) if epochs else 0

    def looked(self, rows: np.ndarray, width: int) -> None:
        """Count one look at numbered rows, before anything of them leaves.

        Args:
            rows: numbers of rows, (n,).
            width: of what is handed over, where a look opens all of it.

        Raises:
            PolicyError: a row would give away more than the party's policy allows.
        """
        self.looks.add(self.features.places(rows), self.opens or width)

    @property
    def task_outputs(self) -> int:
        """Width of the top model's output, as the active party's task has it."""
        kind = Labels if self.plan.several else Task
        return kind(self.table.classes).outputs

    @property
    def upstream(self) -> Link:
        """The link to the active party."""
        return self.site.links[self.site.active]

    def activations(self, rows: np.ndarray) -> object:
        """What this party would feed for numbered rows; where it feeds nothing, nothing."""
        return None

    @abstractmethod
    async def train_batch(self, rows: np.ndarray) -> None:
        """Take part in training on these rows."""

    @abstractmethod
    async def answer(self, rows: np.ndarray) -> None:
        """Take part in scoring these rows."""

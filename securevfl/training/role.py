"""A role: what one party does in an algorithm. An algorithm's file fills in the hooks; programs run them.

A role is whole before anything overridable is called: its constructor stores what it was given, and `begin`, which the
program calls, fits the plan and lets `build` make the networks. It *has* features, releases and parts, and inherits
little.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np
import torch

from securevfl.privacy.releases import Releases
from securevfl.privacy.repeated import RepeatedNoise
from securevfl.training.rows import Features
from securevfl.training.setting import Configuration, Part, Setting
from securevfl.training.split import epoch_batches
from securevfl.training.state import State, as_dict

__all__ = ["Role"]


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
        own = self.features(np.concatenate([table.split.train, table.rows_only_at(self.site.name)]))
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
        return self.table.total_count

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

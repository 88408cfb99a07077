"""A role is what one party does in an algorithm: an algorithm's file overrides the hooks, and programs call them.

The constructor stores what it was given and calls nothing that can be overridden. `plan_and_build`, which the program
calls, fits the plan to the rows and lets `build` make the networks. What programs need beside the hooks is in
`Role.books`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from securevfl.errors import InputError
from securevfl.privacy.releases import Releases
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.rows import Features
from securevfl.training.setting import Configuration, Part, Setting
from securevfl.training.split import epoch_batches, fixed_batches
from securevfl.training.state import State

__all__ = ["Role"]

_ATTRIBUTES = (
    "books",
    "config",
    "features",
    "nominal_batch",
    "parts",
    "plan",
    "protection",
    "releases",
    "site",
    "table",
    "trained_with",
)
"""What `Role` sets on each instance. A class cannot replace these by methods."""


class Role(ABC):
    """One party's part in an algorithm.

    Args:
        config: the algorithm.
        setting: where, how long, on which rows.

    Attributes:
        features: of this party's rows.
        releases: all that this party releases with noise.
        parts: what learns, by name, in the order of setup; `build` fills it.
        nominal_batch: rows in a batch as the job sets them. A party with fewer rows trains on smaller batches.
        trained_with: names of all passive parties of the model, in order. In training these are the site's. Fewer may
            take part in a prediction: weights are made for all of them, and those of absent parties stay unused.
        books: how often rows are released, what a checkpoint and a model contain, what the report counts.
        bookkeeping: the class of `books`.
    """

    bookkeeping: ClassVar[type[Bookkeeping]] = Bookkeeping

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # __init__ sets these on the instance, which hides a method of the same name without an error.
        for name in _ATTRIBUTES:
            if inspect.isfunction(inspect.getattr_static(cls, name, None)):
                raise InputError(
                    f"{cls.__name__} defines a method {name!r}, which nothing would call: {name!r} is an attribute "
                    "that each role gets when it is built. Put the change into a hook, for example activations"
                )

    def __init__(self, config: Configuration, setting: Setting) -> None:
        self.config = config
        self.site = setting.site
        self.plan = setting.plan
        self.protection = setting.protection
        self.table = setting.table
        self.nominal_batch = setting.plan.batch_size
        self.trained_with = setting.trained_with or setting.site.passive
        self.features = Features(setting.table, setting.plan.device)
        self.releases = Releases(setting.site.name, setting.site.policy, repeated=setting.repeated)
        self.parts: dict[str, Part] = {}
        self.books = self.bookkeeping(self, setting)

    def plan_and_build(self) -> None:
        """Fit the plan to the rows and to the privacy budget, then `build`; the program calls it once.

        Raises:
            PolicyError: the budget allows fewer epochs than the algorithm needs, or the party's policy less than the
                plan spends.
        """
        rows = len(self.training_rows(1))
        if rows:
            self.plan = replace(self.plan, batch_size=min(self.plan.batch_size, rows))
        dp = self.protection.dp
        books, planned = self.books, []
        if dp is not None:
            planned = [
                (dp.features, books.activation_times),
                (dp.gradient_noise, books.label_times),
                (dp.model, books.times),
            ]
        counted = [(mechanism, times) for mechanism, times in planned if mechanism is not None]
        epochs = self.releases.epochs_within(
            [mechanism for mechanism, _ in counted],
            lambda count: [times(count) for _, times in counted],
            self.plan.epochs,
            self.config.least_epochs,
        )
        self.plan = replace(self.plan, epochs=epochs)
        self.build()

    # The hooks of an algorithm.

    @abstractmethod
    def build(self) -> None:
        """Plan the releases, make the networks and enter them in `parts`."""

    async def setup(self) -> None:
        """Exchange what is needed before the first batch: by default, what the parts need."""
        for part in self.parts.values():
            await part.setup()

    def training_rows(self, epoch: int) -> np.ndarray:
        """Numbers of the rows that `epoch` (from 1) trains on, the same at all parties: by default, aligned ones."""
        return self.table.split.train

    def feed(self, rows: np.ndarray) -> np.ndarray:
        """Numbers of the rows that this party feeds for those of a training batch: by default, the same."""
        return rows

    async def begin_epoch(self, epoch: int) -> bool:
        """Prepare `epoch` (from 1). Return True where a new model begins: the best epoch so far no longer counts."""
        return False

    async def go_on_without(self) -> None:  # noqa: B027 - most algorithms adapt by training on
        """Adapt what was learned to the parties that remain, before training goes on from a checkpoint with more of
        them: nothing where the next epochs do."""

    async def begin_from(self, part: Mapping[str, Any]) -> None:
        """Begin training from this party's part of an earlier model, after `setup`: by default, from its weights.

        Raises:
            InputError: a part of a model of another shape.
        """
        try:
            self.books.restore(part["parts"])
        except (RuntimeError, KeyError, TypeError) as error:  # torch raises RuntimeError for other shapes
            raise InputError(
                f"the part of {self.site.name!r} of the earlier model does not fit this job's: give the algorithm's "
                f"settings that it was trained with ({error})"
            ) from None

    def remember(self) -> State:
        """Return what later epochs depend on beside the parts: what was imputed, labelled or chosen."""
        return {}

    def recall(self, memory: State) -> None:  # noqa: B027 - an algorithm that remembers nothing has nothing to recall
        """Restore what `remember` returned."""

    def closing_notes(self) -> list[str]:
        """Sentences for the report on this party's part in the run.

        Raises:
            ProtectionInactive: a protection was asked for and did not act.
        """
        return []

    # For hooks and programs to call.

    def batches(self, epoch: int) -> list[np.ndarray]:
        """Row numbers of each batch of an epoch, the same at all parties."""
        rows = self.training_rows(epoch)
        draw = fixed_batches if self.protection.between_two else epoch_batches
        return draw(rows, self.plan.batch_size, self.plan.steps, seed=self.site.seed, epoch=epoch)

    def seed(self, label: str | int, *more: str | int) -> int:
        """A seed that only this party knows, one for each set of labels."""
        return self.site.secret.derive_seed(label, *more)

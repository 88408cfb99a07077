"""What all programs around roles share: the setup, coming back to a checkpoint, and closing the books.

A program knows no algorithm. See `active_program` for the side that counts the epochs, `passive_program` for the one
that follows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

import numpy as np

from securevfl.privacy import Reading, Spent
from securevfl.training.checkpoints import Checkpoints
from securevfl.training.passive_role import PassiveRole
from securevfl.training.role import Role
from securevfl.training.rows import Trained
from securevfl.training.state import State
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Kind, wait_for_device

__all__ = ["EXCHANGES", "HelperProgram", "Program", "RoleProgram"]

EXCHANGES = (
    Exchange("train/epoch", Kind.CONTROL, ACTIVE, PASSIVE, "whether to keep, whether to stop"),
    Exchange("train/epoch", Kind.CONTROL, ACTIVE, COORDINATOR, "whether to keep, whether to stop"),
    Exchange("train/epoch", Kind.CONTROL, COORDINATOR, ACTIVE, "whether to keep, whether to stop"),
)
"""What programs say to each other beside what their roles exchange."""

R = TypeVar("R", bound=Role)


class Program(ABC):
    """What a party runs in a job: anything that trains to its end. Some also predict."""

    @abstractmethod
    async def run(self) -> Trained:
        """Train, keep the best, test."""

    async def predict(self, model: State, rows: np.ndarray) -> np.ndarray:
        """Take part in predicting aligned rows by a trained model; probabilities at the active party, (n, classes).

        Raises:
            TypeError: a program that only trains.
        """
        raise TypeError(f"a {type(self).__name__} does not predict")

    def privacy_spent(self) -> list[Spent]:
        """What was released so far and what it cost."""
        return []

    def tell_looks(self, notes: list[str] | None = None) -> None:  # noqa: B027 - nothing, unless it feeds rows
        """Write down how much of the party's rows was given away so far; nothing, for a program that feeds none."""


class HelperProgram(Program):
    """What a party without data runs, where a protection gives it a part of the model."""

    @abstractmethod
    async def come_back(self, model: State) -> None:
        """Set up, and take this party's part of a trained model."""

    @abstractmethod
    async def answer(self) -> None:
        """Take part in scoring the rows that the active party announces."""


class RoleProgram(Program, Generic[R]):
    """What the programs of both sides share.

    Args:
        role: what the algorithm says; it is begun here.

    Attributes:
        resumes_within_epochs: whether it can go on from a checkpoint inside an epoch, as far as the role can.
    """

    resumes_within_epochs: ClassVar[bool] = True

    def __init__(self, role: R) -> None:
        role.begin()
        self.role = role
        self.trained = Trained(split=role.table.split)
        self.checkpoints = Checkpoints(role, self.trained, within=self.resumes_within_epochs)

    async def prepare(self) -> State | None:
        """Set up, and come back to the last checkpoint where there is one; what else it holds, or None."""
        self.lap_times()
        self.checkpoints.begin()
        await self.setup()
        self.trained.setup = self.lap_times()
        return self.checkpoints.resume()

    async def setup(self) -> None:
        """Exchange what is needed before training: what the role needs, and what a subclass adds."""
        await self.role.setup()

    def lap_times(self) -> Reading:
        """What the party's clock counted since the last time, when the device has done what it was asked for."""
        wait_for_device(self.role.plan.device)
        return self.role.site.clock.lap()

    async def after_test(self) -> None:
        """What is exchanged after the test; nothing."""

    def close_books(self) -> Trained:
        """Close the books: what was to be released with noise must have been.

        Raises:
            ProtectionInactive: it was not.
        """
        trained, role = self.trained, self.role
        role.site.ledger.catch_up()
        trained.finish = self.lap_times()
        trained.model = role.books.part_of_model()
        trained.notes += role.closing_notes()
        role.releases.end_epoch()
        trained.spent += role.releases.close()
        trained.notes += role.releases.notes(role.site.name)
        self.tell_looks(trained.notes)
        return trained

    def tell_looks(self, notes: list[str] | None = None) -> None:
        """Write into the ledger how much of the party's rows was given away, and into the report's notes where the
        party has a budget of that, or features that rest on it."""
        role = self.role
        if not isinstance(role, PassiveRole) or not role.opened.max_values:
            return
        role.site.ledger.note("looks", role.opened.ledger_facts())
        if notes is not None and (role.opened.allowed is not None or role.config.draws_secretly):
            notes.append(role.opened.text())

    def privacy_spent(self) -> list[Spent]:
        return self.role.releases.spent()

    def tell_spent(self) -> None:
        """Tell the party's observer what was spent so far, where it wants to know."""
        site = self.role.site
        if site.observer.accounting and len(self.role.releases):
            site.observer.spent(site.name, self.role.releases.epsilon())

    async def come_back(self, model: State) -> None:
        """Set up and take this party's part of a trained model.

        What was released in training does not come along: a prediction has noise of its own, also where training drew
        it once, and is one more release of every row that is predicted; see `RepeatedNoise` for those that follow. What
        the party's policy allows was held against the plan of training, of which one release is a part, when this
        program was made.
        """
        await self.role.setup()
        self.role.books.restore(model["parts"])

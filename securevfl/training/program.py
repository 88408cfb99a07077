"""The base of the programs that run roles: setup, resuming from a checkpoint, closing the books.

A program works for any algorithm. `active_program` has the side that counts epochs, `passive_program` the one that
follows.
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
from securevfl.transport import wait_for_device

__all__ = ["HelperProgram", "Program", "RoleProgram", "StagedHelper", "StagedProgram"]

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
        """What was released so far, and its ε."""
        return []

    @property
    def planned_epsilon(self) -> float:
        """See `Releases.planned_epsilon`; 0 for a program that releases nothing."""
        return 0.0

    def record_opened_values(self, notes: list[str] | None = None) -> None:  # noqa: B027 - nothing, unless it feeds rows
        """Record how many numbers of the party's rows were opened so far; nothing for a program that feeds none."""


class StagedProgram(Program):
    """A program that trains first and tests then, so that others can train in between, of which only one tests."""

    trained: Trained

    def count_earlier(self) -> None:
        """Count what earlier attempts released, of a training that this one leaves out; nothing without releases.

        Raises:
            PolicyError: they may have released more than the party's policy allows.
        """

    async def run(self) -> Trained:
        await self.train()
        return await self.finish()

    @abstractmethod
    async def train(self) -> None:
        """Set up, resume where a checkpoint is, and train to the end; nothing of the test rows is opened."""

    @abstractmethod
    async def finish(self) -> Trained:
        """Go back to the best epoch, test, and close the books. Call it after `train`, once."""


class HelperProgram(Program):
    """The program of a party without data, under a protection that gives it a part of the model."""

    @abstractmethod
    async def come_back(self, model: State) -> None:
        """Set up, and take this party's part of a trained model."""

    @abstractmethod
    async def answer(self) -> None:
        """Take part in scoring the rows that the active party announces."""


class StagedHelper(StagedProgram, HelperProgram):
    """A helper's program that trains first and tests then."""


class RoleProgram(StagedProgram, Generic[R]):
    """What the programs of both sides share.

    Args:
        role: the party's part in the algorithm; the constructor calls its `plan_and_build`.

    Attributes:
        resumes_within_epochs: whether it can resume from a checkpoint inside an epoch, if the role can.
    """

    resumes_within_epochs: ClassVar[bool] = True

    def __init__(self, role: R) -> None:
        role.plan_and_build()
        self.role = role
        self.trained = Trained(split=role.table.split)
        self.checkpoints = Checkpoints(role, self.trained, within=self.resumes_within_epochs)

    async def prepare_training(self) -> State | None:
        """Set up and load the last checkpoint, if there is one; return what the program stored in it, or None."""
        self.lap_times()
        self.checkpoints.begin_attempt()
        await self.setup()
        self.trained.setup = self.lap_times()
        saved = self.checkpoints.resume()
        first = self.role.site.keeper.first_part
        if saved is None and first is not None:
            await self.role.begin_from(first)
        return saved

    async def go_on_without(self, kept: object, *, over: bool) -> object:
        """Adapt the model to the parties that remain; returns the snapshot to keep until a better epoch.

        Args:
            kept: of the best epoch before, with the columns of more parties.
            over: whether training was over, so that this snapshot is the model.
        """
        if over:
            self.role.books.restore(kept)
        await self.role.go_on_without()
        return self.role.books.snapshot()

    async def setup(self) -> None:
        """Exchange what is needed before training: what the role needs, and what a subclass adds."""
        await self.role.setup()

    def lap_times(self) -> Reading:
        """Wait for the device, then return what the party's clock counted since the last call."""
        wait_for_device(self.role.plan.device)
        return self.role.site.clock.lap()

    async def after_test(self) -> None:
        """What is exchanged after the test; nothing."""

    def close_books(self) -> Trained:
        """Close the ledger and the counts of releases; check that every planned noise was added.

        Raises:
            ProtectionInactive: some was not.
        """
        trained, role = self.trained, self.role
        role.site.ledger.catch_up()
        trained.finish = self.lap_times()
        trained.model = role.books.part_of_model()
        trained.notes += role.closing_notes()
        role.releases.end_epoch()
        trained.spent += role.releases.final_costs()
        trained.notes += role.releases.interruption_notes(role.site.name)
        self.record_opened_values(trained.notes)
        return trained

    def record_opened_values(self, notes: list[str] | None = None) -> None:
        """Record in the ledger how many numbers of the party's rows were opened. The report's notes repeat it if the
        party's policy bounds them, or if they are all that hides a secretly drawn bottom."""
        role = self.role
        if not isinstance(role, PassiveRole) or not role.opened.max_numbers:
            return
        opened = role.opened
        role.site.ledger.record_note("results", opened.ledger_facts())
        if notes is None:
            return
        if (opened.refuses and opened.allowed is not None) or role.config.draws_secretly:
            notes.append(opened.summary_sentence())
        notes += [note] if (note := opened.excess_note()) else []

    def privacy_spent(self) -> list[Spent]:
        return self.role.releases.costs_so_far()

    def count_earlier(self) -> None:
        self.checkpoints.count_earlier()

    @property
    def planned_epsilon(self) -> float:
        return self.role.releases.planned_epsilon

    def report_spent(self) -> None:
        """Report ε so far to the party's observer, if it asks for that."""
        site = self.role.site
        if site.observer.accounting and len(self.role.releases):
            site.observer.epsilon_spent(site.name, self.role.releases.epsilon())

    async def come_back(self, model: State) -> None:
        """Set up and load this party's part of a trained model.

        Counts of releases in training are not loaded. A prediction draws its own noise, even where training drew it
        once, and is one more release of every predicted row; `RepeatedNoise` covers later ones. The party's policy was
        checked against the plan when this program was constructed, and a prediction is one release of that plan.
        """
        await self.role.setup()
        self.role.books.restore(model["parts"])

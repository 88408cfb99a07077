"""A passive party's role: it feeds rows, and counts how many numbers of each row peers have seen."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import numpy as np

from securevfl.privacy import EpsilonBudget, Link, OpenedValues
from securevfl.training.role import Role
from securevfl.training.rows import Numbers
from securevfl.training.setting import Configuration, Setting
from securevfl.training.task import Task

__all__ = ["PassiveRole"]


class PassiveRole(Role):
    """A passive party's part: it feeds the rows that the active party's epochs ask for.

    Attributes:
        opened: how many numbers of each row were opened to a peer.
        spending: ε of each row over all jobs, where releases are held against it.
        answers_each_row: whether `answer` counts one release of each row that it is asked about, so that several
            batches can be counted before the first of them is answered.
    """

    answers_each_row: ClassVar[bool] = False

    def __init__(self, config: Configuration, setting: Setting) -> None:
        super().__init__(config, setting)
        site, table, shape = self.site, self.table, self.features.row_shape
        names = table.names or Numbers(len(self.features.x))
        policy, columns = site.policy, table.columns or shape.numel()
        self.opened = OpenedValues(
            site.name,
            columns,
            names,
            asker=site.asker,
            allowed=policy.allowed_numbers(columns),
            written=policy.writes_bound,
            refuses=policy.writes_bound or not site.simulated,
            book=site.results,
        )
        self.spending = EpsilonBudget(
            site.name, names, asker=site.asker, most=site.epsilon_over_jobs, book=site.results
        )

    def plan_and_build(self) -> None:
        super().plan_and_build()
        done = 0 if self.site.keeper.load() is None else self.site.keeper.start or 0
        if not len(self.table.split.train):
            return  # a prediction: each row is counted as it is asked for
        if self.opens_only_answers:
            split, places = self.table.split, self.features.find_places
            self.opened.check_plan(self.numbers_per_answer, places(split.test))
            if self.protection.hands_out:
                self.opened.check_plan(self.opened.columns, places(split.train))
            return
        times = self.books.opening_times(self.plan.epochs) - self.books.opening_times(done)
        self.opened.check_plan(self.values_per_release * times)

    @property
    def opens_only_answers(self) -> bool:
        """Whether a job opens nothing of single rows but answers: those of its test rows, once, or the model."""
        return self.protection.on_shares

    @property
    def values_per_release(self) -> int:
        """How many numbers of a row one release opens; 0 where that depends on what is fed."""
        return 0

    @property
    def numbers_per_answer(self) -> int:
        """How many numbers of a row one prediction opens; 0 where that depends on what is fed."""
        if self.protection.on_shares:
            return self.protection.numbers_per_answer(Task(self.table.classes).outputs)
        return self.values_per_release

    def count_answer(self, rows: np.ndarray) -> None:
        """Count one prediction of numbered rows under a protection that opens nothing else of them. Call it before
        anything of them is dealt.

        Raises:
            PolicyError: more numbers of a row would be opened than the party's policy allows.
        """
        self.opened.count_opening(self.features.find_places(rows), self.numbers_per_answer)

    @contextmanager
    def count_answers_ahead(self, rows: np.ndarray, *, synced: bool = True) -> Iterator[None]:
        """Count the answers about numbered rows at once, before the first of them; during the block each of these rows
        is then answered once without being counted again. Does nothing where a role counts as it answers.

        Args:
            rows: numbers of rows, each once.
            synced: False leaves the count to a later `opened.sync`, before which nothing of these rows may leave.

        Raises:
            PolicyError: more numbers of a row would be opened than the party's policy allows; nothing was counted.
        """
        numbers = self.numbers_per_answer
        if not numbers or not (self.answers_each_row or self.protection.on_shares):
            yield
            return
        with self.opened.count_ahead(self.features.find_places(rows), numbers, synced=synced):
            yield

    def count_metrics(self, rows: np.ndarray) -> None:
        """Count metrics on these validation rows, one number of each: of each set of rounded ones, because each is an
        equation in a row's columns to whoever knows all other rows; once a job where epochs are compared on shares.

        Raises:
            PolicyError: more numbers of a row would be opened than the party's policy allows.
        """
        self.opened.count_opening(self.features.find_places(rows), 1)

    def count_model(self) -> None:
        """Count a model that is handed out: as many numbers of each row that trained as the party has columns.

        Raises:
            PolicyError: more than the party's policy allows.
        """
        places = self.features.find_places(self.table.split.train)
        self.opened.count_opening(places, self.opened.columns)

    def count_release(self, rows: np.ndarray, width: int) -> None:
        """Count one release of numbered rows. Call it before anything of them leaves.

        Args:
            rows: numbers of rows, (n,).
            width: of what is handed over; counted where `values_per_release` is 0.

        Raises:
            PolicyError: more numbers of a row would be opened than the party's policy allows.
        """
        self.opened.count_opening(self.features.find_places(rows), self.values_per_release or width)

    @property
    def upstream(self) -> Link:
        """The link to the active party."""
        return self.site.links[self.site.active]

    def activations(self, rows: np.ndarray, *, train: bool) -> object:
        """What this party feeds for numbered rows; None where it feeds nothing.

        Args:
            rows: their numbers, (n,).
            train: whether the rows train. Where they are scored, a row's result must not depend on the rows beside it.
        """
        return None

    @abstractmethod
    async def train_batch(self, rows: np.ndarray) -> None:
        """Take part in training on these rows."""

    @abstractmethod
    async def answer(self, rows: np.ndarray) -> None:
        """Take part in scoring these rows."""

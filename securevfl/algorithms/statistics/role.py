"""The base of both roles of statistics: the common rows, a party's own columns, and how a release ends."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from securevfl.algorithms.statistics.columns import OwnColumn, OwnColumns, cut_columns
from securevfl.algorithms.statistics.settings import StatisticsSettings
from securevfl.errors import InputError, PolicyError
from securevfl.privacy.statistics_budget import StatisticsBudget, StatisticsUses
from securevfl.training.crossing import CrossPlan
from securevfl.training.role import Role
from securevfl.training.rows import Trained

__all__ = ["StatisticsRole"]


class StatisticsRole(Role):
    """Base of both roles of statistics.

    Attributes:
        uses: counts releases of each row; None without a budget, and at the active party.
        trained: the result so far.
        columns: of this party, once they are cut.
        cross: the plan of the products, once it is agreed.
    """

    config: StatisticsSettings
    columns: OwnColumns
    cross: CrossPlan

    def begin(self) -> None:
        """Check the rows, and plan what the release spends.

        Raises:
            PolicyError: too few common rows, or more than the party's policy allows.
        """
        self.uses: StatisticsUses | None = None
        self.trained = Trained(split=self.table.split)
        if why := self.config.refuse_rows(len(self.rows)):
            raise PolicyError(f"{self.site.name!r} refuses: {len(self.rows)} rows are common, and {why}")

    def build(self) -> None:
        """There is no model."""

    @property
    def rows(self) -> np.ndarray:
        """Numbers of the common rows."""
        return np.arange(self.table.aligned_count)

    @property
    def budget(self) -> StatisticsBudget | None:
        """The job's budget; None without one."""
        return self.config.budget(self.protection, len(self.site.passive))

    @property
    def class_count(self) -> int:
        """Classes of the label, as all parties agreed; 0 where it is a number."""
        return 0 if self.plan.number is not None else self.table.classes

    def own_rows(self) -> np.ndarray:
        """The common rows as this party has them, float64 (n, columns), NaN where missing."""
        x = self.features(self.rows)
        found: np.ndarray = x.reshape(len(self.rows), -1).double().cpu().numpy()
        return found if found.size else np.empty((len(self.rows), 0))

    def level_names(self) -> dict[str, tuple[str, ...]]:
        """Column of categories → its levels."""
        encoder = self.table.encoder
        return {} if encoder is None else dict(encoder.level_names)

    def cut_exactly(self) -> list[OwnColumn]:
        """This party's columns by its exact rows."""
        config = self.config
        return cut_columns(
            self.table.encoded,
            self.table.codes,
            self.level_names(),
            self.own_rows(),
            bins=config.bins,
            least=config.least,
        )

    async def finish(self) -> Trained:
        """Close the books."""
        trained, role = self.trained, self
        if self.budget is None:
            self._note_pulled()
        role.site.ledger.catch_up()
        trained.finish = role.site.clock.lap()
        trained.rows = len(self.rows)
        trained.stopped = "statistics are computed"
        role.releases.end_epoch()
        trained.spent += role.releases.final_costs()
        trained.notes += role.releases.interruption_notes(role.site.name)
        return trained

    def _note_pulled(self) -> None:
        if far := [f"{one.pulled_in} of {one.name}" for one in self.columns.columns if one.pulled_in]:
            self.trained.notes.append(
                f"{self.site.name!r} pulled in far values, {', '.join(far)}: exact sums would tell the row "
                f"of a value that has more than 2/{self.config.least} of a column's squares"
            )

    async def train_batch(self, rows: np.ndarray) -> NoReturn:
        """Not possible: nothing is trained."""
        raise InputError("statistics train no model")

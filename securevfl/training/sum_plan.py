"""What three computing parties have to know of an additive model whose sums they compute: sizes, bounds and noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from securevfl.cut import Protection
from securevfl.privacy import Gaussian
from securevfl.privacy.sums_budget import SumsBudget, SumsUses
from securevfl.training.passive_role import PassiveRole
from securevfl.training.role import Role

__all__ = ["SumChannel", "SumPlan", "SumPlanner", "SummedActive", "SummedSide", "plan_sum_uses"]


@dataclass(frozen=True, kw_only=True)
class SumPlan:
    """The sums of one epoch: of each column, over the rows that train.

    Attributes:
        rows: that train.
        outputs: width of a residual.
        columns: how many sums each data party gets for one output, the active party's first.
        caps: largest part of a row's prediction that each data party deals, in units; they add up to `one`.
        slacks: how far below zero, and above its cap, each data party's part may lie, in units.
        one: units of a prediction of one: a power of two, up to 2^16.
        contrast: units of a contrast of one.
        own_sigma: standard deviation, in units of a sum, of one computing party's noise; 0 for none.
        sigma: of the noise that any two computing parties reach, likewise.
        sensitivity: how far replacing one row moves all sums of an epoch, likewise.
    """

    rows: int
    outputs: int
    columns: tuple[int, ...]
    caps: tuple[int, ...]
    slacks: tuple[int, ...]
    one: int
    contrast: int
    own_sigma: int = 0
    sigma: float = 0.0
    sensitivity: float = 0.0


class SumPlanner(Protocol):
    """An algorithm that plans sums."""

    def plan_budget(
        self, protection: Protection, *, rows: int, outputs: int, columns: int, parties: int, epochs: int
    ) -> SumsBudget:
        """The budget of a job that has one.

        Args:
            protection: of the job, with its budget.
            rows: that train.
            outputs: width of a residual.
            columns: of all data parties.
            parties: with data.
            epochs: that are trained.
        """
        ...

    def plan_sums(
        self, protection: Protection, *, rows: int, outputs: int, columns: Sequence[int], epochs: int
    ) -> SumPlan:
        """The sums of a job.

        Args:
            protection: of the job, with its budget.
            rows: that train.
            outputs: width of a residual.
            columns: of each data party, the active one's first.
            epochs: that are trained.
        """
        ...


class SumChannel(Protocol):
    """Where a role gets its sums.

    Attributes:
        loss: of the last epoch, added up over its rows; not a number where none is known.
    """

    loss: float

    async def exchange(self, epoch: int, contrasts: np.ndarray, part: np.ndarray) -> np.ndarray:
        """The sums of this party's columns, int64 (columns, outputs).

        Args:
            epoch: from 1.
            contrasts: of the party's columns, int64 (n, columns).
            part: int64 (n, outputs): what the party's own part leaves of the targets at the active party, its part at
                a passive one.
        """
        ...


class SummedSide(Protocol):
    """A role of an additive model.

    Attributes:
        channel: where it gets its sums.
        uses: counts what training spends of each row; None without a budget.
    """

    channel: SumChannel
    uses: SumsUses | None

    @property
    def sum_counts(self) -> tuple[int, ...]:
        """How many sums of one output each data party gets, the active one first."""
        ...

    def sum_shapes(self, rows: np.ndarray) -> np.ndarray:
        """Its part of the scores of numbered rows, float64 (n, outputs): parts add up to probabilities."""
        ...


class SummedActive(SummedSide, Protocol):
    """The active party's role."""

    targets: np.ndarray


def plan_sum_uses(role: Role, budget: SumsBudget, mechanism: Gaussian) -> SumsUses:
    """Plan what noisy sums spend of each row that trains, and hold it against the party's policy.

    Args:
        role: the party's.
        budget: of the training.
        mechanism: of the job.

    Raises:
        PolicyError: the plan spends more than the party's policy allows.
    """
    uses, train = SumsUses(budget, role.books.release_rows()), role.table.split.train
    role.releases.plan_release(uses, mechanism)
    if isinstance(role, PassiveRole):
        role.releases.compose_over_jobs(role.spending, train, role.features.find_places(train))
    return uses

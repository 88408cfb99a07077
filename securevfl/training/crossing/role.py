"""The role of a data party in sums of crossed columns, and how its program begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from securevfl.training.crossing.plan import CrossPlan

if TYPE_CHECKING:
    from securevfl.privacy import Link
    from securevfl.privacy.sums_budget import SumsUses
    from securevfl.training.rows import Trained

__all__ = ["CrossedRole", "begin_crossing"]


class CrossedRole(Protocol):
    """A data party's role in such a job.

    Attributes:
        uses: counts what the release spends of each row; None without a budget.
        trained: its result so far.
    """

    uses: SumsUses | None
    trained: Trained

    async def agree_layout(self, others: Sequence[Link]) -> CrossPlan:
        """Send this party's layout and receive those of all.

        Args:
            others: links to all other parties, also to one without data.
        """
        ...

    def begin_release(self) -> None:
        """Count the release of all rows. Call it before any of their data leaves."""
        ...

    async def tell_own(self) -> None:
        """Send the active party what this party computes alone; receive it at the active party."""
        ...

    def matrix(self) -> np.ndarray:
        """This party's rows, int64 (n, width)."""
        ...

    def take_sums(self, opened: np.ndarray) -> None:
        """Make statistics of what was opened, int64 (released,); at the active party."""
        ...

    async def finish(self) -> Trained:
        """Close the books."""
        ...


async def begin_crossing(role: CrossedRole, others: Sequence[Link]) -> CrossPlan:
    """Agree on the layout, count the release, and exchange what each party computes alone.

    It counts the release before any of a party's rows leaves, so a release that breaks off still counts.

    Args:
        role: the party's.
        others: links to all other parties, also to one without data.
    """
    plan = await role.agree_layout(others)
    role.begin_release()
    await role.tell_own()
    return plan

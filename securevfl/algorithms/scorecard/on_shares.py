"""The roles of a scorecard on shares: each party cuts its columns, and the computing parties do all the rest.

Nobody sees counts, weights of evidence or coefficients. A job that hands its model out opens the points of a party's
own bins to it, and of these its card is made.
"""

from __future__ import annotations

import numpy as np

from securevfl.algorithms.scorecard.points import opened_card
from securevfl.algorithms.scorecard.roles import BinnedActive, BinnedPassive, CardRole, count_by_column
from securevfl.algorithms.scorecard.settings import ScorecardSettings

__all__ = ["SharedCardActive", "SharedCardPassive"]


class _SharedCard(CardRole):
    """Base of both roles on shares."""

    def take_points(self, values: np.ndarray, bias: float | None) -> None:
        """Make the card of the points that were opened to this party; see `BinnedRole`."""
        rows = count_by_column(self.find_bins(self.table.split.train), None, self.cuts)
        factor, start = self.scale_points(bias)
        self.card = opened_card(self.column_names(), self.cuts, self.own_units(), rows, values, factor, start)

    def closing_notes(self) -> list[str]:
        single = sum(not len(cut) for cut in self.cuts)
        more = f"; {single} of {len(self.cuts)} columns have one bin and no points" if single else ""
        cells = sum(len(cut) + 1 for cut in self.cuts)
        return [
            *super().closing_notes(),
            f"scorecard of {self.site.name!r}: {cells} bins of {len(self.cuts)} columns, cut by its own rows{more}",
        ]


class SharedCardActive(_SharedCard, BinnedActive):
    """The active party's role."""

    config: ScorecardSettings


class SharedCardPassive(_SharedCard, BinnedPassive):
    """A passive party's role."""

    config: ScorecardSettings

"""What the label owner's report decides with: costs of wrong decisions, and the column by which it groups rows.

Neither changes training or any message, so parties need not agree on it.
"""

from __future__ import annotations

import math
from typing import Annotated

from msgspec import Meta

from securevfl.config import Config

__all__ = ["Costs", "ReportOptions"]

_Cost = Annotated[float, Meta(ge=0)]


class Costs(Config):
    """What a wrong decision about a row costs, in one unit for both; a right one costs nothing.

    Attributes:
        false_positive: a row without the second class that is flagged.
        false_negative: a row of the second class that is missed.
    """

    false_positive: _Cost
    false_negative: _Cost

    @classmethod
    def section_path(cls) -> str:
        return "costs"

    def problems(self) -> list[str]:
        found = super().problems()
        for name in ("false_positive", "false_negative"):
            if not math.isfinite(getattr(self, name)):
                found.append(f"{name} is {getattr(self, name)}; give a finite number from 0")
        if not self.false_positive + self.false_negative:
            found.append("false_positive and false_negative are both 0, so that every cut-off costs the same; give one")
        return found


class ReportOptions(Config):
    """``[report]``: what the report decides with.

    Attributes:
        costs: of wrong decisions about two classes; the report then names the cheapest cut-off. None for a table of
            cut-offs without costs.
        group: the column by which the report compares groups of rows: ``"bank.sex"``, or ``"sex"`` of the label owner's
            table. Between organisations it is a column of the label owner's own table; in a simulation it can be
            another party's. It need not be a feature. None for no groups.
    """

    costs: Costs | None = None
    group: Annotated[str, Meta(min_length=1, max_length=200)] | None = None

    @classmethod
    def section_path(cls) -> str:
        return "report"

    def grouping(self, owner: str) -> tuple[str, str] | None:
        """Party and column of `group`; None without one.

        Args:
            owner: the label owner, whose column a name without a party is.
        """
        if self.group is None:
            return None
        party, dot, column = self.group.partition(".")
        return (party, column) if dot and party and column else (owner, self.group)

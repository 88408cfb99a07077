"""The configuration of statistics before a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NoReturn

from securevfl.algorithms.statistics.settings import StatisticsSettings
from securevfl.data import View
from securevfl.errors import InputError
from securevfl.training.fits import Fits
from securevfl.transport import PASSIVE

if TYPE_CHECKING:
    from securevfl.party_context import PartyContext
    from securevfl.training.active_role import ActiveRole
    from securevfl.training.passive_role import PassiveRole
    from securevfl.training.plan import Plan
    from securevfl.training.program import Program
    from securevfl.training.setting import Setting

__all__ = ["Statistics"]


class Statistics(StatisticsSettings):
    """Statistics of the parties' columns over the common rows, before a model: correlations of columns of different
    parties, variance inflation, and for each class the means of numbers and the rows in each bin, with weights of
    evidence and information values. They are opened to the active party. No model is trained.

    Each owner standardises and bins its own columns. On shares, the sums over rows of products are computed on shares,
    and of each column the finest bins are opened that have `least` rows of each class; noise, if the job asks for ε, is
    added before anything is opened.

    Attributes:
        bins: most bins of values of a column; missing values have one more.
        least: the fewest rows of each class in a bin, and with and without a value, that are opened without a budget.
            Coarser bins are tried, then the column is withheld.
        least_rows: fewest common rows.
        vif: whether passive parties tell the correlations among their own columns, from which the active party
            computes variance inflation factors.
        ranges: ``"party.column"`` → lowest and highest value, known to all, for bins within a budget; without it a part
            of the budget finds them.
        levels: ``"party.column"`` → the levels of a column of categories, known to all. Within a budget, a passive
            party leaves out columns of categories that have none, and parts of dates.
    """

    name: ClassVar[str] = "statistics"
    label: ClassVar[str] = "Statistics"
    view: ClassVar[View] = "coded"
    asks_partner: ClassVar[bool] = False
    bounds_errors: ClassVar[bool] = True
    describes: ClassVar[bool] = True
    fits: ClassVar[Fits] = Fits(shares="statistics", dp={"model"}, learns={"numbers"}, counts=True)

    def active(self, setting: Setting) -> ActiveRole:
        from securevfl.algorithms.statistics.roles import StatisticsActive

        return StatisticsActive(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        from securevfl.algorithms.statistics.roles import StatisticsPassive

        return StatisticsPassive(self, setting)

    def program(self, site: PartyContext, plan: Plan, settings: Mapping[str, Setting]) -> Program:
        """See `Algorithm.program`."""
        from securevfl.algorithms.statistics.programs import PlainActive, PlainPassive

        setting = next(iter(settings.values()))
        if site.role == PASSIVE:
            return PlainPassive(self.passive(setting))
        return PlainActive(self.active(setting))

    def scorer(self, *inputs: object) -> NoReturn:
        """Not possible.

        Raises:
            InputError: always.
        """
        raise InputError("statistics leave no model to score rows with: train one, for example logistic_regression")

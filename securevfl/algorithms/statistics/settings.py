"""What a job can ask of statistics, and every message that they send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, NoReturn

from msgspec import Meta

from securevfl.algorithms.additive.named import own_entries
from securevfl.cut import Plain, Protection
from securevfl.data import View
from securevfl.errors import InputError
from securevfl.privacy.statistics_budget import StatisticsBudget
from securevfl.training.algorithm import Algorithm
from securevfl.training.crossing import COLUMNS, LAYOUT, CrossPlan, PartyLayout
from securevfl.training.fits import Fits
from securevfl.training.objectives import LossOfNumber
from securevfl.training.plan import Plan
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Kind, Sight

if TYPE_CHECKING:
    from securevfl.party_context import PartyContext
    from securevfl.training.active_role import ActiveRole
    from securevfl.training.passive_role import PassiveRole
    from securevfl.training.program import Program
    from securevfl.training.setting import Setting

__all__ = ["OWN", "ROWS", "Statistics"]

OWN, ROWS = "statistics/own", "statistics/rows"
"""A passive party's correlations among its own columns; and, without a protection, its rows."""

_LEAST_DELTA = 1e-12
_CORRELATION_DIGITS = 0.001
"""Exact sums of products are opened in steps of at most this correlation."""

_RELEASED = (
    "statistics of its columns over the common rows: correlations with columns of others, and for each class the mean "
    "and deviation of each number and the rows in each bin"
)


class Statistics(Algorithm):
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
    bins: Annotated[int, Meta(ge=2, le=50)] = 10
    least: Annotated[int, Meta(ge=1, le=1_000_000)] = 20
    least_rows: Annotated[int, Meta(ge=2, le=1_000_000_000)] = 200
    vif: bool = True
    ranges: Mapping[str, tuple[float, float]] = {}
    levels: Mapping[str, tuple[str, ...]] = {}

    def problems(self) -> list[str]:
        found = super().problems()
        for name, (low, high) in self.ranges.items():
            if not low < high:
                found.append(f"statistics.ranges has {name!r} from {low:g} to {high:g}; give the lower end first")
        return found

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: a protection of the cut, which statistics do not have, or noise that hides nothing.
        """
        super().check_protection(protection)
        if not protection.on_shares and not isinstance(protection, Plain):
            raise InputError(
                f"statistics have no cut layer that {protection.name!r} could seal: use protection 'shares', of three "
                "parties or of two (computing = 2), or 'plain', which shows the rows to the active party"
            )
        dp = protection.dp
        if dp is None:
            return
        if dp.features or dp.labels or dp.model is None:
            raise InputError(
                "statistics add noise to what they open, and to nothing else: give dp=sv.DP(model=sv.Gaussian("
                "epsilon=…)), or leave dp out"
            )
        if not protection.on_shares:
            raise InputError(
                "dp.model of statistics under protection 'plain' protects nobody, since the active party reads the "
                "rows: use protection 'shares', or leave dp out"
            )
        if dp.model.noise_multiplier is not None or dp.model.clip != 1.0:
            raise InputError(
                "statistics take epsilon and delta of dp.model alone: their noise follows from them. Leave "
                "noise_multiplier and clip out"
            )
        if dp.model.delta < _LEAST_DELTA:
            raise InputError(
                f"delta of dp.model is {dp.model.delta:g}, and statistics state {_LEAST_DELTA:g} at the least: their "
                f"noise ends at 8.2 standard deviations. Give delta={_LEAST_DELTA:g} or more"
            )

    def budget(self, protection: Protection, passive: int) -> StatisticsBudget | None:
        """The budget of a job; None for one without.

        Args:
            protection: of the job.
            passive: number of passive parties.
        """
        mechanism = None if protection.dp is None else protection.dp.model
        if mechanism is None:
            return None
        return StatisticsBudget(
            epsilon=mechanism.epsilon, delta=mechanism.delta, passive=max(passive, 1), own_blocks=self.vif
        )

    def plan_products(
        self, protection: Protection, *, rows: int, classes: int, layouts: Sequence[PartyLayout]
    ) -> CrossPlan:
        """What all parties know of the products.

        Args:
            protection: of the job.
            rows: common ones.
            classes: columns of classes of the active party.
            layouts: of the data parties, the active one's first.
        """
        from securevfl.algorithms.statistics.columns import ONE

        budget = self.budget(protection, len(layouts) - 1)
        if budget is None:
            step = _CORRELATION_DIGITS * rows * ONE * ONE
            return CrossPlan(
                rows=rows,
                classes=classes,
                layouts=tuple(layouts),
                least=self.least,
                shift=max(int(step).bit_length() - 1, 0) if protection.on_shares else 0,
            )
        noise = (
            budget.scores_sigma(tuple(one.scores for one in layouts)) * ONE * ONE,
            budget.counts_sigma(sum(len(one.bins) for one in layouts[1:])),
        )
        return CrossPlan(rows=rows, classes=classes, layouts=tuple(layouts), least=0, noise=noise)

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        if not passive:
            return ()
        budget = self.budget(protection, passive)
        noisy = "" if budget is None else f", within ε = {budget.epsilon:g} of a row's columns"
        names = "names of its columns, and how many bins each has"
        public = [
            Exchange(COLUMNS, Kind.CONTROL, PASSIVE, ACTIVE, names, reveals=names, severity="ok"),
            Exchange(LAYOUT, Kind.CONTROL, ACTIVE, PASSIVE, "numbers of columns and of bins of all parties"),
            Exchange(LAYOUT, Kind.CONTROL, ACTIVE, COORDINATOR, "likewise", optional=True),
        ]
        if self.vif:
            own = f"correlations among its own columns{noisy}"
            seen = Sight(of="features", severity="note", through="correlations of columns")
            public.append(
                Exchange(OWN, Kind.STATISTIC, PASSIVE, ACTIVE, own, reveals=own, severity="note", sights=(seen,))
            )
        if protection.on_shares:
            bound = noisy or (
                f"; counts of fewer than {self.least} rows are withheld, but whoever chooses its own columns, or knows "
                "all rows but one, computes values of single rows from exact sums"
            )
            opened = Sight(of="features", severity="note", through="statistics")
            more = protection.crossing_exchanges(passive, reveals=_RELEASED + bound, sights=(opened,))
            return (*public, *more)
        rows = Sight(of="features", severity="leak", through="rows of standardised numbers and bins")
        told = "each common row: its standardised numbers and its bins"
        return (
            *public,
            Exchange(ROWS, Kind.ACTIVATION, PASSIVE, ACTIVE, told, reveals=told, severity="leak", sights=(rows,)),
        )

    def values_opened(self, plan: Plan) -> int:
        return 1

    def declared_levels(self, party: str) -> Mapping[str, tuple[str, ...]]:
        return own_entries(party, self.levels)

    def notes(self, protection: Protection) -> list[str]:
        if protection.on_shares and protection.dp is None:
            return [
                "statistics are exact where they are opened: two runs whose rows differ in one person, or a column "
                "that singles one out, tell that person's values; dp.model bounds that by ε"
            ]
        return []

    def check_number(self, number: LossOfNumber, protection: Protection) -> None:
        """See `Algorithm.check_number`; a number is a column like others."""

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

    def scorer(self, *inputs: object) -> NoReturn:  # type: ignore[override]
        """Not possible.

        Raises:
            InputError: always.
        """
        raise InputError(
            "statistics leave no model to score rows with: train one, for example with 'logistic_regression'"
        )

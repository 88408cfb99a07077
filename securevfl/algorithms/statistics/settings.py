"""The configuration of statistics and the messages that they send."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta

from securevfl.algorithms.additive.named import declared_mistakes, named_mistakes, own_entries, split_name
from securevfl.cut import Plain, Protection
from securevfl.errors import InputError
from securevfl.privacy.statistics_budget import StatisticsBudget
from securevfl.training.algorithm import Algorithm
from securevfl.training.crossing import COLUMNS, LAYOUT, CrossPlan, PartyLayout
from securevfl.training.objectives import LossOfNumber
from securevfl.training.plan import Budget, Plan
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Kind, Sight

__all__ = ["OWN", "ROWS", "StatisticsSettings"]

OWN, ROWS = "statistics/own", "statistics/rows"
"""A passive party's correlations among its own columns; and, without a protection, its rows."""

_LEAST_DELTA = 1e-12
_LEAST_SIGMA = 3 * math.sqrt(2.0)
"""Least σ of the noise on a count. Two parties add a half each, and the sum of two discrete Gaussians is one, but for a
gap of 10 exp(−π² σ²) where each has σ ≥ 1 (Kairouz, Liu and Steinke 2021, arXiv 2102.06387): 10⁻³⁷ here."""

_CORRELATION_DIGITS = 0.001
"""Exact sums of products are opened in steps of at most this correlation."""

_MOST_PRODUCTS, _MOST_TERMS = 1 << 25, 1 << 22
"""Products, and terms of their sums, that a release has at most: every party allocates them."""

_RELEASED = (
    "statistics of its columns over the common rows: correlations with columns of others, and for each class the mean "
    "and deviation of each number and the rows in each bin"
)


_FEWER_COLUMNS = "Leave columns of the active party out (drop), find more rows, or add noise (dp.model)"


class StatisticsSettings(Algorithm):
    """The settings of `Statistics`, and what follows from them."""

    bins: Annotated[int, Meta(ge=2, le=50)] = 10
    least: Annotated[int, Meta(ge=1, le=1_000_000)] = 20
    least_rows: Annotated[int, Meta(ge=2, le=1_000_000_000)] = 200
    vif: bool = True
    ranges: Mapping[str, tuple[float, float]] = {}
    levels: Mapping[str, tuple[str, ...]] = {}

    def problems(self) -> list[str]:
        found = super().problems()
        for key in ("ranges", "levels"):
            for name in getattr(self, key):
                if not split_name(name)[0]:
                    found.append(f"statistics.{key} names {name!r}: write it as 'party.column'")
        return found + declared_mistakes("statistics", self.ranges, self.levels)

    def column_mistakes(self, columns: Mapping[str, Sequence[str]]) -> list[str]:
        found = []
        for key in ("ranges", "levels"):
            found += named_mistakes(f"statistics.{key}", getattr(self, key), columns)
        return found

    def fit_budget(self, rows: int) -> Budget:
        """One epoch: nothing is trained. See `Algorithm.fit_budget`."""
        return Budget(epochs=1, patience=1, batch_size=None)

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: the protection seals a cut layer, which statistics lack, or the noise hides nothing.
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
                "statistics take epsilon and delta of dp.model only: these determine their noise. Leave "
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
        """The plan of the products, as all parties know it.

        Args:
            protection: of the job.
            rows: common ones.
            classes: columns of classes of the active party.
            layouts: of the data parties, the active one's first.

        Raises:
            InputError: the active party offers so many columns that exact sums with them reveal rows, or all columns
                together are so many that no party should allocate their products.
        """
        from securevfl.algorithms.statistics.columns import ONE

        budget = self.budget(protection, len(layouts) - 1)
        if budget is None:
            if protection.on_shares:
                # Of two classes the label is a column; of more, all but one are one each.
                self._check_offer(rows, layouts[0].scores + (classes - 1 if classes > 2 else 0))
            step = _CORRELATION_DIGITS * rows * ONE * ONE
            found = CrossPlan(
                rows=rows,
                classes=classes,
                layouts=tuple(layouts),
                least=self.least,
                shift=max(int(step).bit_length() - 1, 0) if protection.on_shares else 0,
            )
            return _check_size(found)
        noise = (
            budget.scores_sigma(tuple(one.scores for one in layouts)) * ONE * ONE,
            max(budget.counts_sigma(sum(len(one.bins) for one in layouts[1:])), _LEAST_SIGMA),
        )
        return _check_size(CrossPlan(rows=rows, classes=classes, layouts=tuple(layouts), least=0, noise=noise))

    def _check_offer(self, rows: int, columns: int) -> None:
        """Each column that the active party offers is an equation about each column of the others: with as many as
        there are rows it would read them all, and with n / least of them it reads a part of 1 / least."""
        if columns * self.least > rows:
            raise InputError(
                f"the active party offers {columns} columns, its label among them, and exact sums with so many reveal "
                f"values of {rows} rows: each needs {self.least} rows (statistics.least), all {columns * self.least}. "
                f"{_FEWER_COLUMNS}"
            )

    def refuse_rows(self, rows: int) -> str:
        if rows >= self.least_rows:
            return ""
        return (
            f"statistics of fewer than {self.least_rows} show single rows; find more rows, or agree on another "
            "least_rows"
        )

    def foresee_refusals(self, protection: Protection, *, rows: int, offered: int) -> list[str]:
        """See `Algorithm.foresee_refusals`: the bound of `_check_offer`, which holds without noise."""
        exact = protection.on_shares and (protection.dp is None or protection.dp.model is None)
        if not exact or offered * self.least <= rows:
            return []
        return [
            f"up to {offered} columns of the active party, its label among them, would be offered and at most {rows:,} "
            f"rows are common: exact sums are refused unless each has {self.least} rows (statistics.least), all "
            f"{offered * self.least:,}. {_FEWER_COLUMNS}"
        ]

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        if not passive:
            return ()
        budget = self.budget(protection, passive)
        noisy = "" if budget is None else f", within ε = {budget.epsilon:g} of a row's columns"
        names = (
            "names of its columns, how many bins each has, which have missing values or two values alone, and why some "
            "are left out"
        )
        sizes = "how many columns each has, how many bins, and which have missing values or two values alone"
        if budget is not None:
            names = "names of its columns, and how many bins each has"
            sizes = "how many columns each has, and how many bins"
        public = [
            Exchange(COLUMNS, Kind.CONTROL, PASSIVE, ACTIVE, names, reveals=names, severity="ok"),
            Exchange(
                LAYOUT,
                Kind.CONTROL,
                ACTIVE,
                PASSIVE,
                "numbers of columns and of bins of all parties",
                of_others=sizes if passive > 1 else "",
            ),
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
        """At least one number of each row; without a protection, whole rows. See `Algorithm.values_opened`."""
        return 1

    def declared_levels(self, party: str) -> Mapping[str, tuple[str, ...]]:
        return own_entries(party, self.levels)

    def notes(self, protection: Protection) -> list[str]:
        if protection.on_shares and protection.dp is None:
            return [
                "statistics are exact where they are opened: two runs whose rows differ in one person, or a column "
                "that singles one out, reveal that person's values; dp.model bounds that by ε"
            ]
        return []

    def check_number(self, number: LossOfNumber, protection: Protection) -> None:
        """See `Algorithm.check_number`; a number is a column like others."""


def _check_size(plan: CrossPlan) -> CrossPlan:
    products, terms = plan.count_work()
    if products > _MOST_PRODUCTS or terms > _MOST_TERMS:
        raise InputError(
            f"statistics of these columns have {products:,} products, {terms:,} terms in all; {_MOST_PRODUCTS:,} and "
            f"{_MOST_TERMS:,} are possible: leave columns out (drop), or take fewer bins"
        )
    return plan

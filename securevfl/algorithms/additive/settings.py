"""The settings of an additive model, and its message declarations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from securevfl.algorithms.additive.channel import PART, RESIDUAL
from securevfl.algorithms.additive.named import declared_mistakes, named_mistakes, own_entries, split_name
from securevfl.algorithms.additive.sealed_exchanges import two_party_exchanges
from securevfl.algorithms.additive.steps import StepRule
from securevfl.algorithms.additive.units import CONTRAST_ONE, PART_ONE, SUM_ONE, cap_slack, slack_units, split_caps
from securevfl.cut import BFV, Plain, Protection
from securevfl.errors import InputError
from securevfl.privacy import Gaussian
from securevfl.privacy.sums_budget import SumsBudget
from securevfl.training.algorithm import Algorithm
from securevfl.training.objectives import LossOfNumber
from securevfl.training.plan import Plan
from securevfl.training.sum_plan import SumPlan
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind, Sight

__all__ = ["COLUMNS", "START", "TERMS", "AdditiveSettings"]

COLUMNS, START, TERMS = "additive/columns", "additive/start", "additive/terms"

_BINS = {True: 8, False: 32}
"""Whether a budget is spent → bins of values of a column."""

_PARTS = Sight(of="features", severity="leak", through="the sum of its shapes for each row, in each epoch")
_RESIDUALS = Sight(of="labels", severity="leak", through="the residual of each row, in each epoch")
_TERMS = Sight(of="features", severity="leak", through="the sum of its shapes for each scored row")

_LEAST_DELTA = 1e-10
"""Draws of noise end at 8.2 σ, which may add up to nearly this much to δ."""

EdgesFrom = Literal["auto", "private", "declared", "common"]


class AdditiveSettings(Algorithm):
    """The settings of an additive model as roles use them: see `Additive`."""

    bounds_errors: ClassVar[bool] = True
    bins: Annotated[int, Meta(ge=2, le=255)] | Literal["auto"] = "auto"
    edges: EdgesFrom = "auto"
    cuts: Mapping[str, tuple[float, ...]] = {}
    ranges: Mapping[str, tuple[float, float]] = {}
    levels: Mapping[str, tuple[str, ...]] = {}
    rising: tuple[str, ...] = ()
    falling: tuple[str, ...] = ()
    lr: Annotated[float, Meta(gt=0, le=2)] = 0.6
    l2: Annotated[float, Meta(ge=0, le=1e9)] = 100.0
    damping: Annotated[float, Meta(ge=0, le=1e4)] = 20.0

    def problems(self) -> list[str]:
        found = super().problems()
        for key in ("rising", "falling", "cuts", "ranges", "levels"):
            for name in getattr(self, key):
                if not split_name(name)[0]:
                    found += [f"additive.{key} names {name!r}: write it as 'party.column'"]
        for name in sorted(set(self.rising) & set(self.falling)):
            found += [f"additive.rising and additive.falling both name {name!r}: leave one of them out"]
        for name, cuts in self.cuts.items():
            if not all(map(math.isfinite, cuts)) or any(low >= high for low, high in pairwise(cuts)):
                found += [f"additive.cuts of {name!r} are {cuts}: give finite numbers in ascending order, each once"]
        found += declared_mistakes("additive", self.ranges, self.levels)
        return found

    @property
    def trainable(self) -> bool:
        return False

    @property
    def step_rule(self) -> StepRule:
        """How large steps are."""
        return StepRule(lr=self.lr, l2=self.l2, damping=self.damping)

    def bins_for(self, protection: Protection) -> int:
        """Most bins of values of a column: 8 where a budget is spent, 32 where none is, unless they are given."""
        return _BINS[spends_budget(protection)] if self.bins == "auto" else self.bins

    def edges_for(self, protection: Protection) -> EdgesFrom:
        """Where edges and masses come from."""
        if self.edges != "auto":
            return self.edges
        return "private" if spends_budget(protection) else "common"

    def check_protection(self, protection: Protection) -> None:
        super().check_protection(protection)
        dp = protection.dp
        if not (isinstance(protection, Plain) or type(protection) is BFV or protection.on_shares):
            raise InputError(
                f"{self.title} between two parties adds up under BFV, which is exact and the fastest: use protection "
                f"'bfv' in the place of {protection.name!r}, or 'shares' (three computing parties)"
            )
        if isinstance(protection, Plain) and protection.fixed_point:
            raise InputError(f"{self.title} computes in integers either way: leave fixed_point out")
        if dp is not None and (dp.features or dp.labels):
            raise InputError(
                f"{self.title} adds noise to sums over all rows, and to nothing else: give "
                "dp=sv.DP(model=sv.Gaussian(epsilon=…)), or leave dp out"
            )
        if dp is not None and isinstance(protection, Plain):
            raise InputError(
                f"dp.model of {self.title} under protection 'plain' protects nobody: parties send each other exact "
                "residuals and parts of each row, and noise on their sums hides none of that. Use protection 'shares' "
                "(three computing parties) or 'bfv' (two parties and nobody else), or leave dp out"
            )
        if protection.on_shares and protection.hands_out:
            raise InputError(
                f"protection.model is 'parts', and under {self.title} each party keeps the shapes of its columns "
                "anyway: leave model out"
            )
        if dp is not None and dp.model is not None:
            self._check_mechanism(dp.model, protection)
        if spends_budget(protection) and self.edges == "common":
            raise InputError(
                "additive.edges is 'common', quantiles of the common rows: they are no part of the budget that "
                "dp.model states. Use 'private' (noisy counts, within the budget) or 'declared'"
            )
        if not spends_budget(protection) and self.edges == "private":
            raise InputError(
                "additive.edges is 'private', noisy counts that a budget pays for, and the job has none: give "
                "dp=sv.DP(model=sv.Gaussian(epsilon=…)), or use edges 'common' or 'declared'"
            )

    def _check_mechanism(self, mechanism: Gaussian, protection: Protection) -> None:
        if mechanism.noise_multiplier is not None or mechanism.clip != 1.0:
            raise InputError(
                f"{self.title} takes epsilon and delta of dp.model alone: its noise follows from them and from the "
                "caps on each row. Leave noise_multiplier and clip out"
            )
        if mechanism.delta < _LEAST_DELTA:
            raise InputError(
                f"delta of dp.model is {mechanism.delta:g}, and {self.title} states {_LEAST_DELTA:g} at the least: "
                f"its noise ends at 8.2 standard deviations. Give delta={_LEAST_DELTA:g} or more"
            )
        if protection.on_shares and protection.opens_metrics:
            raise InputError(
                f"metrics of validation rows would be opened without noise, and the budget of {self.title} covers all "
                "that training shows: set metrics='none' in the protection and keep='last' in the job"
            )

    def check_number(self, number: LossOfNumber, protection: Protection) -> None:
        super().check_number(number, protection)
        if number.name != "squared":
            raise InputError(
                f"loss is {number.name!r}, and {self.title} learns a number by the squared loss alone, whose residual "
                "is what it adds up: leave loss out"
            )
        if number.range is None:
            raise InputError(
                f"{self.title} learns a number within a range that all parties know, since the caps on each row "
                "follow from it: give target_range=(low, high) in the job"
            )

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        if not passive:
            return ()
        public = (
            Exchange(
                COLUMNS,
                Kind.CONTROL,
                PASSIVE,
                ACTIVE,
                "how many columns it has",
                reveals="how many columns it trains on",
            ),
            Exchange(
                START,
                Kind.CONTROL,
                ACTIVE,
                PASSIVE,
                "each party's number of columns, the number of outputs, and the mean of the targets",
                reveals="the mean of the targets of the training rows",
                severity="note",
            ),
        )
        if protection.on_shares:
            return (*public, *protection.sum_exchanges(passive))
        if protection.is_sealed:
            return (*public, *two_party_exchanges(protection))
        return (
            *public,
            Exchange(
                PART,
                Kind.ACTIVATION,
                PASSIVE,
                ACTIVE,
                "its part of the prediction of each training row",
                reveals="the sum of its shapes for each training row, in each epoch",
                severity="leak",
                sights=(_PARTS,),
            ),
            Exchange(
                RESIDUAL,
                Kind.GRADIENT,
                ACTIVE,
                PASSIVE,
                "the residual of each training row",
                reveals="the residual of each training row, and with it the label",
                severity="leak",
                sights=(_RESIDUALS,),
            ),
            Exchange(
                TERMS,
                Kind.ACTIVATION,
                PASSIVE,
                ACTIVE,
                "the sum of its shapes for each scored row",
                reveals="the sum of its shapes for each scored row",
                severity="leak",
                sights=(_TERMS,),
            ),
        )

    def values_opened(self, plan: Plan) -> int:
        return plan.epochs

    def most_passive_under(self, protection: Protection) -> int | None:
        return 1 if self.opens_only_answers(protection) else self.most_passive

    def opens_only_answers(self, protection: Protection) -> bool:
        return type(protection) is BFV

    def covers_training(self, protection: Protection) -> bool:
        return self.opens_only_answers(protection) and spends_budget(protection)

    def declared_levels(self, party: str) -> Mapping[str, tuple[str, ...]]:
        return own_entries(party, self.levels)

    def encodes_blindly(self, protection: Protection) -> bool:
        return spends_budget(protection)

    def plan_sums(
        self, protection: Protection, *, rows: int, outputs: int, columns: Sequence[int], epochs: int
    ) -> SumPlan:
        """See `securevfl.training.sum_plan.SumPlanner`."""
        caps = split_caps(columns)
        slack = cap_slack(len(columns), outputs, budget=spends_budget(protection))
        plan = SumPlan(
            rows=rows,
            outputs=outputs,
            columns=tuple(columns),
            caps=caps,
            slacks=tuple(slack_units(cap, slack) for cap in caps),
            one=PART_ONE,
            contrast=CONTRAST_ONE,
        )
        if not spends_budget(protection):
            return plan
        budget = self.plan_budget(
            protection, rows=rows, outputs=outputs, columns=sum(columns), parties=len(columns), epochs=epochs
        )
        return replace(
            plan,
            own_sigma=budget.own_units(SUM_ONE),
            sigma=budget.sums_sigma * SUM_ONE,
            sensitivity=budget.sensitivity * SUM_ONE,
        )

    def plan_budget(
        self, protection: Protection, *, rows: int, outputs: int, columns: int, parties: int, epochs: int
    ) -> SumsBudget:
        """See `securevfl.training.sum_plan.SumPlanner`.

        Raises:
            InputError: the job has none.
        """
        mechanism = None if protection.dp is None else protection.dp.model
        if mechanism is None:
            raise InputError("the job has no dp.model, and so no budget of ε")
        return SumsBudget(
            epsilon=mechanism.epsilon,
            delta=mechanism.delta,
            rows=rows,
            columns=columns,
            epochs=epochs,
            outputs=outputs,
            slack=cap_slack(parties, outputs, budget=True),
            counted=self.edges_for(protection) == "private",
            adders="three computing parties" if protection.on_shares else "two parties",
        )

    def column_mistakes(self, columns: Mapping[str, Sequence[str]]) -> list[str]:
        found = []
        for key in ("rising", "falling", "cuts", "ranges", "levels"):
            found += named_mistakes(f"additive.{key}", getattr(self, key), columns)
        return found

    def undeclared_columns(self, protection: Protection, columns: Mapping[str, Sequence[str]]) -> list[str]:
        edges = self.edges_for(protection)
        if edges == "common":
            return []
        key = "ranges (or cuts)" if edges == "private" else "cuts"
        declared = {*self.cuts, *self.levels, *(self.ranges if edges == "private" else ())}
        names = [f"{party}.{name}" for party, own in columns.items() for name in own]
        missing = [repr(name) for name in names if name not in declared]
        if not missing:
            return []
        return [
            f"with edges {edges!r} additive.{key} declares each column of numbers, "
            f"and additive.levels each column of categories; add {', '.join(missing)}"
        ]


def spends_budget(protection: Protection) -> bool:
    """Whether training spends a privacy budget."""
    return protection.dp is not None and protection.dp.model is not None

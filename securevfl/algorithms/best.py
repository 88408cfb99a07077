"""A method that a user can simply take where few rows are common: several methods, averaged, each trained several times
on the common rows without a part of them.

No method is best on all data: with the active party's columns strong and few common rows it is the active party alone,
with more of them LASER-VFL or the residual at the cut. Their errors differ, so that their mean is rarely worse than the
best of them, and often better. Each *member* is a whole algorithm, run as if it had the job alone:

1. The common rows that train are cut into `folds`. Each method of `methods` is trained once without each fold, which
   validates it. Nothing is exchanged beside what the methods exchange.
2. A method's probabilities are the mean over its members (bagging).
3. On the rows that validated, each method has probabilities by members that did not see them. With fewer than
   `FEWEST_TO_CHOOSE` such rows nothing is chosen, and the methods' mean is taken. With more, the active party weighs
   the methods by their log-loss, pulled towards equal weights; see `securevfl.training.pooling`. Labels, weights and
   probabilities stay with it.

It costs as many times the traffic and the steps of one method as members exchange anything: `folds` times two, with the
methods as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from securevfl.algorithms.best_roles import BestActive, BestPassive, BestProgram
from securevfl.algorithms.residual import ResidualAtTheCut
from securevfl.algorithms.splitnn import SplitNN
from securevfl.cut import CutUse, Protection
from securevfl.errors import InputError
from securevfl.party_context import PartyContext, derive_seed
from securevfl.training.active_program import ActiveProgram
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import Algorithm, Subsets, find_algorithm, registered_algorithms
from securevfl.training.fits import Fits
from securevfl.training.passive_program import PassiveProgram
from securevfl.training.passive_role import PassiveRole
from securevfl.training.program import Program
from securevfl.training.rows import NumberedRows, Plan
from securevfl.training.setting import Setting
from securevfl.training.split import Split
from securevfl.training.state import as_dict
from securevfl.training.submodels import Member
from securevfl.transport import PASSIVE, Exchange

__all__ = ["Best"]


class Best(SplitNN):
    """Configuration of the average of several methods.

    Members keep the weights of their last epoch unless at least `FEWEST_TO_CHOOSE` rows validate; the job's patience
    does not end them.

    Attributes:
        methods: names of the algorithms that are averaged. They get this configuration's widths and rates.
        folds: how often each is trained, each time without one part of the common rows; 1: once, on all of them.
        stack: False to take the methods' mean however many rows could choose weights.
        hidden, top, bottom, lr, cut_lr, cut_momentum, cut_weight_decay, weight_decay: see `SplitNN`; of all methods.
    """

    name: ClassVar[str] = "best"
    label: ClassVar[str] = "best"
    fits: ClassVar[Fits] = Fits()
    not_frozen: ClassVar[str] = "each of its methods would look at every row, in every fold"
    uses_others: ClassVar[bool] = True
    subsets: ClassVar[Subsets] = "alone"
    methods: tuple[str, ...] = ("laser", "residual", "local")
    folds: Annotated[int, Meta(ge=1, le=20)] = 4
    stack: bool = True

    def problems(self) -> list[str]:
        found = super().problems()
        if not self.methods or len(set(self.methods)) < len(self.methods):
            return [*found, f"{self.name}.methods is {self.methods!r}; different names, one at least, were expected"]
        usable = ", ".join(filter(_can_be_member, registered_algorithms()))
        for name in self.methods:
            if not _can_be_member(name):
                found.append(
                    f"{self.name}.methods names {name!r}, which cannot be one of several: take methods that learn from "
                    f"the active party's own labels at the cut ({usable})"
                )
        return found

    @property
    def title(self) -> str:
        bagged = f" × {self.folds}" if self.folds > 1 else ""
        return f"{self.label} ({' + '.join(self.methods)}{bagged})"

    def algorithms(self) -> Mapping[str, Algorithm]:
        """Method → its algorithm, with this configuration's widths and rates."""
        shared = {name: getattr(self, name) for name in SplitNN.__struct_fields__}
        return {name: _configure_method(name, shared) for name in self.methods}

    @property
    def least_epochs(self) -> int:
        return max(each.least_epochs for each in self.algorithms().values())

    @property
    def cut(self) -> CutUse:
        """What any method does at the cut, the active party may see."""
        uses = [each.cut for each in self.algorithms().values() if each.cut is not None]
        merged: dict[str, bool] = {
            one.name: (all if one.name == "together" else any)(getattr(use, one.name) for use in uses)
            for one in fields(CutUse)
        }
        return CutUse(**merged)

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        found: dict[Exchange, None] = {}
        talking = [each for each in self.algorithms().values() if each.exchanges(protection, passive)]
        for each in talking:
            of_cut = () if each.cut is None else protection.exchanges(each.cut, passive)
            found |= dict.fromkeys(
                exchange for exchange in each.exchanges(protection, passive) if exchange not in of_cut
            )
        return (*(protection.exchanges(self.cut, passive) if talking else ()), *found)

    def check(self, protection: Protection) -> None:
        """See `Algorithm.check`.

        Raises:
            InputError: differential privacy, of which every member would spend the whole budget.
        """
        if protection.dp is not None:
            raise InputError(
                f"{self.title} trains {self.folds * len(self.methods)} models on the same rows, and ε would be spent "
                "by each of them: train one method alone, for example residual"
            )
        super().check(protection)
        for each in self.algorithms().values():
            each.check(protection)

    def members(self, table: NumberedRows, seed: int, protection: Protection, passive: int) -> list[Member]:
        """All members, those that exchange something first; the same at all parties.

        Args:
            table: the party's numbered rows.
            seed: the job's.
            protection: of the job.
            passive: number of passive parties.
        """
        found = [
            Member(
                name=f"{name} {number}",
                algorithm=algorithm,
                split=split,
                talks=bool(passive and algorithm.exchanges(protection, passive)),
            )
            for name, algorithm in self.algorithms().items()
            for number, split in enumerate(folds_of(table.split, self.folds, seed), 1)
        ]
        return sorted(found, key=lambda member: not member.talks)

    def program(self, site: PartyContext, plan: Plan, settings: Mapping[str, Setting]) -> Program:
        return BestProgram(self, next(iter(settings.values())), plan)

    def active(self, setting: Setting) -> ActiveRole:
        return BestActive(self, setting, {})

    def passive(self, setting: Setting) -> PassiveRole:
        return BestPassive(self, setting, {})

    def scorer(self, site: PartyContext, setting: Setting, model: Mapping[str, Any]) -> ActiveProgram | PassiveProgram:
        members = as_dict(as_dict(model["parts"])["members"])
        if setting.site.role == PASSIVE:
            return PassiveProgram(BestPassive(self, setting, members))
        return ActiveProgram(BestActive(self, setting, members))


def _can_be_member(name: str) -> bool:
    """Whether an algorithm learns from the active party's own labels at the cut, and is not such an average itself."""
    kind = find_algorithm(name)
    return issubclass(kind, SplitNN) and not (
        issubclass(kind, Best) or kind.uses_book or kind.many_owners or kind.reveals
    )


def _configure_method(name: str, shared: Mapping[str, Any]) -> Algorithm:
    kind, given = find_algorithm(name), dict(shared)
    if issubclass(kind, ResidualAtTheCut):  # the correction has a penalty of its own
        given["local_weight_decay"] = given.pop("weight_decay")
    return kind(**given)


def folds_of(split: Split, folds: int, seed: int) -> list[Split]:
    """The same split for each member: without one part of the rows that train, which validates beside those that do.

    Args:
        split: of the job.
        folds: how many parts; fewer where there are fewer rows. 1: the split as it is.
        seed: the job's: all parties cut alike, and labels have no part in it.
    """
    count = min(folds, len(split.train))
    if count < 2:
        return [split]
    order = np.random.default_rng(derive_seed(seed, "folds")).permutation(len(split.train))
    part = np.empty(len(order), np.int64)
    part[order] = np.arange(len(order)) % count
    return [
        Split(split.train[part != number], np.concatenate([split.train[part == number], split.valid]), split.test)
        for number in range(count)
    ]

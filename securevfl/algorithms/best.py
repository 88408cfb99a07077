"""Best: the average of several methods, the default choice where few rows are common.

No single method wins on all data. With strong columns at the active party and few common rows, the active party alone
wins; with more common rows, LASER-VFL or the residual at the cut does. Their errors differ, so their mean is rarely
worse than the best of them and often better. Each *member* is a complete algorithm, run as if it were the only one:

1. The common training rows are split into `folds`. Each method in `methods` is trained once without each fold, and
   that fold validates it. The parties exchange only what the methods exchange.
2. A method's probabilities are the mean over its members (bagging).
3. For validation rows, a method's probabilities come from members that did not train on them. With fewer than
   `FEWEST_TO_CHOOSE` such rows, all methods weigh the same. With more, the active party weights the methods by their
   log-loss, with a pull towards equal weights (see `securevfl.training.pooling`). Labels, weights and probabilities
   never leave the active party.

Its cost, in messages and steps, is that of one method times the number of members that exchange messages. With the
default methods, this is `folds` times two: `local` sends nothing.
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
from securevfl.training.plan import Plan
from securevfl.training.program import Program
from securevfl.training.rows import NumberedRows
from securevfl.training.setting import Setting
from securevfl.training.split import Split
from securevfl.training.state import as_dict
from securevfl.training.submodels import SubModel
from securevfl.transport import PASSIVE, Exchange

__all__ = ["Best"]


class Best(SplitNN):
    """The average of several methods, each trained several times.

    A member keeps the weights of its last epoch, unless at least `FEWEST_TO_CHOOSE` rows validate it. The job's
    patience does not stop a member early.

    Attributes:
        methods: names of the algorithms to average. They use this configuration's widths and rates.
        folds: how often each method is trained, each time without one part of the common rows. 1 trains it once, on all
            of them.
        stack: whether validation rows choose the methods' weights. False always takes the mean.
        hidden, top, bottom, lr, cut_lr, cut_momentum, cut_weight_decay, weight_decay: see `SplitNN`; of all methods.
    """

    name: ClassVar[str] = "best"
    label: ClassVar[str] = "best"
    fits: ClassVar[Fits] = Fits()
    not_frozen: ClassVar[str] = "each of its methods would release every row again, in every fold"
    uses_others: ClassVar[bool] = True
    subsets: ClassVar[Subsets] = "alone"
    methods: tuple[str, ...] = ("laser", "residual", "local")
    folds: Annotated[int, Meta(ge=1, le=20)] = 4
    stack: bool = True

    def problems(self) -> list[str]:
        found = super().problems()
        if not self.methods or len(set(self.methods)) < len(self.methods):
            return [*found, f"{self.name}.methods is {self.methods!r}; expected at least one name, and no name twice"]
        usable = ", ".join(filter(_can_be_member, registered_algorithms()))
        for name in self.methods:
            if not _can_be_member(name):
                found.append(
                    f"{self.name}.methods contains {name!r}, which cannot be averaged with others: choose methods that "
                    f"learn from the active party's own labels at the cut ({usable})"
                )
        return found

    @property
    def title(self) -> str:
        bagged = f" × {self.folds}" if self.folds > 1 else ""
        return f"{self.label} ({' + '.join(self.methods)}{bagged})"

    def list_algorithms(self) -> Mapping[str, Algorithm]:
        """Method → its configuration, with this configuration's widths and rates."""
        shared = {name: getattr(self, name) for name in SplitNN.__struct_fields__}
        return {name: _configure_method(name, shared) for name in self.methods}

    @property
    def judges_alone(self) -> bool:
        """Whether members also score rows that they did not train on without the passive parties."""
        return False

    @property
    def least_epochs(self) -> int:
        return max(each.least_epochs for each in self.list_algorithms().values())

    @property
    def cut(self) -> CutUse:
        """The union of what the methods reveal at the cut; `together` only if all of them sum the parties' parts."""
        uses = [each.cut for each in self.list_algorithms().values() if each.cut is not None]
        merged: dict[str, bool] = {
            one.name: (all if one.name == "together" else any)(getattr(use, one.name) for use in uses)
            for one in fields(CutUse)
        }
        return CutUse(**merged)

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        found: dict[Exchange, None] = {}
        talking = [each for each in self.list_algorithms().values() if each.exchanges(protection, passive)]
        for each in talking:
            of_cut = () if each.cut is None else protection.exchanges(each.cut, passive)
            found |= dict.fromkeys(
                exchange for exchange in each.exchanges(protection, passive) if exchange not in of_cut
            )
        return (*(protection.exchanges(self.cut, passive) if talking else ()), *found)

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: the job asks for differential privacy; every member would spend the whole budget.
        """
        if protection.dp is not None:
            raise InputError(
                f"{self.title} trains {self.folds * len(self.methods)} models on the same rows, and each of them would "
                "spend ε. Train a single method, for example residual"
            )
        super().check_protection(protection)
        for each in self.list_algorithms().values():
            each.check_protection(self.protection_of(each, protection))

    def protection_of(self, member: Algorithm, protection: Protection) -> Protection:
        """The job's protection as a member's own job would name it."""
        return protection

    def list_members(self, table: NumberedRows, seed: int, protection: Protection, passive: int) -> list[SubModel]:
        """All members in the order in which they train, the same at all parties.

        Members that exchange messages come first.

        Args:
            table: the party's numbered rows.
            seed: the job's.
            protection: the job's.
            passive: number of passive parties.
        """
        found = [
            SubModel(
                name=f"{name} {number}",
                algorithm=algorithm,
                split=split,
                talks=bool(passive and algorithm.exchanges(protection, passive)),
            )
            for name, algorithm in self.list_algorithms().items()
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
    """True for an algorithm that learns from the active party's own labels at the cut and is not an average itself."""
    kind = find_algorithm(name)
    return issubclass(kind, SplitNN) and not (
        issubclass(kind, Best) or kind.uses_book or kind.many_owners or kind.reveals
    )


def _configure_method(name: str, shared: Mapping[str, Any]) -> Algorithm:
    kind, given = find_algorithm(name), dict(shared)
    if issubclass(kind, ResidualAtTheCut):  # it has separate penalties for the local model and the correction
        given["local_weight_decay"] = given.pop("weight_decay")
    return kind(**given)


def folds_of(split: Split, folds: int, seed: int) -> list[Split]:
    """One split for each member: one part of the training rows moves to the validation rows.

    Args:
        split: the job's.
        folds: number of parts; fewer if there are fewer rows. 1 returns the split unchanged.
        seed: the job's, so that all parties draw the same parts. Labels do not influence them.
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

"""Best and boosted trees, for tables with few common rows: averaged with weights from unseen rows.

The networks of `Best` see directions in many columns, trees see thresholds. On a table either can be ahead, and which
one it is cannot be told from a handful of common rows. So all of them are trained, on the same folds, and three
opinions of a row are averaged (`securevfl.training.pooling`):

- *own trees*: boosting over the active party's columns, on all of its labelled rows,
- *trees*: the same, corrected on the common rows by trees of the partners' columns (`BoostedResidual`), whose common
  rows begin at the own trees' out-of-fold scores,
- *best*: the average of the networks.

The weights are fitted on common rows that the scoring members did not train on. A row that the partners lack is scored
by the own trees and the networks' scores of it, with weights of their own, and without a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from securevfl.algorithms.best import Best
from securevfl.algorithms.best_with_trees_roles import TreesActive, TreesProgram
from securevfl.algorithms.boosting import BoostedResidual
from securevfl.algorithms.boosting.on_own import CorrectsBy
from securevfl.cut import Plain, Protection
from securevfl.party_context import PartyContext
from securevfl.training.active_program import ActiveProgram
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import Algorithm
from securevfl.training.fits import Fits
from securevfl.training.passive_program import PassiveProgram
from securevfl.training.plan import Plan
from securevfl.training.program import Program
from securevfl.training.rows import NumberedRows
from securevfl.training.setting import Setting
from securevfl.training.state import as_dict
from securevfl.training.submodels import SubModel
from securevfl.transport import PASSIVE

__all__ = ["BestWithTrees"]


class BestWithTrees(Best):
    """The average of several networks, and boosted trees: for tables with few common rows.

    Attributes:
        rounds: of trees that correct the own trees; where at least `FEWEST_TO_CHOOSE` rows validate, as many as are
            best for them.
        depth: most splits from the root to a leaf of these trees.
        tree_lr: shrinkage of each tree, own ones too.
        bins: most bins of a column; None for as many as fit.
        corrects_by: whose columns the correcting trees split by, see `BoostedResidual`.
        own_trees: most rounds of the own trees; how many count is chosen out of fold.
        own_depth: most splits from the root to a leaf of the own trees.
        methods, folds, stack, hidden, top, bottom, lr, cut_lr, cut_momentum, cut_weight_decay, weight_decay: see
            `Best`, of the networks.
    """

    name: ClassVar[str] = "best_with_trees"
    label: ClassVar[str] = "best with trees"
    fits: ClassVar[Fits] = Fits()
    trees: ClassVar[str] = BoostedResidual.name
    """The method of the members that are trees."""
    rounds: Annotated[int, Meta(ge=1, le=5000)] = 50
    depth: Annotated[int, Meta(ge=1, le=12)] = 3
    tree_lr: Annotated[float, Meta(gt=0, le=1)] = 0.1
    bins: Annotated[int, Meta(ge=2, le=255)] | None = None
    corrects_by: CorrectsBy = "partners"
    own_trees: Annotated[int, Meta(ge=1, le=5000)] = 100
    own_depth: Annotated[int, Meta(ge=1, le=12)] = 4

    def problems(self) -> list[str]:
        found = super().problems()
        if self.trees in self.methods:
            found.append(f"{self.name}.methods contains {self.trees!r}, which is trained beside them anyway: drop it")
        return found

    @property
    def title(self) -> str:
        bagged = f" × {self.folds}" if self.folds > 1 else ""
        return f"{self.label} ({' + '.join((*self.methods, 'trees'))}{bagged})"

    @property
    def judges_alone(self) -> bool:
        return True

    def list_algorithms(self) -> Mapping[str, Algorithm]:
        grown = BoostedResidual(
            depth=self.depth,
            lr=self.tree_lr,
            bins=self.bins,
            own_trees=self.own_trees,
            own_lr=self.tree_lr,
            own_depth=self.own_depth,
            corrects_by=self.corrects_by,
        )
        return {**super().list_algorithms(), self.trees: grown}

    def list_members(self, table: NumberedRows, seed: int, protection: Protection, passive: int) -> list[SubModel]:
        found = super().list_members(table, seed, protection, passive)
        return [one if one.algorithm.name != self.trees else _set_epochs(one, self.rounds) for one in found]

    def protection_of(self, member: Algorithm, protection: Protection) -> Protection:
        """See `Best.protection_of`. The networks compute in fixed point if the job asks for it; trees always do."""
        if member.name == self.trees and isinstance(protection, Plain):
            return protection.replace(fixed_point=False)
        return protection

    def program(self, site: PartyContext, plan: Plan, settings: Mapping[str, Setting]) -> Program:
        return TreesProgram(self, next(iter(settings.values())), plan)

    def active(self, setting: Setting) -> ActiveRole:
        return TreesActive(self, setting, {})

    def scorer(self, site: PartyContext, setting: Setting, model: Mapping[str, Any]) -> ActiveProgram | PassiveProgram:
        if setting.site.role == PASSIVE:
            return super().scorer(site, setting, model)
        return ActiveProgram(TreesActive(self, setting, as_dict(as_dict(model["parts"])["members"])))


def _set_epochs(member: SubModel, epochs: int) -> SubModel:
    return SubModel(name=member.name, algorithm=member.algorithm, split=member.split, talks=member.talks, epochs=epochs)

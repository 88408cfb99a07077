"""The configuration of HybridTree."""

from __future__ import annotations

from typing import ClassVar

from securevfl.algorithms.field.hybrid_tree.roles import HybridGuest, HybridHost
from securevfl.algorithms.field.hybrid_tree.settings import HybridSettings
from securevfl.training.active_role import ActiveRole
from securevfl.training.fits import Fits
from securevfl.training.passive_role import PassiveRole
from securevfl.training.setting import Setting

__all__ = ["HybridTree"]


class HybridTree(HybridSettings):
    """Boosting with upper layers of the active party's columns and lower layers of the passive parties'.

    Each epoch adds one tree, or one for each class with three or more classes.

    Attributes:
        lr: shrinkage of each tree.
        host_depth: layers of the active party.
        guest_depth: layers of each passive party below them.
        bins: most bins of a column; None for as many as fit the rows.
        l2: penalty λ of a leaf's square.
        min_hessian: least sum of second derivatives on either side of a split.
    """

    name: ClassVar[str] = "hybrid_tree"
    label: ClassVar[str] = "HybridTree"
    fits: ClassVar[Fits] = Fits()

    def active(self, setting: Setting) -> ActiveRole:
        return HybridHost(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return HybridGuest(self, setting)

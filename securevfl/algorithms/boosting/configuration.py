"""The configuration of vertical gradient boosting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from securevfl.algorithms.boosting.active import BoostingActive
from securevfl.algorithms.boosting.on_shares import SharedBoostingActive, SharedBoostingPassive
from securevfl.algorithms.boosting.passive import BoostingPassive
from securevfl.algorithms.boosting.settings import BoostingSettings
from securevfl.cut import Protection
from securevfl.data import View
from securevfl.errors import InputError
from securevfl.export import ExportedModel, PartSource
from securevfl.training.active_role import ActiveRole
from securevfl.training.fits import Fits
from securevfl.training.passive_role import PassiveRole
from securevfl.training.setting import Setting

__all__ = ["Boosting"]

_TREES = "epochs of the job: each adds a tree"


class Boosting(BoostingSettings):
    """Vertical gradient boosting: each epoch adds one tree, or one for each class with three or more classes.

    Attributes:
        lr: shrinkage of each tree.
        depth: most splits from the root to a leaf.
        leaves: most leaves of a tree, which then grows by its best leaf; 0 for level by level, bounded by `depth`.
        bins: most bins of values of a column, cut by the party's training rows: frequent values get a bin each,
            quantiles cut the others. Unless given 32, and in plain one for ten rows up to 255.
        l1: penalty α of a leaf's magnitude.
        l2: penalty λ of its square.
        min_gain: least gain γ of a split.
        min_hessian: least sum of second derivatives on either side of a split. Unless given, a leaf has at least 20
            rows, or a tenth of all; on shares the sum is at least 1, or for a number, where it counts rows, those rows.
        rows: share of the training rows that each tree sees, drawn by the job's seed; others are neither encrypted nor
            added up.
        columns: share of all columns that each tree may split by, drawn by chance; sums over others are not made.
        goss: share of the rows that a tree uses for their large gradients, and share of the others that it draws by
            chance (gradient-based one-side sampling, Ke et al. 2017, algorithm 2). None samples uniformly. It saves
            work with shown nodes, and reveals labels there.
        rising: columns along which scores may only rise, each as ``"party.column"``; monotone constraints.
        falling: columns along which scores may only fall, likewise.
        bits: of the fixed point of gradients; 12 are enough, see `docs/algorithms/boosting.md`.
        nodes: whether passive parties see which rows are in one node. ``"hidden"``, or ``"shown"``, which is several
            times as fast and reveals labels.
        merge: with shown nodes, fewest rows of a node in one of the bins whose sums the active party reads.
    """

    name: ClassVar[str] = "boosting"
    label: ClassVar[str] = "Boosting"
    view: ClassVar[View] = "coded"
    chooses_by_loss: ClassVar[bool] = True
    fits: ClassVar[Fits] = Fits(learns={"numbers", "weights"}, shares="trees", goes_on=True, exports=True, starts=True)
    elsewhere: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("trees", "n_estimators", "num_boost_round", "iterations", "max_iter"), _TREES),
        **dict.fromkeys(("learning_rate", "eta", "shrinkage"), "lr"),
        **dict.fromkeys(("max_leaf_nodes", "num_leaves", "max_leaves"), "leaves"),
        **dict.fromkeys(("reg_lambda", "lambda", "l2_regularization"), "l2"),
        **dict.fromkeys(("reg_alpha", "alpha"), "l1"),
        **dict.fromkeys(("colsample_bytree", "feature_fraction", "max_features"), "columns"),
        **dict.fromkeys(("early_stopping_rounds", "n_iter_no_change"), "patience of the job"),
        **dict.fromkeys(("monotone_constraints", "monotonic_cst"), "rising and falling"),
        **dict.fromkeys(("max_bins", "max_bin"), "bins"),
        "max_depth": "depth",
        "subsample": "rows",
        "gamma": "min_gain",
        "min_child_weight": "min_hessian",
    }

    def check_leaving(self, protection: Protection) -> None:
        super().check_leaving(protection)
        if self.rising or self.falling:
            raise InputError(
                "leaving is 'go-on', which fits the leaves of all trees anew, and boosting.rising and boosting.falling "
                "bound them as trees grow: leave both out, or set leaving = 'end'"
            )

    def export_model(self, source: PartSource) -> ExportedModel:
        from securevfl.algorithms.boosting.exporting import export_trees

        return export_trees(source)

    def active(self, setting: Setting) -> ActiveRole:
        return (SharedBoostingActive if setting.protection.on_shares else BoostingActive)(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return (SharedBoostingPassive if setting.protection.on_shares else BoostingPassive)(self, setting)

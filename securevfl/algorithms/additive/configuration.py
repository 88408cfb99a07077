"""The configuration of an additive model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from securevfl.algorithms.additive.settings import AdditiveSettings
from securevfl.cut import Protection
from securevfl.data import View
from securevfl.training.fits import Fits

if TYPE_CHECKING:
    import numpy as np

    from securevfl.data.column_terms import ColumnTerms
    from securevfl.export import ExportedModel, PartSource
    from securevfl.training.active_role import ActiveRole
    from securevfl.training.objectives import LossOfNumber
    from securevfl.training.passive_role import PassiveRole
    from securevfl.training.setting import Setting

__all__ = ["Additive"]

_EPOCHS = "epochs of the job: in each, every column's shape moves once"


class Additive(AdditiveSettings):
    """An additive model with piecewise constant shapes (a generalised additive model, an explainable boosting machine
    without pairs): the score of a row is a start plus one number for the bin of each of its columns.

    Each party owns the shapes of its own columns, and under a protection nobody else sees them. Each epoch needs one
    sum a column, over all rows, so noise on these sums covers the whole training:
    ``dp=sv.DP(model=sv.Gaussian(epsilon=1.0))``.

    Attributes:
        bins: most bins of values of a column; ``"auto"``: 8 where a budget is spent, 32 where none is.
        edges: where bins and their masses come from: ``"private"``, noisy counts within the budget over the stated
            `ranges`; ``"declared"``, `cuts` and `levels` of the job; ``"common"``, quantiles of the common rows, which
            no budget covers. ``"auto"``: private where a budget is spent, common where none is.
        cuts: ``"party.column"`` → edges of its bins, known to all.
        ranges: ``"party.column"`` → lowest and highest value, known to all; values beyond count at the ends.
        levels: ``"party.column"`` → the levels of a column of categories, known to all; all others share a bin. With a
            budget every column of categories needs them.
        rising: columns along which scores may only rise, each as ``"party.column"``; monotone constraints.
        falling: columns along which scores may only fall, likewise.
        lr: length of the steps of all columns together.
        l2: λ, rows that pull each step towards zero.
        damping: κ, how far noise shortens steps.
    """

    name: ClassVar[str] = "additive"
    label: ClassVar[str] = "Additive model"
    view: ClassVar[View] = "coded"
    fits: ClassVar[Fits] = Fits(
        shares="additive", dp={"model"}, learns={"numbers"}, counts=True, exports=True, starts=True
    )
    elsewhere: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("max_rounds", "n_estimators", "iterations"), _EPOCHS),
        **dict.fromkeys(("learning_rate", "eta"), "lr"),
        **dict.fromkeys(("max_bins", "max_bin"), "bins"),
        **dict.fromkeys(("reg_lambda", "lambda"), "l2"),
        **dict.fromkeys(("monotone_constraints", "monotonic_cst"), "rising and falling"),
        "privacy_bounds": "ranges",
        "privacy_schema": "ranges",
    }

    def export_model(self, source: PartSource) -> ExportedModel:
        from securevfl.algorithms.additive.shapes_part import export_shapes

        return export_shapes(source)

    def column_terms(
        self, part: Mapping[str, Any], x: np.ndarray, party: str, number: LossOfNumber | None
    ) -> ColumnTerms:
        """See `Algorithm.column_terms`; the owner has its terms under every protection."""
        from securevfl.algorithms.additive.tables import read_terms

        return read_terms(part, x, party, numeric=number is not None)

    def check_reasons(self, protection: Protection | None) -> None:
        """See `Algorithm.check_reasons`; it always does."""

    def sums_to_logits(self, sums: np.ndarray, *, numeric: bool) -> np.ndarray:
        """See `Algorithm.sums_to_logits`."""
        from securevfl.algorithms.additive.shapes import to_logits

        return to_logits(sums, numeric=numeric)

    def logits_to_sums(self, logits: np.ndarray, *, numeric: bool) -> np.ndarray:
        """See `Algorithm.logits_to_sums`."""
        from securevfl.algorithms.additive.shapes import from_logits

        return from_logits(logits, numeric=numeric)

    def active(self, setting: Setting) -> ActiveRole:
        from securevfl.algorithms.additive.roles import AdditiveActive

        return AdditiveActive(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        from securevfl.algorithms.additive.roles import AdditivePassive

        return AdditivePassive(self, setting)

"""Boosting on the active party's own model, for few common rows.

The active party first grows trees of its own columns over all of its labelled rows, by itself. The parties then grow
trees over all columns of the common rows, which begin at the own model's scores and correct them:

    score(x) = own(x_a) + Σ_t tree_t(x)

Common rows that train begin at out-of-fold scores (`own_model`). Rows that only the active party has are scored by the
own model alone. It is `residual` with trees on both sides.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from msgspec import Meta

from securevfl.algorithms.boosting.active import BoostingActive
from securevfl.algorithms.boosting.configuration import Boosting
from securevfl.algorithms.boosting.directions import column_directions
from securevfl.algorithms.boosting.growing import TreeLimits
from securevfl.algorithms.boosting.on_shares import SharedBoostingActive
from securevfl.algorithms.boosting.own_model import OwnModel, OwnTerms
from securevfl.cut import Protection
from securevfl.errors import InputError
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import Subsets
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.fits import Fits
from securevfl.training.setting import Setting
from securevfl.training.state import State, as_tensor

__all__ = ["BoostedResidual", "CorrectsBy"]

CorrectsBy = Literal["all", "partners"]
"""Names of whose columns the correcting trees split by."""


class BoostedResidual(Boosting):
    """Boosting that begins at the active party's own model, for few common rows.

    Attributes:
        own_trees: most rounds of the own model; how many count is chosen by scores out of fold.
        own_lr: shrinkage of its trees.
        own_depth: most splits from the root to a leaf of its trees.
        folds: parts of the common training rows; an own model trained without a part scores it.
        corrects_by: whose columns the correcting trees split by: ``"all"`` parties', or those of the ``"partners"``
            alone, where the own model has used the active party's.
    """

    name: ClassVar[str] = "boosted_residual"
    label: ClassVar[str] = "Boosting on the own model"
    fits: ClassVar[Fits] = Fits(learns={"numbers"}, shares="trees", exports=True)
    uses_others: ClassVar[bool] = True
    subsets: ClassVar[Subsets] = "alone"
    alone_on_shares: ClassVar[bool] = True
    own_trees: Annotated[int, Meta(ge=1, le=5000)] = 100
    own_lr: Annotated[float, Meta(gt=0, le=1)] = 0.1
    own_depth: Annotated[int, Meta(ge=1, le=12)] = 5
    folds: Annotated[int, Meta(ge=2, le=20)] = 4
    corrects_by: CorrectsBy = "all"

    def describe(self) -> dict[str, Any]:
        """See `Config.describe`. Agreements and models of before there was a choice of columns keep their bytes and
        digests."""
        found = super().describe()
        if self.corrects_by == "all":
            del found["corrects_by"]
        return found

    @property
    def splits_own_columns(self) -> bool:
        return self.corrects_by == "all"

    def problems(self) -> list[str]:
        found = super().problems()
        if self.corrects_by == "partners" and self.columns < 1:
            found.append(
                f"{self.name}.columns is {self.columns:g}, a share of all parties' columns, and corrects_by is "
                "'partners': leave columns out"
            )
        return found

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: drawn labels, for which the own model would have to be corrected.
        """
        super().check_protection(protection)
        if protection.dp is not None and protection.dp.label_draw is not None:
            raise InputError(
                f"{self.title} begins at scores of exact labels' trees, and drawn labels have other odds: leave dp "
                "out, or use boosting"
            )

    @property
    def begins_at_own_scores(self) -> bool:
        return True

    @property
    def own_terms(self) -> OwnTerms:
        """How the own model grows."""
        return OwnTerms(
            trees=self.own_trees,
            folds=self.folds,
            rate=self.own_lr,
            bins=self.bins,
            limits=TreeLimits(depth=self.own_depth, leaves=0),
            l1=self.l1,
            l2=self.l2,
            min_gain=self.min_gain,
            min_hessian=self.min_hessian,
        )

    def active(self, setting: Setting) -> ActiveRole:
        return (_SharedOnOwn if setting.protection.on_shares else _OnOwn)(self, setting)


class _Books(Bookkeeping):
    """The own model also learns from rows that are not aligned."""

    repeats_begin_epoch = True  # `remember` keeps what `begin_epoch` computes

    def rows_to_learn_from(self) -> np.ndarray:
        table = self.role.table
        return np.concatenate([table.split.train, table.rows_only_at(self.role.site.active)])


class _OwnStart(BoostingActive):
    """Base of both roles: fits the own model before the first round, and begins at its scores.

    Attributes:
        own: the own model.
    """

    bookkeeping = _Books
    config: BoostedResidual

    def build(self) -> None:
        super().build()
        config, table = self.config, self.table
        directions = column_directions(self.site.name, table.encoded, table.codes, config.rising, config.falling)
        self.own = OwnModel(self.task.outputs, table.codes, directions)
        self.parts["own"] = self.own
        self._offsets: np.ndarray | None = None
        self._told = ""

    async def fit_own_model(self) -> None:
        """Fit the own model, unless that was done."""
        if self._offsets is not None:
            return
        train, others = self.table.split.train, self.table.rows_only_at(self.site.active)
        rows = np.concatenate([train, others])
        y = self.training_targets(rows)
        known = np.isfinite(y) if self.task.is_numeric else y >= 0
        known[: len(train)] = True
        generator = np.random.default_rng(self.seed("folds"))
        self._offsets, self._told = await self.own.fit(
            self.build_objective(),  # of the task as it is: a protection may clip it after `build`
            self.columns_of(rows[known]),
            y[known],
            len(train),
            self.config.own_terms,
            generator,
        )

    def own_scores(self, rows: np.ndarray, *, train: bool) -> np.ndarray:
        """Raw scores at which rows begin, float64 (n, outputs).

        Args:
            rows: their numbers.
            train: whether they are the rows that train, whose scores are out of fold.
        """
        if not train:
            return self.own.score_rows(self.columns_of(rows))
        if self._offsets is None:
            raise ValueError("rows that train before the own model is fitted")
        places = np.full(self.table.total_count, -1)
        places[self.table.split.train] = np.arange(len(self.table.split.train))
        found: np.ndarray = self._offsets[places[rows]]
        return found

    def begin_scores(self, rows: np.ndarray, y: np.ndarray, importance: np.ndarray) -> np.ndarray:
        return self.own_scores(rows, train=True).copy()

    def first_scores(self, rows: np.ndarray) -> np.ndarray:
        return self.own_scores(rows, train=False)

    async def begin_epoch(self, epoch: int) -> bool:
        await self.fit_own_model()
        return await super().begin_epoch(epoch)

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        """The own model's raw scores of numbered rows, (n, outputs), without any message."""
        return torch.from_numpy(self.own_scores(rows, train=False))

    def remember(self) -> State:
        kept = None if self._offsets is None else torch.from_numpy(self._offsets)
        return {**super().remember(), "offsets": kept, "told": self._told}

    def recall(self, memory: State) -> None:
        super().recall(memory)
        kept = memory["offsets"]
        self._offsets = None if kept is None else as_tensor(kept).numpy().copy()
        self._told = str(memory["told"])

    def closing_notes(self) -> list[str]:
        return [*super().closing_notes(), *([self._told] if self._told else [])]


class _OnOwn(_OwnStart):
    """In plain and under Paillier."""


class _SharedOnOwn(_OwnStart, SharedBoostingActive):
    """On shares: the scores at which rows begin are dealt with their cells."""

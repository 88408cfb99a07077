"""The active party's own boosted trees: of its columns alone, over all of its labelled rows, without any message.

Common rows that train get out-of-fold scores: a model that had seen their labels would leave too little to correct. How
many trees count is chosen by the loss of these scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from securevfl.algorithms.boosting.bins import Bins, fit_bins
from securevfl.algorithms.boosting.categories import NUMBER
from securevfl.algorithms.boosting.growing import Chosen, Owned, TreeLimits, grow_tree
from securevfl.algorithms.boosting.histograms import plain_sums, to_fixed_point
from securevfl.algorithms.boosting.splits import SplitRule
from securevfl.algorithms.boosting.trees import Tree, read_trees, write_trees
from securevfl.errors import InputError
from securevfl.training.objectives import Objective
from securevfl.training.state import State, as_dict, as_tensor
from securevfl.training.tree_terms import fit_bin_count, fit_leaf_bounds

__all__ = ["OwnModel", "OwnSums", "OwnTerms"]

_BITS = 20
"""Of the fixed point of gradients: sums in the clear have room."""


@dataclass(frozen=True, kw_only=True)
class OwnTerms:
    """How the own trees grow, named as in `sv.Boosting`.

    Attributes:
        trees: most rounds.
        folds: parts of the common training rows; a model trained without a part scores it.
        rate: shrinkage of each tree.
        bins: most bins of a column; None for as many as fit the rows.
        limits: how far a tree grows.
        l1: penalty of a leaf's magnitude.
        l2: penalty of its square.
        min_gain: least gain of a split.
        min_hessian: least sum of second derivatives on either side of a split; None for what fits rows and loss.
    """

    trees: int
    folds: int
    rate: float
    bins: int | None
    limits: TreeLimits
    l1: float
    l2: float
    min_gain: float
    min_hessian: float | None


@dataclass
class OwnSums:
    """A `SumSources` of one party's columns."""

    bins: Bins
    codes: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)
    can_subtract_siblings: bool = True

    @property
    def code_counts(self) -> Sequence[int]:
        """How many codes each column has."""
        return self.bins.code_counts

    @property
    def category_columns(self) -> np.ndarray:
        """Numbers of the columns whose codes are categories."""
        return self.bins.category_columns

    async def node_sums(self, nodes: Sequence[int], slot: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """Sums of each node's rows by code, without a message."""
        return plain_sums(self.values, self.codes, self.bins.code_counts, slot, len(nodes))

    async def goes_left(self, chosen: Sequence[Chosen]) -> tuple[np.ndarray, list[Owned]]:
        """Which rows each chosen split sends left, and the split as its owner keeps it."""
        sides, owned, bins = np.zeros((len(chosen), len(self.codes)), dtype=bool), [], self.bins
        for k, one in enumerate(chosen):
            sides[k] = bins.goes_left(self.codes, one.column, one.bin, missing_left=one.missing_left, left=one.codes)
            threshold = bins.threshold(one.column, one.bin) if one.codes == NUMBER else 0.0
            owned.append(Owned(0, one.column, threshold, bins.levels_of(one.column, one.codes)))
        return sides, owned


class OwnModel:
    """Boosted trees of one party's columns, as a part of a role.

    Args:
        outputs: width of a raw score.
        levels: of each column, as `Bins.levels`.
        directions: of each column, 1 if scores may only rise with it, −1 if they may only fall, 0 otherwise.

    Attributes:
        trees: all trees, round by round.
        start: initial raw score of every row, (outputs,); None before it is fitted.
    """

    def __init__(self, outputs: int, levels: Sequence[int], directions: np.ndarray) -> None:
        self._outputs, self._levels, self._directions = outputs, levels, directions
        self.trees: list[Tree] = []
        self.start: np.ndarray | None = None

    async def fit(
        self,
        objective: Objective,
        x: np.ndarray,
        y: np.ndarray,
        common: int,
        terms: OwnTerms,
        generator: np.random.Generator,
    ) -> tuple[np.ndarray, str]:
        """Fit the model on all rows, with as many trees as are best for rows that it did not see.

        Args:
            objective: the loss.
            x: own columns, float64 (n, columns); NaN where missing.
            y: targets, (n,).
            common: how many rows, the first ones, are common.
            terms: how trees grow.
            generator: draws the folds.

        Returns:
            Out-of-fold raw scores of the common rows, (common, outputs), and a sentence for the report.

        Raises:
            InputError: too few rows to train a model without one of them.
        """
        folds = min(terms.folds, common)
        if common == 0 or len(x) - -(-common // folds) < 1:
            raise InputError(
                f"the own model has {common} common and {len(x) - common} other rows with a label, and needs a common "
                "one and another: align more rows, or give the active party's other rows"
            )
        fold = generator.permutation(np.arange(common) % folds)
        found = np.empty((terms.trees, common, self._outputs))
        for number in range(folds):
            out = np.flatnonzero(fold == number)
            kept = np.concatenate([np.flatnonzero(fold != number), np.arange(common, len(x))])
            other = OwnModel(self._outputs, self._levels, self._directions)
            await other._grow(objective, x[kept], y[kept], terms, terms.trees)
            found[:, out] = other._scores_by_round(x[out])
        losses = [float(objective.compute_losses(one, y[:common]).mean()) for one in found]
        best = int(np.argmin(losses))
        await self._grow(objective, x, y, terms, best + 1)
        return found[best], (
            f"the own model has {best + 1} of {terms.trees} rounds of trees over {common:,} common and "
            f"{len(x) - common:,} other rows; its loss on common rows is {losses[best]:.4g} out of fold"
        )

    async def _grow(self, objective: Objective, x: np.ndarray, y: np.ndarray, terms: OwnTerms, rounds: int) -> None:
        bins = fit_bins(x, terms.bins or fit_bin_count(len(x), costly=False), self._levels)
        least, least_rows = fit_leaf_bounds(len(x), terms.min_hessian)
        codes = bins.encode_rows(x).astype(np.int16)
        self.start = objective.initial_score(y, np.ones(len(y)))
        scores = np.tile(self.start, (len(x), 1))
        for _ in range(rounds):
            g, h = objective.compute_derivatives(scores, y)
            for k in range(self._outputs):
                (whole_g, unit_g), (whole_h, unit_h) = to_fixed_point(g[:, k], _BITS), to_fixed_point(h[:, k], _BITS)
                rule = SplitRule(
                    l1=terms.l1,
                    l2=terms.l2,
                    min_gain=terms.min_gain,
                    min_hessian=least,
                    least_rows=least_rows,
                    scales=(unit_g, unit_h),
                )
                values = np.stack([whole_g, whole_h], axis=1)
                sources = OwnSums(bins, codes, values)
                grown = await grow_tree(
                    values, (g[:, k], h[:, k]), rule, terms.limits, sources, output=k, directions=self._directions
                )
                grown.tree.value = [terms.rate * value for value in grown.tree.value]
                self.trees.append(grown.tree)
                scores[:, k] += np.asarray(grown.tree.value)[grown.leaf]

    def _scores_by_round(self, x: np.ndarray) -> np.ndarray:
        """Raw scores after each round, (rounds, n, outputs)."""
        if self.start is None:
            raise ValueError("an own model that was not fitted")
        scores, found = np.tile(self.start, (len(x), 1)), []
        for number, tree in enumerate(self.trees, 1):
            scores[:, tree.output] += np.asarray(tree.value)[tree.leaves_of(x, {}, len(x))]
            if number % self._outputs == 0:
                found.append(scores.copy())
        return np.stack(found) if found else scores[None]

    def score_rows(self, x: np.ndarray) -> np.ndarray:
        """Raw scores of rows, float64 (n, outputs).

        Args:
            x: own columns, float64 (n, columns); NaN where missing.
        """
        found: np.ndarray = self._scores_by_round(x)[-1]
        return found

    async def setup(self) -> None:
        """See `Part.setup`."""

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        start = None if self.start is None else torch.from_numpy(self.start.copy())
        return {"trees": write_trees(self.trees), "start": start}

    def restore(self, state: object) -> None:
        """See `Part.restore`."""
        kept = as_dict(state)
        self.start = None if kept["start"] is None else as_tensor(kept["start"]).numpy().copy()
        self.trees = read_trees(as_dict(kept["trees"]), owners=0, outputs=self._outputs, columns=len(self._directions))

    def get_state(self) -> State:
        """See `Part.get_state`."""
        return as_dict(self.snapshot())

    def load_state(self, state: State) -> None:
        """See `Part.load_state`."""
        self.restore(state)

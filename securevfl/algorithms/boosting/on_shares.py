"""Boosting's roles where the trees grow on shares: they bin their columns, and say which rows train towards what.

A column's bins are those of the other protections. Missing values have a cell of their own where training rows have
any. A category with few levels is split into any two sets of them. The many levels of another are bins in the owner's
order: sorting them by gradients, node by node, is not done on shares.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from securevfl.algorithms.boosting.active import BoostingActive
from securevfl.algorithms.boosting.bins import Bins, fit_bins
from securevfl.algorithms.boosting.directions import check_parties, column_directions
from securevfl.algorithms.boosting.passive import BoostingPassive
from securevfl.algorithms.boosting.settings import BoostingSettings
from securevfl.errors import InputError
from securevfl.training.role import Role
from securevfl.training.state import State, as_dict, as_list, as_tensor
from securevfl.training.tree_terms import ColumnBins, fits_sets

__all__ = ["KeptBins", "SharedBoostingActive", "SharedBoostingPassive"]


class KeptBins:
    """A party's bins, as a part of its role: a prediction codes rows by them.

    Attributes:
        bins: of its columns.
        columns: what all parties know of them.
    """

    def __init__(self) -> None:
        self.bins = Bins(())
        self.columns = ColumnBins((), (), (), ())

    def fit(self, x: np.ndarray, most: int, levels: Sequence[int], directions: np.ndarray) -> None:
        """Fit the bins.

        Args:
            x: training rows, float64 (n, columns); NaN where missing.
            most: bins of a column.
            levels: as `Bins.levels`.
            directions: as `column_directions`.
        """
        self.bins = fit_bins(x, most, levels)
        bins = tuple(len(edges) + 1 for edges in self.bins.edges)
        missing = tuple(np.isnan(x).any(axis=0).tolist())
        kinds = zip(bins, missing, self.bins.category_columns.tolist(), strict=True)
        parted = tuple(is_category and fits_sets(count + lacks, most) for count, lacks, is_category in kinds)
        self.columns = ColumnBins(bins, missing, tuple(directions.tolist()), parted)

    def encode_cells(self, x: np.ndarray) -> np.ndarray:
        """The cell of each row within each column, uint8 (columns, n).

        Where no training row lacked a value of a column, rows that do lie in its last bin: right of every threshold.

        Args:
            x: float64 (n, columns); NaN where missing.
        """
        codes = self.bins.encode_rows(x)
        most = np.array(
            [count - 1 + lacks for count, lacks in zip(self.columns.bins, self.columns.missing, strict=True)]
        )
        return np.ascontiguousarray(np.minimum(codes, most.astype(np.int64)).T.astype(np.uint8))

    async def setup(self) -> None:
        """See `Part.setup`; the program tells the bins."""

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        return {
            "edges": [torch.from_numpy(edges) for edges in self.bins.edges],
            "levels": list(self.bins.levels),
            "missing": list(self.columns.missing),
            "directions": list(self.columns.directions),
            "parted": list(self.columns.parted),
        }

    def restore(self, state: object) -> None:
        """See `Part.restore`.

        Raises:
            InputError: parts of another model.
        """
        kept = as_dict(state)
        edges = tuple(as_tensor(one).numpy() for one in as_list(kept["edges"]))
        missing, directions, parted = (as_list(kept[name]) for name in ("missing", "directions", "parted"))
        if any(one.dtype != np.float64 or one.ndim != 1 for one in edges) or not (
            len(edges) == len(missing) == len(directions) == len(parted)
        ):
            raise InputError("the model's bins do not fit its columns: take the part that training saved")
        self.bins = Bins(edges, tuple(int(str(one)) for one in as_list(kept["levels"])))
        self.columns = ColumnBins(
            tuple(len(one) + 1 for one in edges),
            tuple(bool(one) for one in missing),
            tuple(int(str(one)) for one in directions),
            tuple(bool(one) for one in parted),
        )

    def get_state(self) -> State:
        """See `Part.get_state`."""
        return as_dict(self.snapshot())

    def load_state(self, state: State) -> None:
        """See `Part.load_state`."""
        self.restore(state)


def _fit_kept(role: Role, config: BoostingSettings, columns_of_training: np.ndarray) -> KeptBins:
    kept, table = KeptBins(), role.table
    directions = column_directions(role.site.name, table.encoded, table.codes, config.rising, config.falling)
    kept.fit(columns_of_training, config.tree_terms.bins, table.codes, directions)
    return kept


class SharedBoostingActive(BoostingActive):
    """The active party's role on shares.

    Attributes:
        kept: its bins.
    """

    def build(self) -> None:
        config, train = self.config, self.table.split.train
        self.kept = KeptBins()
        if len(train):
            check_parties((*config.rising, *config.falling), (self.site.name, *self.trained_with))
            if config.splits_own_columns:  # else it has no column that a tree could split by
                self.kept = _fit_kept(self, config, self.columns_of(train))
        self.parts["bins"] = self.kept

    def column_bins(self) -> ColumnBins:
        """See `CodedColumns`."""
        return self.kept.columns

    def encode_cells(self, rows: np.ndarray) -> np.ndarray:
        """See `CodedColumns`."""
        if not self.config.splits_own_columns:
            return np.empty((0, len(rows)), np.uint8)
        return self.kept.encode_cells(self.columns_of(rows))

    def targets(self, rows: np.ndarray) -> torch.Tensor:
        """Targets of numbered rows: classes (n,), or scaled numbers (n,)."""
        return self.task.make_targets(self.labels(rows))

    def closing_notes(self) -> list[str]:
        return []

    def remember(self) -> State:
        return {}

    def recall(self, memory: State) -> None:
        """Nothing: outputs of the training rows are shares."""


class SharedBoostingPassive(BoostingPassive):
    """A passive party's role on shares.

    Attributes:
        kept: its bins.
    """

    def build(self) -> None:
        train = self.table.split.train
        self.kept = _fit_kept(self, self.config, self.columns_of(train)) if len(train) else KeptBins()
        self.parts["bins"] = self.kept

    def column_bins(self) -> ColumnBins:
        """See `CodedColumns`."""
        return self.kept.columns

    def encode_cells(self, rows: np.ndarray) -> np.ndarray:
        """See `CodedColumns`."""
        return self.kept.encode_cells(self.columns_of(rows))

    def closing_notes(self) -> list[str]:
        return []

    def remember(self) -> State:
        return {}

    def recall(self, memory: State) -> None:
        """Nothing: no sum is sent."""

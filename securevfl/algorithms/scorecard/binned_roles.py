"""Roles whose columns are cut into bins: those of a logistic regression with weight-of-evidence bottoms, and those of a
scorecard on shares.

On shares each party cuts its columns, and the computing parties do all the rest: nobody sees counts, weights of
evidence or coefficients. A job that hands its model out opens the points of a party's own bins to it, and of these its
card is made.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import nn

from securevfl.algorithms.scorecard.binning import Evidence, EvidenceEncoder, codes_of, cut_points, merge_to_monotone
from securevfl.algorithms.scorecard.counting import check_features
from securevfl.algorithms.scorecard.points import factor_and_offset, opened_card, party_card, summarise_columns
from securevfl.algorithms.scorecard.settings import CardArchitecture, ScorecardSettings
from securevfl.algorithms.splitnn import Active, Passive
from securevfl.errors import InputError
from securevfl.training.bottoms import Architecture
from securevfl.training.cut_noise import active_side
from securevfl.training.halves import ActiveHalf, PassiveHalf
from securevfl.training.role import Role
from securevfl.training.state import State

__all__ = ["BinnedActive", "BinnedPassive", "SharedCardActive", "SharedCardPassive", "count_by_column"]


def _build_bottom(architecture: Architecture, shape: Sequence[int]) -> tuple[nn.Module, int]:
    if not isinstance(architecture, CardArchitecture):
        raise TypeError(f"a {type(architecture).__name__} has no bins")
    return EvidenceEncoder(shape[0], architecture.bins), shape[0]


class _ActiveHalf(ActiveHalf):
    def build_bottom(self, architecture: Architecture, shape: Sequence[int]) -> tuple[nn.Module, int]:
        return _build_bottom(architecture, shape)


class _PassiveHalf(PassiveHalf):
    def build_bottom(self, architecture: Architecture, shape: Sequence[int]) -> tuple[nn.Module, int]:
        return _build_bottom(architecture, shape)


def count_by_column(codes: np.ndarray, labels: np.ndarray | None, cuts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Count the rows in each bin of each column, int64; with labels, only the rows of label 1."""
    kept = codes if labels is None else codes[labels == 1]
    return [np.bincount(column, minlength=len(cut) + 1) for column, cut in zip(kept.T, cuts, strict=True)]


class CardRole(Role):
    """Base of all roles: the bins of this party's columns.

    Attributes:
        cuts: of each column.
        found: evidence of each column.
        card: this party's part of the points table, once training ended.
    """

    config: ScorecardSettings

    def begin_card(self) -> None:
        """Initialise without bins."""
        self.cuts: list[np.ndarray] = []
        self.found: list[Evidence] = []
        self.card: State = {}
        check_features(self.features.row_shape, self.site.name)

    @property
    def has_training_rows(self) -> bool:
        """Whether there are training rows; False in a prediction."""
        return len(self.table.split.train) > 0

    def rows_to_cut(self) -> np.ndarray:
        """This party's features of the training rows, float32 (n, d)."""
        x: np.ndarray = self.features(self.table.split.train).cpu().numpy()
        return x

    def cut_columns(self, x: np.ndarray) -> np.ndarray:
        """Cut the columns and return each row's bins."""
        config = self.config
        if len(x) < 2 * config.least:
            raise InputError(
                f"{len(x)} rows train, and each bin of a scorecard has at least {config.least}: give more rows, or a "
                "smaller least"
            )
        self.cuts = cut_points(x, config.bins, config.least)
        if x.shape[1] and not any(map(len, self.cuts)):
            raise InputError(
                f"no column of {self.site.name!r} can be cut into two bins of at least {config.least} rows (they are "
                "constant, or nearly): give it other columns, or a smaller least"
            )
        return codes_of(x, self.cuts)

    def take_counts(self, rows: Sequence[np.ndarray], positives: Sequence[np.ndarray], bottom: nn.Module) -> None:
        """Compute each column's evidence from its counts; merge neighbouring bins if `monotone` is set."""
        columns = [*zip(self.cuts, rows, positives, strict=True)]
        if self.config.monotone:
            columns = [merge_to_monotone(*column) for column in columns]
        self.cuts = [cut for cut, _, _ in columns]
        self.found = [Evidence.from_counts(count, good) for _, count, good in columns]
        if not isinstance(bottom, EvidenceEncoder):
            raise TypeError(f"a {type(bottom).__name__} is not the bottom of a scorecard")
        bottom.set_bins(self.cuts, self.found)

    def cut_training_rows(self) -> None:
        """Cut the columns by the training rows; see `BinnedRole`."""
        self.cut_columns(self.rows_to_cut())

    def find_bins(self, rows: np.ndarray) -> np.ndarray:
        """The bin of each numbered row in each column, int64 (n, columns)."""
        return codes_of(self.features(rows).cpu().numpy(), self.cuts)

    def column_names(self) -> list[str]:
        """Names of the encoded columns."""
        encoder = self.table.encoder
        return [f"column {j + 1}" for j in range(len(self.cuts))] if encoder is None else encoder.column_names

    def make_card(self, weights: np.ndarray, bias: float | None) -> None:
        """Points of this party's bins.

        Args:
            weights: of its columns, (columns,).
            bias: of the model, at the active party.
        """
        factor, start = self.scale_points(bias)
        self.card = party_card(self.column_names(), self.cuts, self.own_units(), self.found, weights, factor, start)

    def scale_points(self, bias: float | None) -> tuple[float, float]:
        """The factor of points, and what each row begins with at this party.

        Args:
            bias: of the model, at the active party.
        """
        config = self.config
        factor, offset = factor_and_offset(config.base_points, config.base_odds, config.pdo)
        return factor, 0.0 if bias is None else offset - factor * bias

    def own_units(self) -> list[np.ndarray]:
        """The ends of each column's bins in its original units, NaN if they cannot be computed."""
        encoder = self.table.encoder
        return [
            np.full(len(cut), np.nan) if encoder is None else encoder.decode(j, cut) for j, cut in enumerate(self.cuts)
        ]

    def closing_notes(self) -> list[str]:
        more = [summarise_columns(self.site.name, self.column_names(), self.found)] if self.found else []
        return [*super().closing_notes(), *more]


class BinnedActive(CardRole, Active):
    """The active party of a logistic regression on binned columns."""

    config: ScorecardSettings

    def build(self) -> None:
        self.begin_card()
        super().build()
        self.books.model_facts["scorecard"] = lambda: self.card

    def build_half(self, architecture: Architecture) -> ActiveHalf:
        spec, passive = self.config.cut_spec(self, architecture.hidden), len(self.site.passive)
        cut = active_side(self, spec)
        return _ActiveHalf(architecture, cut, spec, passive, self.features.row_shape, self.task.outputs)


class BinnedPassive(CardRole, Passive):
    """A passive party of a logistic regression on binned columns."""

    config: ScorecardSettings

    def build(self) -> None:
        self.begin_card()
        super().build()
        self.books.model_facts["scorecard"] = lambda: self.card

    def build_half(self, architecture: Architecture) -> PassiveHalf:
        spec = self.config.cut_spec(self, architecture.hidden)
        return _PassiveHalf(architecture, self.site, spec, self.protection, self.features.row_shape)


class _SharedCard(CardRole):
    """Base of both roles on shares."""

    def take_points(self, values: np.ndarray, bias: float | None) -> None:
        """Make the card of the points that were opened to this party; see `BinnedRole`."""
        rows = count_by_column(self.find_bins(self.table.split.train), None, self.cuts)
        factor, start = self.scale_points(bias)
        self.card = opened_card(self.column_names(), self.cuts, self.own_units(), rows, values, factor, start)

    def closing_notes(self) -> list[str]:
        single = sum(not len(cut) for cut in self.cuts)
        more = f"; {single} of {len(self.cuts)} columns have one bin and no points" if single else ""
        cells = sum(len(cut) + 1 for cut in self.cuts)
        return [
            *super().closing_notes(),
            f"scorecard of {self.site.name!r}: {cells} bins of {len(self.cuts)} columns, cut by its own rows{more}",
        ]


class SharedCardActive(_SharedCard, BinnedActive):
    """The active party's role."""

    config: ScorecardSettings


class SharedCardPassive(_SharedCard, BinnedPassive):
    """A passive party's role."""

    config: ScorecardSettings

"""The roles of a scorecard: those of a logistic regression with weight-of-evidence bottoms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import nn

from securevfl.algorithms.scorecard.binning import Evidence, EvidenceEncoder, codes_of, cut_points, merge_to_monotone
from securevfl.algorithms.scorecard.counting import check_features, request_counts, tell_all
from securevfl.algorithms.scorecard.points import factor_and_offset, party_card, summarise_columns
from securevfl.algorithms.scorecard.settings import CardArchitecture, ScorecardSettings
from securevfl.algorithms.splitnn import Active, Passive
from securevfl.cut import HasShares, OpensWeights, read_share, share_bytes
from securevfl.errors import InputError
from securevfl.training.active_program import ActiveProgram
from securevfl.training.bottoms import Architecture
from securevfl.training.cut_noise import active_side
from securevfl.training.halves import ActiveHalf, PassiveHalf
from securevfl.training.passive_program import PassiveProgram
from securevfl.training.role import Role
from securevfl.training.state import State
from securevfl.transport import Kind

__all__ = [
    "SHARE",
    "BinnedActive",
    "BinnedPassive",
    "CardActive",
    "CardActiveProgram",
    "CardPassive",
    "CardPassiveProgram",
    "CardRole",
    "count_by_column",
]

SHARE = "scorecard/share"
_MANY = 4
"""The report warns from one count per this many training rows on."""


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


class CardActive(BinnedActive):
    """Seals the labels, opens the counts, and sends each passive party its share of the finished coefficients."""

    def build(self) -> None:
        self.told = 0
        super().build()

    async def setup(self) -> None:
        await super().setup()
        if not self.has_training_rows:
            return
        labels = self.labels(self.table.split.train).cpu().numpy().astype(np.int64)
        codes, config = self.cut_columns(self.rows_to_cut()), self.config
        self.take_counts(
            count_by_column(codes, None, self.cuts), count_by_column(codes, labels, self.cuts), self.half.bottom
        )
        links = [self.site.links[name] for name in self.site.passive]
        self.told = await tell_all(links, labels, config.key_bits, config.bins, config.least, self.site.clock)

    def closing_notes(self) -> list[str]:
        found, rows = super().closing_notes(), len(self.table.split.train)
        if _MANY * self.told >= rows > 0:
            found += [
                f"a passive party got {self.told} independent counts of the labels of {rows} training rows: each "
                "is an equation, so it computes labels that its columns do not reveal, and all of them from about as "
                "many counts as rows (fewer bins, fewer columns of passive parties, or more rows)"
            ]
        return found

    async def hand_out(self) -> None:
        """After the test: shares of the kept model's coefficients, and the party's own points."""
        shares = self.half.cut.weight_shares() if isinstance(self.half.cut, HasShares) else {}
        for name, share in shares.items():
            await self.site.links[name].send(Kind.MASKED_SHARE, SHARE, share=share_bytes(share))
        state = self.half.own.state_dict()
        weights = state["weight"][0].double().cpu().numpy() if "weight" in state else np.zeros(0)
        self.make_card(weights, float(state["bias"][0]))


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


class CardPassive(BinnedPassive):
    """Cuts its columns, learns the counts of its bins, and at the end its own coefficients."""

    async def setup(self) -> None:
        await super().setup()
        if not self.has_training_rows:
            return
        codes, config = self.cut_columns(self.rows_to_cut()), self.config
        sizes = [len(cut) + 1 for cut in self.cuts]
        positives = await request_counts(self.upstream, codes, sizes, config.key_bits, self.site.clock)
        self.take_counts(count_by_column(codes, None, self.cuts), positives, self.half.bottom)

    async def take_share(self) -> None:
        """After the test: this party's coefficients, and its points."""
        other, width = None, self.features.row_shape[0]
        if self.protection.is_sealed:
            message = await self.upstream.receive(Kind.MASKED_SHARE, SHARE, "share")
            other = read_share(message.arrays["share"], (width, self.half.cut_width), self.upstream.peer)
        if not isinstance(self.half.cut, OpensWeights):
            raise TypeError(f"a {type(self.half.cut).__name__} does not reveal its weights")
        self.make_card(self.half.cut.opened_weights(other)[:, 0], None)


class CardActiveProgram(ActiveProgram):
    """Ends with points."""

    role: CardActive

    async def after_test(self) -> None:
        await super().after_test()
        await self.role.hand_out()


class CardPassiveProgram(PassiveProgram):
    """Ends with points."""

    role: CardPassive

    async def after_test(self) -> None:
        await super().after_test()
        await self.role.take_share()

"""The logistic regression of a scorecard on shares: it takes weights of evidence, which it has as shares, too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from securevfl_crypto.replicated import Product, Share, concatenate
from securevfl_crypto.ring import FRACTION

from securevfl.shares.engine import ONE, Engine, compute_products, find_outside
from securevfl.shares.network import Network
from securevfl.shares.network_ranges import NetworkShape, OptimiserConstants
from securevfl.shares.packed_shares import pack_share, unpack_shares
from securevfl.shares.scorecard.evidence import MOST_EVIDENCE, look_up
from securevfl.shares.scorecard.layout import CardLayout
from securevfl.training.state import State

__all__ = ["LARGEST_BIAS", "LARGEST_VALUE", "LAYER", "CardNetwork"]

LAYER = "layer 0"
"""The one layer, as the network calls it."""

_EVIDENCE = "evidence"

LARGEST_BIAS = 32.0
"""Twice the largest norm of the layer when it is checked: products are proved for that."""

LARGEST_VALUE = LARGEST_BIAS * MOST_EVIDENCE
"""Largest size of a coefficient times a weight of evidence."""


class CardNetwork(Network):
    """A network without hidden layers on weights of evidence.

    Args:
        shape: one input for each column.
        rule: of the optimiser.
        batch_size: nominal rows in a batch.
        engine: computes on shares.
        seed: the job's.
        layout: the columns' bins.

    Attributes:
        layout: the same.
        evidence: the value of each cell, with 16 fractional bits, (cells,); None before rows were counted. In a model
            that was handed out it is the coefficient times the weight, and the layer adds up.
        dealt_again: whether the model was handed out, and its parts were dealt again.
    """

    def __init__(
        self,
        shape: NetworkShape,
        rule: OptimiserConstants,
        batch_size: int,
        engine: Engine,
        seed: int,
        *,
        layout: CardLayout,
    ) -> None:
        super().__init__(shape, rule, batch_size, engine, seed)
        self.layout = layout
        self.evidence: Share | None = None
        self.dealt_again = False

    def known_evidence(self) -> Share:
        """The value of each cell.

        Raises:
            ValueError: no rows were counted.
        """
        if self.evidence is None:
            raise ValueError("weights of evidence before any row was counted")
        return self.evidence

    async def look_up(self, cells: Sequence[Share]) -> list[Share]:
        """Inputs of the network for some parts of the rows, (n, columns): one round.

        Args:
            cells: of each part, of all parties' columns, (n, cells).
        """
        return await look_up(self.engine, list(cells), self.known_evidence(), self.layout)

    def split_columns(self, x: Share) -> list[Share]:
        """Inputs (n, columns) by party, as `forward` takes them."""
        ends = np.cumsum(self.shape.inputs).tolist()
        return [x[:, end - width : end] for width, end in zip(self.shape.inputs, ends, strict=True)]

    async def compute_points(self) -> Share:
        """The coefficient times the weight of evidence of each cell, then the bias, (cells + 1, 1): two rounds."""
        weights, sizes = self.weights[LAYER], self.layout.sizes
        each = weights[:-1].reshape(-1)[np.repeat(np.arange(len(sizes)), sizes)]
        (found,) = await compute_products(self.engine, [Product(each, self.known_evidence(), "times", shift=FRACTION)])
        return concatenate([found.reshape(-1, 1), weights[-1:]])

    def list_shares(self) -> list[Share]:
        return [*super().list_shares(), *([] if self.evidence is None else [self.evidence])]

    def replace_shares(self, fresh: Sequence[Share]) -> None:
        super().replace_shares(fresh)
        if self.evidence is not None:
            self.evidence = fresh[-1]

    def pack_model(self) -> State:
        """The weights, and the evidence."""
        kept = super().pack_model()
        return kept if self.evidence is None else kept | {_EVIDENCE: pack_share(self.evidence)}

    def unpack_model(self, state: State) -> None:
        """See `Network.unpack_model`.

        Raises:
            InputError: shares of another network, or of other bins.
        """
        super().unpack_model({name: kept for name, kept in state.items() if name != _EVIDENCE})
        if _EVIDENCE in state:
            zero = self.engine.constant(np.zeros(sum(self.layout.cells), np.uint64))
            found = unpack_shares({_EVIDENCE: state[_EVIDENCE]}, {_EVIDENCE: zero})
            self.evidence = found[_EVIDENCE]

    def take_points(self, points: Share) -> None:
        """Take a finished card, as `compute_points` gives it: the layer only adds up."""
        self.evidence = points[:-1].reshape(-1)
        ones = self.engine.constant(np.full((len(self.layout.sizes), 1), ONE, np.uint64))
        self.weights = {LAYER: concatenate([ones, points[-1:]])}
        self.dealt_again = True

    async def out_of_range(self) -> Share:
        """See `Network.out_of_range`; the values of the cells are checked, too."""
        engine, evidence = self.engine, self.known_evidence()
        if not self.dealt_again:
            bounds = np.full(evidence.size, MOST_EVIDENCE * ONE, np.int64)
            found = await find_outside(engine, evidence, bounds)
            return concatenate([await super().out_of_range(), found])
        bounds = np.full(evidence.size + 1, round(LARGEST_VALUE * ONE), np.int64)
        bounds[-1] = round(LARGEST_BIAS * ONE)
        return await find_outside(engine, concatenate([evidence, self.weights[LAYER][-1]]), bounds)

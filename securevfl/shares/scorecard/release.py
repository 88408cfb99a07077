"""A scorecard that is handed out: at the end of training each data party gets the points of its own bins, coefficient
times weight of evidence, and the active party the bias. To predict, each deals its part again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from securevfl_crypto.replicated import Share

from securevfl.shares.model_release import ModelRelease
from securevfl.shares.network_ranges import Layer, NetworkShape
from securevfl.shares.scorecard.card_network import LARGEST_VALUE, LAYER, CardNetwork
from securevfl.shares.scorecard.layout import CardLayout

__all__ = ["CardRelease", "PointsShape", "split_points"]


class PointsLayer(Layer):
    """The layer whose inputs are cells: one of a column is 1, the others 0."""

    @property
    def max_norm(self) -> float:
        """Half the norm of as many values as large as they may be: parts are accepted up to twice of it."""
        return LARGEST_VALUE / 2 * float(np.sqrt(self.inputs + 1))


class PointsShape(NetworkShape):
    """A finished card as a network: its inputs are cells, its weights the points, the last one the bias.

    A row has one cell of each column, so that its sum is at most `LARGEST_VALUE` for each column.
    """

    @classmethod
    def of(cls, layout: CardLayout) -> PointsShape:
        """The card with these bins."""
        return cls(layout.cells, (), (), 2)

    def top_layers(self) -> list[Layer]:
        """See `NetworkShape.top_layers`."""
        return [PointsLayer(LAYER, sum(self.inputs), 1)]


class Points:
    """Shares of the points, as `ModelRelease` takes weights."""

    def __init__(self) -> None:
        self.weights: dict[str, Share] = {}


@dataclass
class CardRelease(ModelRelease):
    """One party's part in handing points out, and in dealing them again.

    Attributes:
        card: the regression, at a computing party.
    """

    card: CardNetwork | None = None

    async def hand_out(self) -> dict[str, np.ndarray]:
        """See `ModelRelease.hand_out`; the points are computed first."""
        if self.card is not None and self.network is not None:
            self.network.weights = {LAYER: await self.card.compute_points()}
        return await super().hand_out()

    async def deal_again(self, own: Mapping[str, np.ndarray]) -> None:
        """See `ModelRelease.deal_again`."""
        if self.network is not None and self.card is not None:
            zero = np.zeros((sum(self.card.layout.cells) + 1, 1), np.uint64)
            self.network.weights = {LAYER: self.card.engine.constant(zero)}
        await super().deal_again(own)
        if self.network is not None and self.card is not None:
            self.card.take_points(self.network.weights[LAYER])


def split_points(own: Mapping[str, np.ndarray], *, active: bool) -> tuple[np.ndarray, float | None]:
    """A party's handed out blocks as values of its bins, (cells,), and the bias at the active party."""
    values = np.concatenate([np.zeros((0, 1)), *own.values()]).reshape(-1)
    return (values[:-1], float(values[-1])) if active else (values, None)

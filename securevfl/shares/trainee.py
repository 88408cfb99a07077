"""What can be trained on shares: a split network, or trees. Everything around it asks no more than this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from securevfl_crypto.replicated import Share

from securevfl.shares.engine import Engine
from securevfl.training.state import State

__all__ = ["AddedNoise", "OutputShape", "Trainee"]


class OutputShape(Protocol):
    """What the outputs of a model stand for."""

    @property
    def classes(self) -> int:
        """Number of classes; 1 stands for a number."""
        ...

    @property
    def is_numeric(self) -> bool:
        """Whether it learns a number."""
        ...

    @property
    def outputs(self) -> int:
        """Width of its outputs."""
        ...


class AddedNoise(Protocol):
    """A party's own part of the noise in what is trained: its size over a sensitivity, and how often it was drawn."""

    sigma: float
    sensitivity: float
    draws: int


class Trainee(Protocol):
    """A model at a computing party. `inputs` are rows as they were dealt, whatever they are made of."""

    engine: Engine

    @property
    def shape(self) -> OutputShape:
        """What its outputs stand for."""
        ...

    @property
    def noise(self) -> AddedNoise | None:
        """This party's part of the noise on its steps."""
        ...

    async def forward(self, inputs: Any) -> Share:
        """Outputs (n, outputs) with 16 fractional bits."""
        ...

    async def sum_others(self, inputs: Any) -> tuple[int, Sequence[Share]]:
        """How many rows these are, and sums over them, 16 fractional bits, whose means stand for the passive parties'
        columns at their mean."""
        ...

    async def forward_averaged(self, inputs: Any, averages: Sequence[Share]) -> tuple[Share, Share]:
        """Outputs as they are, and with the passive parties' columns at their mean, (n, outputs) each.

        Args:
            inputs: as for `forward`.
            averages: the means of `sum_others`.
        """
        ...

    async def out_of_range(self) -> Share:
        """Bits that are all zero where no product with the model wraps."""
        ...

    def list_shares(self) -> list[Share]:
        """All shares that a checkpoint keeps."""
        ...

    def replace_shares(self, fresh: Sequence[Share]) -> None:
        """Take other shares of the same values, in the order of `list_shares`."""
        ...

    def pack_model(self) -> State:
        """The model, for predictions."""
        ...

    def unpack_model(self, state: State) -> None:
        """Go back to a snapshot."""
        ...

    def pack_training(self) -> State:
        """The model, and what training needs to go on."""
        ...

    def unpack_training(self, state: State) -> None:
        """Resume from a state."""
        ...

"""What training on shares has to know of a party whose columns are cut into bins: how they are cut, and which bin each
row is in. Bins follow from the party's own rows alone."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

__all__ = ["BINS", "LAYOUT", "MOST_MERGED", "BinnedAlgorithm", "BinnedRole"]

BINS, LAYOUT = "shares/bins", "shares/layout"
"""Steps that tell how many bins each column has: each passive party its own, the active party those of all."""

MOST_MERGED = 32
"""The most bins of a column that are merged on shares: comparisons grow with the third power."""


@runtime_checkable
class BinnedAlgorithm(Protocol):
    """What an algorithm says of its bins.

    Attributes:
        bins: the most bins of a column.
        least: the fewest training rows of a bin.
        monotone: whether bins are merged until the share of the second class only rises or only falls.
    """

    bins: int
    least: int
    monotone: bool


@runtime_checkable
class BinnedRole(Protocol):
    """A party's columns in bins.

    Attributes:
        cuts: of each column, the upper edges of its bins but the last, ascending, float32.
    """

    cuts: list[np.ndarray]

    def cut_training_rows(self) -> None:
        """Choose `cuts` by the training rows of this party."""
        ...

    def find_bins(self, rows: np.ndarray) -> np.ndarray:
        """The bin of each numbered row in each column, int64 (n, columns)."""
        ...

    def take_points(self, values: np.ndarray, bias: float | None) -> None:
        """Take what the finished model opened to this party.

        Args:
            values: coefficient times weight of evidence of each of its bins, column by column, float64.
            bias: of the model, at the active party.
        """
        ...

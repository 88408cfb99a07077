"""The cells of a table on shares: which bins each column has, and which splits these allow. All parties know it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

__all__ = ["CellLayout"]


@dataclass(frozen=True)
class CellLayout:
    """The bins of all columns: the active party's first, then each passive party's in order.

    Attributes:
        bins: of each column, its bins of values.
        missing: of each column, whether it has one more cell, its last, for missing values.
        directions: of each column: 1 if scores may only rise with it, −1 if they may only fall, 0 otherwise.
        owners: of each column, the index of its data party, 0 for the active one.
    """

    bins: tuple[int, ...]
    missing: tuple[bool, ...]
    directions: tuple[int, ...]
    owners: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of each column."""
        return tuple(count + lacks for count, lacks in zip(self.bins, self.missing, strict=True))

    @property
    def cells(self) -> int:
        """Number of cells of all columns."""
        return sum(self.sizes)

    @property
    def starts(self) -> tuple[int, ...]:
        """The first cell of each column."""
        return tuple(int(start) for start in np.cumsum((0, *self.sizes))[:-1])

    @property
    def candidates(self) -> tuple[int, ...]:
        """Candidate splits of each column: its thresholds, twice those that leave values on both sides where values
        are missing, and once the split of values from missing ones."""
        pairs = zip(self.bins, self.missing, strict=True)
        return tuple(2 * count - 1 if lacks else count - 1 for count, lacks in pairs)

    @property
    def digest(self) -> str:
        """Of all columns: computing parties that were told others notice it by this."""
        told = (self.bins, self.missing, self.directions, self.owners)
        return hashlib.sha256(repr(told).encode()).hexdigest()[:16]

"""The cells of a table on shares: which bins each column has, and which splits these allow. All parties know it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from securevfl.errors import InputError
from securevfl.training.tree_terms import count_sets

__all__ = ["CellLayout"]


@dataclass(frozen=True)
class CellLayout:
    """The bins of all columns: the active party's first, then each passive party's in order.

    Attributes:
        bins: of each column, its bins of values.
        missing: of each column, whether it has one more cell, its last, for missing values.
        directions: of each column: 1 if scores may only rise with it, −1 if they may only fall, 0 otherwise.
        owners: of each column, the index of its data party, 0 for the active one.
        parted: of each column, whether a split may part its cells, that of missing values too, into any two sets; none
            if empty.

    Raises:
        InputError: a column with a direction is parted into sets.
    """

    bins: tuple[int, ...]
    missing: tuple[bool, ...]
    directions: tuple[int, ...]
    owners: tuple[int, ...]
    parted: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if not self.parted:
            object.__setattr__(self, "parted", (False,) * len(self.bins))
        if any(way and parts for way, parts in zip(self.directions, self.parted, strict=True)):
            raise InputError("sets of cells have no direction: a column that only rises or falls is split in order")

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
        are missing, and once the split of values from missing ones; of a parted column all pairs of sets."""
        columns = zip(self.bins, self.missing, self.parted, strict=True)
        return tuple(
            count_sets(count + lacks) if parts else 2 * count - 1 if lacks else count - 1
            for count, lacks, parts in columns
        )

    @property
    def digest(self) -> str:
        """Of all columns: computing parties that were told others notice it by this."""
        told = (self.bins, self.missing, self.directions, self.owners, self.parted)
        return hashlib.sha256(repr(told).encode()).hexdigest()[:16]

"""Correlated randomness of two parties: what makes a computation on shares of two cost no more than masked words.

A party *holds* rows X in the clear, the other party has a share of what X is multiplied with. For a product X V the
other party draws a pad R and both get summands of X R; then V − R, which is uniform, is all that has to be sent. The
same for Xᵀ G. A *wave* is a random angle of which each party has a summand, with shares of its sines and cosines.

Correlations live in memory alone. A process that restarts makes new ones, so that none is used twice, whatever is
killed, copied or restored. Each is given once, and a copy of a process by a fork gets none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl_crypto.two.transfers import Transfers

__all__ = ["Correlations", "Linear", "LinearTask", "Wave", "WaveBits", "wave_places"]

WaveBits = tuple[tuple[int, int], ...]
"""For each multiple of the angle, from 1: fractional bits of the first party's sines, and of the second one's."""


@dataclass(frozen=True)
class LinearTask:
    """One batch of rows, the same at both parties, and what its columns are multiplied with.

    Attributes:
        key: names the rows: one key always means the same rows.
        rows: this party's, int64 or int16 (n, d), at most 2^13 in size.
        other: columns of the other party.
        outputs: columns of the weights.
        backward: whether Xᵀ G is computed, too.
    """

    key: int
    rows: np.ndarray = field(repr=False)
    other: int
    outputs: int
    backward: bool

    def columns(self, me: int) -> tuple[int, int]:
        """Columns of party 0 and of party 1."""
        own = self.rows.shape[1]
        return (own, self.other) if me == 0 else (self.other, own)


@dataclass
class Linear:
    """One use of a batch. For this party's own rows X: its summands of X R and Xᵀ R', whose pads the other party has.
    For the other party's rows: the pads R and R', and this party's summands.

    Attributes:
        mask: (n, outputs), of the own rows.
        mask_back: (d, outputs); None in a task that only goes forward, like the other two.
        pad: (d of the other party, outputs).
        share: (n, outputs).
        pad_back: (n, outputs).
        share_back: (d of the other party, outputs).
    """

    mask: np.ndarray = field(repr=False)
    mask_back: np.ndarray | None = field(repr=False)
    pad: np.ndarray = field(repr=False)
    share: np.ndarray = field(repr=False)
    pad_back: np.ndarray | None = field(repr=False)
    share_back: np.ndarray | None = field(repr=False)


@dataclass
class Wave:
    """Random angles.

    Attributes:
        angles: this party's summands modulo 2^21, int64 (count,).
        sines: its shares of the sines of 1, 2, … times the whole angle, uint64 (waves, count).
        cosines: and of the cosines.
    """

    angles: np.ndarray = field(repr=False)
    sines: np.ndarray = field(repr=False)
    cosines: np.ndarray = field(repr=False)


def wave_places(bits: WaveBits) -> list[int]:
    """Fractional bits of the shares of each sine."""
    return [one + other for one, other in bits]


class Correlations(ABC):
    """A source of randomness at one party. Both parties ask for the same, in the same order.

    Attributes:
        transfers: oblivious transfers from the same source.
    """

    transfers: Transfers

    @abstractmethod
    async def setup(self) -> None:
        """Exchange what the source needs before the first correlation."""

    @abstractmethod
    async def make_linear(self, tasks: Sequence[LinearTask], uses: int) -> list[deque[Linear]]:
        """Make so many uses of each batch.

        Returns:
            For each task its uses. Who takes one removes it.
        """

    @abstractmethod
    async def make_waves(self, count: int, bits: WaveBits) -> Wave:
        """Make random angles.

        Args:
            count: of angles.
            bits: how finely the sines are rounded.
        """

    def forget_rows(self, key: int) -> None:  # noqa: B027 - most sources keep nothing of rows
        """Drop what is kept of rows that are not used again."""

"""How many bins each column has. All parties know it: the sizes of everything on shares follow from it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from securevfl.errors import InputError, ProtocolError
from securevfl.privacy import Link, fan_out
from securevfl.training.binned import BINS, LAYOUT
from securevfl.transport import Kind, Message

__all__ = ["CardLayout", "receive_layout", "send_layout", "tell_bins"]

_MOST_COLUMNS = 1 << 16

_MOST_WORDS = 1 << 28
"""Most cells of training rows: a computing party keeps two words of each while it counts, 4 GB."""


@dataclass(frozen=True)
class CardLayout:
    """The bins of all parties' columns. A row has one cell for each bin: 1 in the bin that it is in, else 0.

    Attributes:
        bins: for each data party, the active one first, the number of bins of each of its columns.
    """

    bins: tuple[tuple[int, ...], ...]

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """Columns of each party."""
        return tuple(map(len, self.bins))

    @cached_property
    def cells(self) -> tuple[int, ...]:
        """Cells of each party."""
        return tuple(map(sum, self.bins))

    @cached_property
    def sizes(self) -> np.ndarray:
        """Bins of each column, over all parties, int64."""
        return np.array([size for party in self.bins for size in party], dtype=np.int64)

    @cached_property
    def starts(self) -> np.ndarray:
        """The first cell of each column, over all parties, int64."""
        starts: np.ndarray = np.cumsum(self.sizes) - self.sizes
        return starts

    @property
    def digest(self) -> str:
        """Of all numbers of bins: parties that were told others notice it by this."""
        return hashlib.sha256(repr(self.bins).encode()).hexdigest()[:16]

    def groups(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Columns with equally many bins: their numbers (g,), and their cells (g, bins)."""
        found = []
        for size in np.unique(self.sizes):
            columns = np.flatnonzero(self.sizes == size)
            found.append((columns, self.starts[columns][:, None] + np.arange(size)))
        return found

    def check_rows(self, rows: int) -> None:
        """Refuse more training rows than a computing party can hold cells of.

        Raises:
            InputError: they are more.
        """
        cells = sum(self.cells)
        if rows * cells > _MOST_WORDS:
            raise InputError(
                f"{rows} training rows with {cells} bins are {rows * cells} cells; a computing party holds "
                f"{_MOST_WORDS} on shares: take fewer bins, columns or rows"
            )


async def tell_bins(link: Link, bins: Sequence[int]) -> None:
    """Tell the active party how many bins this party's columns have."""
    await link.send(Kind.CONTROL, BINS, bins=np.array(bins, dtype=np.int64))


async def send_layout(own: Sequence[int], passive: Sequence[Link], others: Sequence[Link], most: int) -> CardLayout:
    """Learn the passive parties' numbers of bins, and tell all others those of everybody.

    Args:
        own: bins of the active party's columns.
        passive: links to the passive parties, in order.
        others: links to all parties that have to know.
        most: bins of a column.

    Raises:
        ProtocolError: a party has other numbers of bins than the job allows.
    """
    every = [tuple(own)]
    for link in passive:
        message = await link.receive(Kind.CONTROL, BINS, "bins")
        every.append(tuple(_read_sizes(message, "bins", link.peer, 1, most)))
    bins = np.array([size for party in every for size in party], dtype=np.int64)
    columns = np.array([len(party) for party in every], dtype=np.int64)
    await fan_out(others, lambda link: link.send(Kind.CONTROL, LAYOUT, bins=bins, columns=columns))
    return CardLayout(tuple(every))


async def receive_layout(link: Link, parties: int, most: int) -> CardLayout:
    """The numbers of bins of all parties' columns, as the active party tells them.

    Args:
        link: to the active party.
        parties: number of data parties.
        most: bins of a column.

    Raises:
        ProtocolError: they are none that the job allows.
    """
    message = await link.receive(Kind.CONTROL, LAYOUT, "bins", "columns")
    bins = _read_sizes(message, "bins", link.peer, 1, most)
    columns = _read_sizes(message, "columns", link.peer, 0, _MOST_COLUMNS)
    if len(columns) != parties or sum(columns) != len(bins):
        raise ProtocolError(
            f"{link.peer!r} tells the bins of {len(bins)} columns for parties of {columns} columns; {parties} parties "
            "were expected, with as many in all"
        )
    ends = np.cumsum(columns).tolist()
    return CardLayout(tuple(tuple(bins[end - count : end]) for count, end in zip(columns, ends, strict=True)))


def _read_sizes(message: Message, what: str, peer: str, low: int, high: int) -> list[int]:
    sizes = np.asarray(message.arrays[what])
    if sizes.dtype != np.int64 or sizes.ndim != 1 or len(sizes) > _MOST_COLUMNS:
        raise ProtocolError(f"{peer!r} tells {what} as {sizes.dtype} {sizes.shape}; int64 (columns,) was expected")
    if len(sizes) and (sizes.min() < low or sizes.max() > high):
        raise ProtocolError(f"{peer!r} tells {what} of {sizes.min()} to {sizes.max()}; {low} to {high} are possible")
    found: list[int] = sizes.tolist()
    return found

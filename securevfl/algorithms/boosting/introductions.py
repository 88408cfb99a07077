"""A passive party's description of its columns, sent before the first tree."""

from __future__ import annotations

import numpy as np

from securevfl.algorithms.boosting.bins import Bins
from securevfl.errors import ProtocolError
from securevfl.privacy import Link
from securevfl.transport import Kind

__all__ = ["MOST_COLUMNS", "hear_introduction", "send_introduction"]

MOST_COLUMNS = 1 << 16
"""The most columns that a passive party may bring."""


async def send_introduction(link: Link, bins: Bins, directions: np.ndarray) -> None:
    """Say how many bins the columns have, which hold categories, and along which scores may only rise or fall.

    Args:
        link: to the active party.
        bins: of the columns.
        directions: as `column_directions` says.
    """
    counts, kinds = np.asarray(bins.code_counts, dtype=np.int64), bins.category_columns.astype(np.int64)
    await link.send(Kind.CONTROL, "boost/columns", bins=counts, directions=directions, kinds=kinds)


async def hear_introduction(link: Link, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bins, directions and kinds of a passive party's columns, int64 (columns,) each.

    Args:
        link: to the party.
        most: bins of values of a column.

    Raises:
        ProtocolError: it says something impossible.
    """
    message = await link.receive(Kind.CONTROL, "boost/columns", "bins", "directions", "kinds")
    bins, directions, kinds = (np.asarray(message.arrays[name]) for name in ("bins", "directions", "kinds"))
    if bins.dtype != np.int64 or bins.ndim != 1 or len(bins) > MOST_COLUMNS:
        raise ProtocolError(f"{link.peer!r} sent {bins.dtype} {bins.shape} as the numbers of bins of its columns")
    if len(bins) and not 2 <= bins.min() <= bins.max() <= most + 1:
        raise ProtocolError(
            f"{link.peer!r} has columns of {bins.min()} to {bins.max()} bins, one for missing values among "
            f"them; 2 to {most + 1} are possible"
        )
    if directions.dtype != np.int64 or directions.shape != bins.shape or (np.abs(directions) > 1).any():
        raise ProtocolError(f"{link.peer!r} sent a malformed list of its columns' monotone constraints")
    if kinds.dtype != np.int64 or kinds.shape != bins.shape or ((kinds != 0) & (kinds != 1)).any():
        raise ProtocolError(f"{link.peer!r} sent a malformed list of its columns of categories")
    return bins, directions, kinds

"""Sample the rows and columns of a tree, and exchange the samples with passive parties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from securevfl.errors import ProtocolError
from securevfl.privacy import Link, fan_out
from securevfl.transport import Kind

__all__ = ["hear_columns", "one_sided", "receive_rows", "scatter_columns", "tell_columns", "tell_rows"]


def one_sided(size: np.ndarray, large: float, other: float, generator: np.random.Generator) -> np.ndarray:
    """Weight of each row in gradient-based one-side sampling (Ke et al. 2017, algorithm 2), float64 (rows,).

    Rows with the largest gradients have weight 1. Drawn others are weighted to represent all others; the rest have 0.

    Args:
        size: of the rows' gradients, (rows,).
        large: share of the rows that count for their large gradients.
        other: share of the rows that is drawn from the others.
        generator: draws the other rows.
    """
    rows = len(size)
    top, more = max(1, round(large * rows)), max(1, round(other * rows))
    order = np.argsort(-size, kind="stable")
    weight = np.zeros(rows)
    weight[order[:top]] = 1.0
    weight[generator.permutation(order[top:])[:more]] = (1 - large) / other
    return weight


def scatter_columns(sums: np.ndarray, counts: Sequence[int], columns: np.ndarray) -> np.ndarray:
    """Extend the sums of some columns to all columns, with zeros for the others, which no split uses.

    Args:
        sums: of the codes of these columns, int64 (nodes, codes, integers).
        counts: codes of each of all columns.
        columns: which ones the sums are of, in rising order, int64 (n,).
    """
    if len(columns) == len(counts):
        return sums
    found = np.zeros((len(sums), sum(counts), sums.shape[2]), dtype=sums.dtype)
    found[:, np.repeat(np.isin(np.arange(len(counts)), columns), counts)] = sums
    return found


async def tell_rows(links: Sequence[Link], seen: np.ndarray) -> None:
    """Send the passive parties which training rows a tree uses, bool (rows,)."""
    bits = np.packbits(seen)

    async def send_rows(link: Link) -> None:
        await link.send(Kind.CONTROL, "boost/rows", bits=bits)

    await fan_out(links, send_rows)


async def receive_rows(link: Link, rows: int) -> np.ndarray:
    """Receive which of the `rows` training rows a tree uses, int64 (n,) in rising order.

    Raises:
        ProtocolError: the active party sent something else.
    """
    bits = np.asarray((await link.receive(Kind.CONTROL, "boost/rows", "bits")).arrays["bits"])
    if bits.dtype != np.uint8 or bits.shape != (-(-rows // 8),) or not np.unpackbits(bits, count=rows).any():
        raise ProtocolError(f"{link.peer!r} sent a malformed mask of the {rows} rows")
    return np.flatnonzero(np.unpackbits(bits, count=rows))


async def tell_columns(links: Sequence[Link], columns: Mapping[str, np.ndarray]) -> None:
    """Send each passive party which of its columns a tree may split on, int64 (n,) in rising order."""

    async def send_columns(link: Link) -> None:
        await link.send(Kind.CONTROL, "boost/drawn", columns=columns[link.peer])

    await fan_out(links, send_columns)


async def hear_columns(link: Link, count: int) -> np.ndarray:
    """Receive which of this party's `count` columns a tree may split on, int64 (n,) in rising order.

    Raises:
        ProtocolError: the active party sent something else.
    """
    found = np.asarray((await link.receive(Kind.CONTROL, "boost/drawn", "columns")).arrays["columns"])
    right = found.dtype == np.int64 and found.ndim == 1 and (np.diff(found, prepend=-1, append=count) > 0).all()
    if not right:
        raise ProtocolError(
            f"{link.peer!r} sent malformed numbers of the columns of a tree: {found.dtype} {found.shape}; int64 "
            f"numbers below {count} in rising order were needed"
        )
    return found

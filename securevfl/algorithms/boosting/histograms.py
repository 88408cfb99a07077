"""Sums of rows by node, column and bin: in the clear, and sealed. Both give the same integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["Merged", "merged_bins", "plain_sums", "to_fixed_point"]

_AT_ONCE = 1 << 22
"""Cells that are counted at once."""


def plain_sums(
    values: np.ndarray, codes: np.ndarray, counts: Sequence[int], node: np.ndarray, nodes: int
) -> np.ndarray:
    """Sums over the rows of each node with each code, int64 (nodes, codes of all columns, integers).

    Exact while the sums' magnitudes stay below 2^53.

    Args:
        values: int64 (n, integers).
        codes: int (n, columns).
        counts: codes of each column.
        node: of each row, −1 for none, (n,).
        nodes: number of nodes.
    """
    here = np.flatnonzero(node >= 0)
    sizes = np.asarray(counts, dtype=np.int64)
    firsts, each = np.cumsum(sizes) - sizes, int(sizes.sum())
    found = np.zeros((values.shape[1], nodes * each))
    base = node[here].astype(np.int64)[:, None] * each
    together = max(1, _AT_ONCE // max(len(here), 1))
    for start in range(0, len(sizes), together):
        part = slice(start, start + together)
        at = (base + firsts[part] + codes[here, part]).ravel()
        for k in range(values.shape[1]):
            weights = np.repeat(values[here, k], len(sizes[part]))
            found[k] += np.bincount(at, weights=weights, minlength=nodes * each)
    return np.rint(found).astype(np.int64).T.reshape(nodes, each, values.shape[1])


def to_fixed_point(values: np.ndarray, bits: int) -> tuple[np.ndarray, float]:
    """Values in fixed point, int64 of the same shape and within ±2^bits, and the unit of one of them.

    Args:
        values: float64.
        bits: of the largest magnitude.
    """
    most = float(np.abs(values).max(initial=0.0))
    unit = most / (1 << bits) if most > 0 else 1.0
    return np.rint(values / unit).astype(np.int64), unit


class Merged:
    """Merged bins of one node.

    Attributes:
        codes: of the node's rows, int64 (n, columns): numbers of groups.
        ends: of each column, the last bin of each group.
        tables: of each column, the group of each code.
    """

    def __init__(self, codes: np.ndarray, ends: list[list[int]], tables: list[np.ndarray]) -> None:
        self.codes, self.ends, self.tables = codes, ends, tables


def merged_bins(codes: np.ndarray, counts: Sequence[int], least: int) -> Merged:
    """Merge neighbouring bins until each group has `least` rows; leftover bins join the last group.

    Rows without a value keep the last code if at least `least` rows lack a value and at least `least` rows have one.
    Otherwise they join the group of the largest values.

    Args:
        codes: of the node's rows, int (n, columns).
        counts: codes of each column.
        least: fewest rows of a group.
    """
    new, ends, tables = np.empty(codes.shape, dtype=np.int64), [], []
    for j, count in enumerate(counts):
        tally = np.bincount(codes[:, j], minlength=count)
        values = int(tally[:-1].sum())
        alone = tally[-1] >= least and (values >= least or not values)  # those without a value
        table, stops, held = np.zeros(count, dtype=np.int64), list[int](), 0
        for b in range(count - 1):
            table[b] = len(stops)
            held += int(tally[b])
            if held >= least:
                stops.append(b)
                held = 0
        if held or not stops:  # the rest joins the group before it
            stops = [*stops[:-1], count - 2]
        table[: count - 1] = np.minimum(table[: count - 1], len(stops) - 1)
        table[-1] = count - 1 if alone else len(stops) - 1
        new[:, j] = table[codes[:, j]]
        ends.append(stops)
        tables.append(table)
    return Merged(new, ends, tables)

"""Histograms: integer sums over the rows of each node, column and bin, in the clear. Sealed sums,
from `securevfl_crypto.sums`, give the same integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["Merged", "merged_bins", "plain_sums", "to_fixed_point"]

_CELLS_AT_ONCE = 1 << 22
"""Rows times columns in one call of `np.bincount`: their positions and weights take 64 MB."""


def plain_sums(
    values: np.ndarray, codes: np.ndarray, counts: Sequence[int], node: np.ndarray, nodes: int
) -> np.ndarray:
    """Sum `values` over the rows of each node that have each code, int64 (nodes, codes of all columns, integers).

    Exact while no sum's magnitude reaches 2^53, because `np.bincount` adds in float64.

    Args:
        values: int64 (n, integers).
        codes: int (n, columns).
        counts: codes of each column.
        node: each row's node, −1 for a row in none of them, (n,).
        nodes: number of nodes.
    """
    here = np.flatnonzero(node >= 0)
    sizes = np.asarray(counts, dtype=np.int64)
    firsts, each = np.cumsum(sizes) - sizes, int(sizes.sum())
    found = np.zeros((values.shape[1], nodes * each))
    base = node[here].astype(np.int64)[:, None] * each
    columns = max(1, _CELLS_AT_ONCE // max(len(here), 1))
    for start in range(0, len(sizes), columns):
        part = slice(start, start + columns)
        cells = (base + firsts[part] + codes[here, part]).ravel()
        for k in range(values.shape[1]):
            weights = np.repeat(values[here, k], len(sizes[part]))
            found[k] += np.bincount(cells, weights=weights, minlength=nodes * each)
    return np.rint(found).astype(np.int64).T.reshape(nodes, each, values.shape[1])


def to_fixed_point(values: np.ndarray, bits: int) -> tuple[np.ndarray, float]:
    """Round values to multiples of a unit that is chosen so that the largest magnitude is 2^bits units.

    Args:
        values: float64.
        bits: of the largest magnitude, in units.

    Returns:
        The multiples, int64 of the same shape, and the unit.
    """
    most = float(np.abs(values).max(initial=0.0))
    unit = most / (1 << bits) if most > 0 else 1.0
    return np.rint(values / unit).astype(np.int64), unit


class Merged:
    """Merged bins of one node.

    Attributes:
        codes: the group of each of the node's rows in each column, int64 (n, columns).
        ends: for each column, the last bin of each group.
        tables: for each column, code → group.
    """

    def __init__(self, codes: np.ndarray, ends: list[list[int]], tables: list[np.ndarray]) -> None:
        self.codes, self.ends, self.tables = codes, ends, tables


def merged_bins(codes: np.ndarray, counts: Sequence[int], least: int) -> Merged:
    """Merge neighbouring bins until each group has `least` rows, so that every sum that the active party reads is over
    enough rows. Leftover bins join the last group.

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
        present = int(tally[:-1].sum())
        keeps_missing = tally[-1] >= least and (present >= least or not present)
        table, stops, rows = np.zeros(count, dtype=np.int64), list[int](), 0
        for b in range(count - 1):
            table[b] = len(stops)
            rows += int(tally[b])
            if rows >= least:
                stops.append(b)
                rows = 0
        if rows or not stops:  # the rest joins the group before it
            stops = [*stops[:-1], count - 2]
        table[: count - 1] = np.minimum(table[: count - 1], len(stops) - 1)
        table[-1] = count - 1 if keeps_missing else len(stops) - 1
        new[:, j] = table[codes[:, j]]
        ends.append(stops)
        tables.append(table)
    return Merged(new, ends, tables)

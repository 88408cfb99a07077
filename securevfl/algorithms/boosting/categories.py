"""Splits of categories: any set of a column's codes on one side, found by their order along the gradients.

Of all sets the best one is a prefix of the codes in the order of g / h (Fisher, "On grouping for maximum homogeneity",
1958), so a scan finds it. As in LightGBM and scikit-learn, codes with few rows are not ordered, and the order is by
g / (h + 10), so that they do not decide by chance; missing values are one more category.

A set is one integer: bit c is 1 if code c goes left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

__all__ = [
    "CODES",
    "NUMBER",
    "SUPPORT",
    "Arranged",
    "code_flags",
    "in_levels",
    "order_categories",
    "pack_sets",
    "scan_places",
    "set_of",
    "unpack_sets",
]

SUPPORT = 10.0
"""Rows below which a code is not ordered, and what is added to h."""
CODES = 256
"""The most codes of a column, including the code of missing values."""
NUMBER = -1
"""Replaces the set of codes for a column of numbers."""


@dataclass(frozen=True)
class Arranged:
    """Codes of all columns, those of categories in the order in which they are scanned.

    Attributes:
        order: place in the scan → code, int64 (codes of all columns,).
        used: how many codes of each column are ordered; 0 for numbers, int64 (columns,).
        spare: sums of g and h of the codes that are not ordered, int64 (columns, 2).
    """

    order: np.ndarray = field(repr=False)
    used: np.ndarray = field(repr=False)
    spare: np.ndarray = field(repr=False)


def order_categories(
    sums: np.ndarray,
    sizes: np.ndarray,
    kinds: np.ndarray,
    total: np.ndarray,
    scales: tuple[float, float],
    rows: int,
) -> Arranged:
    """Sort the codes of each category column for the scan.

    Args:
        sums: of g and h by code, int64 (codes of all columns, 2).
        sizes: codes of each column, (columns,).
        kinds: which columns contain categories, bool (columns,).
        total: of the node, int64 (2,).
        scales: units of g and of h.
        rows: of the node.
    """
    ends = np.cumsum(sizes)
    order, used = np.arange(len(sums)), np.zeros(len(sizes), dtype=np.int64)
    spare = np.zeros((len(sizes), 2), dtype=np.int64)
    each = rows / max(float(total[1]) * scales[1], 1e-300)
    for column in np.flatnonzero(kinds).tolist():
        here = np.arange(ends[column] - sizes[column], ends[column])
        g, h = sums[here, 0] * scales[0], sums[here, 1] * scales[1]
        enough = h * each >= SUPPORT - 1e-6  # sums of fixed point
        key = np.where(enough, g / (h + SUPPORT), np.inf)
        order[here] = here[np.argsort(key, kind="stable")]
        used[column] = int(enough.sum())
        spare[column] = sums[here[~enough]].sum(axis=0)
    return Arranged(order, used, spare)


def scan_places(arranged: Arranged, column: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where a scan of categories may stop, with unordered codes on the right and on the left; bool (codes,) each.

    The side with the unordered codes has at least half of the ordered codes.

    Args:
        arranged: the order.
        column: of each place.
        sizes: codes of each column.
    """
    firsts = np.cumsum(sizes) - sizes
    taken = np.arange(len(column)) - firsts[column] + 1
    used = arranged.used[column]
    half = (used + 1) // 2
    apart = used > 1
    return apart & (taken <= half), apart & (taken < used) & (taken > used - half)


def set_of(arranged: Arranged, sizes: np.ndarray, column: int, at: int, *, spare: bool) -> int:
    """The set that goes left where a scan stops.

    Args:
        arranged: the order.
        sizes: codes of each column.
        column: where it stops.
        at: its last place on the left, among those of all columns.
        spare: whether codes that are not ordered also go left.
    """
    first = int(sizes[:column].sum())
    found = (arranged.order[first : at + 1] - first).tolist()
    if spare:
        found += (arranged.order[first + int(arranged.used[column]) : first + int(sizes[column])] - first).tolist()
    return sum(1 << code for code in found)


def code_flags(codes: int) -> np.ndarray:
    """Which codes are in a set, bool (256,)."""
    return np.unpackbits(np.frombuffer(codes.to_bytes(CODES // 8, "little"), dtype=np.uint8), bitorder="little").astype(
        bool
    )


def pack_sets(sets: Iterable[int]) -> np.ndarray:
    """Sets, or `NUMBER`, as uint8 (n, 32), little-endian; `NUMBER` is all ones."""
    data = b"".join((codes % (1 << CODES)).to_bytes(CODES // 8, "little") for codes in sets)
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, CODES // 8)


def unpack_sets(data: np.ndarray) -> list[int]:
    """Read what `pack_sets` wrote. No split puts all 256 codes on one side, so all ones can encode `NUMBER`."""
    found = [int.from_bytes(row.tobytes(), "little") for row in np.ascontiguousarray(data)]
    return [NUMBER if codes == (1 << CODES) - 1 else codes for codes in found]


def in_levels(codes: int, levels: Sequence[int]) -> int:
    """The set of levels whose codes are in a set.

    Args:
        codes: a set of codes.
        levels: code of each level.
    """
    return sum(1 << level for level, code in enumerate(levels) if codes >> code & 1)

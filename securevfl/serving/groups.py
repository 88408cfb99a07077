"""Fixed groups of rows that are scored together, so that passive parties do not learn which row was requested.

Rows drawn at random beside a wanted one would hide it once: over several questions the wanted row comes again and the
others do not. So the groups are drawn once, from a key of the active party's own, and stay: a question for any row of a
group is the same question.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import numpy as np

__all__ = ["make_groups"]


def make_groups(names: Sequence[str], size: int, key: bytes) -> list[np.ndarray]:
    """Groups of `size` row numbers, sorted; together they contain every row.

    The last group is filled up with rows of the first ones: those are in two groups.

    Args:
        names: identifiers of the rows.
        size: rows of a group; a table with fewer rows forms a single group.
        key: the active party's own; the same key keeps people who stay in their order.
    """
    marks = [hmac.new(key, name.encode(), hashlib.sha256).digest() for name in names]
    drawn = np.array(sorted(range(len(names)), key=marks.__getitem__), np.int64)
    size = min(size, len(drawn))
    starts = range(0, len(drawn), size) if size else range(0)
    return [np.sort(np.take(drawn, range(start, start + size), mode="wrap")) for start in starts]

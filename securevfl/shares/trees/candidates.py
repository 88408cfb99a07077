"""The candidate splits of a table: sums of the cells that go left, and the cells that go left at the chosen split."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from securevfl_crypto.replicated import Share
from securevfl_crypto.replicated.share import U64

from securevfl.errors import InputError
from securevfl.shares.trees.layout import CellLayout

__all__ = ["Candidates", "list_candidates", "mark_sides"]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The candidate splits of some columns: column by column, first with missing values right, then with them left.

    Attributes:
        layout: of all columns.
        columns: the column of each candidate, int64 (c,).
        firsts: the first cell of its column.
        ends: the cell after the last of values that goes left.
        spare: its column's cell of missing values where these go left, else −1.
        places: of each candidate among those of all columns.
    """

    layout: CellLayout
    columns: np.ndarray = field(repr=False)
    firsts: np.ndarray = field(repr=False)
    ends: np.ndarray = field(repr=False)
    spare: np.ndarray = field(repr=False)
    places: np.ndarray = field(repr=False)

    @property
    def directions(self) -> np.ndarray:
        """The direction of each candidate's column, int64 (c,)."""
        found: np.ndarray = np.asarray(self.layout.directions, np.int64)[self.columns]
        return found

    def sum_left(self, sums: Share) -> Share:
        """Add up the cells that go left: (…, c) from sums by cell, (…, cells)."""
        spare = np.flatnonzero(self.spare >= 0)

        def add_words(words: U64) -> U64:
            until = _running_sums(words)
            found: U64 = until[..., self.ends] - until[..., self.firsts]
            found[..., spare] += words[..., self.spare[spare]]
            return found

        return Share(add_words(sums.mine), add_words(sums.next))

    def place_choice(self, chosen: Share) -> Share:
        """The chosen candidates among those of all columns, (N, all candidates), from (N, c)."""
        if len(self.places) == sum(self.layout.candidates):
            return chosen

        def put_words(words: U64) -> U64:
            found = np.zeros((len(words), sum(self.layout.candidates)), np.uint64)
            found[:, self.places] = words
            return found

        return Share(put_words(chosen.mine), put_words(chosen.next))


def mark_sides(layout: CellLayout, chosen: Share) -> Share:
    """Mark the cells that go left, 0/1 words (N, cells), from the chosen candidates among all, (N, candidates).

    A cell goes left at every threshold of its bin or a higher one: a sum from the right within its column.
    """
    right_from, right_to, left_from, left_to = _threshold_places(layout)

    def mark_words(words: U64) -> U64:
        until = _running_sums(words)
        found: U64 = until[:, right_to] - until[:, right_from] + until[:, left_to] - until[:, left_from]
        return found

    return Share(mark_words(chosen.mine), mark_words(chosen.next))


def list_candidates(layout: CellLayout, allowed: np.ndarray | None = None) -> Candidates:
    """List the candidate splits.

    Args:
        layout: columns and their bins.
        allowed: which columns may be used, bool (columns,), public; None for all.

    Raises:
        InputError: it is of another number of columns.
    """
    whole = _list_all(layout)
    if allowed is None:
        return whole
    if allowed.shape != (len(layout.bins),):
        raise InputError(f"a mask of shape {allowed.shape} says which of {len(layout.bins)} columns a tree may split")
    kept = np.flatnonzero(allowed.astype(bool)[whole.columns])
    parts = (whole.columns, whole.firsts, whole.ends, whole.spare, whole.places)
    return Candidates(layout, *(part[kept] for part in parts))


@lru_cache(maxsize=8)
def _list_all(layout: CellLayout) -> Candidates:
    found: list[tuple[int, int, int, int]] = []
    for column, (count, lacks, start) in enumerate(zip(layout.bins, layout.missing, layout.starts, strict=True)):
        found += [(column, start, start + b + 1, -1) for b in range(count - 1 + lacks)]
        found += [(column, start, start + b + 1, start + count) for b in range(count - 1) if lacks]
    columns, firsts, ends, spare = np.array(found, np.int64).reshape(-1, 4).T
    return Candidates(layout, columns, firsts, ends, spare, np.arange(len(found)))


@lru_cache(maxsize=8)
def _threshold_places(layout: CellLayout) -> np.ndarray:
    """For each cell, the candidates at which it goes left, (4, cells): from and to, of those with missing values right
    and of those with them left."""
    found: list[tuple[int, int, int, int]] = []
    first = 0
    for count, lacks in zip(layout.bins, layout.missing, strict=True):
        middle = first + count - 1 + lacks
        end = middle + (count - 1) * lacks
        found += [(first + j, middle, min(middle + j, end), end) for j in range(count)]
        if lacks:
            found.append((first, first, middle, end))
        first = end
    return np.array(found, np.int64).reshape(-1, 4).T


def _running_sums(words: U64) -> U64:
    """Sums of the first k words of the last axis, for k from 0."""
    nothing = np.zeros((*words.shape[:-1], 1), np.uint64)
    return np.concatenate([nothing, np.cumsum(words, -1, dtype=np.uint64)], -1)

"""The candidate splits of a table: sums of the cells that go left, and the cells that go left at the chosen split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from securevfl_crypto.replicated import Share
from securevfl_crypto.replicated.share import U64
from securevfl_crypto.ring import matmul

from securevfl.errors import InputError
from securevfl.shares.trees.layout import CellLayout

__all__ = ["Candidates", "list_candidates", "mark_sides"]


@dataclass(frozen=True, eq=False)
class _ColumnSplits:
    """The candidate splits of one column.

    Attributes:
        cells: of the column.
        places: of its candidates among those of all columns.
        left: the cells that go left at each candidate, 0 or 1, uint64 (candidates, cells).
    """

    cells: slice
    places: slice
    left: np.ndarray = field(repr=False)


@dataclass(frozen=True, eq=False)
class Candidates:
    """The candidate splits of some columns, column by column.

    Attributes:
        layout: of all columns.
        columns: the column of each candidate, int64 (c,).
        places: of each candidate among those of all columns, int64 (c,).
        splits: of each of these columns that has any.
    """

    layout: CellLayout
    columns: np.ndarray = field(repr=False)
    places: np.ndarray = field(repr=False)
    splits: Sequence[_ColumnSplits] = field(repr=False)

    @property
    def directions(self) -> np.ndarray:
        """The direction of each candidate's column, int64 (c,)."""
        found: np.ndarray = np.asarray(self.layout.directions, np.int64)[self.columns]
        return found

    def sum_left(self, sums: Share) -> Share:
        """Add up the cells that go left: (…, c) from sums by cell, (…, cells)."""

        def add_words(words: U64) -> U64:
            flat = words.reshape(-1, words.shape[-1])
            parts = [matmul(np.ascontiguousarray(flat[:, one.cells]), one.left.T) for one in self.splits]
            return np.concatenate(parts, axis=1).reshape(*words.shape[:-1], -1)

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
    """Mark the cells that go left, 0/1 words (N, cells), from the chosen candidates among all, (N, candidates)."""

    def mark_words(words: U64) -> U64:
        found = np.zeros((len(words), layout.cells), np.uint64)
        for one in _list_splits(layout):
            found[:, one.cells] = matmul(np.ascontiguousarray(words[:, one.places]), one.left)
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
    if allowed is None:
        allowed = np.ones(len(layout.bins), bool)
    if allowed.shape != (len(layout.bins),):
        raise InputError(f"a mask of shape {allowed.shape} says which of {len(layout.bins)} columns a tree may split")
    columns = np.repeat(np.arange(len(layout.bins)), layout.candidates)
    places = np.flatnonzero(allowed.astype(bool)[columns])
    splits = [one for one in _list_splits(layout) if allowed[columns[one.places.start]]]
    return Candidates(layout, columns[places], places, splits)


@lru_cache(maxsize=8)
def _list_splits(layout: CellLayout) -> tuple[_ColumnSplits, ...]:
    """The splits of each column that has any."""
    found, place = [], 0
    columns = zip(layout.bins, layout.missing, layout.parted, layout.starts, layout.candidates, strict=True)
    for count, lacks, parts, start, candidates in columns:
        left = _part_cells(count + lacks) if parts else _cut_cells(count, lacks=lacks)
        if candidates:
            cells, places = slice(start, start + count + lacks), slice(place, place + candidates)
            found.append(_ColumnSplits(cells, places, left))
        place += candidates
    return tuple(found)


def _cut_cells(count: int, *, lacks: bool) -> np.ndarray:
    """The cells that go left at each threshold, first with missing values right, then with them left."""
    left = np.tri(count - 1 + lacks, count + lacks, dtype=np.uint64)
    if not lacks:
        return left
    missing_left = left[:-1].copy()
    missing_left[:, count] = 1
    return np.concatenate([left, missing_left])


def _part_cells(count: int) -> np.ndarray:
    """The cells that go left of each pair of sets; the last cell always goes right, as a swap makes no other split."""
    sets = np.arange(1, 1 << (count - 1), dtype=np.uint64)
    found: np.ndarray = sets[:, None] >> np.arange(count, dtype=np.uint64) & np.uint64(1)
    return found

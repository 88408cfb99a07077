"""Rows that come in one order and are wanted in another, of an array that need not fit in memory."""

from __future__ import annotations

import numpy as np

from securevfl.data.storage import let_go

__all__ = ["Permuted"]

_BUCKET = 1 << 28


class Permuted:
    """Fills an array with rows in a wanted order while they come in another.

    A row goes to the stretch of the array that it belongs to, behind those of that stretch that came before it; at the
    end each stretch, which fits in memory, is put in order. So a disk is read and written in long pieces, twice each:
    a distribution sort by place with one level (Knuth, The Art of Computer Programming 3, section 5.2.5).

    Args:
        out: where they go, (n, …).
        rows: for each place of `out` the number of the row that is wanted there, int64 (n,); a number may be there
            twice.
        count: how many rows will come.
        bucket: bytes of a stretch.
    """

    def __init__(self, out: np.ndarray, rows: np.ndarray, count: int, *, bucket: int = _BUCKET) -> None:
        self._out = out
        each = max(out.nbytes // max(len(out), 1), 1)
        self._stretch = max(bucket // each, 1)
        times = np.bincount(rows, minlength=count)
        self._begins = np.concatenate([[0], np.cumsum(times)])
        # Places, in the order in which their rows come.
        if times.max(initial=0) > 1:
            self._number = np.argsort(rows, kind="stable")
        else:
            self._number = np.empty(len(rows), dtype=np.int64)
            self._number[self._begins[rows]] = np.arange(len(rows))
        self._filled = np.arange(0, len(out), self._stretch)
        self._place = np.empty(len(out), dtype=np.int64)

    def add(self, first: int, block: np.ndarray) -> None:
        """The next rows, from the one numbered `first` on, (m, …)."""
        begin, end = self._begins[first], self._begins[first + len(block)]
        places = self._number[begin:end]
        source = np.repeat(np.arange(len(block)), np.diff(self._begins[first : first + len(block) + 1]))
        stretch = places // self._stretch
        if not len(places):
            return
        order = np.argsort(stretch, kind="stable")
        kinds, starts = np.unique(stretch[order], return_index=True)
        for kind, part in zip(kinds.tolist(), np.split(order, starts[1:]), strict=True):
            at = int(self._filled[kind])
            self._out[at : at + len(part)] = block[source[part]]
            self._place[at : at + len(part)] = places[part]
            self._filled[kind] = at + len(part)
        let_go(self._out)

    def finish(self) -> None:
        """Puts each stretch in order, once all rows came."""
        for at in range(0, len(self._out), self._stretch):
            end = min(at + self._stretch, len(self._out))
            block = np.empty_like(self._out[at:end])
            block[self._place[at:end] - at] = self._out[at:end]
            self._out[at:end] = block
            let_go(self._out)

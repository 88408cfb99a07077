"""Reorder the rows of an array that may be larger than the memory."""

from __future__ import annotations

import numpy as np

from securevfl.data.storage import release_memory

__all__ = ["Permuted"]

_BUCKET = 1 << 28


class Permuted:
    """Fills an array with rows in a target order while they arrive in another order.

    `add` appends each row to the stretch of the array that it belongs to; `finish` sorts each stretch, which fits in
    memory. The disk is thus read and written twice, in long pieces: a one-level distribution sort by position (Knuth,
    The Art of Computer Programming 3, section 5.2.5).

    Args:
        out: the target array, (n, …).
        rows: for each position of `out`, the number of its row, int64 (n,); numbers may repeat.
        count: number of rows that will arrive.
        bucket: bytes per stretch.
    """

    def __init__(self, out: np.ndarray, rows: np.ndarray, count: int, *, bucket: int = _BUCKET) -> None:
        self._out = out
        each = max(out.nbytes // max(len(out), 1), 1)
        self._stretch = max(bucket // each, 1)
        times = np.bincount(rows, minlength=count)
        self._begins = np.concatenate([[0], np.cumsum(times)])
        # Positions of `out` in the order in which their rows arrive.
        if times.max(initial=0) > 1:
            self._number = np.argsort(rows, kind="stable")
        else:
            self._number = np.empty(len(rows), dtype=np.int64)
            self._number[self._begins[rows]] = np.arange(len(rows))
        self._filled = np.arange(0, len(out), self._stretch)
        self._place = np.empty(len(out), dtype=np.int64)

    def add(self, first: int, block: np.ndarray) -> None:
        """Add the next rows, (m, …), the first of which has number `first`."""
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
        release_memory(self._out)

    def finish(self) -> None:
        """Sort each stretch; call it after the last row."""
        for at in range(0, len(self._out), self._stretch):
            end = min(at + self._stretch, len(self._out))
            block = np.empty_like(self._out[at:end])
            block[self._place[at:end] - at] = self._out[at:end]
            self._out[at:end] = block
            release_memory(self._out)

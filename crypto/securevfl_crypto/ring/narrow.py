"""Matrices of small words, modulo 2^32 and 2^8, that are multiplied many times: kept in the layout of the kernels.

A table of cells is a matrix of zeros and ones, a row for each cell. Sums of at most 30 bits need no words of 64: a
product modulo 2^32 reads half of the memory, one modulo 2^8 an eighth. Both matrices here have the same two products:

- `sum_rows`: (cells, n) times (n, k), for sums over rows, modulo 2^32.
- `combine_cells`: (k, cells) times (cells, n), to pick cells for each row, modulo 2^8.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.ring.base import COLUMNS
from securevfl_crypto.ring.paths import ring_loops

__all__ = ["NarrowMatrix", "OneHotMatrix"]

_WORDS = (np.dtype(np.uint32), np.dtype(np.uint64))
_OCTETS = (np.dtype(np.uint8), *_WORDS)
_MOST_BINS = 256
_ALIGNED = 64
_PIECE = 4096
"""Rows at a time where an array would otherwise leave the cache."""


class NarrowMatrix:
    """A matrix of arbitrary words.

    Args:
        words: (cells, n), uint32 for both products, uint8 for `combine_cells` alone. They are copied.

    Attributes:
        cells, rows: the shape.

    Raises:
        MalformedError: another type, or not two axes.
    """

    def __init__(self, words: np.ndarray) -> None:
        if words.dtype not in (np.uint32, np.uint8) or words.ndim != 2:
            raise MalformedError(f"a narrow matrix of {words.dtype} {words.shape}; expected uint32 or uint8 (cells, n)")
        self.cells, self.rows = words.shape
        self._panels = _cut_panels(words)
        self._words = _pad_rows(words) if words.dtype == np.uint32 else None

    def sum_rows(self, values: np.ndarray) -> np.ndarray:
        """The product with `values` modulo 2^32.

        Args:
            values: (n, k), uint32, or uint64 of which the low 32 bits count.

        Returns:
            uint32 (cells, k).

        Raises:
            MalformedError: another type or shape, or the matrix has bytes alone.
        """
        if self._words is None:
            raise MalformedError("a matrix of bytes has no sums modulo 2^32; deal words of uint32")
        _check(values, _WORDS, (self.rows, None))
        factors = np.zeros((values.shape[1], self._words.shape[1]), np.uint32)
        for start in range(0, self.rows, _PIECE):
            piece = values[start : start + _PIECE]
            factors[:, start : start + len(piece)] = piece.T
        return ring_loops().sum_words(self._words, factors)

    def combine_cells(self, factors: np.ndarray) -> np.ndarray:
        """The product of `factors` with the matrix, modulo 2^8.

        Args:
            factors: (k, cells), uint8, or wider words of which the low 8 bits count.

        Returns:
            uint8 (k, n).

        Raises:
            MalformedError: another type or shape.
        """
        _check(factors, _OCTETS, (None, self.cells))
        return ring_loops().combine_octets(factors.astype(np.uint8), self._panels)[:, : self.rows]


class OneHotMatrix:
    """The matrix of zeros and ones of rows whose bins are known here: column c has a 1 in the cell of each row's bin.

    Its products are sums by bin and look-ups. **Addresses depend on the bins**: only who knows them computes with them.

    Args:
        codes: each row's bin in each column, uint8 (columns, n).
        sizes: the number of bins of each column, 1 to 256.

    Attributes:
        cells, rows: the shape of the matrix; the cells of a column follow those of the one before.

    Raises:
        MalformedError: another type or shape, or a code beyond the bins of its column.
    """

    def __init__(self, codes: np.ndarray, sizes: Sequence[int]) -> None:
        if codes.dtype != np.uint8 or codes.ndim != 2 or len(codes) != len(sizes):
            raise MalformedError(
                f"bins of {codes.dtype} {codes.shape} for {len(sizes)} columns; expected uint8 ({len(sizes)}, n)"
            )
        for column, (size, row) in enumerate(zip(sizes, codes, strict=True)):
            if not 1 <= size <= _MOST_BINS:
                raise MalformedError(f"column {column} has {size} bins; expected 1 to {_MOST_BINS}")
            if row.size and int(row.max()) >= size:
                raise MalformedError(
                    f"column {column} has a row in bin {int(row.max())}; it has the bins 0 to {size - 1}"
                )
        self._codes = np.ascontiguousarray(codes)
        ends = np.cumsum(np.asarray(sizes, np.int64), dtype=np.int64)
        self._starts = (ends - np.asarray(sizes, np.int64)).astype(np.uint64)
        self.cells, self.rows = int(ends[-1]) if len(ends) else 0, codes.shape[1]

    def sum_rows(self, values: np.ndarray) -> np.ndarray:
        """As `NarrowMatrix.sum_rows`."""
        _check(values, _WORDS, (self.rows, None))
        k = values.shape[1]
        words = np.zeros((self.rows, k + -k % 4), np.uint32)  # whole vectors of 16 bytes
        words[:, :k] = values
        return ring_loops().sum_by_bin(self._codes, self._starts, words, self.cells)[:, :k]

    def combine_cells(self, factors: np.ndarray) -> np.ndarray:
        """As `NarrowMatrix.combine_cells`."""
        _check(factors, _OCTETS, (None, self.cells))
        k = len(factors)
        width = max(1, -(-k // 8))
        table = np.zeros((self.cells, 8 * width), np.uint8)  # a row of whole words: one look-up for all k
        table[:, :k] = factors.T.astype(np.uint8)
        rows = table.view(np.uint64)
        out = np.empty((k, self.rows), np.uint8)
        for start in range(0, self.rows, _PIECE):
            piece = slice(start, start + _PIECE)
            total = np.zeros((len(self._codes[0, piece]) if len(self._codes) else 0, 8 * width), np.uint8)
            for first, codes in zip(self._starts, self._codes, strict=True):
                total += np.take(rows[int(first) :], codes[piece], axis=0).view(np.uint8)
            out[:, piece] = total[:, :k].T if len(self._codes) else 0
        return out


def _check(array: np.ndarray, kinds: Sequence[np.dtype[np.generic]], shape: tuple[int | None, int | None]) -> None:
    fits = array.ndim == 2 and all(want in (None, have) for want, have in zip(shape, array.shape, strict=True))
    if array.dtype not in kinds or not fits:
        names = " or ".join(str(kind) for kind in kinds)
        sizes = ", ".join("k" if size is None else str(size) for size in shape)
        raise MalformedError(f"a factor of {array.dtype} {array.shape}; expected {names} ({sizes})")


def _allocate_aligned(shape: tuple[int, ...], kind: np.dtype[np.generic]) -> np.ndarray:
    """Zeros that begin at a cache line."""
    octets = int(np.prod(shape)) * kind.itemsize
    raw = np.zeros(octets + _ALIGNED, np.uint8)
    start = -raw.ctypes.data % _ALIGNED
    return raw[start : start + octets].view(kind).reshape(shape)


def _pad_rows(words: np.ndarray) -> np.ndarray:
    """Rows filled up with zeros to whole cache lines."""
    cells, n = words.shape
    out = _allocate_aligned((cells, -(-n // COLUMNS) * COLUMNS), np.dtype(np.uint32))
    out[:, :n] = words
    return out


def _cut_panels(words: np.ndarray) -> np.ndarray:
    """Low bytes in panels of 64 columns, (panels, cells, 64): what is multiplied by one factor lies in one place."""
    cells, n = words.shape
    out = _allocate_aligned((-(-n // COLUMNS), cells, COLUMNS), np.dtype(np.uint8))
    for panel in range(len(out)):
        piece = words[:, panel * COLUMNS : (panel + 1) * COLUMNS]
        out[panel, :, : piece.shape[1]] = piece.astype(np.uint8)
    return out

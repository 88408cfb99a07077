"""Identifiers as a column: one block of bytes with the start of each, so that ten million fit and hash in batches."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from securevfl_psi.errors import IdentifierError

__all__ = ["Identifiers"]


class Identifiers(Sequence[str]):
    """A read-only list of texts, stored as the UTF-8 that is hashed.

    Args:
        data: all bytes, with anything between the texts, uint8 (total,).
        starts: where each text begins, int64 (n,).
        lengths: its length in bytes, int32 (n,).
    """

    def __init__(self, data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> None:
        self._data, self._starts, self._lengths = data, starts, lengths
        self._doubled: list[tuple[int, int]] | None = None

    @classmethod
    def of_bytes(cls, messages: Sequence[bytes]) -> Identifiers:
        """Make a column of byte strings."""
        lengths = np.fromiter((len(m) for m in messages), dtype=np.int32, count=len(messages))
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])[:-1] if len(messages) else _NONE
        return cls(np.frombuffer(b"".join(messages), dtype=np.uint8), starts.astype(np.int64), lengths)

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> Identifiers:
        """Make a column of texts.

        Raises:
            IdentifierError: not a text, or a text with a lone surrogate, which UTF-8 cannot encode.
        """
        if isinstance(texts, Identifiers):
            return texts
        try:
            joined = "\0".join(texts)
            data = np.frombuffer(joined.encode(), dtype=np.uint8)
        except (TypeError, UnicodeEncodeError):
            return cls.of_bytes([encode_identifier(text, row) for row, text in enumerate(texts)])
        ends = np.flatnonzero(data == 0)
        if len(ends) != len(texts) - 1:  # an identifier contains the separator, or the column is empty
            return cls.of_bytes([encode_identifier(text, row) for row, text in enumerate(texts)])
        starts = np.concatenate([[0], ends + 1]).astype(np.int64)
        lengths = np.concatenate([ends, [len(data)]]) - starts
        return cls(data, starts, lengths.astype(np.int32))

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row):  # type: ignore[no-untyped-def]
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        start = int(self._starts[row])
        return self._data[start : start + int(self._lengths[row])].tobytes().decode()

    def mark_unique(self) -> Identifiers:
        """Mark the column as free of duplicates and return it. The caller must have checked that."""
        self._doubled = []
        return self

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each text, int32 (n,)."""
        return self._lengths

    def is_ascii(self) -> bool:
        """Whether no byte is above 127."""
        return not len(self._data) or int(self._data.max()) < 128

    def has_space(self) -> bool:
        """Whether an ASCII column has white space, between texts or in them."""
        return bool(_SPACE[self._data].any())

    def to_lower(self) -> Identifiers:
        """Return an ASCII column with the letters A to Z in lower case."""
        capital = (self._data >= ord("A")) & (self._data <= ord("Z"))
        return Identifiers(self._data | (capital.astype(np.uint8) << 5), self._starts, self._lengths)

    def edge_bytes(self) -> tuple[np.ndarray, np.ndarray]:
        """First and last byte of each text, uint8 (n,); texts must not be empty."""
        return self._data[self._starts], self._data[self._starts + self._lengths - 1]

    def iter_matrices(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the texts of some rows, grouped by length.

        Yields:
            Places in `rows`, int64 (k,), and their bytes, uint8 (k, length).
        """
        lengths = self._lengths[rows]
        order = np.argsort(lengths, kind="stable")
        borders = np.flatnonzero(np.diff(lengths[order])) + 1
        for places in np.split(order, borders) if len(order) else ():
            length = int(lengths[places[0]])
            if length:  # a view of every stretch of that length; indexing copies only the wanted ones
                yield places, sliding_window_view(self._data, length)[self._starts[rows[places]]]
            else:
                yield places, np.empty((len(places), 0), dtype=np.uint8)

    def iter_framed(self, rows: np.ndarray) -> Iterator[bytes]:
        """Yield the texts of some rows in their order, each after its length in four big-endian bytes, in batches."""
        for start in range(0, len(rows), _PART):
            part = rows[start : start + _PART]
            ends = np.cumsum(self._lengths[part] + 4, dtype=np.int64)
            out = np.empty(int(ends[-1]), dtype=np.uint8)
            for places, matrix in self.iter_matrices(part):
                length = matrix.shape[1]
                whole = np.empty((len(places), 4 + length), dtype=np.uint8)
                whole[:, :4] = np.frombuffer(length.to_bytes(4, "big"), dtype=np.uint8)
                whole[:, 4:] = matrix
                out[(ends[places] - length - 4)[:, None] + np.arange(4 + length)] = whole
            yield out.tobytes()

    def slice_rows(self, start: int, stop: int) -> Identifiers:
        """The texts from `start` to before `stop`, over the same bytes."""
        return Identifiers(self._data, self._starts[start:stop], self._lengths[start:stop])

    def pad_to(self, size: int) -> Identifiers:
        """Append random texts of 32 hexadecimal digits up to `size`; with 128 bits each, none equals another text."""
        more = size - len(self)
        if more <= 0:
            return self
        end = int((self._starts + self._lengths).max(initial=0))
        digits = np.frombuffer(secrets.token_bytes(16 * more).hex().encode(), dtype=np.uint8)
        starts = np.concatenate([self._starts, end + 32 * np.arange(more)])
        lengths = np.concatenate([self._lengths, np.full(more, 32, dtype=self._lengths.dtype)])
        return Identifiers(np.concatenate([self._data[:end], digits]), starts, lengths)

    def concatenate(self, rows: np.ndarray) -> np.ndarray:
        """Concatenate the texts of some rows, uint8 (total,). Temporarily takes eight bytes for each of theirs."""
        lengths = self._lengths[rows].astype(np.int64)
        ends = np.cumsum(lengths)
        shift = np.repeat(self._starts[rows] - (ends - lengths), lengths)
        return self._data[shift + np.arange(len(shift))]

    def find_duplicates(self) -> list[tuple[int, int]]:
        """Return pairs of rows with equal texts: the first row of each text and a later one, in order.

        Compares only rows whose 64-bit fingerprints (a multilinear hash with random coefficients) are equal. The result
        is cached, because normalising asks first and the protocol asks again.
        """
        if self._doubled is None:
            self._doubled = self._find_doubled()
        return self._doubled

    def _find_doubled(self) -> list[tuple[int, int]]:
        prints = self._compute_fingerprints()
        ordered = np.sort(prints)
        repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if not len(repeated):
            return []
        first: dict[str, int] = {}
        found = []
        for row in np.flatnonzero(np.isin(prints, repeated)).tolist():
            text = self[row]
            if text in first:
                found.append((first[text], row))
            first.setdefault(text, row)
        return found

    def _compute_fingerprints(self) -> np.ndarray:
        words = int(self._lengths.max(initial=0)) // 8 + 2
        # Secret factors: with fixed ones, chosen identifiers could all share a fingerprint and make this quadratic.
        factors = np.frombuffer(secrets.token_bytes(8 * words), dtype=np.uint64) | np.uint64(1)
        out = np.empty(len(self), dtype=np.uint64)
        for start in range(0, len(self), _PART):
            rows = np.arange(start, min(start + _PART, len(self)))
            for places, matrix in self.iter_matrices(rows):
                length = matrix.shape[1]
                padded = np.zeros((len(places), (length + 7) // 8 * 8 + 8), dtype=np.uint8)
                padded[:, :length] = matrix
                numbers = padded.view(np.uint64)
                numbers[:, -1] = length
                out[start + places] = numbers @ factors[: numbers.shape[1]]
        return out


_NONE = np.empty(0, dtype=np.int64)
_PART = 1 << 15
_SPACE = np.array([code < 128 and chr(code).isspace() for code in range(256)])


def encode_identifier(text: str, row: int) -> bytes:
    """Encode one identifier as the UTF-8 that is hashed.

    Raises:
        IdentifierError: not a text, or a text with a lone surrogate, which UTF-8 cannot encode.
    """
    if not isinstance(text, str):
        raise IdentifierError(f"the identifier in row {row} is a {type(text).__name__}; normalise writes it as text")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise IdentifierError(
            f"the identifier in row {row}, {text[:40]!r}, contains a lone surrogate, so it is not Unicode text: "
            "read the column with its right encoding"
        ) from None

"""The encoded records that a party sends to the linker, and their format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from securevfl_psi.errors import LinkageError, MalformedError, SetSizeError

__all__ = ["Encodings"]

_MAGIC = b"svfl-clk-v1\n"
_MAX_BITS = 1 << 16


@dataclass(frozen=True, eq=False)
class Encodings:
    """One party's encoded records, in its rows' order.

    Attributes:
        words: the packed bits, (n, bits / 64) uint64.
        tag: 16 bytes that are equal at two parties exactly if schema, key and context are; it reveals none of them.
    """

    words: np.ndarray
    tag: bytes

    def __len__(self) -> int:
        return len(self.words)

    @property
    def bits(self) -> int:
        """The length of one encoding in bits."""
        return 64 * int(self.words.shape[1])

    def count_ones(self) -> np.ndarray:
        """The number of ones in each encoding, (n,) int64."""
        ones: np.ndarray = np.bitwise_count(self.words).sum(axis=1, dtype=np.int64)
        return ones

    def to_bytes(self) -> bytes:
        """Serialise: a version marker, the tag, bits and rows, then the words in little-endian order."""
        head = self.bits.to_bytes(4, "big") + len(self).to_bytes(8, "big")
        return _MAGIC + self.tag + head + self.words.astype("<u8").tobytes()

    @staticmethod
    def from_bytes(data: bytes, *, max_rows: int = 1 << 24) -> Encodings:
        """Read the encodings that `to_bytes` wrote.

        Raises:
            MalformedError: the marker or the length is wrong.
            SetSizeError: there are more than `max_rows`.
        """
        start = len(_MAGIC) + 28
        if len(data) < start or not data.startswith(_MAGIC):
            raise MalformedError(f"{len(data)} bytes do not begin with {_MAGIC!r}: they are not encodings of version 1")
        tag = bytes(data[len(_MAGIC) : start - 12])
        bits = int.from_bytes(data[start - 12 : start - 8], "big")
        rows = int.from_bytes(data[start - 8 : start], "big")
        if not 64 <= bits <= _MAX_BITS or bits % 64:
            raise MalformedError(f"encodings of {bits} bits; expected 64 to {_MAX_BITS} in multiples of 64")
        if rows > max_rows:
            raise SetSizeError(f"{rows} encodings; at most {max_rows} are accepted: raise max_rows")
        if len(data) - start != rows * bits // 8:
            raise MalformedError(
                f"{len(data) - start} bytes of encodings; {rows} of {bits} bits are {rows * bits // 8}"
            )
        words = np.frombuffer(data, dtype="<u8", offset=start).astype(np.uint64).reshape(rows, bits // 64)
        return Encodings(words=words, tag=tag)


def require_comparable(a: Encodings, b: Encodings) -> None:
    """Refuse encodings made by different rules, whose similarities would be noise.

    Raises:
        LinkageError: tags or lengths differ.
    """
    if a.tag != b.tag or a.bits != b.bits:
        raise LinkageError(
            f"encodings of {a.bits} and {b.bits} bits whose tags differ: the parties used another schema, "
            "key or context; compare Schema.tag() between them, then encode again"
        )

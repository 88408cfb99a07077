"""The filter that an unbalanced intersection's server publishes: terms, key fingerprint and Golomb-coded set.

Layout, numbers big-endian: ``PSIF`` and the version 1 (5 bytes), key id (16), not before and expires (8 each), most
queries (4), bits (1), the server's name and the rules (each 2 bytes of length and UTF-8), and the set, see `gcs`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from securevfl_psi import gcs
from securevfl_psi.errors import ExpiredError, MalformedError, PSIError

__all__ = ["KEY_ID_BYTES", "MAX_NAME_BYTES", "ByteReader", "Filter", "FilterTerms", "framed_text"]

KEY_ID_BYTES = 16
MAX_NAME_BYTES = 1024
_MAGIC = b"PSIF\x01"
_TIMES = struct.Struct(">QQLB")
_LENGTH = struct.Struct(">H")


@dataclass(frozen=True, kw_only=True)
class FilterTerms:
    """The conditions under which a server publishes a filter.

    Attributes:
        server: its name.
        rules_tag: how identifiers are normalised, `IdRules.tag`.
        not_before: start of validity, seconds since 1970 (UTC).
        expires: end of validity, seconds since 1970 (UTC).
        max_queries: most identifiers that one client may ask during the filter's life.
        bits: the false-positive rate of an identifier is 2^-bits.

    Raises:
        PSIError: the times are out of order, or a number is out of range.
    """

    server: str
    rules_tag: str
    not_before: int
    expires: int
    max_queries: int = 1000
    bits: int = 40

    def __post_init__(self) -> None:
        for number in (self.not_before, self.expires, self.max_queries, self.bits):
            if not isinstance(number, int):
                raise PSIError(f"terms contain {number!r}; whole numbers are needed: int(time.time())")
        if not 0 <= self.not_before < self.expires < 1 << 63:
            raise PSIError(f"a filter from {self.not_before} to {self.expires}; whole seconds, in order, are needed")
        if not 1 <= self.max_queries < 1 << 32 or not 1 <= self.bits <= gcs.MAX_BITS:
            raise PSIError(
                f"{self.max_queries} queries and {self.bits} bits; expected 1 to 2^32 - 1, and 1 to {gcs.MAX_BITS}"
            )
        for text in (self.server, self.rules_tag):
            if len(text.encode()) > MAX_NAME_BYTES:
                raise PSIError(f"a name or tag of {len(text.encode())} bytes; at most {MAX_NAME_BYTES}")

    def require_current(self, now: int) -> None:
        """Raise ExpiredError unless `now`, seconds since 1970, is within the filter's time."""
        if not self.not_before <= now < self.expires:
            raise ExpiredError(
                f"the filter of {self.server!r} may be used from {self.not_before} to {self.expires}, and it is {now}: "
                "ask the server for a current one"
            )

    def to_bytes(self) -> bytes:
        """Encode the terms as in a filter."""
        times = _TIMES.pack(self.not_before, self.expires, self.max_queries, self.bits)
        return times + framed_text(self.server) + framed_text(self.rules_tag)


def framed_text(text: str) -> bytes:
    """Encode a text as its length in 2 bytes and its UTF-8."""
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


class ByteReader:
    """Reads fields from the front of a byte string and checks that they are complete."""

    def __init__(self, data: bytes, magic: bytes, what: str) -> None:
        self._data = data
        self._at = 0
        self._what = what
        if not isinstance(data, bytes):
            raise MalformedError(f"{what} is a {type(data).__name__}; bytes were expected")
        if self.take_bytes(len(magic)) != magic:
            raise MalformedError(f"{what} does not begin with {magic!r}: another kind of file, or another version")

    def take_bytes(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        if len(self._data) - self._at < size:
            raise MalformedError(f"{self._what} ends after {len(self._data)} bytes; {self._at + size} were expected")
        self._at += size
        return self._data[self._at - size : self._at]

    def read_text(self) -> str:
        """Read a text that follows its length."""
        try:
            return self.take_bytes(*_LENGTH.unpack(self.take_bytes(_LENGTH.size))).decode()
        except UnicodeDecodeError:
            raise MalformedError(f"{self._what} contains a name that is not UTF-8") from None

    def read_terms(self) -> FilterTerms:
        """Read what `FilterTerms.to_bytes` wrote."""
        not_before, expires, max_queries, bits = _TIMES.unpack(self.take_bytes(_TIMES.size))
        server, rules_tag = self.read_text(), self.read_text()
        try:
            return FilterTerms(
                server=server,
                rules_tag=rules_tag,
                not_before=not_before,
                expires=expires,
                max_queries=max_queries,
                bits=bits,
            )
        except PSIError as error:
            raise MalformedError(f"{self._what} contains impossible terms: {error}") from None

    def read_rest(self) -> bytes:
        """Return the remaining bytes."""
        return self.take_bytes(len(self._data) - self._at)


@dataclass(frozen=True)
class Filter:
    """A published filter.

    Attributes:
        terms: the server's conditions.
        key_id: fingerprint of the server's key, 16 bytes.
        hashes: the OPRF outputs of the server's set.
    """

    terms: FilterTerms
    key_id: bytes
    hashes: gcs.GolombSet

    @staticmethod
    def pack(terms: FilterTerms, key_id: bytes, body: bytes) -> bytes:
        """Encode a filter whose Golomb-coded set is `body`."""
        return _MAGIC + key_id + terms.to_bytes() + body

    @classmethod
    def from_bytes(cls, data: bytes, *, max_items: int = gcs.MAX_ITEMS) -> Filter:
        """Decode what `Server.publish` wrote. The bytes are not signed, so use an authenticated channel.

        Raises:
            MalformedError: not the bytes of a filter.
            SetSizeError: more items than `max_items`.
        """
        reader = ByteReader(data, _MAGIC, "a filter")
        key_id = reader.take_bytes(KEY_ID_BYTES)
        terms = reader.read_terms()
        hashes = gcs.decode_golomb(reader.read_rest(), max_items=max_items)
        if hashes.bits != terms.bits:
            raise MalformedError(f"a filter has {hashes.bits} bits; its terms give {terms.bits}")
        return cls(terms, key_id, hashes)

"""The publication of an unbalanced intersection's large side: a key, a filter of its tokens, its proofs and receipts.

A `RunStore` can store it for later runs with the same peer. Then a run costs the large side one scalar product for each
identifier that the small side asks, and the small side fetches the filter once. A changed set gets a new key: under one
key, a client could test every identifier that it ever asked on each new filter.

Outputs are those of `proofs`, bound to the publication instead of a run. Both sides hash what they send in a run, the
proofs and the receipt, again with the run's tag (`Outputs.bind_to_run`), so that nobody can replay them in another run.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi import gcs, oprf
from securevfl_psi.errors import MalformedError
from securevfl_psi.filters import ByteReader
from securevfl_psi.group import CHUNK, TOKEN_BYTES, Scalar
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.proofs import OUTPUT_BYTES
from securevfl_psi.session import Session

__all__ = [
    "NONCE_BYTES",
    "STEP",
    "Making",
    "Offer",
    "Publication",
    "RunStore",
    "fingerprint_bits",
    "load_or_publish",
    "max_filter_bytes",
]

NONCE_BYTES = 16
STEP = CHUNK
"""Identifiers processed between two steps of making a publication."""
_SECRET_BYTES = 32
_DIGEST_BYTES = 32
_REST = OUTPUT_BYTES - TOKEN_BYTES
_MAGIC = b"PSIP\x01"
_SIZES = struct.Struct(">QQ")
_GCS_HEADER = 21  # bytes before the quotients, see `gcs`


class RunStore(Protocol):
    """Stores named byte strings between runs: this party's publications, which are secret, and peers' filters."""

    def load(self, name: str) -> bytes | None:
        """Return the stored bytes, or None if nothing is stored."""

    def save(self, name: str, data: bytes) -> None:
        """Store bytes where only this party can read them."""

    def drop(self, name: str) -> None:
        """Delete the stored bytes."""


def fingerprint_bits(count: int) -> int:
    """Bits of the false-positive rate of a filter of `count` items: as many as 64-bit values allow, at most 56.

    That is 44 at 2^20 items and 40 at 2^24. A false positive ends the run, as its proof matches no row; it never gives
    a wrong row.
    """
    return min(gcs.MAX_BITS, 64 - max(count - 1, 0).bit_length())


def max_filter_bytes(count: int) -> int:
    """Bytes of the longest possible filter of `count` items."""
    return _GCS_HEADER + (2 * count + 7) // 8 + -(-count * fingerprint_bits(count) // 8)


@dataclass(frozen=True)
class Offer:
    """The server's first message: which filter it offers.

    Attributes:
        nonce: names the publication, 16 random bytes.
        length: of the filter in bytes.
        digest: SHA-256 of the filter, so that a client can recognise a stored one.
    """

    nonce: bytes
    length: int
    digest: bytes

    SIZE = NONCE_BYTES + 8 + _DIGEST_BYTES

    def to_bytes(self) -> bytes:
        """56 bytes."""
        return self.nonce + self.length.to_bytes(8, "big") + self.digest

    @classmethod
    def from_bytes(cls, data: bytes, count: int) -> Offer:
        """Decode what `to_bytes` returned.

        Args:
            data: the peer's message.
            count: the number of items that the server announced.

        Raises:
            MalformedError: a wrong length, or a filter whose length does not fit the number of items.
        """
        if len(data) != cls.SIZE:
            raise MalformedError(f"an offer of {len(data)} bytes; expected {cls.SIZE}")
        length = int.from_bytes(data[NONCE_BYTES : NONCE_BYTES + 8], "big")
        if not _GCS_HEADER <= length <= max_filter_bytes(count):
            raise MalformedError(
                f"a filter of {length} bytes is offered; {count} items take {_GCS_HEADER} to {max_filter_bytes(count)}"
            )
        return cls(data[:NONCE_BYTES], length, data[-_DIGEST_BYTES:])


@dataclass(frozen=True, kw_only=True)
class Publication:
    """A published set for one client.

    Attributes:
        nonce: names it, 16 bytes.
        secret: the key, 32 bytes.
        tag: the domain separation tag under which identifiers were hashed.
        set_digest: SHA-256 of the set, in its order.
        filter: the Golomb-coded set of the tokens.
        rest: proofs and receipts by the set's rows, uint8 (n, 32).
    """

    nonce: bytes
    secret: bytes = field(repr=False)
    tag: bytes
    set_digest: bytes = field(repr=False)
    filter: bytes = field(repr=False)
    rest: np.ndarray = field(repr=False)

    @classmethod
    def publish_stepwise(cls, ids: Identifiers, session: Callable[[bytes], Session], by: Engine | None) -> Making:
        """Make a fresh publication in steps of 2^15 identifiers: yields None after each step, returns it at the end.

        Args:
            ids: normalised and unique.
            session: maps the nonce to the session whose tag the hashes include.
            by: the engine.

        Raises:
            IdentifierError: duplicate identifiers.
            SetSizeError: more than `gcs.MAX_ITEMS`.
        """
        ids = oprf.encode_column(ids, gcs.MAX_ITEMS)  # checks for duplicates once, so that the parts need not
        nonce, secret = secrets.token_bytes(NONCE_BYTES), Scalar(by=by).to_bytes()
        tag = session(nonce).dst
        server = oprf.OPRFServer(tag, Scalar(secret, by), length=OUTPUT_BYTES, by=by)
        outputs = np.empty((len(ids), OUTPUT_BYTES), dtype=np.uint8)
        for start in range(0, len(ids), STEP):
            outputs[start : start + STEP] = server.compute_outputs(
                ids.slice_rows(start, min(start + STEP, len(ids))).mark_unique()
            )
            yield
        tokens = np.ascontiguousarray(outputs[:, :TOKEN_BYTES])
        return cls(
            nonce=nonce,
            secret=secret,
            tag=tag,
            set_digest=_digest_ids(ids),
            filter=gcs.encode_golomb(tokens, fingerprint_bits(len(ids))),
            rest=np.ascontiguousarray(outputs[:, TOKEN_BYTES:]),
        )

    @property
    def offer(self) -> Offer:
        """The first message to the client."""
        return Offer(self.nonce, len(self.filter), hashlib.sha256(self.filter).digest())

    def matches_set(self, ids: Identifiers, session: Callable[[bytes], Session]) -> bool:
        """Whether this publication fits this set in this order, the same two parties and the same rules."""
        return (
            len(self.rest) == len(ids) and self.tag == session(self.nonce).dst and self.set_digest == _digest_ids(ids)
        )

    def to_bytes(self) -> bytes:
        """Encode for storage. The bytes contain the key: keep them secret."""
        sizes = _SIZES.pack(len(self.rest), len(self.filter))
        fixed = self.nonce + self.secret + len(self.tag).to_bytes(1, "big") + self.tag + self.set_digest
        data = b"".join([_MAGIC, fixed, sizes, self.filter, self.rest.tobytes()])
        return data + hashlib.sha256(data).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Publication:
        """Decode what `to_bytes` returned.

        Raises:
            MalformedError: other bytes, even if only one byte changed.
        """
        reader = ByteReader(data, _MAGIC, "a publication")
        nonce, secret = reader.take_bytes(NONCE_BYTES), reader.take_bytes(_SECRET_BYTES)
        tag, set_digest = reader.take_bytes(reader.take_bytes(1)[0]), reader.take_bytes(_DIGEST_BYTES)
        rows, length = _SIZES.unpack(reader.take_bytes(_SIZES.size))
        published, rest = reader.take_bytes(length), reader.take_bytes(_REST * rows)
        if reader.read_rest() != hashlib.sha256(memoryview(data)[:-_DIGEST_BYTES]).digest():
            raise MalformedError("a publication is damaged, or other bytes follow it")
        table = np.frombuffer(rest, dtype=np.uint8).reshape(-1, _REST)
        return cls(nonce=nonce, secret=secret, tag=tag, set_digest=set_digest, filter=published, rest=table)


Making = Generator[None, None, Publication]
"""Yields after each step, so that its caller can do other work in between; returns the publication."""


def load_or_publish(
    ids: Identifiers,
    session: Callable[[bytes], Session],
    *,
    by: Engine | None = None,
    shelf: RunStore | None = None,
    name: str = "",
) -> Making:
    """Return the stored publication if it still fits, else make and store a fresh one, in steps.

    Args:
        ids: as for `Publication.publish_stepwise`.
        session: as for `Publication.publish_stepwise`.
        by: the engine.
        shelf: stores it; None to store nothing.
        name: its name on the shelf.
    """
    data = None if shelf is None else shelf.load(name)
    if data is not None:
        try:
            kept = Publication.from_bytes(data)
        except MalformedError:  # this party's own file is damaged: a fresh one replaces it
            kept = None
        if kept is not None and kept.matches_set(ids, session):
            return kept
    made = yield from Publication.publish_stepwise(ids, session, by)
    if shelf is not None:
        shelf.save(name, made.to_bytes())
    return made


def _digest_ids(ids: Identifiers) -> bytes:
    digest = hashlib.sha256()
    for part in ids.iter_framed(np.arange(len(ids))):
        digest.update(part)
    return digest.digest()

"""What the large side of an unbalanced intersection makes once: a key, a filter of its tokens, its proofs and receipts.

It may be kept for later runs with the same peer (`Shelf`), so that a run costs the large side one scalar product for
each identifier that the small side asks, and the small side fetches the filter once. A set that changed gets a new key:
under one key a client could test all that it ever asked on each new filter.

Outputs are those of `proofs`, bound to the publication and not to a run. So the parts that are sent in a run, proofs
and the receipt, are hashed once more with the run's tag (`Outputs.bound`): those of one run are none of another.
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
from securevfl_psi.filters import Reader
from securevfl_psi.group import CHUNK, TOKEN_BYTES, Scalar
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.proofs import OUTPUT_BYTES
from securevfl_psi.session import Session

__all__ = ["NONCE_BYTES", "STEP", "Making", "Offer", "Publication", "Shelf", "bits_for", "kept_or_made", "most_bytes"]

NONCE_BYTES = 16
STEP = CHUNK
"""Identifiers between two steps of the making."""
_SECRET_BYTES = 32
_DIGEST_BYTES = 32
_REST = OUTPUT_BYTES - TOKEN_BYTES
_MAGIC = b"PSIP\x01"
_SIZES = struct.Struct(">QQ")
_GCS_HEADER = 21


class Shelf(Protocol):
    """Where a party keeps what outlasts a run, under names: publications, which are secret, and peers' filters."""

    def load(self, name: str) -> bytes | None:
        """What was kept; None where nothing was, or not any more."""

    def save(self, name: str, data: bytes) -> None:
        """Keep it, where only this party reads."""

    def drop(self, name: str) -> None:
        """Keep it no longer."""


def bits_for(count: int) -> int:
    """Bits of the false-positive rate of a filter of so many items: as many as 64-bit values leave room for, at most
    56; 44 at 2^20, 40 at 2^24. A false positive ends a run, for its proof fits no row; it makes no wrong row."""
    return min(gcs.MAX_BITS, 64 - max(count - 1, 0).bit_length())


def most_bytes(count: int) -> int:
    """Length of the longest filter of so many items."""
    return _GCS_HEADER + (2 * count + 7) // 8 + -(-count * bits_for(count) // 8)


@dataclass(frozen=True)
class Offer:
    """What the server says of its filter first.

    Attributes:
        nonce: names the publication, 16 random bytes.
        length: of the filter in bytes.
        digest: SHA-256 of the filter, by which a client knows whether it has it.
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
        """What `to_bytes` gave.

        Args:
            data: the peer's.
            count: how many items the server announced.

        Raises:
            MalformedError: another length, or a filter longer than so many items make.
        """
        if len(data) != cls.SIZE:
            raise MalformedError(f"an offer of {len(data)} bytes; {cls.SIZE} were expected")
        length = int.from_bytes(data[NONCE_BYTES : NONCE_BYTES + 8], "big")
        if not _GCS_HEADER <= length <= most_bytes(count):
            raise MalformedError(
                f"a filter of {length} bytes is offered; {count} items make {_GCS_HEADER} to {most_bytes(count)}"
            )
        return cls(data[:NONCE_BYTES], length, data[-_DIGEST_BYTES:])


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Of one set, for one client.

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
    def of(cls, ids: Identifiers, session: Callable[[bytes], Session], by: Engine | None) -> Making:
        """A fresh one, made in steps of 2^15 identifiers: it yields None after each, and returns it.

        Args:
            ids: normalised, none twice.
            session: from the nonce, what identifiers are hashed under.
            by: the engine.

        Raises:
            IdentifierError: doubled ones.
            SetSizeError: more than `gcs.MAX_ITEMS`.
        """
        ids = oprf.column_of(ids, gcs.MAX_ITEMS)  # whose parts need not be looked at for doubled ones again
        nonce, secret = secrets.token_bytes(NONCE_BYTES), Scalar(by=by).to_bytes()
        tag = session(nonce).dst
        server = oprf.Server(tag, Scalar(secret, by), length=OUTPUT_BYTES, by=by)
        outputs = np.empty((len(ids), OUTPUT_BYTES), dtype=np.uint8)
        for start in range(0, len(ids), STEP):
            outputs[start : start + STEP] = server.outputs(ids.part(start, min(start + STEP, len(ids))).distinct())
            yield
        tokens = np.ascontiguousarray(outputs[:, :TOKEN_BYTES])
        return cls(
            nonce=nonce,
            secret=secret,
            tag=tag,
            set_digest=_digest(ids),
            filter=gcs.encode(tokens, bits_for(len(ids))),
            rest=np.ascontiguousarray(outputs[:, TOKEN_BYTES:]),
        )

    @property
    def offer(self) -> Offer:
        """What the client is told first."""
        return Offer(self.nonce, len(self.filter), hashlib.sha256(self.filter).digest())

    def serves(self, ids: Identifiers, session: Callable[[bytes], Session]) -> bool:
        """Whether it is of this set, in this order, and between the same parties by the same rules."""
        return len(self.rest) == len(ids) and self.tag == session(self.nonce).dst and self.set_digest == _digest(ids)

    def to_bytes(self) -> bytes:
        """To be kept; secret."""
        sizes = _SIZES.pack(len(self.rest), len(self.filter))
        fixed = self.nonce + self.secret + len(self.tag).to_bytes(1, "big") + self.tag + self.set_digest
        data = b"".join([_MAGIC, fixed, sizes, self.filter, self.rest.tobytes()])
        return data + hashlib.sha256(data).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Publication:
        """What `to_bytes` gave.

        Raises:
            MalformedError: anything else, also where a byte of it changed.
        """
        reader = Reader(data, _MAGIC, "a publication")
        nonce, secret = reader.take(NONCE_BYTES), reader.take(_SECRET_BYTES)
        tag, set_digest = reader.take(reader.take(1)[0]), reader.take(_DIGEST_BYTES)
        rows, length = _SIZES.unpack(reader.take(_SIZES.size))
        published, rest = reader.take(length), reader.take(_REST * rows)
        if reader.rest() != hashlib.sha256(memoryview(data)[:-_DIGEST_BYTES]).digest():
            raise MalformedError("a publication that was damaged, or is followed by other bytes")
        table = np.frombuffer(rest, dtype=np.uint8).reshape(-1, _REST)
        return cls(nonce=nonce, secret=secret, tag=tag, set_digest=set_digest, filter=published, rest=table)


Making = Generator[None, None, Publication]
"""Yields after each step, so that whoever makes it can do something else in between; returns it."""


def kept_or_made(
    ids: Identifiers,
    session: Callable[[bytes], Session],
    *,
    by: Engine | None = None,
    shelf: Shelf | None = None,
    name: str = "",
) -> Making:
    """The publication on the shelf, where it still serves; else a fresh one, which is kept in its place; in steps.

    Args:
        ids: as `Publication.of`.
        session: likewise.
        by: the engine.
        shelf: where it is kept; None for nowhere.
        name: on the shelf.
    """
    data = None if shelf is None else shelf.load(name)
    if data is not None:
        try:
            kept = Publication.from_bytes(data)
        except MalformedError:  # the own file, damaged: a fresh one replaces it
            kept = None
        if kept is not None and kept.serves(ids, session):
            return kept
    made = yield from Publication.of(ids, session, by)
    if shelf is not None:
        shelf.save(name, made.to_bytes())
    return made


def _digest(ids: Identifiers) -> bytes:
    digest = hashlib.sha256()
    for part in ids.framed(np.arange(len(ids))):
        digest.update(part)
    return digest.digest()

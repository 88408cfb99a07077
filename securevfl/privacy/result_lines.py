"""The lines of a result book, and how its people, rows and counts are packed into them."""

from __future__ import annotations

import base64
import hashlib
import math
import zlib
from typing import Final, Literal, TypeAlias

import msgspec
import numpy as np

from securevfl.errors import AuditError
from securevfl.ledger import PrivateKey, PublicSigningKey
from securevfl.privacy.people_digests import DIGEST

__all__ = [
    "CHAIN",
    "DAMAGED",
    "MOST",
    "NEWEST",
    "Answered",
    "Begun",
    "Digests",
    "First",
    "Grant",
    "Line",
    "Metrics",
    "Noised",
    "People",
    "Total",
    "decode",
    "encode",
    "name_people",
    "pack_counts",
    "pack_losses",
    "pack_people",
    "pack_rows",
    "unpack_counts",
    "unpack_losses",
    "unpack_people",
    "unpack_rows",
]

CHAIN = 16
"""Bytes of the digest of a line and of all before it."""
MOST = 1 << 28
"""Largest number of one line, and most bytes that it unpacks to."""
DAMAGED = (msgspec.DecodeError, ValueError, KeyError, IndexError, zlib.error)
"""Errors of a line that cannot be read."""

Digests: TypeAlias = Literal["blake2b", "blake2s"]
"""How people are digested: see `securevfl.privacy.people_digests`."""
NEWEST: Final = "blake2s"
"""How a new book digests people. A book keeps what it began with, as it does not know whose digests it has."""

_GRANT = "securevfl result grant v1"


class First(msgspec.Struct, frozen=True, kw_only=True, tag="results", tag_field="line", forbid_unknown_fields=True):
    """The first line.

    Attributes:
        party: whose book it is.
        after: digest of the last line of the longer file that this one replaced; empty in a new book.
        digests: how it digests people.
    """

    party: str
    after: str = ""
    digests: Digests = "blake2b"


class People(msgspec.Struct, frozen=True, kw_only=True, tag="people", tag_field="line", forbid_unknown_fields=True):
    """People that runs name by position.

    Attributes:
        people: name of the list, which follows from its content.
        digests: of their identifiers.
    """

    people: str
    digests: str


class Begun(msgspec.Struct, frozen=True, kw_only=True, tag="run", tag_field="line", forbid_unknown_fields=True):
    """A run: who asks about whom."""

    run: str
    asker: str
    people: str


class Answered(msgspec.Struct, frozen=True, kw_only=True, tag="answered", tag_field="line", forbid_unknown_fields=True):
    """`numbers` numbers leave about each of these rows of a run: positions among its people; one that appears twice
    counts twice.
    """

    run: str
    rows: str
    numbers: int

    def __post_init__(self) -> None:
        _check_number(self.numbers)


class Noised(msgspec.Struct, frozen=True, kw_only=True, tag="noised", tag_field="line", forbid_unknown_fields=True):
    """Releases with Gaussian noise leave of each of these rows of a run: positions among its people.

    Attributes:
        run: the run.
        rows: the positions; empty for those of the run's last such line.
        loss: Σ 1/σ² of these releases, σ being the noise multiplier of each.
    """

    run: str
    rows: str
    loss: float

    def __post_init__(self) -> None:
        if not (self.loss >= 0 and math.isfinite(self.loss)):
            raise ValueError(f"a loss of {self.loss}")


class Metrics(msgspec.Struct, frozen=True, kw_only=True, tag="metrics", tag_field="line", forbid_unknown_fields=True):
    """`sets` sets of metrics of the party's validation rows are opened to an asker."""

    asker: str
    sets: int

    def __post_init__(self) -> None:
        if not 0 < self.sets <= MOST:
            raise ValueError(f"{self.sets} sets of metrics")


class Total(msgspec.Struct, frozen=True, kw_only=True, tag="total", tag_field="line", forbid_unknown_fields=True):
    """What earlier lines added up to for one asker: numbers of each person of a list, the running number, and the loss
    of each by noisy releases; empty for none."""

    asker: str
    people: str
    numbers: str
    running: int
    losses: str = ""

    def __post_init__(self) -> None:
        if self.running < 0:
            raise ValueError(f"a running number of {self.running}")


class Grant(msgspec.Struct, frozen=True, kw_only=True, tag="grant", tag_field="line", forbid_unknown_fields=True):
    """A person allowed an asker more numbers of each row.

    Attributes:
        grant: its own random name: a line that appears twice counts once.
        asker: the organisation.
        results: how many numbers of each row.
        reason: why.
        until: when it ends, seconds since 1970, UTC.
        by: the person.
        signature: by the party's signing key; empty without one.
    """

    grant: str
    asker: str
    results: int
    reason: str
    until: int
    by: str
    signature: str

    def __post_init__(self) -> None:
        _check_number(self.results)

    def _signed_part(self, party: str) -> bytes:
        fields = [party, self.grant, self.asker, str(self.results), self.reason, str(self.until), self.by]
        return msgspec.json.encode(fields)

    def signed_by(self, key: PrivateKey, party: str) -> Grant:
        """This grant with the signature of `party`'s key."""
        return msgspec.structs.replace(self, signature=key.sign(_GRANT, self._signed_part(party)))

    def is_signed(self, key: PublicSigningKey, party: str) -> bool:
        """Return True if `party`'s key signed it."""
        try:
            key.verify(_GRANT, self._signed_part(party), self.signature)
        except (AuditError, ValueError):
            return False
        return True


Line: TypeAlias = First | People | Begun | Answered | Noised | Metrics | Total | Grant

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Line).decode


def _check_number(number: int) -> None:
    if not 0 <= number <= MOST:
        raise ValueError(f"{number} numbers of a row")


def name_people(digests: np.ndarray) -> str:
    """The name of a list of people: a digest of their digests (n, 12)."""
    return hashlib.sha256(digests.tobytes()).hexdigest()[:24]


def pack_rows(places: np.ndarray) -> str:
    """Positions of rows, as text; of rows that follow each other the first and how many."""
    if len(places) and (np.diff(places) == 1).all():
        return f"{places[0]}:{len(places)}"
    return _pack(np.asarray(places, "<u4").tobytes())


def unpack_rows(text: str) -> np.ndarray:
    """What `pack_rows` packed.

    Raises:
        ValueError: no such rows, or more than one line may have.
    """
    if ":" not in text:  # which base64 does not have
        return np.frombuffer(_unpack(text), "<u4")
    first, count = (int(number) for number in text.split(":"))
    if not (0 <= first < 1 << 31 and 0 < count <= MOST // 4):
        raise ValueError(f"rows {first} and {count} on")
    return np.arange(first, first + count, dtype="<u4")


def pack_counts(counts: np.ndarray) -> str:
    """Counts, as text."""
    return _pack(np.asarray(counts, "<u8").tobytes())


def unpack_counts(text: str) -> np.ndarray:
    """What `pack_counts` packed.

    Raises:
        ValueError: counts that no row can have.
    """
    found = np.frombuffer(_unpack(text), "<u8")
    if (found > 1 << 62).any():
        raise ValueError("a count beyond 2^62")
    return found.astype(np.int64)


def pack_losses(losses: np.ndarray) -> str:
    """Losses by noisy releases, as text."""
    return _pack(np.asarray(losses, "<f8").tobytes())


def unpack_losses(text: str) -> np.ndarray:
    """What `pack_losses` packed.

    Raises:
        ValueError: losses that no row can have.
    """
    found = np.frombuffer(_unpack(text), "<f8")
    if not (np.isfinite(found) & (found >= 0)).all():
        raise ValueError("a loss that is no number from 0 up")
    return found.astype(np.float64)


def pack_people(digests: np.ndarray) -> str:
    """Digests (n, 12), as text. They are random, so compressing them would only take time."""
    return base64.b64encode(zlib.compress(digests.tobytes(), 0)).decode()


def unpack_people(text: str) -> np.ndarray:
    """Digests that `pack_people` packed.

    Raises:
        ValueError: half a digest.
    """
    found = _unpack(text)
    if len(found) % DIGEST:
        raise ValueError("half a digest")
    return np.frombuffer(found, np.uint8).reshape(-1, DIGEST)


def _pack(raw: bytes) -> str:
    """Bytes, compressed, as text."""
    return base64.b64encode(zlib.compress(raw, 1)).decode()


def _unpack(text: str) -> bytes:
    inflate = zlib.decompressobj()
    # Bounded, so that a damaged or hostile line cannot fill memory.
    raw = inflate.decompress(base64.b64decode(text, validate=True), MOST)
    if inflate.unconsumed_tail or not inflate.eof:
        raise ValueError("unpacks to more data than allowed")
    return raw

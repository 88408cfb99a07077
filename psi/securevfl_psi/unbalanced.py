"""Intersection of a small set with a large one, whose owner works once: it publishes a filter of OPRF outputs.

After Kiss, Liu, Schneider, Asokan and Pinkas (PoPETs 2017), who put Diffie–Hellman outputs into a Bloom filter; here
they are those of `oprf`, in a Golomb-coded set.

Server                                 Client
publish(Y)           filter, bytes →   once, for all clients, until it expires
                     ← blind_set()     a·H(x), at most max_queries in the filter's life
answer_queries(…)    k·a·H(x) →        find_common_rows(…): which x are in the filter

Sizes: the filter takes bits + 1.58 bits for each item of the server, 5.2 bytes with 40 bits; a session takes 32 bytes
each way for each item of the client. An item that the server does not have passes for one of its items with probability
2^-bits.

Who learns what. The client: the size of the server's set, the filter's times, and for each identifier that it asks
whether the server has it. It can ask about any identifier; only `max_queries` limits it, which the server enforces for
each client by the name that the channel authenticated. Colluding clients can add up their queries. Without the server,
nobody can test the filter. The server: how many identifiers each client asks and when; not which ones, nor which ones
it finds.

Each filter has its own key: under one key, a client could test every identifier that it ever asked on each new filter.
A server should delete the key when the filter expires: whoever has both can enumerate the server's set.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from securevfl_psi import gcs, oprf
from securevfl_psi.chunks import require_size
from securevfl_psi.errors import BudgetError, MalformedError, PSIError
from securevfl_psi.filters import KEY_ID_BYTES, MAX_NAME_BYTES, ByteReader, Filter, FilterTerms, framed_text
from securevfl_psi.group import Scalar

__all__ = ["Filter", "FilterClient", "FilterServer", "FilterTerms"]

SECRET_BYTES = 32
_PROTOCOL = b"unbalanced v1"
_STATE_MAGIC = b"PSIK\x01"
_BASE_POINT = np.frombuffer((9).to_bytes(32, "little"), dtype=np.uint8).reshape(1, 32)
_COUNTER = struct.Struct(">L")


def _separation_tag(terms: FilterTerms, key_id: bytes) -> bytes:
    """Domain separation tag of 45 bytes, as `Session.dst`, so that nobody can join the outputs of two filters."""
    return b"securevfl-psi" + hashlib.sha512(_PROTOCOL + key_id + terms.to_bytes()).digest()[:32]


class FilterServer:
    """The side with the large set: one key, one filter, many clients.

    `to_bytes` encodes the key, the terms and each client's number of queries. Store it after each `answer_queries` and
    before you send that answer; otherwise a restart forgets the queries.
    """

    def __init__(self, terms: FilterTerms) -> None:
        self._load_state(terms, secrets.token_bytes(SECRET_BYTES), False, {})

    def _load_state(self, terms: FilterTerms, secret: bytes, published: bool, spent: dict[str, int]) -> None:
        self.terms = terms
        self._secret = secret
        self._scalar = Scalar(secret)
        self._published = published
        self._spent = spent
        public = self._scalar.multiply(_BASE_POINT, "the base point").tobytes()
        self.key_id: bytes = hashlib.sha512(_PROTOCOL + b"key" + public).digest()[:KEY_ID_BYTES]
        """Fingerprint of the public key k·B, 16 bytes."""

    def publish(self, ids: Sequence[str]) -> bytes:
        """Make the filter of these identifiers, for all clients.

        Raises:
            PSIError: called a second time; or too many bits for this number of items.
            IdentifierError: duplicate identifiers, or one that is not Unicode text.
            SetSizeError: more than `gcs.MAX_ITEMS`.
        """
        if self._published:
            raise PSIError("publish was called twice; each filter has its own key: make a new FilterServer")
        server = oprf.OPRFServer(_separation_tag(self.terms, self.key_id), self._scalar, length=gcs.HASH_BYTES)
        body = gcs.encode_golomb(server.compute_outputs(ids), self.terms.bits)
        self._published = True
        return Filter.pack(self.terms, self.key_id, body)

    def remaining_queries(self, client: str) -> int:
        """Number of identifiers that this client may still ask."""
        return self.terms.max_queries - self._spent.get(client, 0)

    def answer_queries(
        self, client: str, key_id: bytes, blinded: Iterable[np.ndarray], count: int, *, now: int
    ) -> Iterator[np.ndarray]:
        """Multiply each point by k, in order of arrival, chunks of uint8 (n, 32). Counts the queries at once.

        Args:
            client: the name that the channel authenticated.
            key_id: of the client's filter.
            blinded: points from `FilterClient.blind_set`, chunks of uint8 (n, 32).
            count: the announced number of points.
            now: seconds since 1970.

        Raises:
            ExpiredError: outside the filter's time.
            BudgetError: more than the client may still ask.
            MalformedError: a filter of another key; points as for `oprf.Server.evaluate`.
            SetSizeError: another number of points than announced.
        """
        self.terms.require_current(now)
        if len(client.encode()) > MAX_NAME_BYTES:
            raise MalformedError(f"a client's name of {len(client.encode())} bytes; at most {MAX_NAME_BYTES}")
        if key_id != self.key_id:
            raise MalformedError("the client's filter belongs to another key: it has to fetch the current filter")
        require_size(count, gcs.MAX_ITEMS, "the blinded set")
        if count > self.remaining_queries(client):
            raise BudgetError(
                f"{client!r} asks {count} identifiers; of {self.terms.max_queries} it may ask "
                f"{self.remaining_queries(client)} more: it has to wait for the next filter, after {self.terms.expires}"
            )
        # Counted before the answer exists: a client that breaks off must not get its queries back.
        self._spent[client] = self._spent.get(client, 0) + count
        dst = _separation_tag(self.terms, self.key_id)
        return oprf.OPRFServer(dst, self._scalar, length=gcs.HASH_BYTES).evaluate(blinded, count)

    def to_bytes(self) -> bytes:
        """Encode key, terms and counts. They are secret: store them where only the server can read them."""
        spent = [framed_text(name) + _COUNTER.pack(count) for name, count in sorted(self._spent.items())]
        flag = bytes([self._published])
        return b"".join([_STATE_MAGIC, self._secret, flag, self.terms.to_bytes(), _COUNTER.pack(len(spent)), *spent])

    @classmethod
    def from_bytes(cls, data: bytes) -> FilterServer:
        """Restore the server that wrote these bytes. Raises MalformedError for other bytes."""
        reader = ByteReader(data, _STATE_MAGIC, "a server's state")
        secret, flag, terms = reader.take_bytes(SECRET_BYTES), reader.take_bytes(1), reader.read_terms()
        if flag not in (b"\0", b"\1"):
            raise MalformedError(f"a server's state with flag {flag!r}; 0 or 1 was expected")
        spent: dict[str, int] = {}
        for _ in range(*_COUNTER.unpack(reader.take_bytes(_COUNTER.size))):
            name = reader.read_text()
            (spent[name],) = _COUNTER.unpack(reader.take_bytes(_COUNTER.size))
        if reader.read_rest():
            raise MalformedError("other bytes follow a server's state")
        server = cls.__new__(cls)
        server._load_state(terms, secret, flag == b"\1", spent)
        return server


class FilterClient:
    """The side with the small set: one session.

    Args:
        ids: normalised by the filter's rules, and unique.
        published: the server's filter.
        rules_tag: how they were normalised.
        now: seconds since 1970.

    Raises:
        ExpiredError: outside the filter's time.
        BudgetError: more identifiers than a client may ask.
        PSIError: other rules normalised the identifiers.
    """

    def __init__(self, ids: Sequence[str], published: Filter, *, rules_tag: str, now: int) -> None:
        terms = published.terms
        terms.require_current(now)
        if rules_tag != terms.rules_tag:
            raise PSIError(f"identifiers by rules {rules_tag!r}, the filter's by {terms.rules_tag!r}: use its rules")
        if len(ids) > terms.max_queries:
            raise BudgetError(f"{len(ids)} identifiers; {terms.server!r} lets a client ask {terms.max_queries}")
        self._hashes = published.hashes
        self._oprf = oprf.OPRFClient(ids, _separation_tag(terms, published.key_id), length=gcs.HASH_BYTES)
        self.key_id = published.key_id
        """Fingerprint of the filter's key; send it to the server, so that both use the same key."""

    def blind_set(self) -> Iterator[np.ndarray]:
        """Yield the client's blinded set in chunks of uint8 (n, 32). Raises PSIError the second time."""
        return self._oprf.blind_set()

    def find_common_rows(self, answered: Iterable[np.ndarray]) -> np.ndarray:
        """Return the client's rows that the server has, ascending, int64 (k,).

        Args:
            answered: points from `FilterServer.answer_queries`, chunks of uint8 (n, 32).

        Raises:
            PSIError: called before `blind_set`, or a second time.
            MalformedError: wrong type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: another number of points than was sent.
        """
        return np.flatnonzero(self._hashes.contains(self._oprf.compute_outputs(answered)))

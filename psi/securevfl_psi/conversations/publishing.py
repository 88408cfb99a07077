"""Scripts of an unbalanced intersection's two ends: the large side publishes and answers, the small side looks up.

Small                                   Large
                       ← OFFER          which filter
WANTED                 →                whether it has to come
a·H1(x), shuffled      POINTS →
                       ← FILTER         where it is wanted
                       ← ANSWERS        k·(a·H1(x)), in the order in which they came
COUNT, PROOFS          →                of what it found in the filter, bound to this run
                       ← RECEIPT

As in `dh`, the large side learns from the proofs which of its rows are common, and a proof needs the identifier and its
point under the key. If the publication is kept, the peer may have asked for that point in an earlier run. See
`publication`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi import gcs
from securevfl_psi.blinding import ChunkQueue
from securevfl_psi.chunks import require_chunk
from securevfl_psi.conversations.proving import Proving, Receiving
from securevfl_psi.conversations.scripts import Incoming, Outgoing, as_frames, chunks_of, read_payload, rows_of
from securevfl_psi.dh import DHClient
from securevfl_psi.errors import MalformedError, PSIError
from securevfl_psi.group import CHUNK, POINT_BYTES, TOKEN_BYTES, Scalar
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.proofs import Outputs
from securevfl_psi.publication import Offer, Publication, RunStore, fingerprint_bits, load_or_publish
from securevfl_psi.session import Session
from securevfl_psi.wire import Frame, Kind

__all__ = ["LookupClient", "LookupParameters", "LookupServer"]

_PART = CHUNK * TOKEN_BYTES
"""Bytes of the filter in a frame."""
_MOST_WAITING = 4


@dataclass(frozen=True, kw_only=True)
class LookupParameters:
    """Parameters of both ends.

    Attributes:
        session: maps the server's nonce to the session whose tag the hashes include. It names the two parties and the
            rules but no run, as a publication may serve several.
        tag: the run's fresh tag.
        most: largest set that a party accepts.
        by: the engine.
        shelf: stores publications and filters; None to store nothing.
    """

    session: Callable[[bytes], Session]
    tag: bytes = field(repr=False)
    most: int
    by: Engine | None = None
    shelf: RunStore | None = field(default=None, repr=False)


class LookupClient:
    """The small side's scripts.

    Args:
        ids: its identifiers.
        how: the parameters.
        peer_size: number of identifiers that the server announced.
        found: called with this party's common rows, ascending, as soon as they are known.

    Attributes:
        proving: the final step; `found` sets its lists.
    """

    def __init__(
        self, ids: Identifiers, how: LookupParameters, peer_size: int, found: Callable[[np.ndarray], None]
    ) -> None:
        self._ids, self._how, self._peer_size, self._found = ids, how, peer_size, found
        self._name = "filter of " + how.session(bytes(16)).names[0]
        self._client: DHClient | None = None
        self._filter: bytes | None = None
        self._outputs: Outputs | None = None
        self.proving = Proving(self._require_outputs)

    def _require_outputs(self) -> Outputs:
        if self._outputs is None:
            raise PSIError("outputs were read before all answers arrived")
        return self._outputs

    def send_script(self) -> Outgoing:
        """Whether the filter has to come, the own set, and proofs of what is common."""
        while self._client is None:
            yield None
        yield Frame(Kind.WANTED, bytes([self._filter is None]))
        yield from as_frames(Kind.POINTS, self._client.blind_set())
        yield from self.proving.send_script()

    def receive_script(self) -> Incoming:
        """The offer, the filter, answers, the receipt."""
        offer = Offer.from_bytes((yield Kind.OFFER).payload, self._peer_size)
        self._filter = self._load_kept(offer)
        wanted = self._filter is None
        client = DHClient(self._ids, self._how.session(offer.nonce), max_set_size=self._how.most, by=self._how.by)
        self._client = client
        data = self._filter or b""
        if wanted:
            data = yield from _hear_filter(offer)
        done = 0
        while done < client.size:
            rows = rows_of((yield Kind.ANSWERS), POINT_BYTES)
            require_chunk(rows, POINT_BYTES, done, client.size, "the answered set")
            done += len(rows)
            client.take_answers(rows)
        hashes = gcs.decode_golomb(data, max_items=self._peer_size)
        if (len(hashes.values), hashes.bits) != (self._peer_size, fingerprint_bits(self._peer_size)):
            raise MalformedError(
                f"a filter of {len(hashes.values)} items and {hashes.bits} bits; {self._peer_size} and "
                f"{fingerprint_bits(self._peer_size)} were announced"
            )
        if wanted and self._how.shelf is not None:
            self._how.shelf.save(self._name, data)
        own = client.outputs
        self._outputs = own.bind_to_run(self._how.tag, self._how.by)
        self._found(np.flatnonzero(hashes.contains(own.cut_tokens())))
        yield from self.proving.receive_script()

    def _load_kept(self, offer: Offer) -> bytes | None:
        data = None if self._how.shelf is None else self._how.shelf.load(self._name)
        same = data is not None and len(data) == offer.length and hashlib.sha256(data).digest() == offer.digest
        return data if same else None


def _hear_filter(offer: Offer) -> Generator[Kind | None, Frame, bytes]:
    """Receive the filter in parts and return it. Memory grows with arrivals, not with the announced length."""
    parts: list[bytes] = []
    done = 0
    while done < offer.length:
        part = read_payload((yield Kind.FILTER), min(_PART, offer.length - done))
        parts.append(part)
        done += len(part)
    data = b"".join(parts)
    if hashlib.sha256(data).digest() != offer.digest:
        raise MalformedError("the filter that arrived is not the one that was offered")
    return data


class LookupServer:
    """The large side's scripts.

    Args:
        ids: its identifiers.
        how: the parameters.
        peer_size: number of identifiers that the client announced.
        lists: number of lists of common rows that the client proves.
        found: called with this party's rows of each list; raises if the policy forbids them.

    Attributes:
        busy: True if `send_script` yields None while it computes, so that there is nothing to wait for.
    """

    def __init__(
        self,
        ids: Identifiers,
        how: LookupParameters,
        peer_size: int,
        lists: int,
        found: Callable[[list[np.ndarray]], None],
    ) -> None:
        self._ids, self._how, self._found = ids, how, found
        self._peer_size, self._lists = peer_size, lists
        self._name = "publication for " + how.session(bytes(16)).names[1]
        self.busy = False
        self._waiting = ChunkQueue(how.most, "the client's set")
        self._publication: Publication | None = None
        self._outputs: Outputs | None = None
        self._wanted: bool | None = None
        self._unanswered = chunks_of(peer_size)
        self._receiving = Receiving(self._find_proven_rows, self._require_outputs)

    def _require_outputs(self) -> Outputs:
        if self._outputs is None:
            raise PSIError("outputs were read before the set was published")
        return self._outputs

    def send_script(self) -> Outgoing:
        """The offer, the filter where it is wanted, answers, the receipt."""
        self.busy = True
        making = load_or_publish(self._ids, self._how.session, by=self._how.by, shelf=self._how.shelf, name=self._name)
        made = yield from making
        self.busy = False
        self._outputs = Outputs.from_published(made.rest, self._how.tag, self._how.by)
        self._publication = made
        yield Frame(Kind.OFFER, made.offer.to_bytes())
        while self._wanted is None:
            yield None
        if self._wanted:
            for start in range(0, len(made.filter), _PART):
                yield Frame(Kind.FILTER, made.filter[start : start + _PART])
        key = Scalar(made.secret, self._how.by)
        while self._unanswered:
            while not self._waiting:
                yield None
            points = key.multiply(self._waiting.pop_first(), "the client's set")
            self._unanswered -= 1
            yield from as_frames(Kind.ANSWERS, [points])
        yield from self._receiving.send_script()

    def receive_script(self) -> Incoming:
        """Whether the filter is wanted, the client's points, and its proofs."""
        while self._publication is None:
            yield None
        word = read_payload((yield Kind.WANTED), 1)
        if word not in (b"\0", b"\1"):
            raise MalformedError(f"a WANTED of {word!r}; expected 0 or 1")
        self._wanted = word == b"\1"
        done = 0
        while done < self._peer_size:
            while len(self._waiting) >= _MOST_WAITING:
                yield None
            rows = rows_of((yield Kind.POINTS), POINT_BYTES)
            require_chunk(rows, POINT_BYTES, done, self._peer_size, "the client's set")
            done += len(rows)
            self._waiting.add_chunk(rows)
        limit = min(len(self._ids), self._peer_size)
        yield from self._receiving.receive_script(self._lists, limit, lambda: not self._unanswered)
        self._found(list(self._receiving.lists or []))
        self._receiving.accepted = True

    def _find_proven_rows(self, proofs: np.ndarray) -> np.ndarray:
        try:
            return self._require_outputs().find_proven_rows(proofs)
        except MalformedError:
            if self._how.shelf is not None:  # a false positive of an honest peer would come back with the same filter
                self._how.shelf.drop(self._name)
            raise

"""A party of a two-party protocol as a state machine over bytes: no sockets, no threads, no clock.

>>> bank = Endpoint(["ann", "bob", "eve"], Terms(name="bank", peer="shop", role="receiver"))
>>> shop = Endpoint(["eve", "zoe", "ann"], Terms(name="shop", peer="bank", role="sender"))
>>> run_in_process(bank, shop)
>>> sorted(bank.result.rows.tolist()), sorted(shop.result.rows.tolist()), bank.result.verified
([0, 2], [0, 2], True)

Whoever moves the bytes asks for `next_frame` as long as there is one, and feeds what arrives. Own chunks are computed
when they are asked for, replies when their question is fed. A receiver has nothing to answer while sets are under way,
so it always reads on, and two endpoints that both feed what arrives before they send more cannot block each other.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from securevfl_crypto.engine import Engine, engine

from securevfl_psi.conversations import CONVERSATIONS, Conversation, Result
from securevfl_psi.errors import (
    ConnectionLost,
    DisagreementError,
    IdentifierError,
    MalformedError,
    PeerRefused,
    PSIError,
    SetSizeError,
    SmallIntersectionError,
)
from securevfl_psi.identifiers import Identifiers, normalise_column
from securevfl_psi.session import Session
from securevfl_psi.terms import Terms
from securevfl_psi.wire import TAG_BYTES, Frame, FrameReader, FrameWriter, Kind

__all__ = ["Endpoint", "Result", "run_in_process"]

_REASONS = (  # the first that fits; never what an error's own text says, which may hold an identifier
    (SmallIntersectionError, "policy"),
    (DisagreementError, "terms"),
    (SetSizeError, "size"),
    (MalformedError, "malformed"),
    (IdentifierError, "input"),
    (PSIError, "error"),
)
_WORDS = {
    "policy": "its policy does not allow the result",
    "terms": "it runs under other terms, or found other common rows",
    "size": "a set is larger than it accepts, or not as large as announced",
    "malformed": "what it received is not what the protocol allows",
    "input": "its own identifiers cannot be used",
    "error": "of an error",
}


class Endpoint:
    """One party's end.

    Args:
        ids: its identifiers, one per row; normalised here by the terms' rules.
        terms: what it brings and demands.
        by: the engine; by default the fastest.

    Raises:
        IdentifierError: identifiers that cannot be used, before anything is sent.
        SetSizeError: more than the terms allow.
        EngineError: the environment demands a code path that is unknown or cannot run here.
    """

    def __init__(self, ids: Sequence[object], terms: Terms, *, by: Engine | None = None) -> None:
        self.terms = terms
        self._ids: Identifiers = normalise_column(ids, terms.rules)
        self._size = max(len(self._ids), terms.pad_to or 0)
        if self._size > terms.max_set_size or (terms.pad_to is not None and len(self._ids) > terms.pad_to):
            raise SetSizeError(
                f"{len(self._ids)} identifiers, pad_to={terms.pad_to}, max_set_size={terms.max_set_size}: "
                "raise what is too small"
            )
        self._by = by or engine()
        self._reader, self._writer = FrameReader(), FrameWriter()
        # Not yet frames: those are numbered as they leave, so that a refusal that replaces them gets the number due.
        self._out: deque[tuple[Kind, bytes]] = deque([(Kind.HELLO, terms.hello(self._size))])
        self._own: Iterator[tuple[Kind, np.ndarray]] = iter(())
        self._talk: Conversation | None = None
        self._failed = False

    @property
    def done(self) -> bool:
        """Whether the result is there and everything was said."""
        return self._talk is not None and self._talk.result is not None and not self._out and not self._failed

    @property
    def result(self) -> Result:
        """What this party learned.

        Raises:
            PSIError: asked for before the end.
        """
        if self._talk is None or self._talk.result is None or self._failed:
            raise PSIError("there is no result yet")
        return self._talk.result

    def next_frame(self) -> bytes | None:
        """What to send next; None if the peer has to speak first."""
        if self._out:
            return self._writer.write(*self._out.popleft())
        if self._talk is None or self._failed:
            return None
        for kind, rows in self._own:
            return self._writer.write(kind, np.ascontiguousarray(rows).tobytes())
        return None

    def feed(self, data: bytes) -> None:
        """What arrived, in pieces of any length.

        Raises:
            PSIError: anything wrong; `next_frame` then gives a refusal to send, after which this end is dead.
        """
        if self._failed:
            raise PSIError("this end has failed; begin a new run")
        try:
            for frame in self._reader.feed(data):
                self._take(frame)
        except PeerRefused:
            self._failed = True
            self._out.clear()
            raise
        except PSIError as error:
            self._refuse(error)
            raise

    def close(self) -> None:
        """The peer hung up.

        Raises:
            ConnectionLost: before the end.
            MalformedError: in the middle of a frame.
        """
        if not self.done:
            self._reader.close()
            raise ConnectionLost(f"{self.terms.peer!r} hung up before the end")

    def _refuse(self, error: PSIError) -> None:
        self._failed = True
        reason = next(word for kind, word in _REASONS if isinstance(error, kind))
        self._out = deque([(Kind.REFUSED, reason.encode())])

    def _take(self, frame: Frame) -> None:
        if frame.kind == Kind.REFUSED:
            word = frame.payload.decode("ascii", "replace")
            raise PeerRefused(f"{self.terms.peer!r} ended the run: {_WORDS.get(word, 'it gave no known reason')}")
        if self._talk is None:
            if frame.kind != Kind.HELLO:
                raise MalformedError(f"a {frame.kind.name} came before the hello")
            self._begin(*self.terms.agree(frame.payload))
            return
        self._out.extend(self._talk.take(frame))

    def _begin(self, session: Session, peer_size: int) -> None:
        make = CONVERSATIONS[self.terms.protocol]
        self._talk = make(self._ids, self.terms, session, peer_size, self._by)
        self._own = self._talk.own()
        for writer_role, end in ((self.terms.role, self._writer), (None, self._reader)):
            role = writer_role or ("sender" if self.terms.role == "receiver" else "receiver")
            end.tag = hashlib.sha512(session.dst + role.encode()).digest()[:TAG_BYTES]
        self._out.extend(self._talk.start())


def run_in_process(one: Endpoint, other: Endpoint) -> None:
    """Both ends in one process, frame by frame: whoever calls it holds both sets, so it hides nothing.

    Raises:
        PSIError: what an end raises; the other end is told first.
    """
    pairs = ((one, other), (other, one))
    while not (one.done and other.done):
        moved = False
        for source, target in pairs:
            frame = source.next_frame()
            if frame is None:
                continue
            moved = True
            try:
                target.feed(frame)
            except PSIError:
                refusal = target.next_frame()
                if refusal is not None:
                    _tell(source, refusal)
                raise
        if not moved:
            raise PSIError("both ends wait for each other")


def _tell(end: Endpoint, refusal: bytes) -> None:
    try:
        end.feed(refusal)
    except PSIError:
        return

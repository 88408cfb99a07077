"""One party of a two-party protocol as a state machine over bytes, without sockets, threads or clocks.

>>> bank = Endpoint(["ann", "bob", "eve"], Terms(name="bank", peer="shop", role="receiver"))
>>> shop = Endpoint(["eve", "zoe", "ann"], Terms(name="shop", peer="bank", role="sender"))
>>> run_in_process(bank, shop)
>>> sorted(bank.result.rows.tolist()), sorted(shop.result.rows.tolist()), bank.result.verified
([0, 2], [0, 2], True)

The caller moves the bytes: it sends each `next_frame` until there is none and passes arriving bytes to `feed`. Frames
are computed on demand. An end always accepts `feed`, so two callers that feed before they send more cannot deadlock.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import cast

from securevfl_crypto.engine import Engine, choose_engine

from securevfl_psi.conversations import CONVERSATIONS, Conversation, Result
from securevfl_psi.conversations.scripts import Incoming, Outgoing
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
from securevfl_psi.terms import Protocol, Terms
from securevfl_psi.wire import TAG_BYTES, Frame, FrameReader, FrameWriter, Kind

__all__ = ["Endpoint", "Result", "run_in_process"]

_REASONS = (  # the first that fits; an error's text is never sent, as it may contain an identifier
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
    "malformed": "it received a message that the protocol does not allow",
    "input": "its own identifiers cannot be used",
    "error": "it had an internal error",
}


class Endpoint:
    """One party's end of a two-party run.

    Args:
        ids: its identifiers, one per row; normalised here by the terms' rules.
        terms: its parameters and its conditions on the peer.
        by: the engine; by default the fastest.
        normalised: True if the identifiers are already normalised and unique.

    Raises:
        IdentifierError: unusable identifiers; raised before anything is sent.
        SetSizeError: more identifiers than the terms allow.
        EngineError: the environment demands a code path that is unknown or cannot run here.
    """

    def __init__(
        self, ids: Sequence[object], terms: Terms, *, by: Engine | None = None, normalised: bool = False
    ) -> None:
        self.terms = terms
        self._ids = ids if normalised and isinstance(ids, Identifiers) else normalise_column(ids, terms.rules)
        self._size = max(len(self._ids), terms.pad_to or 0)
        if self._size > terms.max_set_size or (terms.pad_to is not None and len(self._ids) > terms.pad_to):
            raise SetSizeError(
                f"{len(self._ids)} identifiers, pad_to={terms.pad_to}, max_set_size={terms.max_set_size}: "
                "raise what is too small"
            )
        # `ot` needs none of the engine's kernels; after `auto`, `dh` takes the fastest.
        self._by = by or (None if terms.protocol in ("ot", "auto") else choose_engine())
        self._reader, self._writer = FrameReader(), FrameWriter()
        self._sending: Outgoing = iter([Frame(Kind.HELLO, terms.encode_hello(self._size))])
        self._ahead: Frame | None = None
        self._hearing: Incoming | None = None
        self._due: Kind | None = Kind.HELLO
        self._talk: Conversation | None = None
        self._failed = False

    def retry(self) -> Endpoint:
        """Return a new end with the same set and terms and a fresh nonce, for a retry after a failed run."""
        terms = replace(self.terms, nonce=secrets.token_bytes(len(self.terms.nonce)))
        return Endpoint(self._ids, terms, by=self._by, normalised=True)

    @property
    def done(self) -> bool:
        """Whether the result is known and all frames were sent."""
        return (
            self._talk is not None and self._talk.result is not None and not self._failed and self._peek_frame() is None
        )

    @property
    def agreed(self) -> bool:
        """Whether the peer's hello arrived and both agree on the terms."""
        return self._talk is not None

    def _peek_frame(self) -> Frame | None:
        """Return the next frame without sending it. Frames get numbers as they leave, so a refusal can replace it."""
        if self._ahead is None:
            self._ahead = next(self._sending, None)
        return self._ahead

    @property
    def result(self) -> Result:
        """The run's result for this party.

        Raises:
            PSIError: the run has not ended.
        """
        if self._talk is None or self._talk.result is None or self._failed:
            raise PSIError("there is no result yet")
        return self._talk.result

    def next_frame(self) -> bytes | None:
        """Return the bytes to send next, or None if the peer has to send first."""
        frame, self._ahead = self._peek_frame(), None
        return None if frame is None else self._writer.write(frame.kind, frame.payload)

    def feed(self, data: bytes) -> None:
        """Process bytes that arrived, in pieces of any length.

        Raises:
            PSIError: any failure. `next_frame` then returns a refusal for the peer; after it, this end is unusable.
        """
        if self._failed:
            raise PSIError("this end has failed; begin a new run")
        try:
            for frame in self._reader.feed(data):
                self._handle_frame(frame)
        except PeerRefused:
            self._mark_failed(iter(()))  # a refusal is not answered
            raise
        except PSIError as error:
            self._refuse_peer(error)
            raise

    def close(self) -> None:
        """Report that the peer closed the connection.

        Raises:
            ConnectionLost: the run has not ended.
            MalformedError: the peer stopped in the middle of a frame.
        """
        if not self.done:
            self._reader.close()
            raise ConnectionLost(f"{self.terms.peer!r} hung up before the end")

    def _refuse_peer(self, error: PSIError) -> None:
        reason = next(word for kind, word in _REASONS if isinstance(error, kind))
        self._mark_failed(iter([Frame(Kind.REFUSED, reason.encode())]))

    def _mark_failed(self, last: Outgoing) -> None:
        """Mark this end as failed; it sends `last` and nothing more."""
        self._failed = True
        self._sending, self._ahead = last, None

    def _handle_frame(self, frame: Frame) -> None:
        if frame.kind == Kind.REFUSED:
            word = frame.payload.decode("ascii", "replace")
            # Only words of this table are shown: the peer's own could be anything.
            raise PeerRefused(f"{self.terms.peer!r} ended the run: {_WORDS.get(word, 'it gave no known reason')}")
        if self._talk is None:
            if frame.kind != Kind.HELLO:
                raise MalformedError(f"a {frame.kind.name} came before the hello")
            self._begin_conversation(*self.terms.accept_hello(frame.payload, self._size))
            return
        if self._hearing is None or frame.kind != self._due:
            raise MalformedError(
                f"a {frame.kind.name} came, which a {self.terms.role} of {self._talk.session.protocol} never gets now: "
                + (f"a {self._due.name} is due" if self._due is not None else "nothing is due")
            )
        try:
            self._due = self._hearing.send(frame)
        except StopIteration:
            self._hearing = self._due = None

    def _begin_conversation(self, session: Session, peer_size: int) -> None:
        make = CONVERSATIONS[cast(Protocol, session.protocol)]
        self._talk = make(self._ids, self.terms, session, peer_size, self._by)
        for writer_role, end in ((self.terms.role, self._writer), (None, self._reader)):
            role = writer_role or ("sender" if self.terms.role == "receiver" else "receiver")
            end.tag = hashlib.sha512(session.dst + role.encode()).digest()[:TAG_BYTES]
        self._sending = chain(self._sending, self._talk.send_script())
        self._hearing = self._talk.receive_script()
        self._due = next(self._hearing, None)


def run_in_process(one: Endpoint, other: Endpoint) -> None:
    """Run both ends in one process, frame by frame. The caller has both sets, so this hides nothing.

    Raises:
        PSIError: an end failed. The other end receives the refusal first.
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
                    _carry_limb(source, refusal)
                raise
        if not moved:
            raise PSIError("both ends wait for each other")


def _carry_limb(end: Endpoint, refusal: bytes) -> None:
    try:
        end.feed(refusal)
    except PSIError:
        return

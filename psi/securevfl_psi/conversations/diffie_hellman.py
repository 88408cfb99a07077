"""The protocols over blinded points: intersection, cardinality, pseudonyms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi.arrays import match, require_unique, secret_order
from securevfl_psi.chunks import require_chunk, split
from securevfl_psi.conversations.base import Conversation, Pseudonyms, Said, rows_of
from securevfl_psi.dh import Receiver, Sender
from securevfl_psi.errors import MalformedError
from securevfl_psi.group import POINT_BYTES, TOKEN_BYTES
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.session import Session
from securevfl_psi.terms import Terms
from securevfl_psi.wire import Frame, Kind

__all__ = ["Cardinality", "Intersection", "PseudonymExchange"]


class Intersection(Conversation):
    """`dh`: the receiver, or both, learn which rows are common."""

    def __init__(
        self, ids: Identifiers, terms: Terms, session: Session, peer_size: int, by: Engine | None = None
    ) -> None:
        super().__init__(ids, terms, session, peer_size, by)
        make = Receiver if terms.role == "receiver" else Sender
        secret = None if terms.lasting is None else terms.lasting.secret
        self.party = make(ids, session, max_set_size=terms.max_set_size, pad_to=terms.pad_to, by=by, secret=secret)
        self._answers = 0

    def own(self) -> Iterator[tuple[Kind, np.ndarray]]:
        for part in self.party.chunks():
            yield Kind.POINTS, part

    def start(self) -> Said:
        """Two empty sets have nothing more to wait for."""
        return self._all_there()

    def take(self, frame: Frame) -> Said:
        if frame.kind == Kind.POINTS:
            rows = rows_of(frame, POINT_BYTES)
            self.arrived(rows)
            yield from self.points(rows)
        elif frame.kind == Kind.TOKENS and self.expects_tokens:
            rows = rows_of(frame, TOKEN_BYTES)
            require_chunk(rows, TOKEN_BYTES, self._answers, self.party.size, "the doubled set")
            self.party.take_tokens(rows)
            self._answers += len(rows)
        elif self.receives and frame.kind == Kind.DIGEST and self.terms.learns == "both" and hasattr(self, "_digest"):
            self.confirmed(frame)
            return
        elif not self.receives and self._points == self.peer_size and self.result is None:
            yield from self.at_sender(frame)
            return
        else:
            raise self.wrong(frame)
        yield from self._all_there()

    @property
    def expects_tokens(self) -> bool:
        """Whether the peer answers this party's points."""
        return self.receives

    def points(self, rows: np.ndarray) -> Said:
        """Answers to a chunk of the peer's points."""
        if isinstance(self.party, Receiver):
            self.party.take(rows)
        else:
            yield Kind.TOKENS, self.party.double_chunk(rows).tobytes()

    def _all_there(self) -> Said:
        if self.receives and self._points == self.peer_size and self._answers == self.party.size:
            yield from self.compared()

    def compared(self) -> Said:
        """At the receiver, when both sets are complete."""
        party = cast(Receiver, self.party)
        yield from self.conclude(party.finish(self.peer_size))

    def at_sender(self, frame: Frame) -> Said:
        """What the sender is told at the end."""
        party = cast(Sender, self.party)
        if frame.kind in (Kind.POSITIONS, Kind.DIGEST) and self.terms.learns == "both":
            yield from self.told(frame, party.rows)
        elif frame.kind == Kind.FINISHED and self.terms.learns == "receiver":
            self.finish()
        else:
            raise self.wrong(frame)


class Cardinality(Intersection):
    """`cardinality`: how many are common. The sender answers in a secret order, so the receiver learns no row."""

    def __init__(
        self, ids: Identifiers, terms: Terms, session: Session, peer_size: int, by: Engine | None = None
    ) -> None:
        super().__init__(ids, terms, session, peer_size, by)
        self._doubled: list[np.ndarray] = []

    def points(self, rows: np.ndarray) -> Said:
        if isinstance(self.party, Receiver):
            self.party.take(rows)
            return
        self._doubled.append(self.party.double_chunk(rows))
        if self._points == self.peer_size:
            whole = np.concatenate(self._doubled)
            require_unique(whole, "the receiver's set")
            for part in split(whole[secret_order(len(whole))]):
                yield Kind.TOKENS, part.tobytes()

    def compared(self) -> Said:
        party = cast(Receiver, self.party)
        count = party.cardinality(self.peer_size)
        self.allowed(count)
        yield (Kind.COUNT, count.to_bytes(8, "big")) if self.terms.learns == "both" else (Kind.FINISHED, b"")
        self.finish(count=count)

    def at_sender(self, frame: Frame) -> Said:
        if frame.kind == Kind.FINISHED and self.terms.learns == "receiver":
            self.finish()
        elif frame.kind == Kind.COUNT and self.terms.learns == "both" and len(frame.payload) == 8:
            count = int.from_bytes(frame.payload, "big")
            if count > min(len(self.ids), self.peer_size):
                raise MalformedError(f"{count} common identifiers among {len(self.ids)} and {self.peer_size}")
            self.allowed(count)
            self.finish(count=count)
        else:
            raise self.wrong(frame)
        yield from ()


class PseudonymExchange(Intersection):
    """`pseudonyms`: both answer, so each party gets the tokens of all its own rows, in the intersection or not.

    The receiver has all tokens of both and so learns the intersection; the sender has its own rows' only.
    """

    @property
    def expects_tokens(self) -> bool:
        return True

    def points(self, rows: np.ndarray) -> Said:
        doubled = self.party.take(rows) if isinstance(self.party, Receiver) else self.party.double_chunk(rows)
        yield Kind.TOKENS, doubled.tobytes()

    def compared(self) -> Said:
        party = cast(Receiver, self.party)
        own = party.own_tokens()
        theirs = party.their_tokens(self.peer_size)
        rows, _ = match(own, theirs)
        self.allowed(len(rows))
        yield Kind.FINISHED, b""
        self.finish(count=len(rows), rows=rows, pseudonyms=Pseudonyms(own=own, peer=theirs))

    def at_sender(self, frame: Frame) -> Said:
        if frame.kind != Kind.FINISHED or self._answers != self.party.size:
            raise self.wrong(frame)
        own = self.party.own_tokens()
        self.finish(pseudonyms=Pseudonyms(own=own, peer=own[:0]))
        yield from ()

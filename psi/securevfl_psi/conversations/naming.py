"""`pseudonyms`: name all rows of both parties, common or not. See `doubling.Namer`.

A pseudonym is H2(x, ab·H1(x)). It binds the identifier, which each party adds for its own rows, and both keys, of which
each party has one. So a peer that answers with other points, or in another order, spoils names but cannot forge one;
and neither party can name an identifier alone, now or, with lasting keys, later.
"""

from __future__ import annotations

from securevfl_crypto.engine import Engine

from securevfl_psi.arrays import match_rows
from securevfl_psi.blinding import RowBuffer
from securevfl_psi.chunks import require_chunk, split
from securevfl_psi.conversations.base import Conversation, Pseudonyms
from securevfl_psi.conversations.scripts import Incoming, Outgoing, as_frames, chunks_of, rows_of
from securevfl_psi.doubling import Namer
from securevfl_psi.group import POINT_BYTES, TOKEN_BYTES
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.session import Session
from securevfl_psi.terms import Terms
from securevfl_psi.wire import Frame, Kind

__all__ = ["PseudonymExchange"]


class PseudonymExchange(Conversation):
    """Either role. The receiver gets the sender's names as well, shuffled, and so learns the intersection."""

    def __init__(
        self, ids: Identifiers, terms: Terms, session: Session, peer_size: int, by: Engine | None = None
    ) -> None:
        super().__init__(ids, terms, session, peer_size, by)
        secret = None if terms.lasting is None else terms.lasting.secret
        self._party = Namer(ids, session, max_set_size=terms.max_set_size, pad_to=terms.pad_to, by=by, secret=secret)
        self._named = False

    def send_script(self) -> Outgoing:
        """The own set and the peer's, doubled, in turns; the sender then its names, the receiver that all is well."""
        own, theirs = chunks_of(self._party.size), chunks_of(self.peer_size)
        chunks = self._party.blind_set()
        for number in range(max(own, theirs)):
            if number < own:
                yield from as_frames(Kind.POINTS, [next(chunks)])
            if number < theirs:
                while not self._party.waiting_chunks:
                    yield None
                yield from as_frames(Kind.ANSWERS, [self._party.double_chunk()])
        while not self._named:
            yield None
        if self.is_receiver:
            yield Frame(Kind.FINISHED, b"")
        else:
            yield from as_frames(Kind.TOKENS, split(self._party.shuffle_names()))

    def receive_script(self) -> Incoming:
        """The peer's set and the own one, doubled, in turns; the receiver then the sender's names."""
        own, theirs = chunks_of(self._party.size), chunks_of(self.peer_size)
        seen = answered = 0
        for number in range(max(own, theirs)):
            if number < theirs:
                rows = rows_of((yield Kind.POINTS), POINT_BYTES)
                require_chunk(rows, POINT_BYTES, seen, self.peer_size, "the peer's set")
                seen += len(rows)
                self._party.take_chunk(rows)
            if number < own:
                rows = rows_of((yield Kind.ANSWERS), POINT_BYTES)
                require_chunk(rows, POINT_BYTES, answered, self._party.size, "the doubled set")
                answered += len(rows)
                self._party.take_doubled(rows)
        if self.is_receiver:
            yield from self._compare_names()
            return
        self._named = True
        yield Kind.FINISHED
        names = self._party.own_names()
        self.set_result(pseudonyms=Pseudonyms(own=names, peer=names[:0]))

    def _compare_names(self) -> Incoming:
        theirs = RowBuffer(TOKEN_BYTES, self.peer_size, "the sender's names")
        while theirs.count < self.peer_size:
            rows = rows_of((yield Kind.TOKENS), TOKEN_BYTES)
            require_chunk(rows, TOKEN_BYTES, theirs.count, self.peer_size, "the sender's names")
            theirs.add_rows(rows)
        peer = theirs.take_all(self.peer_size)
        own = self._party.own_names()
        rows, _ = match_rows(own, peer)
        self.require_enough(len(rows))
        self._named = True
        self.set_result(count=len(rows), rows=rows, pseudonyms=Pseudonyms(own=own, peer=peer))

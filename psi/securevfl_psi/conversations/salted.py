"""The protocol over salted hashes, which hides nothing from whoever can enumerate identifiers."""

from __future__ import annotations

from securevfl_crypto.engine import Engine

from securevfl_psi.arrays import secret_order
from securevfl_psi.chunks import require_chunk
from securevfl_psi.conversations.base import Conversation
from securevfl_psi.conversations.proving import Proving, Receiving
from securevfl_psi.conversations.scripts import Incoming, Outgoing, framed, rows_of
from securevfl_psi.group import TOKEN_BYTES
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.salted_hash import UnsafeSaltedHash
from securevfl_psi.session import Session
from securevfl_psi.terms import Terms
from securevfl_psi.wire import Frame, Kind

__all__ = ["SaltedHash"]


class SaltedHash(Conversation):
    """`unsafe_salted_hash`: the sender's digests go to the receiver, who compares."""

    def __init__(
        self, ids: Identifiers, terms: Terms, session: Session, peer_size: int, by: Engine | None = None
    ) -> None:
        super().__init__(ids, terms, session, peer_size, by)
        self._party = UnsafeSaltedHash(ids, terms.salt + session.dst, max_set_size=terms.max_set_size)
        self._proving = Proving(lambda: self._party.outputs)
        self._receiving = Receiving(self._party.rows, lambda: self._party.outputs)

    def sending(self) -> Outgoing:
        """The sender's digests; the receiver's proofs."""
        if not self.receives:
            yield from framed(Kind.TOKENS, self._party.chunks())
            if self.terms.learns == "both":
                yield from self._receiving.sending()
        elif self.terms.learns == "both":
            yield from self._proving.sending()
        else:
            while self.result is None:
                yield None
            yield Frame(Kind.FINISHED, b"")

    def hearing(self) -> Incoming:
        """The sender's digests; the receiver's proofs."""
        if self.receives:
            yield from self._compare()
        elif self.terms.learns == "receiver":
            yield Kind.FINISHED
            self.finish()
        else:
            yield from self._receiving.hearing(1, len(self.ids), lambda: self._party.complete)
            (rows,) = self._receiving.lists or ()
            self.allowed(len(rows))
            self._receiving.accepted = True
            self.finish(count=len(rows), rows=rows, verified=True)

    def _compare(self) -> Incoming:
        done = 0
        while done < self.peer_size:
            rows = rows_of((yield Kind.TOKENS), TOKEN_BYTES)
            require_chunk(rows, TOKEN_BYTES, done, self.peer_size, "the peer's set")
            self._party.take(rows)
            done += len(rows)
        rows = self._party.finish(self.peer_size)
        self.allowed(len(rows))
        if self.terms.learns == "receiver":
            self.finish(count=len(rows), rows=rows, verified=True)
            return
        rows = rows[secret_order(len(rows))]
        self._proving.lists = [rows]
        yield from self._proving.hearing()
        self.finish(count=len(rows), rows=rows, verified=True)

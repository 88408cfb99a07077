"""`ot`: which rows are common, by oblivious transfer. See `oblivious` for the protocol.

Who asks is decided as in `dh`, and the end is that of `dh`: the client proves the common rows, the server gives a
receipt.
"""

from __future__ import annotations

from securevfl_crypto.bits import ROW_BYTES
from securevfl_crypto.engine import Engine

from securevfl_psi.arrays import secret_order
from securevfl_psi.chunks import require_chunk
from securevfl_psi.conversations.base import Conversation
from securevfl_psi.conversations.proving import Proving, Receiving
from securevfl_psi.conversations.scripts import Incoming, Outgoing, framed, payload, rows_of
from securevfl_psi.group import POINT_BYTES
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.oblivious import Client, Server, token_bytes
from securevfl_psi.oblivious.base import TRANSFERS
from securevfl_psi.oblivious.extension import ANSWER_BYTES, CHALLENGE_BYTES
from securevfl_psi.okvs import SEED_BYTES
from securevfl_psi.session import Session
from securevfl_psi.terms import Terms
from securevfl_psi.wire import Frame, Kind

__all__ = ["AnsweringTransfer", "AskingTransfer", "transfer"]


def transfer(
    ids: Identifiers, terms: Terms, session: Session, peer_size: int, by: Engine | None = None
) -> Conversation:
    """This party's side; `Terms.asks` says which of the two it is."""
    asks = terms.asks(max(len(ids), terms.pad_to or 0), peer_size)
    make = AskingTransfer if asks else AnsweringTransfer
    return make(ids, terms, session, peer_size, by)


class AskingTransfer(Conversation):
    """The client: encodes its set, learns first, proves the common rows, wants a receipt."""

    def __init__(
        self, ids: Identifiers, terms: Terms, session: Session, peer_size: int, by: Engine | None = None
    ) -> None:
        super().__init__(ids, terms, session, peer_size, by)
        path = None if by is None else by.name
        self._client = Client(ids, session, peer_size, max_set_size=terms.max_set_size, pad_to=terms.pad_to, path=path)
        self._proving = Proving(lambda: self._client.outputs)
        self._ready = False
        self._sums: bytes | None = None

    def sending(self) -> Outgoing:
        """The encoded set, the sums that are asked for, and proofs."""
        yield Frame(Kind.TRANSFERS, self._client.message)
        yield Frame(Kind.SEED, self._client.seed)
        while not self._ready:
            yield None
        yield from framed(Kind.ROWS, self._client.rows())
        while self._sums is None:
            yield None
        yield Frame(Kind.SUMS, self._sums)
        self._client.evaluate()  # while the server makes its tokens
        if self.terms.learns == "both":
            yield from self._proving.sending()
            return
        while self.result is None:
            yield None
        yield Frame(Kind.FINISHED, b"")

    def hearing(self) -> Incoming:
        """The base transfers' answer, the challenge, tokens, the receipt."""
        self._client.take_keys(payload((yield Kind.TRANSFERS), TRANSFERS * POINT_BYTES))
        self._ready = True
        self._sums = self._client.answer(payload((yield Kind.SEED), CHALLENGE_BYTES))
        width, done = token_bytes(self._client.size, self.peer_size), 0
        while done < self.peer_size:
            rows = rows_of((yield Kind.TOKENS), width)
            require_chunk(rows, width, done, self.peer_size, "the server's set")
            done += len(rows)
            self._client.take_tokens(rows)
        rows = self._client.finish()
        self.allowed(len(rows))
        if self.terms.learns == "both":  # in an order that shows nothing of how this party sorts its table
            self._proving.lists = [rows := rows[secret_order(len(rows))]]
            yield from self._proving.hearing()
        self.finish(count=len(rows), rows=rows, verified=True)


class AnsweringTransfer(Conversation):
    """The server: checks that the encoded set is one, sends tokens, learns what the client proves."""

    def __init__(
        self, ids: Identifiers, terms: Terms, session: Session, peer_size: int, by: Engine | None = None
    ) -> None:
        super().__init__(ids, terms, session, peer_size, by)
        path = None if by is None else by.name
        self._server = Server(ids, session, peer_size, max_set_size=terms.max_set_size, pad_to=terms.pad_to, path=path)
        self._receiving = Receiving(self._server.rows, lambda: self._server.outputs)
        self._begun = self._checked = False

    def sending(self) -> Outgoing:
        """The base transfers' answer, the challenge, tokens, the receipt."""
        while not self._begun:
            yield None
        yield Frame(Kind.TRANSFERS, self._server.choices())
        self._server.prepare()  # while the client encodes its set
        while not self._server.encoded:
            yield None
        yield Frame(Kind.SEED, self._server.challenge())
        while not self._checked:
            yield None
        yield from framed(Kind.TOKENS, self._server.chunks())
        if self.terms.learns == "both":
            yield from self._receiving.sending()

    def hearing(self) -> Incoming:
        """The client's encoded set, its sums, and its proofs."""
        self._server.take_message(payload((yield Kind.TRANSFERS), POINT_BYTES))
        self._begun = True
        self._server.take_seed(payload((yield Kind.SEED), SEED_BYTES))
        while not self._server.encoded:
            self._server.take_rows(rows_of((yield Kind.ROWS), ROW_BYTES))
        self._server.check(payload((yield Kind.SUMS), ANSWER_BYTES))
        self._checked = True
        if self.terms.learns == "receiver":
            yield Kind.FINISHED
            self.finish()
            return
        most = min(self._server.size, self.peer_size)  # a client can encode more than it announced, but not prove it
        yield from self._receiving.hearing(1, most, lambda: self._server.complete)
        (rows,) = self._receiving.lists or ()
        self.allowed(len(rows))
        self._receiving.accepted = True
        self.finish(count=len(rows), rows=rows, verified=True)

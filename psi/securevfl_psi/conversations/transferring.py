"""`ot`: find the common rows by oblivious transfer. See `oblivious` for the protocol and `encoding` for its scripts.

As in `dh`, `Terms.is_client` decides who asks; at the end the client proves the common rows and the server sends
a receipt.
"""

from __future__ import annotations

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi.arrays import secret_order
from securevfl_psi.conversations.base import Conversation
from securevfl_psi.conversations.encoding import Decoding, Encoding
from securevfl_psi.conversations.scripts import Incoming, Outgoing
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.oblivious import OTClient, OTServer
from securevfl_psi.session import Session
from securevfl_psi.terms import Terms

__all__ = ["AnsweringTransfer", "AskingTransfer", "make_transfer"]


def make_transfer(
    ids: Identifiers, terms: Terms, session: Session, peer_size: int, by: Engine | None = None
) -> Conversation:
    """Make this party's side: the client's or the server's, by `Terms.is_client`."""
    asks = terms.is_client(max(len(ids), terms.pad_to or 0), peer_size)
    make = AskingTransfer if asks else AnsweringTransfer
    return make(ids, terms, session, peer_size, by)


class AskingTransfer(Conversation):
    """The client: encodes its set, learns first, proves the common rows and checks the receipt."""

    def __init__(
        self, ids: Identifiers, terms: Terms, session: Session, peer_size: int, by: Engine | None = None
    ) -> None:
        super().__init__(ids, terms, session, peer_size, by)
        path = None if by is None else by.name
        client = OTClient(ids, session, peer_size, max_set_size=terms.max_set_size, pad_to=terms.pad_to, path=path)
        self._encoding = Encoding(client, peer_size, self._handle_rows, prove=terms.learns == "both")

    def send_script(self) -> Outgoing:
        """The encoded set, the sums that are asked for, and proofs."""
        return self._encoding.send_script()

    def receive_script(self) -> Incoming:
        """The base transfers' answer, the challenge, tokens, the receipt."""
        yield from self._encoding.receive_script()
        if self._encoding.proving.lists is not None:
            (rows,) = self._encoding.proving.lists
            self.set_result(count=len(rows), rows=rows, verified=True)

    def _handle_rows(self, rows: np.ndarray) -> None:
        self.require_enough(len(rows))
        if self.terms.learns == "both":  # in an order that shows nothing of how this party sorts its table
            self._encoding.proving.lists = [rows[secret_order(len(rows))]]
        else:
            self.set_result(count=len(rows), rows=rows, verified=True)


class AnsweringTransfer(Conversation):
    """The server: checks the encoded set, sends tokens and learns the rows that the client proves."""

    def __init__(
        self, ids: Identifiers, terms: Terms, session: Session, peer_size: int, by: Engine | None = None
    ) -> None:
        super().__init__(ids, terms, session, peer_size, by)
        path = None if by is None else by.name
        server = OTServer(ids, session, peer_size, max_set_size=terms.max_set_size, pad_to=terms.pad_to, path=path)
        self._decoding = Decoding(server, peer_size, int(terms.learns == "both"), self._handle_lists)

    def send_script(self) -> Outgoing:
        """The base transfers' answer, the challenge, tokens, the receipt."""
        return self._decoding.send_script()

    def receive_script(self) -> Incoming:
        """The client's encoded set, its sums, and its proofs."""
        return self._decoding.receive_script()

    def _handle_lists(self, lists: list[np.ndarray]) -> None:
        if not lists:
            self.set_result()
            return
        (rows,) = lists
        self.require_enough(len(rows))
        self.set_result(count=len(rows), rows=rows, verified=True)

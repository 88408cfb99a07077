"""`dh`: find the common rows. See `dh` for the protocol and `asking` for its scripts."""

from __future__ import annotations

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi.arrays import secret_order
from securevfl_psi.conversations.asking import Answering, Asking
from securevfl_psi.conversations.base import Conversation
from securevfl_psi.conversations.scripts import Incoming, Outgoing
from securevfl_psi.dh import DHClient, DHServer
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.session import Session
from securevfl_psi.terms import Terms

__all__ = ["AnsweringIntersection", "AskingIntersection", "make_intersection"]


def make_intersection(
    ids: Identifiers, terms: Terms, session: Session, peer_size: int, by: Engine | None = None
) -> Conversation:
    """Make this party's side: the client's or the server's, by `Terms.is_client`."""
    asks = terms.is_client(max(len(ids), terms.pad_to or 0), peer_size)
    make = AskingIntersection if asks else AnsweringIntersection
    return make(ids, terms, session, peer_size, by)


class AskingIntersection(Conversation):
    """The client: learns first, proves the common rows and checks the receipt."""

    def __init__(
        self, ids: Identifiers, terms: Terms, session: Session, peer_size: int, by: Engine | None = None
    ) -> None:
        super().__init__(ids, terms, session, peer_size, by)
        client = DHClient(ids, session, max_set_size=terms.max_set_size, pad_to=terms.pad_to, by=by)
        self._asking = Asking(client, peer_size, self._handle_rows, prove=terms.learns == "both")

    def send_script(self) -> Outgoing:
        """Points, and proofs."""
        return self._asking.send_script()

    def receive_script(self) -> Incoming:
        """Tokens, answers, the receipt."""
        yield from self._asking.receive_script()
        if self._asking.proving.lists is not None:
            (rows,) = self._asking.proving.lists
            self.set_result(count=len(rows), rows=rows, verified=True)

    def _handle_rows(self, rows: np.ndarray) -> None:
        self.require_enough(len(rows))
        if self.terms.learns == "both":  # in an order that shows nothing of how this party sorts its table
            self._asking.proving.lists = [rows[secret_order(len(rows))]]
        else:
            self.set_result(count=len(rows), rows=rows, verified=True)


class AnsweringIntersection(Conversation):
    """The server: learns the rows that the client proves."""

    def __init__(
        self, ids: Identifiers, terms: Terms, session: Session, peer_size: int, by: Engine | None = None
    ) -> None:
        super().__init__(ids, terms, session, peer_size, by)
        server = DHServer(ids, session, max_set_size=terms.max_set_size, pad_to=terms.pad_to, by=by)
        self._answering = Answering(server, peer_size, int(terms.learns == "both"), self._handle_lists)

    def send_script(self) -> Outgoing:
        """Tokens, answers, the receipt."""
        return self._answering.send_script()

    def receive_script(self) -> Incoming:
        """Points, and proofs."""
        return self._answering.receive_script()

    def _handle_lists(self, lists: list[np.ndarray]) -> None:
        if not lists:
            self.set_result()
            return
        (rows,) = lists
        self.require_enough(len(rows))
        self.set_result(count=len(rows), rows=rows, verified=True)

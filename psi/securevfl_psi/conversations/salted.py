"""`unsafe_salted_hash`: the sender's digests go to the receiver, who compares. See `hashing` for the scripts."""

from __future__ import annotations

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi.arrays import secret_order
from securevfl_psi.conversations.base import Conversation
from securevfl_psi.conversations.hashing import DigestReceiver, DigestSender
from securevfl_psi.conversations.scripts import Incoming, Outgoing
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.salted_hash import UnsafeSaltedHash
from securevfl_psi.session import Session
from securevfl_psi.terms import Terms

__all__ = ["SaltedHash"]


class SaltedHash(Conversation):
    """Either role."""

    def __init__(
        self, ids: Identifiers, terms: Terms, session: Session, peer_size: int, by: Engine | None = None
    ) -> None:
        super().__init__(ids, terms, session, peer_size, by)
        party = UnsafeSaltedHash(ids, terms.salt + session.dst, max_set_size=terms.max_set_size)
        both = terms.learns == "both"
        self._part: DigestReceiver | DigestSender
        if self.is_receiver:
            self._part = DigestReceiver(party, peer_size, self._handle_rows, prove=both)
        else:
            self._part = DigestSender(party, len(ids), int(both), self._handle_lists)

    def send_script(self) -> Outgoing:
        """The sender's digests; the receiver's proofs."""
        return self._part.send_script()

    def receive_script(self) -> Incoming:
        """The sender's digests; the receiver's proofs."""
        yield from self._part.receive_script()
        if isinstance(self._part, DigestReceiver) and self._part.proving.lists is not None:
            (rows,) = self._part.proving.lists
            self.set_result(count=len(rows), rows=rows, verified=True)

    def _handle_rows(self, rows: np.ndarray) -> None:
        self.require_enough(len(rows))
        if self.terms.learns == "both" and isinstance(self._part, DigestReceiver):
            self._part.proving.lists = [rows[secret_order(len(rows))]]
        else:
            self.set_result(count=len(rows), rows=rows, verified=True)

    def _handle_lists(self, lists: list[np.ndarray]) -> None:
        if not lists:
            self.set_result()
            return
        (rows,) = lists
        self.require_enough(len(rows))
        self.set_result(count=len(rows), rows=rows, verified=True)

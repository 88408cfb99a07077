"""Check that all parties have the same rows in the same order; each pair compares, so no party can deceive others."""

from __future__ import annotations

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi.conversations.scripts import Incoming, Outgoing, read_payload
from securevfl_psi.cpace import CONFIRMATION_BYTES, SHARE_BYTES, Comparison
from securevfl_psi.errors import MalformedError
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.verify import list_digest
from securevfl_psi.wire import Frame, Kind

__all__ = ["RowComparison"]


class RowComparison:
    """One party's comparisons with all others.

    Args:
        name: this party.
        tag: the run's fresh tag, which all parties know.
        by: the engine.

    Attributes:
        equal: peers that proved to have the same rows.
    """

    def __init__(self, name: str, tag: bytes, by: Engine | None = None) -> None:
        self._name, self._tag, self._by = name, tag, by
        self._digest: bytes | None = None
        self._comparisons: dict[str, Comparison] = {}
        self._shares: dict[str, bytes] = {}
        self._confirmations: dict[str, bytes] = {}
        self.equal: set[str] = set()

    def begin_comparison(self, ids: Identifiers, rows: np.ndarray) -> None:
        """Set this party's common rows, which starts the comparisons."""
        self._digest = list_digest(ids, rows)

    def send_script(self, peer: str) -> Outgoing:
        """A share, and a confirmation."""
        while self._digest is None:
            yield None
        self._comparisons[peer] = Comparison(self._digest, self._name, peer, self._tag, by=self._by)
        yield Frame(Kind.SHARE, self._comparisons[peer].share)
        while peer not in self._shares:
            yield None
        self._confirm_peer(peer)
        yield Frame(Kind.CONFIRMATION, self._confirmations[peer])

    def receive_script(self, peer: str) -> Incoming:
        """The peer's."""
        frame = yield Kind.SHARE
        self._shares[peer] = read_payload(frame, SHARE_BYTES)
        frame = yield Kind.CONFIRMATION
        if peer not in self._comparisons:
            raise MalformedError(f"{peer!r} confirmed before it had this party's share")
        self._confirm_peer(peer)
        self._comparisons[peer].require_equal(read_payload(frame, CONFIRMATION_BYTES))
        self.equal.add(peer)

    def _confirm_peer(self, peer: str) -> None:
        if peer not in self._confirmations:
            self._confirmations[peer] = self._comparisons[peer].make_confirmation(self._shares[peer])

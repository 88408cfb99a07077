"""The protocol over salted hashes, which hides nothing from whoever can enumerate identifiers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi.conversations.base import Conversation, Said, rows_of
from securevfl_psi.errors import MalformedError
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
        self.party = UnsafeSaltedHash(ids, terms.salt + session.dst, max_set_size=terms.max_set_size)

    def own(self) -> Iterator[tuple[Kind, np.ndarray]]:
        for part in () if self.receives else self.party.chunks():
            yield Kind.TOKENS, part

    def start(self) -> Said:
        if self.receives and not self.peer_size:
            yield from self.conclude(self.party.finish(0))

    def take(self, frame: Frame) -> Said:
        if self.receives and frame.kind == Kind.TOKENS and not hasattr(self, "_digest"):
            rows = rows_of(frame, TOKEN_BYTES)
            self.party.take(rows)
            if self.arrived(rows):
                yield from self.conclude(self.party.finish(self.peer_size))
        elif self.receives and frame.kind == Kind.DIGEST and hasattr(self, "_digest"):
            self.confirmed(frame)
        elif not self.receives and self.result is None:
            yield from self._at_sender(frame)
        else:
            raise self.wrong(frame)

    def _at_sender(self, frame: Frame) -> Said:
        if frame.kind in (Kind.POSITIONS, Kind.DIGEST) and self.terms.learns == "both":
            yield from self.told(frame, self._find)
        elif frame.kind == Kind.FINISHED and self.terms.learns == "receiver":
            self.finish()
        else:
            raise self.wrong(frame)

    def _find(self, positions: np.ndarray) -> np.ndarray:
        if len(positions) and (positions.min() < 0 or positions.max() >= len(self.party.order)):
            raise MalformedError(f"a position is outside the set of {len(self.party.order)} rows")
        if len(np.unique(positions)) != len(positions):
            raise MalformedError("a position comes twice; every row is common once")
        rows: np.ndarray = self.party.order[positions].astype(np.int64)
        return rows

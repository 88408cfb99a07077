"""`cardinality`: count the common rows. See `doubling.Counter`.

The sender answers in a secret order, so an honest receiver learns only a number. A deviating receiver can multiply each
of its points by a different scalar instead of one for all, undo each scalar on the answers and learn which of its
identifiers are common, whatever the order. So `cardinality` hides *which* only from an honest receiver; from another it
hides as much as `dh`.
"""

from __future__ import annotations

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi.chunks import require_chunk, split
from securevfl_psi.conversations.base import Conversation
from securevfl_psi.conversations.scripts import Incoming, Outgoing, as_frames, read_payload, rows_of
from securevfl_psi.doubling import Counter
from securevfl_psi.errors import MalformedError
from securevfl_psi.group import POINT_BYTES, TOKEN_BYTES
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.session import Session
from securevfl_psi.terms import Terms
from securevfl_psi.wire import Frame, Kind

__all__ = ["Cardinality"]


class Cardinality(Conversation):
    """Either role."""

    def __init__(
        self, ids: Identifiers, terms: Terms, session: Session, peer_size: int, by: Engine | None = None
    ) -> None:
        super().__init__(ids, terms, session, peer_size, by)
        self._party = Counter(ids, session, max_set_size=terms.max_set_size, pad_to=terms.pad_to, by=by)
        self._count: int | None = None
        self._answers: np.ndarray | None = None

    def send_script(self) -> Outgoing:
        """The own set; the receiver then the count, the sender its answers."""
        yield from as_frames(Kind.POINTS, self._party.blind_set())
        if not self.is_receiver:
            while self._answers is None:
                yield None
            yield from as_frames(Kind.TOKENS, split(self._answers))
            return
        while self._count is None:
            yield None
        if self.terms.learns == "both":
            yield Frame(Kind.COUNT, self._count.to_bytes(8, "big"))
        else:
            yield Frame(Kind.FINISHED, b"")

    def receive_script(self) -> Incoming:
        """The peer's set; the receiver then answers, the sender the count."""
        done = 0
        while done < self.peer_size:
            rows = rows_of((yield Kind.POINTS), POINT_BYTES)
            require_chunk(rows, POINT_BYTES, done, self.peer_size, "the peer's set")
            self._party.take_chunk(rows)
            done += len(rows)
        if not self.is_receiver:
            self._answers = self._party.shuffle_tokens(self.peer_size)
            yield from self._end_of_sender()
            return
        done = 0
        while done < self._party.size:
            rows = rows_of((yield Kind.TOKENS), TOKEN_BYTES)
            require_chunk(rows, TOKEN_BYTES, done, self._party.size, "the doubled set")
            self._party.take_tokens(rows)
            done += len(rows)
        count = self._party.count_common(self.peer_size)
        self.require_enough(count)
        self._count = count
        self.set_result(count=count)

    def _end_of_sender(self) -> Incoming:
        if self.terms.learns == "receiver":
            yield Kind.FINISHED
            self.set_result()
            return
        frame = yield Kind.COUNT
        count = int.from_bytes(read_payload(frame, 8), "big")
        if count > min(len(self.ids), self.peer_size):
            raise MalformedError(f"{count} common identifiers among {len(self.ids)} and {self.peer_size}")
        self.require_enough(count)
        self.set_result(count=count)

"""The scripts of `ot`'s two ends: the client encodes its set and compares, the server sends tokens. See `oblivious`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from securevfl_crypto.bits import ROW_BYTES

from securevfl_psi.chunks import require_chunk
from securevfl_psi.conversations.proving import Proving, Receiving
from securevfl_psi.conversations.scripts import Incoming, Outgoing, as_frames, read_payload, rows_of
from securevfl_psi.group import POINT_BYTES
from securevfl_psi.oblivious import OTClient, OTServer
from securevfl_psi.oblivious.base import TRANSFERS
from securevfl_psi.oblivious.extension import ANSWER_BYTES, CHALLENGE_BYTES
from securevfl_psi.okvs import SEED_BYTES
from securevfl_psi.wire import Frame, Kind

__all__ = ["Decoding", "Encoding"]


class Encoding:
    """The client's scripts.

    Args:
        client: its arrays.
        peer_size: how many tokens the server announced.
        found: called with this party's common rows, ascending, as soon as they are known.
        prove: whether the server also learns them.

    Attributes:
        proving: the final step; `found` sets its lists.
    """

    def __init__(
        self, client: OTClient, peer_size: int, found: Callable[[np.ndarray], None], *, prove: bool = True
    ) -> None:
        self.client, self.peer_size, self.found, self.prove = client, peer_size, found, prove
        self.proving = Proving(lambda: client.outputs)
        self._ready = self._compared = False
        self._sums: bytes | None = None

    def send_script(self) -> Outgoing:
        """The encoded set, the sums that are asked for, and proofs."""
        yield Frame(Kind.TRANSFERS, self.client.first_message)
        yield Frame(Kind.SEED, self.client.seed)
        while not self._ready:
            yield None
        yield from as_frames(Kind.ROWS, self.client.encode_rows())
        while self._sums is None:
            yield None
        yield Frame(Kind.SUMS, self._sums)
        self.client.evaluate()  # while the server makes its tokens
        if self.prove:
            yield from self.proving.send_script()
            return
        while not self._compared:
            yield None
        yield Frame(Kind.FINISHED, b"")

    def receive_script(self) -> Incoming:
        """The base transfers' answer, the challenge, tokens, the receipt."""
        self.client.take_keys(read_payload((yield Kind.TRANSFERS), TRANSFERS * POINT_BYTES))
        self._ready = True
        self._sums = self.client.answer_challenge(read_payload((yield Kind.SEED), CHALLENGE_BYTES))
        width, done = self.client.token_width, 0
        while done < self.peer_size:
            rows = rows_of((yield Kind.TOKENS), width)
            require_chunk(rows, width, done, self.peer_size, "the server's set")
            done += len(rows)
            self.client.take_tokens(rows)
        self.found(self.client.find_common_rows())
        self._compared = True
        if self.prove:
            yield from self.proving.receive_script()


class Decoding:
    """The server's scripts.

    Args:
        server: its arrays.
        peer_size: how many identifiers the client announced.
        lists: number of lists of common rows that the client proves; 0 if the server learns nothing.
        found: called with this party's rows of each list; raises if the policy forbids them.
    """

    def __init__(self, server: OTServer, peer_size: int, lists: int, found: Callable[[list[np.ndarray]], None]) -> None:
        self.server, self.peer_size, self.lists, self.found = server, peer_size, lists, found
        self.proofs = Receiving(server.find_proven_rows, lambda: server.outputs)
        self._begun = self._checked = False

    def send_script(self) -> Outgoing:
        """The base transfers' answer, the challenge, tokens, the receipt."""
        while not self._begun:
            yield None
        yield Frame(Kind.TRANSFERS, self.server.make_choices())
        self.server.prepare()  # while the client encodes its set
        while not self.server.has_all_rows:
            yield None
        yield Frame(Kind.SEED, self.server.draw_challenge())
        while not self._checked:
            yield None
        yield from as_frames(Kind.TOKENS, self.server.token_chunks())
        if self.lists:
            yield from self.proofs.send_script()

    def receive_script(self) -> Incoming:
        """The client's encoded set, its sums, and its proofs."""
        self.server.take_message(read_payload((yield Kind.TRANSFERS), POINT_BYTES))
        self._begun = True
        self.server.take_seed(read_payload((yield Kind.SEED), SEED_BYTES))
        while not self.server.has_all_rows:
            self.server.take_rows(rows_of((yield Kind.ROWS), ROW_BYTES))
        self.server.check_answer(read_payload((yield Kind.SUMS), ANSWER_BYTES))
        self._checked = True
        if not self.lists:
            yield Kind.FINISHED
            self.found([])
            return
        most = min(self.server.size, self.peer_size)  # a client can encode more than it announced, but not prove it
        yield from self.proofs.receive_script(self.lists, most, lambda: self.server.is_complete)
        self.found(list(self.proofs.lists or []))
        self.proofs.accepted = True

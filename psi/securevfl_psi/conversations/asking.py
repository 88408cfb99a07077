"""Scripts of 2HashDH's two ends: the client asks and compares, the server answers. See `dh`.

The server alternates a chunk of tokens and a chunk of answers until one kind runs out. So it computes tokens while it
waits for points, and both sides know which kind of frame is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from securevfl_psi.chunks import require_chunk
from securevfl_psi.conversations.proving import Proving, Receiving
from securevfl_psi.conversations.scripts import Incoming, Outgoing, as_frames, chunks_of, rows_of
from securevfl_psi.dh import DHClient, DHServer
from securevfl_psi.group import POINT_BYTES, TOKEN_BYTES
from securevfl_psi.wire import Frame, Kind

__all__ = ["Answering", "Asking"]


def _iter_turns(answers: int, tokens: int) -> Iterator[Kind]:
    """Yield the kinds of the server's frames, given the numbers of chunks."""
    for number in range(max(answers, tokens)):
        if number < tokens:
            yield Kind.TOKENS
        if number < answers:
            yield Kind.ANSWERS


class Asking:
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
        self, client: DHClient, peer_size: int, found: Callable[[np.ndarray], None], *, prove: bool = True
    ) -> None:
        self.client, self.peer_size, self.found, self.prove = client, peer_size, found, prove
        self.proving = Proving(lambda: client.outputs)
        self.compared = False

    def send_script(self) -> Outgoing:
        """The own set, and proofs of what is common."""
        yield from as_frames(Kind.POINTS, self.client.blind_set())
        if self.prove:
            yield from self.proving.send_script()
            return
        while not self.compared:
            yield None
        yield Frame(Kind.FINISHED, b"")

    def receive_script(self) -> Incoming:
        """Tokens and answers, and the receipt."""
        done = {Kind.TOKENS: 0, Kind.ANSWERS: 0}
        for kind in _iter_turns(chunks_of(self.client.size), chunks_of(self.peer_size)):
            frame = yield kind
            tokens = kind is Kind.TOKENS
            rows = rows_of(frame, TOKEN_BYTES if tokens else POINT_BYTES)
            whole, what = (self.peer_size, "the server's set") if tokens else (self.client.size, "the answered set")
            require_chunk(rows, rows.shape[1], done[kind], whole, what)
            done[kind] += len(rows)
            (self.client.take_tokens if tokens else self.client.take_answers)(rows)
        self.found(self.client.find_common_rows(self.peer_size))
        self.compared = True
        if self.prove:
            yield from self.proving.receive_script()


class Answering:
    """The server's scripts.

    Args:
        server: its arrays.
        peer_size: how many points the client announced.
        lists: number of lists of common rows that the client proves; 0 if the server learns nothing.
        found: called with this party's rows of each list; raises if the policy forbids them.
        most_waiting: most chunks of points that may wait for answers; None for no limit.
    """

    def __init__(
        self,
        server: DHServer,
        peer_size: int,
        lists: int,
        found: Callable[[list[np.ndarray]], None],
        *,
        most_waiting: int | None = None,
    ) -> None:
        self.server, self.peer_size, self.lists, self.found = server, peer_size, lists, found
        self.most_waiting = most_waiting
        self.proofs = Receiving(server.find_proven_rows, lambda: server.outputs)

    def send_script(self) -> Outgoing:
        """Tokens and answers in turns, and the receipt."""
        tokens = self.server.token_chunks()
        for kind in _iter_turns(chunks_of(self.peer_size), chunks_of(self.server.size)):
            if kind is Kind.TOKENS:
                yield from as_frames(kind, [next(tokens)])
                continue
            while not self.server.waiting_chunks:
                yield None
            yield from as_frames(kind, [self.server.answer_chunk()])
        if self.lists:
            yield from self.proofs.send_script()

    def receive_script(self) -> Incoming:
        """The client's points, and its proofs."""
        done = 0
        while done < self.peer_size:
            # Stop reading while many chunks wait: a client that sends quickly must not fill this party's memory.
            while self.most_waiting is not None and len(self.server.waiting_chunks) >= self.most_waiting:
                yield None
            rows = rows_of((yield Kind.POINTS), POINT_BYTES)
            require_chunk(rows, POINT_BYTES, done, self.peer_size, "the client's set")
            done += len(rows)
            self.server.take_chunk(rows)
        if not self.lists:
            yield Kind.FINISHED
            self.found([])
            return
        yield from self.proofs.receive_script(self.lists, self.server.size, lambda: self.server.is_complete)
        self.found(list(self.proofs.lists or []))
        self.proofs.accepted = True

"""One party's links, its randomness, and its counts of rounds and bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl_crypto.errors import DisagreementError, MalformedError
from securevfl_crypto.replicated.keys import Streams
from securevfl_crypto.replicated.share import PARTIES
from securevfl_crypto.replicated.wire import Expected, Wire, check_message

__all__ = ["Party"]


class Party:
    """Sends and receives within operations, which all three parties count.

    Args:
        index: 0, 1 or 2.
        wire: links to the two others.
        streams: this party's randomness, fresh for this incarnation.

    Attributes:
        rounds: the longest chain of messages so far: each message carries the depth of its sender plus one.
        sent: bytes that this party sent.

    Raises:
        MalformedError: the streams are those of another party.
    """

    def __init__(self, index: int, wire: Wire, streams: Streams) -> None:
        if streams.index != index:
            raise MalformedError(f"the streams of party {streams.index} at party {index}")
        self.index = index
        self.streams = streams
        self.rounds = 0
        self.sent = 0
        self._wire = wire
        self._operations = 0
        self._drawn: dict[int, int] = {}

    def begin_operation(self) -> None:
        """Start the next operation."""
        self._operations += 1
        self._drawn = {other: self.streams.draw_count(other) for other in (self.next_party, self.previous_party)}

    async def send(self, to: int, label: str, arrays: Sequence[np.ndarray]) -> None:
        """Send a message of the running operation, with this party's depth and counters."""
        header = np.array([self.rounds + 1, self._operations, self._drawn[to]], np.uint64)
        self.sent += header.nbytes + sum(array.nbytes for array in arrays)
        await self._wire.send(to, label, [header, *arrays])

    async def receive(self, source: int, label: str, expect: Expected) -> list[np.ndarray]:
        """Receive and check the next message of a peer."""
        wanted = [(np.uint64, (3,)), *expect]
        message = await self._wire.receive(source, label, wanted)
        header, *arrays = check_message(source, label, label, message, wanted)
        depth, operation, drawn = (int(word) for word in header)
        # Parties at different draws would mask with different words and add up to nonsense, without any other sign.
        if (operation, drawn) != (self._operations, self._drawn[source]):
            raise DisagreementError(
                f"party {source} is at operation {operation} and draw {drawn}, party {self.index} at operation "
                f"{self._operations} and draw {self._drawn[source]}: one of them has skipped or repeated a step; "
                "start all three again from one checkpoint"
            )
        self.rounds = max(self.rounds, depth)
        return arrays

    @property
    def next_party(self) -> int:
        """The index of the next party."""
        return (self.index + 1) % PARTIES

    @property
    def previous_party(self) -> int:
        """The index of the party before."""
        return (self.index - 1) % PARTIES

"""Channels in memory: both ends in one process, messages by reference, a bounded window between."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import replace

from securevfl_net.link_state import Beat

from securevfl.errors import InputError, PeerEnded, ProtocolError
from securevfl.transport import wire
from securevfl.transport.channel import WINDOW
from securevfl.transport.message import Message

__all__ = ["MemoryChannel", "Pipe", "memory_pair"]


class Pipe:
    """One direction: the messages in flight, and the tasks that wait for messages or for room.

    Attributes:
        window: bytes that may be on their way before a writer waits.
        flows: whether what was written reaches the reader now; False while the connection is cut or not yet open.
        closed: whether the writer has closed its side.

    Raises:
        InputError: a window below 1.
    """

    __slots__ = ("beat", "closed", "flows", "items", "reader", "size", "window", "writers")

    def __init__(self, window: int) -> None:
        if window < 1:
            raise InputError(f"the window of a channel is {window} bytes; at least 1 is needed")
        self.window = window
        self.items: deque[tuple[Message, int]] = deque()
        self.size = 0
        self.reader: asyncio.Future[None] | None = None
        self.writers: deque[asyncio.Future[None]] = deque()
        self.flows = True
        self.closed = False
        self.beat = Beat()

    def wake_reader(self) -> None:
        """Let the reader look again."""
        if self.reader is not None and not self.reader.done():
            self.reader.set_result(None)

    def wake_writers(self, *, every: bool = False) -> None:
        """Wake the next writer if there is room, or all of them to look again."""
        while self.writers and (every or self.size < self.window):
            waiter = self.writers.popleft()
            if not waiter.done():
                waiter.set_result(None)
                if not every:
                    return


class MemoryChannel:
    """Both ends in one process: messages pass by reference, sizes are those that the wire codec would write.

    Args:
        outgoing: what this end writes to.
        incoming: the pipe to read from.
    """

    def __init__(self, outgoing: Pipe, incoming: Pipe) -> None:
        self._out = outgoing
        self._in = incoming
        self._failure: ProtocolError | None = None

    @property
    def can_send(self) -> bool:
        """See `Channel.can_send`."""
        return self._out.size < self._out.window

    async def send(self, message: Message) -> int:
        """See `Channel.send`."""
        pipe = self._out
        size = wire.encoded_size(message)
        while self._failure is None and pipe.size >= pipe.window and not pipe.closed:
            if self._in.closed:
                raise PeerEnded(f"the peer ended and will not read {message.what!r}; look at its own error")
            waiter = asyncio.get_running_loop().create_future()
            pipe.writers.append(waiter)
            await waiter
        if self._failure is not None:
            raise self._failure
        if pipe.closed:
            raise ProtocolError(f"cannot send {message.what!r}: this end of the channel was closed")
        pipe.items.append((message, size))
        pipe.size += size
        pipe.wake_reader()
        if pipe.size < pipe.window:
            pipe.wake_writers()
        return size

    async def receive(self) -> tuple[Message, int]:
        """See `Channel.receive`."""
        pipe = self._in
        while self._failure is None and not (pipe.items and pipe.flows):
            if pipe.closed and pipe.flows:
                raise PeerEnded("the peer ended before it sent what was expected; look at its own error")
            if pipe.reader is not None and not pipe.reader.done():
                raise ProtocolError("two readers wait on one channel; a party reads its channels one at a time")
            pipe.reader = asyncio.get_running_loop().create_future()
            await pipe.reader
        if self._failure is not None:
            raise self._failure
        message, size = pipe.items.popleft()
        pipe.size -= size
        pipe.wake_writers()
        return message, size

    def send_beat(self, beat: Beat) -> None:
        """See `Channel.send_beat`."""
        self._out.beat = replace(beat, at=time.monotonic())

    @property
    def last_beat(self) -> Beat:
        """See `Channel.last_beat`."""
        return self._in.beat

    def close(self) -> None:
        """See `Channel.close`."""
        self._out.closed = True
        self._out.wake_reader()
        self._out.wake_writers(every=True)
        self._in.wake_writers(every=True)

    def fail_calls(self, failure: ProtocolError) -> None:
        """Pending and later calls of this end raise `failure`; the first one stays."""
        if self._failure is None:
            self._failure = failure
            self._in.wake_reader()
            self._out.wake_writers(every=True)


def memory_pair(window: int = WINDOW) -> tuple[MemoryChannel, MemoryChannel]:
    """The two ends of one in-memory connection.

    Args:
        window: bytes that may be on their way in each direction; 1 lets one message through at a time.

    Raises:
        InputError: a window below 1.
    """
    forth, back = Pipe(window), Pipe(window)
    return MemoryChannel(forth, back), MemoryChannel(back, forth)

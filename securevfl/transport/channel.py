"""Channels between two parties: send one way, receive the other, with a bounded window between."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from securevfl.errors import InputError, PeerEnded, ProtocolError
from securevfl.transport import wire
from securevfl.transport.message import Message

__all__ = ["WINDOW", "Beat", "Channel", "MemoryChannel", "memory_pair"]

WINDOW = 32 << 20
"""Bytes that may be on their way in one direction before a sender waits."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life, beside the messages.

    Attributes:
        steps: messages that the party has sent and read, over all its links.
        sent: messages that it has sent over this channel.
        read: messages that it has read from this channel.
        awaits: the party for whom it waits; empty where it does not wait.
        step: what for.
    """

    steps: int = 0
    sent: int = 0
    read: int = 0
    awaits: str = ""
    step: str = ""


class Channel(Protocol):
    """One party's end of an ordered, reliable, authenticated connection to one peer."""

    @property
    def ready(self) -> bool:
        """Whether `send` would not wait now."""
        ...

    async def send(self, message: Message) -> int:
        """Send `message` and return its size on the wire, in bytes. Waits while the window is full.

        A message is admitted whenever less than the window is on its way, so that the window never has to hold the
        largest message.

        Raises:
            ProtocolError: this end was closed, or the peer ended and will never read.
        """
        ...

    async def receive(self) -> tuple[Message, int]:
        """The next message and its size on the wire.

        Raises:
            ProtocolError: the peer closed its end and nothing is left to read.
        """
        ...

    def beat(self, beat: Beat) -> None:
        """Show the peer a sign of life; it does not wait for room, and takes the place of the one before."""
        ...

    @property
    def heard(self) -> Beat:
        """The peer's last sign of life."""
        ...

    def close(self) -> None:
        """Tell the peer that nothing more will come."""
        ...


class _Pipe:
    """One direction: the messages on their way, and who waits for them or for room."""

    __slots__ = ("beat", "closed", "items", "reader", "size", "window", "writers")

    def __init__(self, window: int) -> None:
        self.window = window
        self.items: deque[tuple[Message, int]] = deque()
        self.size = 0
        self.reader: asyncio.Future[None] | None = None
        self.writers: deque[asyncio.Future[None]] = deque()
        self.closed = False
        self.beat = Beat()

    def wake_reader(self) -> None:
        if self.reader is not None and not self.reader.done():
            self.reader.set_result(None)

    def wake_writers(self, *, every: bool = False) -> None:
        while self.writers and (every or self.size < self.window):
            waiter = self.writers.popleft()
            if not waiter.done():
                waiter.set_result(None)
                if not every:
                    return


class MemoryChannel:
    """Both ends in one process: messages pass by reference, sizes are those that the wire codec would write."""

    def __init__(self, outgoing: _Pipe, incoming: _Pipe) -> None:
        self._out = outgoing
        self._in = incoming

    @property
    def ready(self) -> bool:
        """See `Channel.ready`."""
        return self._out.size < self._out.window

    async def send(self, message: Message) -> int:
        """See `Channel.send`."""
        pipe = self._out
        size = wire.size(message)
        while pipe.size >= pipe.window and not pipe.closed:
            if self._in.closed:
                raise PeerEnded(f"the peer ended and will not read {message.what!r}; look at its own error")
            waiter = asyncio.get_running_loop().create_future()
            pipe.writers.append(waiter)
            await waiter
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
        while not pipe.items:
            if pipe.closed:
                raise PeerEnded("the peer ended before it sent what was expected; look at its own error")
            if pipe.reader is not None and not pipe.reader.done():
                raise ProtocolError("two readers wait on one channel; a party reads its channels one at a time")
            pipe.reader = asyncio.get_running_loop().create_future()
            await pipe.reader
        message, size = pipe.items.popleft()
        pipe.size -= size
        pipe.wake_writers()
        return message, size

    def beat(self, beat: Beat) -> None:
        """See `Channel.beat`."""
        self._out.beat = beat

    @property
    def heard(self) -> Beat:
        """See `Channel.heard`."""
        return self._in.beat

    def close(self) -> None:
        """See `Channel.close`."""
        self._out.closed = True
        self._out.wake_reader()
        self._out.wake_writers(every=True)
        self._in.wake_writers(every=True)


def memory_pair(window: int = WINDOW) -> tuple[MemoryChannel, MemoryChannel]:
    """The two ends of one in-memory connection.

    Args:
        window: bytes that may be on their way in each direction; 1 lets one message through at a time.

    Raises:
        InputError: a window below 1.
    """
    if window < 1:
        raise InputError(f"the window of a channel is {window} bytes; at least 1 is needed")
    forth, back = _Pipe(window), _Pipe(window)
    return MemoryChannel(forth, back), MemoryChannel(back, forth)

"""Channels between two parties. One method each way; everything else is built on top."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from securevfl.errors import ProtocolError
from securevfl.transport import wire
from securevfl.transport.message import Message

__all__ = ["Channel", "MemoryChannel", "memory_pair"]


class Channel(Protocol):
    """One party's end of an ordered, reliable, authenticated connection to one peer."""

    def send(self, message: Message) -> int:
        """Queue `message` and return its size on the wire, in bytes. Never blocks."""
        ...

    async def receive(self) -> tuple[Message, int]:
        """The next message and its size on the wire.

        Raises:
            ProtocolError: the peer closed its end and nothing is left to read.
        """
        ...

    def close(self) -> None:
        """Tell the peer that nothing more will come."""
        ...


class _Pipe:
    """One direction: a queue without a limit, and whether it was closed."""

    __slots__ = ("closed", "items", "waiter")

    def __init__(self) -> None:
        self.items: deque[tuple[Message, int]] = deque()
        self.waiter: asyncio.Future[None] | None = None
        self.closed = False

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class MemoryChannel:
    """Both ends in one process: messages pass by reference, sizes are those that the wire codec would write."""

    def __init__(self, outgoing: _Pipe, incoming: _Pipe) -> None:
        self._out = outgoing
        self._in = incoming

    def send(self, message: Message) -> int:
        """See `Channel.send`.

        Raises:
            ProtocolError: this end was closed.
        """
        if self._out.closed:
            raise ProtocolError(f"cannot send {message.what!r}: this end of the channel was closed")
        size = wire.size(message)
        self._out.items.append((message, size))
        self._out.wake()
        return size

    async def receive(self) -> tuple[Message, int]:
        """See `Channel.receive`."""
        pipe = self._in
        while not pipe.items:
            if pipe.closed:
                raise ProtocolError("the peer ended before it sent what was expected; look at its own error")
            if pipe.waiter is not None and not pipe.waiter.done():
                raise ProtocolError("two readers wait on one channel; a party reads its channels one at a time")
            pipe.waiter = asyncio.get_running_loop().create_future()
            await pipe.waiter
        return pipe.items.popleft()

    def close(self) -> None:
        """See `Channel.close`."""
        self._out.closed = True
        self._out.wake()


def memory_pair() -> tuple[MemoryChannel, MemoryChannel]:
    """The two ends of one in-memory connection."""
    forth, back = _Pipe(), _Pipe()
    return MemoryChannel(forth, back), MemoryChannel(back, forth)

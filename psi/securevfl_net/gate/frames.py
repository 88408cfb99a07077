"""Frames between a program and its gate, over a socketpair that nobody else can reach.

A frame is a fixed head and a body. Bodies of parts are written from and read into their final memory. The two processes
are one party and one version, so an unreadable frame is a bug and ends the process.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

from securevfl_net.errors import MachineFault

__all__ = ["HEAD", "Bulk", "FrameIn", "Frames", "GateLost", "Inbox", "Outbox"]

HEAD = struct.Struct("<IBBHIQ")
"""Length of the body, kind, generation of the view, peer, count, number."""
_SCRATCH = 256 << 10
_SMALL = 16 << 10
"""Bodies up to this many bytes are joined with their heads and neighbours into one write."""
_LONG = 32 << 10
"""Bodies of this many bytes and more are read to where they stay."""
_GATHER = 1 << 20
_BUFFERS = 256
"""Bytes and buffers of one write."""
_MOST = 1 << 30


class Frames(IntEnum):
    """Kinds of frames."""

    SETTINGS = 1
    BEGIN = 2
    OPEN = 3
    PARK = 4
    PART = 5
    NOTE = 6
    CREDIT = 7
    BEAT = 8
    ABORT = 9
    CLOSE = 10
    ENDORSE = 11
    PIN = 12
    RENEW = 13
    UP = 20
    DOWN = 21
    REFUSED = 22
    ENDED = 23
    DEADLOCKED = 24
    ROOM = 25
    STATE = 26
    LISTENING = 27
    FAILED = 28
    DONE = 29


class FrameIn(NamedTuple):
    """A frame that was read.

    Attributes:
        kind: one of `Frames`.
        generation: of the view that it belongs to, modulo 256.
        peer: number of a peer, in the order of the settings.
        parts: that a body joins.
        number: bytes of the whole message, or bytes of room.
        body: valid until the next read, unless the reader provided memory for it.
        placed: whether it did.
    """

    kind: int
    generation: int
    peer: int
    parts: int
    number: int
    body: memoryview
    placed: bool


class GateLost(MachineFault):
    """The other process of this party is gone."""


class Bulk:
    """A frame whose body is stored elsewhere. Until it is begun, more parts of the same message may join it."""

    __slots__ = ("begun", "body", "count", "generation", "kind", "number", "peer", "size")

    def __init__(self, kind: int, generation: int, peer: int, number: int) -> None:
        self.kind, self.generation, self.peer, self.number = kind, generation & 0xFF, peer, number
        self.body: list[memoryview] = []
        self.size = self.count = 0
        self.begun = False


class Outbox:
    """Frames on their way to the other process; urgent ones pass bulk at the next frame's border.

    Attributes:
        waiting: bytes that wait.
        urgent: of them, bytes of urgent frames that were not begun.
    """

    __slots__ = ("_bulk", "_now", "_urgent", "urgent", "waiting")

    def __init__(self) -> None:
        self._now: deque[memoryview] = deque()
        self._urgent: list[bytes] = []
        self._bulk: deque[Bulk] = deque()
        self.waiting = self.urgent = 0

    def __bool__(self) -> bool:
        return self.waiting > 0

    def put_frame(
        self, kind: Frames, body: bytes = b"", *, generation: int = 0, peer: int = 0, count: int = 0, number: int = 0
    ) -> None:
        """Queue a frame that passes bulk; such frames stay in their order."""
        frame = HEAD.pack(len(body), kind, generation & 0xFF, peer, count, number) + body
        self._urgent.append(frame)
        self.waiting += len(frame)
        self.urgent += len(frame)

    def put_bulk(self, bulk: Bulk) -> None:
        """Queue bulk; it may still be empty."""
        self._bulk.append(bulk)
        self.waiting += HEAD.size + bulk.size

    def add_part(self, bulk: Bulk, part: memoryview) -> None:
        """Add a part to bulk that is queued and not begun."""
        bulk.body.append(part)
        bulk.count += 1
        bulk.size += len(part)
        self.waiting += len(part)

    def put_frame_behind(self, kind: Frames) -> None:
        """Queue a frame behind all bulk."""
        self.put_bulk(Bulk(kind, 0, 0, 0))

    def drop_bulk(self) -> None:
        """Forget bulk that was not begun."""
        self.waiting -= sum(bulk.size + HEAD.size for bulk in self._bulk)
        self._bulk.clear()

    def write(self, sock: socket.socket) -> bool:
        """Write as much as goes now.

        Returns:
            Whether all of it went.

        Raises:
            GateLost: the other process is gone.
        """
        now = self._now
        while self.waiting:
            if not now:
                self._refill_buffers()
            try:
                written = sock.sendmsg(list(islice(now, _BUFFERS)))
            except BlockingIOError:
                return False
            except OSError as error:
                raise GateLost(f"the other process of this party is gone: {error.strerror or error}") from None
            self.waiting -= written
            while written:
                first = now[0]
                if written < len(first):
                    now[0] = first[written:]
                    break
                written -= len(first)
                now.popleft()
        return True

    def _refill_buffers(self) -> None:
        now, bulk = self._now, self._bulk
        small: list[bytes | memoryview] = [*self._urgent]
        self._urgent.clear()
        self.urgent = 0
        taken = 0
        while bulk and taken < _GATHER:
            one = bulk.popleft()
            one.begun = True
            taken += one.size + HEAD.size
            small.append(HEAD.pack(one.size, one.kind, one.generation, one.peer, one.count, one.number))
            if one.size <= _SMALL:
                small += one.body
                continue
            now.append(memoryview(b"".join(small)))
            small = []
            now += one.body
        if small:
            now.append(memoryview(b"".join(small)))


Place = Callable[[int, int, int, int, int, int], memoryview | None]
"""Kind, generation, peer, count, number and length of a long body → memory for it; None to drop it."""


class Inbox:
    """Frames from the other process.

    Args:
        take: is called with each frame.
        place: provides memory for a long body.
    """

    __slots__ = ("_body", "_got", "_have", "_head", "_placed", "_scratch", "_take", "_view", "place")

    def __init__(self, take: Callable[[FrameIn], None], place: Place) -> None:
        self._take = take
        self.place = place
        self._scratch = bytearray(_SCRATCH)
        self._view = memoryview(self._scratch)
        self._have = 0
        self._body: memoryview | None = None
        self._got = 0
        self._head: tuple[int, ...] = ()
        self._placed = False

    def read(self, sock: socket.socket, most: int = 1 << 22) -> bool:
        """Read what is there, about `most` bytes.

        Returns:
            Whether there may be more.

        Raises:
            GateLost: the other process is gone.
        """
        total = 0
        while total < most:
            into = self._view[self._have :] if self._body is None else self._body[self._got :]
            try:
                count = sock.recv_into(into)
            except BlockingIOError:
                return False
            except OSError as error:
                raise GateLost(f"the other process of this party is gone: {error.strerror or error}") from None
            if not count:
                raise GateLost("the other process of this party is gone")
            total += count
            self._handle_received(count)
            if count < len(into) and count < _LONG:
                return False  # less than asked for: nothing more is there now
        return True

    def _handle_received(self, count: int) -> None:
        body = self._body
        if body is None:
            self._have += count
            self._parse_frames()
            return
        self._got += count
        if self._got == len(body):
            _, kind, generation, peer, parts, number = self._head
            self._body = None
            self._take(FrameIn(kind, generation, peer, parts, number, body, self._placed))

    def _parse_frames(self) -> None:
        view, have, at, take = self._view, self._have, 0, self._take
        unpack, size = HEAD.unpack_from, HEAD.size
        while have - at >= size:
            head = unpack(view, at)
            length, kind, generation, peer, count, number = head
            end = at + size + length
            if end <= have:
                take(FrameIn(kind, generation, peer, count, number, view[at + size : end], False))
                at = end
                continue
            if length >= _LONG:
                if length > _MOST:
                    raise GateLost(f"a frame of {length} bytes between the processes of this party")
                place = self.place(kind, generation, peer, count, number, length)
                self._placed = place is not None
                self._body = body = memoryview(bytearray(length)) if place is None else place
                self._got = have - at - size
                body[: self._got] = view[at + size : have]
                self._head = head
                at = have
            break
        self._have = have - at
        if at and self._have:
            view[: self._have] = bytes(view[at:have])

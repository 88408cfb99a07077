"""A channel over the network: the program's end. It exchanges parts with the gate in the event loop."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import msgspec
from securevfl_net.gate.frames import Bulk, FrameIn, Frames, Outbox
from securevfl_net.link_state import Beat
from securevfl_net.session import OVERHEAD

from securevfl.errors import PeerEnded, ProtocolError
from securevfl.transport.parts import Assembler, in_parts
from securevfl.transport.wire import MessageLimits, decode_message, encode_parts

if TYPE_CHECKING:
    from securevfl.transport.message import Message

__all__ = ["NetworkChannel"]

_END = b"\0"
"""Sent as a message of one byte; real ones have at least 16. Nothing follows it."""
_STEP = 60
"""Most bytes of a step's name in the report of a peer that waits for room."""
_QUEUED = 2 << 20
"""Bytes of one peer that wait in the outbox; more stay with the channel, where urgent frames need not pass them."""
_BEATS = msgspec.msgpack.Encoder()


class Carrier(Protocol):
    """What a channel needs from its mesh."""

    @property
    def outbox(self) -> Outbox:
        """Frames to the gate."""
        ...

    def wake_writer(self) -> None:
        """Write what waits, soon."""
        ...

    def return_credit(self, index: int, generation: int, cost: int) -> None:
        """Parts were taken out of the window."""
        ...

    def commit_first(self, commit: Callable[[], None]) -> None:
        """See `CommitsFirst`."""
        ...


class NetworkChannel:
    """One party's end of a view's connection to one peer. Made by `NetworkMesh.begin_view`; see `Channel`."""

    def __init__(
        self, mesh: Carrier, index: int, view: bytes, generation: int, *, window: int, part: int, limits: MessageLimits
    ) -> None:
        self._mesh = mesh
        self._index = index
        self._view = view
        self._generation = generation
        self._window, self._part = window, part
        self._limits = limits
        self._failure: Exception | None = None
        # outgoing
        self._parts: deque[tuple[int, str, Iterator[list[memoryview]]]] = deque()
        self._begun = False
        self._out = 0
        self._at_gate = 0
        self._writers: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._beat = Beat()
        # incoming
        self._assembler = Assembler(limits)
        self._hash = hashlib.sha256()
        self._inbox: deque[tuple[memoryview, str, int]] = deque()
        self._cost = 0
        self._given = 0
        self._reader: asyncio.Future[None] | None = None
        self._ended = self._gone = False
        self._heard = Beat()

    @property
    def can_send(self) -> bool:
        """See `Channel.can_send`."""
        return self._out < self._window

    async def send(self, message: Message) -> int:
        """See `Channel.send`."""
        while self._failure is None and not self._closed and self._out >= self._window:
            if self._gone:
                raise PeerEnded(f"the peer ended and will not read {message.what!r}; look at its own error")
            waiter = asyncio.get_running_loop().create_future()
            self._writers.append(waiter)
            await waiter
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise ProtocolError(f"cannot send {message.what!r}: this end of the channel was closed")
        buffers = encode_parts(message)
        size = sum(map(len, buffers))
        self._queue_message(size, message.what, buffers)
        if self._out < self._window:
            self._wake_writers()
        return size

    def _queue_message(self, size: int, what: str, buffers: list[memoryview]) -> None:
        self._out += size + OVERHEAD * -(-size // self._part)
        self._parts.append((size, what, in_parts(buffers, self._part)))
        self.pump_parts()

    def pump_parts(self) -> None:
        """Hand parts to the gate while it has room."""
        outbox, window = self._mesh.outbox, self._window
        queue, before = self._parts, outbox.waiting
        while queue and self._at_gate < window and outbox.waiting < _QUEUED:
            size, what, parts = queue[0]
            part = next(parts, None)
            if part is None:
                queue.popleft()
                self._begun = False
                continue
            bulk = Bulk(Frames.PART, self._generation, self._index, 0)
            if not self._begun:
                self._begun = True
                bulk.number = size
                step = what.encode()[:_STEP]
                part.insert(0, memoryview(bytes((len(step),)) + step))
                self._at_gate -= len(part[0])
            bulk.body = part
            bulk.size = sum(map(len, part))
            self._at_gate += bulk.size + OVERHEAD
            outbox.put_bulk(bulk)
        if outbox.waiting > before:
            self._mesh.wake_writer()

    async def receive(self) -> tuple[Message, int]:
        """See `Channel.receive`."""
        while self._failure is None and not self._inbox:
            if self._ended:
                raise PeerEnded("the peer ended before it sent what was expected; look at its own error")
            if self._reader is not None and not self._reader.done():
                raise ProtocolError("two readers wait on one channel; a party reads its channels one at a time")
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        if self._failure is not None:
            raise self._failure
        whole, digest, cost = self._inbox.popleft()
        if cost:
            self._mesh.return_credit(self._index, self._generation, cost)
        if not self._inbox and self._cost > self._given:
            self._give_credit(self._cost - self._given)
        message = decode_message(whole, self._limits)
        object.__setattr__(message, "written", (len(whole), digest))
        return message, len(whole)

    def commit_first(self, commit: Callable[[], None]) -> None:
        """See `CommitsFirst`."""
        self._mesh.commit_first(commit)

    def send_beat(self, beat: Beat) -> None:
        """See `Channel.send_beat`."""
        self._beat = beat
        if self._failure is None:
            step = beat.step.encode()[:_STEP].decode(errors="ignore")
            awaits = beat.awaits.encode()[: 4 * _STEP].decode(errors="ignore")
            payload = _BEATS.encode(
                (beat.steps, beat.sent, beat.read, awaits, step, self._view if self._closed else b"")
            )
            self._mesh.outbox.put_frame(Frames.BEAT, payload, peer=self._index)
            self._mesh.wake_writer()

    @property
    def last_beat(self) -> Beat:
        """See `Channel.last_beat`."""
        return self._heard

    def close(self) -> None:
        """See `Channel.close`."""
        if not self._closed and self._failure is None:
            self._closed = True
            self._queue_message(len(_END), "the end", [memoryview(_END)])
            self.send_beat(self._beat)
            self._wake_writers(every=True)

    def fail_calls(self, failure: Exception) -> None:
        """Pending and later calls raise `failure`; the first one stays. What was not sent is dropped."""
        if self._failure is None:
            self._failure = failure
            self._parts.clear()
            self._inbox.clear()
            self._assembler.drop_message()
            self._wake_reader()
            self._wake_writers(every=True)

    @property
    def has_pending(self) -> bool:
        """Whether something still waits to be passed to the gate."""
        return bool(self._parts) and self._failure is None

    # --- events from the gate

    def add_room(self, released: int) -> None:
        """The peer has that much of what was sent."""
        self._at_gate -= released
        self._out -= released
        self.pump_parts()
        self._wake_writers()

    def take_beat(self, beat: Beat, closed: bytes) -> None:
        """The peer's sign of life, and the view in which it closed its end, if it did."""
        self._heard = beat
        if closed == self._view and not self._gone:
            self._gone = True
            self._wake_writers(every=True)

    def find_memory(self, total: int, length: int) -> memoryview | None:
        """Return the memory for a long part: its message's buffer."""
        if self._failure is not None:
            return None
        if total:
            self._assembler.begin_message(total)
        return self._assembler.free_memory()[:length]

    def take_parts(self, frame: FrameIn) -> None:
        """Take parts of a message."""
        if self._failure is not None:
            return
        size = len(frame.body)
        if frame.placed:
            whole = self._assembler.count_filled(size)
        else:
            body = memoryview(bytes(frame.body)) if frame.number == size else frame.body
            whole = self._assembler.add_part(body, frame.number or None)
        self._hash.update(frame.body)
        cost = size + OVERHEAD * frame.parts
        self._cost += cost
        if not self._inbox:  # it is the next to be read, or its beginning: its own size does not count for the window
            self._give_credit(cost)
        if whole is None:
            return
        digest, self._hash = self._hash.hexdigest(), hashlib.sha256()
        if len(whole) == len(_END):
            self._ended = True
        else:
            self._inbox.append((whole, digest, self._cost - self._given))
        self._cost = self._given = 0
        self._wake_reader()

    def _give_credit(self, cost: int) -> None:
        self._given += cost
        self._mesh.return_credit(self._index, self._generation, cost)

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _wake_writers(self, *, every: bool = False) -> None:
        while self._writers and (every or self._out < self._window):
            waiter = self._writers.popleft()
            if not waiter.done():
                waiter.set_result(None)
                if not every:
                    return

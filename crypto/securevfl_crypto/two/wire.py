"""The link between two computing parties, and an implementation in memory.

The protocols do no I/O: they await a `TwoWire`. Every message is a short list of arrays whose types and shapes the
receiver knows in advance. Encrypt the link from end to end.
"""

from __future__ import annotations

import types
from collections import Counter, deque
from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.replicated.wire import take_turns

__all__ = ["Expected", "MemoryEnd", "MemoryWires", "Message", "TwoWire", "check_arrays", "swap"]

Expected: TypeAlias = Sequence[tuple[type[np.generic], tuple[int, ...]]]
S = TypeVar("S")
T = TypeVar("T")


class TwoWire(Protocol):
    """One party's end of the link. Messages of a direction arrive in the order in which they were sent.

    Attributes:
        me: 0, the party that has the labels, or 1.
    """

    me: int

    async def send(self, label: str, arrays: Sequence[np.ndarray]) -> None:
        """Send arrays, uint8 to uint64, C order. Returns without waiting for the peer to receive: both may send first.

        The caller does not change the arrays afterwards.
        """

    async def receive(self, label: str, expect: Expected) -> list[np.ndarray]:
        """Receive the peer's next message, which must have this label and arrays of these types and shapes.

        Raises:
            MalformedError: the message differs.
        """


async def swap(
    wire: TwoWire, label: str, arrays: Sequence[np.ndarray], expect: Expected | None = None
) -> list[np.ndarray]:
    """Send arrays and receive the peer's: one exchange, both directions at once.

    Args:
        wire: the link.
        label: of both messages.
        arrays: to send.
        expect: types and shapes of the peer's arrays; by default those of the own ones.

    Raises:
        MalformedError: the peer's message differs.
    """
    await wire.send(label, arrays)
    return await wire.receive(
        label, [(array.dtype.type, array.shape) for array in arrays] if expect is None else expect
    )


def check_arrays(label: str, found: str, arrays: Sequence[np.ndarray], expect: Expected) -> list[np.ndarray]:
    """Check label, number, types and shapes of a message and return its arrays.

    Raises:
        MalformedError: names the first difference.
    """
    if found != label:
        raise MalformedError(f"the peer sent {found!r} instead of {label!r}: the parties run different steps")
    if len(arrays) != len(expect):
        raise MalformedError(f"the peer sent {len(arrays)} arrays in {label!r}; expected {len(expect)}")
    for array, (kind, shape) in zip(arrays, expect, strict=True):
        if not isinstance(array, np.ndarray) or array.dtype != kind or array.shape != shape:
            raise MalformedError(
                f"the peer sent {getattr(array, 'dtype', type(array).__name__)} {getattr(array, 'shape', '')} in "
                f"{label!r}; expected {np.dtype(kind)} {shape}"
            )
    return list(arrays)


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message of `MemoryWires`.

    Attributes:
        sender: 0 or 1.
        label: what it is.
        arrays: its content.
        depth: messages of the longest chain that ends with it, in which each was received before the next was sent.
    """

    sender: int
    label: str
    arrays: list[np.ndarray] = field(repr=False)
    depth: int


@types.coroutine
def _yield_control() -> Generator[None, None, None]:
    yield


class MemoryWires:
    """The link between two parties of one process, which counts; for tests, benchmarks and simulations.

    Works in `run` without an event loop, and in any event loop.

    Args:
        record: keep every message in `record`.

    Attributes:
        messages: number of messages by label.
        octets: bytes of arrays by label.
        depth: the largest `Message.depth`.
        record: all messages, in order, if asked for.
    """

    def __init__(self, *, record: bool = False) -> None:
        self.messages: Counter[str] = Counter()
        self.octets: Counter[str] = Counter()
        self.record: list[Message] = []
        self.depth = 0
        self.moved = 0
        self.boxes: tuple[deque[Message], deque[Message]] = (deque(), deque())
        self._keeps = record

    def pair(self) -> tuple[MemoryEnd, MemoryEnd]:
        """The ends of party 0 and party 1."""
        return MemoryEnd(0, self), MemoryEnd(1, self)

    def run(self, zero: Coroutine[Any, Any, S], one: Coroutine[Any, Any, T]) -> tuple[S, T]:
        """Run both parties' coroutines by turns; what each returns.

        Raises:
            CryptoError: both wait for a message that nobody will send.
            Exception: what one of them raises; the other is closed.
        """
        parties: list[Coroutine[Any, Any, Any]] = [zero, one]
        first, second = take_turns(parties, self)
        return first, second

    def post(self, message: Message) -> None:
        """Count a message and put it into its receiver's box."""
        self.moved += 1
        self.messages[message.label] += 1
        self.octets[message.label] += sum(array.nbytes for array in message.arrays)
        self.depth = max(self.depth, message.depth)
        if self._keeps:
            self.record.append(message)
        self.boxes[1 - message.sender].append(message)


class MemoryEnd:
    """One end of `MemoryWires`."""

    def __init__(self, me: int, wires: MemoryWires) -> None:
        self.me = me
        self.wires = wires
        self._depth = 0

    async def send(self, label: str, arrays: Sequence[np.ndarray]) -> None:
        """See `TwoWire.send`. Copies the arrays, so that a later change would not pass unseen."""
        copies = [np.array(array, order="C") for array in arrays]
        self.wires.post(Message(sender=self.me, label=label, arrays=copies, depth=self._depth + 1))

    async def receive(self, label: str, expect: Expected) -> list[np.ndarray]:
        """See `TwoWire.receive`."""
        box = self.wires.boxes[self.me]
        while not box:
            await _yield_control()
        message = box.popleft()
        self.wires.moved += 1
        self._depth = max(self._depth, message.depth)
        return check_arrays(label, message.label, message.arrays, expect)

"""Links between the three computing parties, and an implementation in memory.

The protocol does no I/O: it awaits a `Wire`. Every message is a short list of arrays. The receiver knows their types
and shapes in advance and refuses anything else before it uses them.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Coroutine, Generator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from securevfl_crypto.errors import CryptoError, MalformedError
from securevfl_crypto.replicated.share import PARTIES

__all__ = ["Expected", "Links", "MemoryWire", "Moving", "Wire", "check_message", "memory_wires", "take_turns"]

Expected: TypeAlias = Sequence[tuple[type[np.generic], tuple[int, ...]]]
T = TypeVar("T")


class Wire(Protocol):
    """One computing party's links to the two others. Messages of a link arrive in the order in which they were sent.

    Encrypt the links from end to end: whoever can read two of them gets all three summands of every value.
    """

    async def send(self, to: int, label: str, arrays: Sequence[np.ndarray]) -> None:
        """Send arrays, uint8 or uint64, C order, to party `to`."""

    async def receive(self, source: int, label: str, expect: Expected) -> list[np.ndarray]:
        """Receive the next message of party `source`, which must have this label and arrays of these types and shapes.

        Raises:
            MalformedError: the message differs.
        """


def check_message(
    source: int, label: str, found: str, arrays: Sequence[np.ndarray], expect: Expected
) -> list[np.ndarray]:
    """Check label, number, types and shapes of a message and return its arrays.

    Raises:
        MalformedError: names the first difference.
    """
    if found != label:
        raise MalformedError(f"party {source} sent {found!r} instead of {label!r}: the parties run different steps")
    if len(arrays) != len(expect):
        raise MalformedError(f"party {source} sent {len(arrays)} arrays in {label!r}; expected {len(expect)}")
    for array, (kind, shape) in zip(arrays, expect, strict=True):
        if not isinstance(array, np.ndarray) or array.dtype != kind or array.shape != shape:
            raise MalformedError(
                f"party {source} sent {getattr(array, 'dtype', type(array).__name__)} "
                f"{getattr(array, 'shape', '')} in {label!r}; expected {np.dtype(kind)} {shape}"
            )
    return list(arrays)


@types.coroutine
def _yield_control() -> Generator[None, None, None]:
    yield


class Links:
    """The queues between three parties of one process.

    Attributes:
        boxes: unread messages, by (sender, receiver).
        moved: number of messages sent or read.
    """

    def __init__(self) -> None:
        self.moved = 0
        self.boxes: dict[tuple[int, int], deque[tuple[str, list[np.ndarray]]]] = {
            (i, j): deque() for i in range(PARTIES) for j in range(PARTIES) if i != j
        }


class MemoryWire:
    """A wire between three parties of one process; works in `take_turns` and in any event loop.

    Args:
        index: the party at this end.
        links: the queues that the three ends share.
        record: keep every received message in `received`, for tests that look at a party's view.
    """

    def __init__(self, index: int, links: Links, *, record: bool = False) -> None:
        self.links = links
        self._index = index
        self._record = record
        self.received: list[tuple[int, str, list[np.ndarray]]] = []

    async def send(self, to: int, label: str, arrays: Sequence[np.ndarray]) -> None:
        """Put a message into the queue of `to`."""
        self.links.moved += 1
        self.links.boxes[self._index, to].append((label, list(arrays)))

    async def receive(self, source: int, label: str, expect: Expected) -> list[np.ndarray]:
        """Wait for the next message of `source`."""
        box = self.links.boxes[source, self._index]
        while not box:
            await _yield_control()
        found, arrays = box.popleft()
        self.links.moved += 1
        if self._record:
            self.received.append((source, found, arrays))
        return check_message(source, label, found, arrays, expect)


def memory_wires(*, record: bool = False) -> tuple[MemoryWire, MemoryWire, MemoryWire]:
    """The three ends of links in memory."""
    links = Links()
    zero, one, two = (MemoryWire(index, links, record=record) for index in range(PARTIES))
    return zero, one, two


class Moving(Protocol):
    """Whatever counts the messages that its parties sent or read."""

    moved: int


def take_turns(parties: Sequence[Coroutine[Any, Any, T]], links: Moving) -> list[T]:
    """Run coroutines over memory wires by turns, without an event loop; what each returns, in order.

    Raises:
        CryptoError: all that still run wait for a message that nobody will send.
        Exception: what one of them raises; the others are closed.
    """
    results: dict[int, T] = {}
    try:
        while len(results) < len(parties):
            before = len(results), links.moved
            for index, party in enumerate(parties):
                if index in results:
                    continue
                try:
                    party.send(None)
                except StopIteration as end:
                    results[index] = end.value
            if before == (len(results), links.moved):
                raise CryptoError("every party waits for a message that none has sent: they run different steps")
    finally:
        for party in parties:
            party.close()
    return [results[index] for index in range(len(parties))]

"""What moves messages between the three computing parties, and the one that stays in memory.

The protocol does no I/O: it awaits a `Wire`. Every message is a short list of arrays whose types and shapes the
receiver knows beforehand, so that anything else is refused before it is used.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Coroutine, Generator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from securevfl_crypto.errors import CryptoError, MalformedError
from securevfl_crypto.replicated.share import PARTIES

__all__ = ["Expected", "Links", "MemoryWire", "Wire", "checked", "memory_wires", "take_turns"]

Expected: TypeAlias = Sequence[tuple[type[np.generic], tuple[int, ...]]]
T = TypeVar("T")


class Wire(Protocol):
    """One computing party's links to the two others. Messages of a link arrive in the order in which they were sent.

    The links must be encrypted from end to end: who reads two of them holds all three summands of every value.
    """

    async def send(self, to: int, label: str, arrays: Sequence[np.ndarray]) -> None:
        """Send arrays, uint8 or uint64, C order, to party `to`."""

    async def receive(self, source: int, label: str, expect: Expected) -> list[np.ndarray]:
        """The next message of party `source`, which must carry this label and arrays of these types and shapes.

        Raises:
            MalformedError: it carries something else.
        """


def checked(source: int, label: str, found: str, arrays: Sequence[np.ndarray], expect: Expected) -> list[np.ndarray]:
    """The arrays of a message, if label, number, types and shapes are the expected ones.

    Raises:
        MalformedError: they are not; names the first difference.
    """
    if found != label:
        raise MalformedError(
            f"party {source} sent {found!r}, where {label!r} was expected: the parties run other steps"
        )
    if len(arrays) != len(expect):
        raise MalformedError(f"party {source} sent {len(arrays)} arrays in {label!r}; {len(expect)} were expected")
    for array, (kind, shape) in zip(arrays, expect, strict=True):
        if not isinstance(array, np.ndarray) or array.dtype != kind or array.shape != shape:
            raise MalformedError(
                f"party {source} sent {getattr(array, 'dtype', type(array).__name__)} "
                f"{getattr(array, 'shape', '')} in {label!r}; {np.dtype(kind)} {shape} was expected"
            )
    return list(arrays)


@types.coroutine
def _pause() -> Generator[None, None, None]:
    yield


class Links:
    """The queues between three parties of one process.

    Attributes:
        boxes: messages that nobody has read yet, by (sender, receiver).
        moved: how many messages were sent or read.
    """

    def __init__(self) -> None:
        self.moved = 0
        self.boxes: dict[tuple[int, int], deque[tuple[str, list[np.ndarray]]]] = {
            (i, j): deque() for i in range(PARTIES) for j in range(PARTIES) if i != j
        }


class MemoryWire:
    """A wire between three parties of one process; works in `take_turns` and in any event loop.

    Args:
        index: of the party that holds this end.
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
            await _pause()
        found, arrays = box.popleft()
        self.links.moved += 1
        if self._record:
            self.received.append((source, found, arrays))
        return checked(source, label, found, arrays, expect)


def memory_wires(*, record: bool = False) -> tuple[MemoryWire, MemoryWire, MemoryWire]:
    """The three ends of links in memory."""
    links = Links()
    zero, one, two = (MemoryWire(index, links, record=record) for index in range(PARTIES))
    return zero, one, two


def take_turns(parties: Sequence[Coroutine[Any, Any, T]], links: Links) -> list[T]:
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

"""The messages of two computing parties over their link: each of them is declared, checked by the party's policy and
written to its ledger before it leaves, like any other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from securevfl.errors import ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link
from securevfl.shares.two.exchanges import name_step
from securevfl.shares.wire import MASKED
from securevfl.transport import ACTIVE, Guard, Kind, Message

__all__ = ["Expected", "LinkTwoWire", "name_arrays", "read_arrays"]

Expected = Sequence[tuple[np.typing.DTypeLike, tuple[int, ...]]]
"""Types and shapes of the arrays of one message."""

_OPEN = Guard()
_LONGEST = 80


def name_arrays(arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a message by their names, which are their numbers."""
    return {str(number): array for number, array in enumerate(arrays)}


def read_arrays(peer: str, label: str, message: Message, expect: Expected) -> list[np.ndarray]:
    """The arrays of a message in their order.

    Args:
        peer: who sent it, for errors.
        label: of the message, likewise.
        message: as received.
        expect: type and shape of each array.

    Raises:
        ProtocolError: another number of arrays, another type or another shape.
    """
    found = []
    for number, (kind, shape) in enumerate(expect):
        array, dtype = np.asarray(message.arrays[str(number)]), np.dtype(kind)
        if array.dtype != dtype or array.shape != tuple(shape):
            raise ProtocolError(
                f"{peer!r} sent {array.dtype} {array.shape} as {label!r}, where {dtype} {tuple(shape)} was expected; "
                "nothing was opened"
            )
        found.append(array)
    return found


class LinkTwoWire:
    """A `securevfl_crypto.two.wire.TwoWire` over the link of two parties. Their public keys are signed with the
    parties' own keys by the link, like all public keys.

    Args:
        site: of one of the two.
        peer: name of the other one.

    Attributes:
        me: 0 at the active party, else 1.
        messages: sent so far.
        sent: bytes of arrays sent so far.
    """

    def __init__(self, site: PartyContext, peer: str) -> None:
        self.me = 0 if site.role == ACTIVE else 1
        self.messages = 0
        self.sent = 0
        self._link: Link = site.links[peer]
        self._waiting: asyncio.Task[None] | None = None

    async def send(self, label: str, arrays: Sequence[np.ndarray]) -> None:
        """Send arrays to the other party. Does not wait for room in the channel: both parties may send much at once,
        and would wait for each other."""
        step, kind = name_step(label)
        self.messages += 1
        self.sent += sum(array.nbytes for array in arrays)
        self._raise_failure()
        if self._waiting is None and self._link.can_send:
            await self._send_now(step, kind, label, arrays)
            return
        self._waiting = self._link.send_behind(self._send_after(self._waiting, step, kind, label, arrays))

    async def flush(self) -> None:
        """Wait until all that was sent is in the channel: before anything else is sent over this link."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            await waiting

    async def _send_after(
        self, before: asyncio.Task[None] | None, step: str, kind: Kind, label: str, arrays: Sequence[np.ndarray]
    ) -> None:
        if before is not None:
            await before
        await self._send_now(step, kind, label, arrays)

    async def _send_now(self, step: str, kind: Kind, label: str, arrays: Sequence[np.ndarray]) -> None:
        guard = _OPEN if kind is Kind.PUBLIC_KEY else MASKED
        await self._link.send(kind, step, meta={"label": label}, guard=guard, **name_arrays(arrays))

    async def _receive_or_fail(self, kind: Kind, step: str, names: Sequence[str]) -> Message:
        """The next message; or what went wrong meanwhile with one that waits to be sent, which nobody will answer."""
        waiting = self._waiting
        if waiting is None:
            return await self._link.receive(kind, step, *names)
        receiving = asyncio.ensure_future(self._link.receive(kind, step, *names))
        try:
            await asyncio.wait({receiving, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done():
                self._raise_failure()
            return await receiving
        finally:
            receiving.cancel()

    def _raise_failure(self) -> None:
        """Forget what was sent; raise what went wrong with it."""
        if self._waiting is not None and self._waiting.done():
            waiting, self._waiting = self._waiting, None
            waiting.result()

    async def receive(self, label: str, expect: Expected) -> list[np.ndarray]:
        """The next message of the other party.

        Raises:
            ProtocolError: it is another message, or its arrays are not of these types and shapes.
        """
        step, kind = name_step(label)
        self._raise_failure()
        link = self._link
        message = await self._receive_or_fail(kind, step, [str(number) for number in range(len(expect))])
        said = message.meta.get("label")
        if said != label:
            raise ProtocolError(
                f"{link.peer!r} is at {str(said)[:_LONGEST]!r} and {link.me!r} at {label!r}: the computing parties do "
                "not count alike; nothing was opened"
            )
        return read_arrays(link.peer, label, message, expect)

"""A link: a channel behind the party's own policy and ledger. Protocols talk through links only."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Literal, TypeVar

import numpy as np
from securevfl_net.link_state import Beat

from securevfl.errors import PeerEnded, ProtocolError
from securevfl.ledger import Ledger
from securevfl.privacy.clock import Clock
from securevfl.privacy.noise import Noised
from securevfl.privacy.policy import Policy
from securevfl.privacy.terms import raise_refusal
from securevfl.transport import (
    NO_GUARD,
    Array,
    Channel,
    Exchange,
    Guard,
    Kind,
    MemoryChannel,
    Message,
    Scalar,
    hosted,
    measure,
    numbers,
)
from securevfl.transport import size as wire_size

__all__ = ["Declared", "Heard", "Link", "fan_out", "send_all", "together"]

_EMPTY: Mapping[str, Scalar] = {}
_T = TypeVar("_T")

Declared = Mapping[tuple[str, Kind], Exchange]
"""Step and kind → what was declared, in one direction of a link."""

Heard = Callable[[str, str, Literal["sent", "received"], Message], None]
"""Is told of every message of a link: the party, its peer, which way it went, and the message."""


class Link:
    """One party's way to one peer.

    Every message that leaves was declared, was checked by `policy` and is written to `ledger`, in this order, before it
    is handed to the channel; every message that arrives is written there and checked in the same way.

    Attributes:
        awaits: what the program waits for at this link now; empty where it does not wait.
        sent: messages that were sent.
        received: messages that were read.

    Args:
        me: the party.
        peer: the party at the other end.
        channel: what moves messages.
        ledger: the party's own.
        policy: the party's own.
        clock: the party's own.
        sends: what this run declares from `me` to `peer`; None leaves declarations out, for protocols tried alone.
        takes: what it declares from `peer` to `me`; likewise.
        heard: is told of each message after the ledger has it; None where nobody listens.
    """

    __slots__ = (
        "_channel",
        "_clock",
        "_heard",
        "_ledger",
        "_sends",
        "_takes",
        "awaits",
        "me",
        "peer",
        "policy",
        "received",
        "sent",
    )

    def __init__(
        self,
        me: str,
        peer: str,
        channel: Channel,
        ledger: Ledger,
        policy: Policy,
        clock: Clock,
        *,
        sends: Declared | None = None,
        takes: Declared | None = None,
        heard: Heard | None = None,
    ) -> None:
        self.me = me
        self.peer = peer
        self.policy = policy
        self._channel = channel
        self._ledger = ledger
        self._clock = clock
        self._sends = sends
        self._takes = takes
        self._heard = heard
        self.awaits = ""
        self.sent = 0
        self.received = 0

    @property
    def ready(self) -> bool:
        """Whether `send` would not wait now."""
        return self._channel.ready

    async def send(
        self,
        kind: Kind,
        what: str,
        *,
        meta: Mapping[str, Scalar] = _EMPTY,
        guard: Guard = NO_GUARD,
        **arrays: Array | Noised[Any],
    ) -> None:
        """Send arrays and scalars as one message; waits while the peer has too much left to read.

        The message's noise is the least noise multiplier among its arrays: 0 where one of them is not `Noised`.

        Raises:
            TypeError: a guard that claims noise; nothing was sent.
            PolicyError: the party's policy forbids it; nothing was sent.
            ProtocolError: nobody declared the message; nothing was sent. Or the channel was closed.
        """
        await self.hand_over(composed(kind, what, meta=meta, guard=guard, **arrays))

    async def hand_over(self, message: Message) -> None:
        """Send a message that `composed` made, one object over several links where all get the same; see `send`."""
        what = message.what
        if self._sends is not None and (what, message.kind) not in self._sends:
            raise ProtocolError(
                f"{self.me!r} was about to send {message.kind.value} {what!r} to {self.peer!r}, which nothing in the "
                "job declares; nothing was sent: declare it in the algorithm's exchanges"
            )
        self.policy.check(message, self.peer)
        if not isinstance(self._channel, MemoryChannel):
            message = hosted(message)  # it goes over a wire
        late = self._later(message, self.me, self.peer)
        # before it leaves: it may have left
        size = measure(message)[0] if late is None else wire_size(message)
        self._ledger.record("sent", self.peer, message, size, check=late)
        if self._channel.ready:
            size = await self._channel.send(message)
        else:
            start = time.perf_counter()
            self.awaits = f"room for {what!r}"
            try:
                size = await self._channel.send(message)
            finally:
                self.awaits = ""
            self._clock.waited(time.perf_counter() - start)
        self.sent += 1
        self._clock.sent(self.peer, size)
        if self._heard is not None:
            self._heard(self.me, self.peer, "sent", message)

    async def receive(self, kind: Kind, what: str, *names: str) -> Message:
        """The next message, which must be of this kind and step and carry exactly these arrays.

        Raises:
            PolicyError: it is protected less than the party's policy demands, or the peer refuses to go on.
            ProtocolError: the peer sent something else, something that nobody declared, numbers that are not finite, or
                ended. Numbers on a GPU are looked at when the ledger writes them down, `LAG` messages later at most
                and before an epoch ends: to look at them here would wait for the GPU.
        """
        start = time.perf_counter()
        self.awaits = repr(what)
        try:
            message, size = await self._channel.receive()
        finally:
            self.awaits = ""
        self.received += 1
        self._clock.waited(time.perf_counter() - start)
        late = self._later(message, self.peer, self.me)
        self._ledger.record("received", self.peer, message, size, check=late)
        if self._heard is not None:
            self._heard(self.me, self.peer, "received", message)
        self.policy.check_received(message, self.peer)
        if message.kind != kind or message.what != what or message.arrays.keys() != set(names):
            raise_refusal(message, self.peer)
            raise ProtocolError(
                f"{self.me!r} expected {kind.value} {what!r} with arrays {sorted(names)} from {self.peer!r} and got "
                f"{message.kind.value} {message.what!r} with {sorted(message.arrays)}: do both run the same "
                "version and job?"
            )
        if self._takes is not None and (what, kind) not in self._takes:
            raise ProtocolError(
                f"{self.peer!r} sent {kind.value} {what!r} to {self.me!r}, which nothing in the job declares: "
                "do both run the same version and job?"
            )
        if late is None:
            _require_finite(message, self.peer, self.me)
        return message

    def _later(self, message: Message, sender: str, receiver: str) -> Callable[[], None] | None:
        """The check of a message whose numbers are on a device; None where they are here. It is made of what is sent,
        too: whoever gets nan sends nan, and the first of them in a ledger is whose fault it is."""
        if message.here:
            return None
        return partial(_require_finite, message, sender, receiver)

    async def exchange(self, outgoing: Awaitable[object], incoming: Awaitable[_T]) -> _T:
        """Send and receive in bulk at the same time, so that two parties that both send cannot block each other.

        Args:
            outgoing: sends over this link.
            incoming: receives over this link.

        Returns:
            What `incoming` returns.
        """
        receiving = asyncio.ensure_future(incoming)
        await together(outgoing, receiving)
        return receiving.result()

    @property
    def steps(self) -> int:
        """Messages that were sent and read."""
        return self.sent + self.received

    @property
    def heard(self) -> Beat:
        """The peer's last sign of life."""
        return self._channel.heard

    def beat(self, beat: Beat) -> None:
        """Show the peer a sign of life."""
        self._channel.beat(beat)

    def close(self) -> None:
        """Tell the peer that nothing more will come."""
        self._channel.close()


def composed(
    kind: Kind,
    what: str,
    *,
    meta: Mapping[str, Scalar] = _EMPTY,
    guard: Guard = NO_GUARD,
    **arrays: Array | Noised[Any],
) -> Message:
    """The message that `Link.send` sends: its noise is the least among its arrays.

    Raises:
        TypeError: a guard that claims noise.
    """
    noise = min(map(_multiplier, arrays.values())) if arrays else 0.0
    if noise or guard.noise:
        guard = _with_noise(guard, noise)
    return Message(kind, what, {name: _bare(array) for name, array in arrays.items()}, meta, guard)


def _require_finite(message: Message, sender: str, receiver: str) -> None:
    """Refuse numbers that are not finite; they are looked at once, where several parties of a process get the same."""
    if message.finite is None:
        object.__setattr__(message, "finite", all(map(_finite, numbers(message).values())))
    if not message.finite:
        raise ProtocolError(
            f"{sender!r} sent numbers that are not finite to {receiver!r} ({message.what!r}, "
            f"array {' or '.join(map(repr, message.arrays))}): look at the training and the tables of "
            f"{sender!r}; lower learning rates if it diverged"
        )


def _finite(numbers: np.ndarray) -> bool:
    """Whether all of these flat numbers are finite: their squares' sum tells, unless it overflows."""
    if numbers.dtype.kind != "f":
        return True
    if numbers.dtype.itemsize > 2 and math.isfinite(np.vdot(numbers, numbers)):  # `dot` would warn of an overflow
        return True
    return bool(np.isfinite(numbers).all())


def _multiplier(array: Array | Noised[Any]) -> float:
    return array.multiplier if isinstance(array, Noised) else 0.0


def _bare(array: Array | Noised[Any]) -> Array:
    value: Array = array.value if isinstance(array, Noised) else array
    return value


@lru_cache(maxsize=256)
def _with_noise(guard: Guard, noise: float) -> Guard:
    """The guard that a message is sent under; one object for equal ones, as `Policy` remembers them by identity."""
    if guard.noise:
        raise TypeError(
            f"a guard claims noise of σ/Δ = {guard.noise:.3g}; send what a release returned (a Noised) under a guard "
            "without noise: the link derives it"
        )
    return replace(guard, noise=noise) if noise else guard


async def fan_out(links: Iterable[Link], send: Callable[[Link], Coroutine[Any, Any, None]]) -> None:
    """Send over several links at once: a peer that reads slowly delays none of the others.

    Args:
        links: to whom.
        send: sends over one of them.
    """
    full = []
    for link in links:
        if link.ready:
            await send(link)
        else:
            full.append(link)
    await together(*(send(link) for link in full))


async def send_all(
    links: Iterable[Link],
    kind: Kind,
    what: str,
    *,
    meta: Mapping[str, Scalar] = _EMPTY,
    guard: Guard = NO_GUARD,
    **arrays: Array | Noised[Any],
) -> None:
    """Send the same over several links at once, as `Link.send` does: what is computed of a message, its digest, is
    computed once."""
    message = composed(kind, what, meta=meta, guard=guard, **arrays)
    await fan_out(links, lambda link: link.hand_over(message))


async def together(*work: Awaitable[object]) -> None:
    """Run all at once, and to their end: the first error ends the others and is raised when they have ended.

    An error of another one that does not follow from its being ended is added to it as a note.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    except BaseException as first:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            follows = ended is first or isinstance(ended, asyncio.CancelledError | PeerEnded)
            if isinstance(ended, BaseException) and not follows:
                first.add_note(f"besides: {type(ended).__name__}: {ended}")
        raise

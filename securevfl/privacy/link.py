"""A link: a channel behind the party's own policy and ledger. Protocols talk through links only."""

from __future__ import annotations

import time
from collections.abc import Mapping

from securevfl.errors import ProtocolError
from securevfl.privacy.clock import Clock
from securevfl.privacy.ledger import Ledger
from securevfl.privacy.policy import Policy
from securevfl.privacy.terms import raise_refusal
from securevfl.transport import NO_GUARD, Array, Channel, Guard, Kind, Message, Scalar

__all__ = ["Link"]

_EMPTY: Mapping[str, Scalar] = {}


class Link:
    """One party's way to one peer.

    Every message that leaves was first checked by `policy` and written to `ledger`; every message that
    arrives is written there too.
    """

    __slots__ = ("_channel", "_clock", "_ledger", "me", "peer", "policy")

    def __init__(self, me: str, peer: str, channel: Channel, ledger: Ledger, policy: Policy, clock: Clock) -> None:
        self.me = me
        self.peer = peer
        self.policy = policy
        self._channel = channel
        self._ledger = ledger
        self._clock = clock

    def send(
        self,
        kind: Kind,
        what: str,
        *,
        meta: Mapping[str, Scalar] = _EMPTY,
        guard: Guard = NO_GUARD,
        **arrays: Array,
    ) -> None:
        """Send arrays and scalars as one message.

        Raises:
            PolicyError: the party's policy forbids it; nothing was sent.
        """
        message = Message(kind, what, arrays, meta, guard)
        self.policy.check(message, self.peer)
        size = self._channel.send(message)
        self._clock.sent(self.peer, size)
        self._ledger.record("sent", self.peer, message, size)

    async def receive(self, kind: Kind, what: str, *names: str) -> Message:
        """The next message, which must be of this kind and step and carry exactly these arrays.

        Raises:
            PolicyError: it is protected less than the party's policy demands, or the peer refuses to go on.
            ProtocolError: the peer sent something else, or ended.
        """
        start = time.perf_counter()
        message, size = await self._channel.receive()
        self._clock.waited(time.perf_counter() - start)
        self._ledger.record("received", self.peer, message, size)
        self.policy.check_received(message, self.peer)
        if message.kind != kind or message.what != what or message.arrays.keys() != set(names):
            raise_refusal(message, self.peer)
            raise ProtocolError(
                f"{self.me!r} expected {kind.value} {what!r} with arrays {sorted(names)} from {self.peer!r} and got "
                f"{message.kind.value} {message.what!r} with {sorted(message.arrays)}: do both run the same "
                "version and job?"
            )
        return message

    def close(self) -> None:
        """Tell the peer that nothing more will come."""
        self._channel.close()

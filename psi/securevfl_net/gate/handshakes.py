"""Connections that have yet to say who they are, and which of them goes when too many call at once."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from securevfl_net.gate.connection import Phase
from securevfl_net.networks import network_of

__all__ = ["Caller", "Handshakes", "find_network"]

_SPARED = 4
"""Connections of one known network that stay while others can go."""
_KNOWN = 256
"""Networks that are remembered."""


class Caller(Protocol):
    """A connection in its handshake.

    Attributes:
        dialled: whether this side called.
        phase: of `Phase`.
    """

    dialled: bool
    phase: int


C = TypeVar("C", bound=Caller)


def find_network(sock: socket.socket) -> str:
    """Return the caller's IPv4 address or its IPv6 /64 network, which one customer has; empty if it has none."""
    with suppress(OSError, ValueError, IndexError, TypeError):
        return network_of(str(sock.getpeername()[0]))
    return ""


class Handshakes(Generic[C]):
    """The connections in their handshake. Room is shared between the networks that call, so that a flood from one
    address takes its own places only.

    Args:
        most: callers that may be in their handshake at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._networks: dict[C, str] = {}
        self._callers: Counter[str] = Counter()
        self._known: dict[str, None] = {}

    def __iter__(self) -> Iterator[C]:
        return iter(list(self._networks))

    def __len__(self) -> int:
        return len(self._networks)

    def __contains__(self, connection: C) -> bool:
        return connection in self._networks

    def add(self, connection: C, network: str) -> None:
        """Add a connection.

        Args:
            connection: that begins.
            network: where the caller is; ignored where this party called.
        """
        self._networks[connection] = network
        if not connection.dialled:
            self._callers[network] += 1

    def remove(self, connection: C) -> None:
        """Remove a connection that ended or showed who it is; the network of an accepted caller counts as known."""
        network = self._networks.pop(connection)
        if connection.dialled:
            return
        self._callers[network] -= 1
        if not self._callers[network]:
            del self._callers[network]
        if connection.phase == Phase.LIVE:
            self._known.pop(network, None)
            self._known[network] = None
            if len(self._known) > _KNOWN:
                del self._known[next(iter(self._known))]

    def choose_loser(self, network: str) -> C | None:
        """Return the caller that has to go before one more from `network` is taken; None while there is room.

        It is of the network with the most callers, the new one among them. There, those go first that have said
        nothing, and of these the oldest. Networks from which a peer came before keep a few places.
        """
        if self._callers.total() < self._most:
            return None
        counts = self._callers.copy()
        counts[network] += 1
        callers = [one for one in self._networks if not one.dialled]  # the oldest first

        def rank(one: C) -> tuple[bool, int, bool]:
            where = self._networks[one]
            spared = where in self._known and counts[where] <= _SPARED
            return not spared, counts[where], one.phase == Phase.PEEK

        return max(callers, key=rank)  # the first, thus the oldest, of equals

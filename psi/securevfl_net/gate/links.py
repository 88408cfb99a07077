"""State of each link of a mesh: the gate's last report, the traffic, and the peer's last heartbeat."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from securevfl_net.gate.peer import LinkRow
from securevfl_net.incarnation import Incarnation
from securevfl_net.link_state import Beat, LinkState

__all__ = ["LinkStates"]

_ROWS = msgspec.msgpack.Decoder(list[LinkRow])


class LinkStates:
    """The links of a mesh, by the numbers of their peers.

    Args:
        peers: their names, sorted.

    Attributes:
        sent: bytes to each peer for which it made room.
        received: bytes from each peer.
        incarnations: peer → its start that was seen last.
    """

    def __init__(self, peers: Sequence[str]) -> None:
        self._peers = tuple(peers)
        self.sent = [0] * len(self._peers)
        self.received = [0] * len(self._peers)
        self.incarnations: dict[str, Incarnation] = {}
        self._rows: list[LinkRow] = []
        self._beats: dict[int, tuple[Beat, float]] = {}

    def update_links(self, rows: bytes | memoryview) -> None:
        """Store the gate's report on all links, a list of `LinkRow` in msgpack."""
        self._rows = _ROWS.decode(rows)

    def store_beat(self, index: int, beat: Beat, quiet: float) -> None:
        """Store a peer's heartbeat; its program last reported `quiet` seconds ago."""
        self._beats[index] = beat, time.monotonic() - quiet

    def is_connected(self, index: int) -> bool:
        """Whether a peer is connected, by the gate's last report."""
        return index < len(self._rows) and self._rows[index].connected

    def get_link(self, index: int) -> LinkState:
        """The link to a peer."""
        row = self._rows[index] if index < len(self._rows) else None
        beat, spoke = self._beats.get(index, (Beat(), None))
        sent, received = self.sent[index], self.received[index]
        if row is None:
            return LinkState(sent=sent, received=received, beat=beat)
        return LinkState(
            connected=row.connected,
            incarnation=self.incarnations.get(self._peers[index]),
            since=row.since,
            connections=row.connections,
            sent=sent,
            received=received,
            round_trip=row.round_trip,
            beat=beat,
            silent=row.silent,
            quiet=None if spoke is None else time.monotonic() - spoke,
            blocked=row.blocked,
            why=row.why,
        )

"""When a process stops because its peers refuse it: they know another process of its party, or its certificate is
revoked.
"""

from __future__ import annotations

import time

from securevfl.errors import Parked, PeerRefused, SecureVFLError
from securevfl.party.attempts import Superseded
from securevfl.transport import ConnectionRefused

__all__ = ["SupersededWatch"]

_TWO_PROCESSES = 20.0
"""Seconds for which a restarted process may be refused because its predecessor's connection still seems to stand."""

_BY_PEER = "the peer refuses: "


class SupersededWatch:
    """Refusals of this party's process by peers that know another one of it, or find its certificate revoked.

    Args:
        me: the party.
    """

    def __init__(self, me: str) -> None:
        self._me = me
        self._since: dict[str, tuple[float, SecureVFLError]] = {}

    def take_refusal(self, event: ConnectionRefused) -> None:
        """Take a refused connection.

        Raises:
            Superseded: another process of this party is newer.
            Parked: the other process is gone; the next start of this one has a number of its own.
        """
        words = event.words.removeprefix(_BY_PEER)
        if event.code == "revoked" and event.peer and event.words.startswith(_BY_PEER):
            refused = PeerRefused(event.code, f"{event.peer!r} refuses this party: {words}: ask for a new certificate")
            self._since.setdefault(event.peer, (time.monotonic(), refused))
        if event.party != self._me or event.code not in Superseded.CODES:
            return
        if event.code == "twin-incarnation":
            raise Parked(f"{event.peer!r} refuses this process: {words}: start it again, under a new number")
        error = Superseded(event.code, event.peer, words)
        if event.code != "running-incarnation":
            raise error
        self._since.setdefault(event.peer, (time.monotonic(), error))

    def take_arrival(self, peer: str) -> None:
        """A peer is connected: it knows this process."""
        self._since.pop(peer, None)

    @property
    def is_waiting(self) -> bool:
        """Whether a peer refuses this process for now, so that `check` must be called."""
        return bool(self._since)

    def check(self) -> None:
        """Compare the time with how long a predecessor's connection may seem to stand.

        Raises:
            Superseded: the other process is still connected.
            PeerRefused: this party's certificate is revoked, and the list was not mended meanwhile.
        """
        for since, error in self._since.values():
            if time.monotonic() - since > _TWO_PROCESSES:
                raise error

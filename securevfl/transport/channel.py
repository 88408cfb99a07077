"""Channels between two parties: each end sends and receives, with a bounded window of messages in flight."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from securevfl_net.link_state import Beat

if TYPE_CHECKING:  # messages contain tensors; a gate needs channels' beats but never loads torch
    from securevfl.transport.message import Message

__all__ = ["WINDOW", "Channel", "CommitsFirst"]

WINDOW = 32 << 20
"""Bytes that may be on their way in one direction before a sender waits."""


class Channel(Protocol):
    """One party's end of an ordered, reliable, authenticated connection to one peer."""

    @property
    def can_send(self) -> bool:
        """Whether `send` would return without waiting."""
        ...

    async def send(self, message: Message) -> int:
        """Send `message` and return its size on the wire, in bytes. Waits while the window is full.

        A message is admitted as soon as less than the window is in flight, so a window may be smaller than the largest
        message.

        Raises:
            ProtocolError: this end was closed, or the peer ended and will never read.
            Parked: the view that the channel belongs to is over.
        """
        ...

    async def receive(self) -> tuple[Message, int]:
        """The next message and its size on the wire.

        Raises:
            ProtocolError: the peer closed its end and nothing is left to read.
            Parked: the view that the channel belongs to is over.
        """
        ...

    def send_beat(self, beat: Beat) -> None:
        """Show the peer a sign of life; it does not wait for room, and takes the place of the one before."""
        ...

    @property
    def last_beat(self) -> Beat:
        """The peer's last sign of life."""
        ...

    def close(self) -> None:
        """Close the sending side: the peer will receive nothing more."""
        ...


@runtime_checkable
class CommitsFirst(Protocol):
    """A channel that keeps messages in this process until the party's ledger has their lines."""

    def commit_first(self, commit: Callable[[], None]) -> None:
        """Call `commit` each time before messages of the present view leave this process. If it raises, none of them
        leaves, and calls of all channels of the view raise its error.

        Args:
            commit: writes the lines of all messages that were sent.
        """
        ...

"""Channels between two parties: send one way, receive the other, with a bounded window between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # messages hold tensors; a gate has channels' beats and never loads torch
    from securevfl.transport.message import Message

__all__ = ["WINDOW", "Beat", "Channel"]

WINDOW = 32 << 20
"""Bytes that may be on their way in one direction before a sender waits."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life, beside the messages.

    Attributes:
        steps: messages that the party has sent and read, over all its links.
        sent: messages that it has sent over this channel.
        read: messages that it has read from this channel.
        awaits: the party for whom it waits; empty where it does not wait.
        step: what for.
        worked: seconds of processor time that the party's program was seen to take for long computations; a program
            that computes takes no steps and can say nothing itself, so its gate counts for it.
    """

    steps: int = 0
    sent: int = 0
    read: int = 0
    awaits: str = ""
    step: str = ""
    worked: float = 0.0


class Channel(Protocol):
    """One party's end of an ordered, reliable, authenticated connection to one peer."""

    @property
    def ready(self) -> bool:
        """Whether `send` would not wait now."""
        ...

    async def send(self, message: Message) -> int:
        """Send `message` and return its size on the wire, in bytes. Waits while the window is full.

        A message is admitted whenever less than the window is on its way, so that the window never has to hold the
        largest message.

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

    def beat(self, beat: Beat) -> None:
        """Show the peer a sign of life; it does not wait for room, and takes the place of the one before."""
        ...

    @property
    def heard(self) -> Beat:
        """The peer's last sign of life."""
        ...

    def close(self) -> None:
        """Tell the peer that nothing more will come."""
        ...

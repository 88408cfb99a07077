"""The state of one connection, and the sign of life that each end sends over it.

Both are plain values without torch, because a gate's process builds them and a program reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from securevfl_net.incarnation import Incarnation

__all__ = ["Beat", "LinkState"]


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
            that computes takes no steps and sends nothing itself, so its gate counts for it.
        at: when the party's program wrote it, on the reader's monotonic clock; 0 if unknown.
    """

    steps: int = 0
    sent: int = 0
    read: int = 0
    awaits: str = ""
    step: str = ""
    worked: float = 0.0
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class LinkState:
    """What is known of one connection, for `status` and metrics.

    Attributes:
        connected: whether the link is up now.
        incarnation: the peer's; None before it was connected.
        since: seconds since it came up, or since it broke.
        connections: how many there were.
        sent, received: bytes of messages, without frames and TLS.
        round_trip: seconds of the last ping; None before the first came back, and without a network.
        beat: the peer's last sign of life.
        silent: seconds since anything came from the peer; None before the first, and without a network.
        quiet: seconds since the peer's program last contacted its gate; None if unknown.
        blocked: whether something waits to be sent and the peer gives no room.
        why: it is not connected, in words; empty where it is.
    """

    connected: bool = False
    incarnation: Incarnation | None = None
    since: float = 0.0
    connections: int = 0
    sent: int = 0
    received: int = 0
    round_trip: float | None = None
    beat: Beat = field(default_factory=Beat)
    silent: float | None = None
    quiet: float | None = None
    blocked: bool = False
    why: str = ""

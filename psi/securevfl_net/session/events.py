"""Events at one end of a session, for the gate."""

from __future__ import annotations

import msgspec

from securevfl_net.incarnation import Incarnation
from securevfl_net.session.limits import OVERHEAD

__all__ = [
    "Aborted",
    "Beaten",
    "Blocked",
    "Bye",
    "ConnectionBroken",
    "Deadlocked",
    "Endorsed",
    "Event",
    "MessagePart",
    "Noted",
    "Refused",
    "Up",
]


class Event(msgspec.Struct, frozen=True, gc=False):
    """Base of all events."""


class Up(Event, frozen=True, gc=False):
    """The peer answered, and both have identified each other.

    Attributes:
        peer: its incarnation.
        resumed: the streams continue where they were. Otherwise they are void at this end: the current view is parked.
    """

    peer: Incarnation
    resumed: bool


class ConnectionBroken(Event, frozen=True, gc=False):
    """The streams cannot continue, although both processes live: they are void. `Up` with `resumed=False` follows.

    Attributes:
        reason: what the peer claimed.
    """

    reason: str


class MessagePart(Event, frozen=True, gc=False):
    """A part of a message, exactly once and in order.

    Attributes:
        view: the view that was begun.
        total: bytes of the whole message for its first part; otherwise None.
        data: the part.
        last: whether the message ends with it.
    """

    view: bytes
    total: int | None
    data: memoryview
    last: bool

    @property
    def cost(self) -> int:
        """Its share of the window; return it by `SessionEnd.credit_window`."""
        return len(self.data) + OVERHEAD


class Noted(Event, frozen=True, gc=False):
    """A note of the peer's program."""

    payload: bytes


class Endorsed(Event, frozen=True, gc=False):
    """The peer endorses a new certificate."""

    payload: bytes


class Beaten(Event, frozen=True, gc=False):
    """The peer's last sign of life; of several between two calls of `take_events`, the last."""

    beat: bytes


class Blocked(Event, frozen=True, gc=False):
    """The peer waits until this end's program reads.

    Attributes:
        step: of the part that waits to be sent.
    """

    step: str


class Deadlocked(Event, frozen=True, gc=False):
    """Both programs wait for room, neither reads, and the window cannot grow any more: the job must end.

    Attributes:
        step: what this end's program wants to send.
        theirs: what the peer's wants to.
        window: bytes to which the window has grown.
    """

    step: str
    theirs: str
    window: int


class Aborted(Event, frozen=True, gc=False):
    """The peer's program ended with an error."""

    reason: str


class Bye(Event, frozen=True, gc=False):
    """The peer has sent all, and everything was acknowledged."""


class Refused(Event, frozen=True, gc=False):
    """The connection was refused and is over; the streams stay as they are.

    Attributes:
        code: one of `refusal.CODES`.
        words: what was found, what was expected.
        ours: whether this end refused; otherwise the peer did and sent its reason.
        party: the party whose process is at fault, for example the stale one; empty where it may be either.
    """

    code: str
    words: str
    ours: bool
    party: str = ""

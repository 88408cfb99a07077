"""The session with one peer, over connections that may break and be replaced: no sockets, no clock, no threads.

A broken connection is resumed without losing or repeating a part. A restarted process is another incarnation: what the
earlier one sent is void.
"""

from securevfl_net.incarnation import Incarnation
from securevfl_net.session.end import VIEW, SessionEnd
from securevfl_net.session.events import (
    Aborted,
    Beaten,
    Blocked,
    Bye,
    ConnectionBroken,
    Deadlocked,
    Endorsed,
    Event,
    MessagePart,
    Noted,
    Refused,
    Up,
)
from securevfl_net.session.limits import DEFAULT_SESSION_LIMITS, OVERHEAD, SessionLimits
from securevfl_net.session.line import Line
from securevfl_net.session.refusal import CODES, SessionRefusal, make_printable

__all__ = [
    "CODES",
    "DEFAULT_SESSION_LIMITS",
    "OVERHEAD",
    "VIEW",
    "Aborted",
    "Beaten",
    "Blocked",
    "Bye",
    "ConnectionBroken",
    "Deadlocked",
    "Endorsed",
    "Event",
    "Incarnation",
    "Line",
    "MessagePart",
    "Noted",
    "Refused",
    "SessionEnd",
    "SessionLimits",
    "SessionRefusal",
    "Up",
    "make_printable",
]

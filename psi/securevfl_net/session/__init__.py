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
    Deadlocked,
    Endorsed,
    Event,
    Noted,
    Part,
    Refused,
    Torn,
    Up,
)
from securevfl_net.session.limits import DEFAULT_SESSION_LIMITS, OVERHEAD, SessionLimits
from securevfl_net.session.line import Line
from securevfl_net.session.refusal import CODES, Refusal, printable

__all__ = [
    "CODES",
    "DEFAULT_SESSION_LIMITS",
    "OVERHEAD",
    "VIEW",
    "Aborted",
    "Beaten",
    "Blocked",
    "Bye",
    "Deadlocked",
    "Endorsed",
    "Event",
    "Incarnation",
    "Line",
    "Noted",
    "Part",
    "Refusal",
    "Refused",
    "SessionEnd",
    "SessionLimits",
    "Torn",
    "Up",
    "printable",
]

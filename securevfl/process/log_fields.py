"""What a log line may contain: a closed list of events and fields, each field with the shape of its values.

Logs leave a party's machine: they are collected, kept for years, and read by people who may not see the data. So no
field takes free text. A name must be one of the job's parties, a text must have a known shape, and everything else is a
number. Texts of errors and of peers are not logged: they may contain identifiers or values, and a peer chooses what it
writes into this party's logs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping

from securevfl.transport import Kind

__all__ = ["CANDIDATE", "EVENTS", "FIELDS", "LogFields", "Shape", "match_pattern"]

EVENTS: Mapping[str, str] = {
    "activated": "a model is active",
    "alone": "peers did not announce their results",
    "answered": "a request was answered",
    "attempt": "an attempt begins",
    "done": "all parties have their results",
    "down": "a peer is not connected",
    "ended": "the process ends",
    "epoch": "an epoch ended",
    "error": "an error ended the process",
    "finished": "the party has its result",
    "leaving": "the party signed that peers are gone",
    "left": "the job goes on without peers",
    "library": "a library logged an event",
    "listening": "a port is open",
    "parked": "the attempt is parked",
    "phase": "a phase begins",
    "refused": "a connection was refused",
    "rotated": "a peer has a new certificate",
    "scored": "rows were scored",
    "standby": "the process waits for the state folder of another one",
    "started": "the process started",
    "stopping": "a signal ends the process in good order",
    "unknown": "something happened that the list of events does not have",
    "up": "a peer is connected",
    "waits": "the party waits for peers",
}
"""Event → its text for people."""

Shape = Callable[[object], object]
"""Convert a value for the log; None leaves it out."""


def _read_number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) and abs(value) < 1 << 63 else None


def _read_flag(value: object) -> object:
    return value if isinstance(value, bool) else None


def match_pattern(pattern: str) -> Shape:
    """A shape: the whole text must match the pattern."""
    whole = re.compile(pattern)
    return lambda value: value if isinstance(value, str) and whole.fullmatch(value) else None


CANDIDATE = r"candidate [a-z][a-z0-9_]{0,39}"
"""The phase in which the algorithm of this name is tried; the agreement names it."""
_CODE = match_pattern(r"[a-z]+(-[a-z]+){0,7}")
_KIND = match_pattern(r"[A-Z][A-Za-z]{0,59}")
_HEXADECIMAL = match_pattern(r"[0-9a-f]{8,64}")

FIELDS: Mapping[str, Shape] = {
    "agreement": _HEXADECIMAL,  # the first digits of the proposal's SHA-256
    "attempt": _read_number,
    "bytes_received": _read_number,
    "bytes_sent": _read_number,
    "code": _CODE,  # of a refusal
    "count": _read_number,
    "epoch": _read_number,
    "epsilon": _read_number,
    "error": _KIND,  # the error's class
    "exit_code": _read_number,
    "fingerprint": _HEXADECIMAL,  # of a certificate or a key
    "kind": match_pattern("|".join(kind.value.replace(" ", "-") for kind in Kind)),  # of a message
    "incarnation": _read_number,  # how often the process was started
    "model": _HEXADECIMAL,  # its digest
    "phase": match_pattern(r"connecting|consent|alignment|setup|training|test|heads|prediction|serving|" + CANDIDATE),
    "port": _read_number,
    "resumed": _read_flag,
    "seconds": _read_number,
    "signal": match_pattern(r"SIG[A-Z]{2,8}"),
    "start": _read_number,  # epoch after which an attempt resumes
    "status": _read_number,  # of an answer, as HTTP has it
    "steps": _read_number,
    "way": match_pattern(r"sent|received"),
    "version": match_pattern(r"[0-9]+(\.[0-9a-z]+){0,4}"),
}
"""Field → its shape; beside them `party`, `peer` and `peers`, whose values are names in the agreement."""


class LogFields:
    """What the log may contain about one job.

    Args:
        party: whose log it is.
        peers: names of all other parties in the agreement.
    """

    def __init__(self, party: str, peers: Iterable[str] = ()) -> None:
        self.party = party
        self._names = frozenset((party, *peers))

    def known_event(self, name: str) -> str:
        """The event, or ``"unknown"``."""
        return name if name in EVENTS else "unknown"

    def filter_values(self, values: Mapping[str, object]) -> dict[str, object]:
        """The values that may be logged, converted, and how many were left out."""
        found: dict[str, object] = {}
        for name, value in values.items():
            if name == "peer":
                written: object = value if value in self._names else None
            elif name == "peers" and isinstance(value, Iterable):
                written = sorted(self._names & {one for one in value if isinstance(one, str)})
            else:
                shape = FIELDS.get(name)
                written = None if shape is None else shape(value)
            if written is not None:
                found[name] = written
        lacking = len(values) - len(found)
        return found | {"left_out": lacking} if lacking else found

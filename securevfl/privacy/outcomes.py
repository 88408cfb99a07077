"""How a part of a job ends that may fail without ending the job: its last message on every link, and its errors."""

from __future__ import annotations

from securevfl.errors import ProtocolError, RangeError
from securevfl.transport import Kind, Message

__all__ = [
    "BEFORE",
    "MOST_DROPPED",
    "OUTCOME",
    "BoundBroken",
    "NumbersNotFinite",
    "PeerDiverged",
    "is_outcome",
    "read_outcome",
]

OUTCOME = "train/outcome"
"""The step of the last message of a part on each link."""

BEFORE = "train/diverged"
"""The step of the message that names the parts which diverged in earlier attempts."""

MOST_DROPPED = 1 << 20
"""Most messages of a peer that a party records and drops at the end of a part. A party that only deals rows may have
sent all of them; but each has a line in the ledger, so a peer must not send them without end.
"""


class BoundBroken(RangeError):
    """A bound on which ε rests was passed, so a peer did not keep to the job. That ends the job: no part diverged."""


class NumbersNotFinite(ProtocolError):
    """A peer sent numbers that are not finite: its training diverged, or its table is wrong."""


class PeerDiverged(RangeError):
    """A peer ended this part of the job, because training diverged."""


def read_outcome(message: Message, peer: str, part: str) -> bool:
    """Whether the peer ended the part because training diverged.

    Raises:
        ProtocolError: the message is malformed, or ends another part.
    """
    diverged, ended = message.meta.get("diverged"), message.meta.get("part")
    if not isinstance(diverged, bool) or ended != part:
        raise ProtocolError(
            f"{peer!r} ended {str(ended)[:40]!r}, and {part!r} was expected: do both run the same version and job?",
            party=peer,
        )
    return diverged


def is_outcome(message: Message) -> bool:
    """Whether this is the last message of a part."""
    return message.kind is Kind.CONTROL and message.what == OUTCOME

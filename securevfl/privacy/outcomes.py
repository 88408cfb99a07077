"""How a part of a job ends that may fail without ending the job: its last message on every link, and its errors."""

from __future__ import annotations

from securevfl.errors import ProtocolError, RangeError
from securevfl.transport import Kind, Message

__all__ = ["BEFORE", "OUTCOME", "NumbersNotFinite", "PeerDiverged", "is_outcome", "raise_divergence", "read_outcome"]

OUTCOME = "train/outcome"
"""The step of the last message of a part on each link."""


BEFORE = "train/diverged"
"""The step of the message that names the parts which diverged in earlier attempts."""


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


def raise_divergence(message: Message, peer: str) -> None:
    """Raise an error if `message` ends a part of the job because training diverged.

    Raises:
        PeerDiverged: it does.
    """
    if is_outcome(message) and message.meta.get("diverged") is True:
        raise PeerDiverged(f"its training diverged, as {peer!r} noticed")

"""Why a connection was refused. Both peers see the reason's name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from securevfl_net.errors import WireError

__all__ = ["CODES", "SessionRefusal", "make_printable"]

CODES: Mapping[str, str] = MappingProxyType(
    {
        "no-session": "the bytes are not those of a session",
        "other-version": "the two ends have no version of the session, or of messages, in common",
        "other-agreement": "the peer runs another job or agreement",
        "other-party": "the hello names other parties than this connection's",
        "other-limits": "the two ends cut messages into parts of different sizes",
        "replayed-hello": "the hello, or the answer to one, is that of an earlier connection",
        "stale-incarnation": "a newer process of that party has been seen",
        "twin-incarnation": "two processes of that party share one state folder",
        "running-incarnation": "another process of that party is connected, and shows signs of life",
        "broken-rule": "a frame that the session's rules do not allow",
        "over-limit": "more bytes than were granted, or a length over its limit",
        "flood": "more control frames than any honest peer sends",
    }
)
"""Code → its meaning."""


class SessionRefusal(WireError):
    """Raised when bytes break a rule; ends the connection, and both ends learn `code`.

    Args:
        code: one of `CODES`.
        words: what was found, what was expected.
        party: the party whose process is at fault; empty where it may be either.
    """

    def __init__(self, code: str, words: str, party: str = "") -> None:
        super().__init__(f"{code}: {words}", party=party)
        self.code = code
        self.words = words


def make_printable(raw: bytes | memoryview, most: int) -> str:
    """A peer's text for a log or a terminal: UTF-8 of at most `most` bytes, and nothing that steers a terminal."""
    text = bytes(raw[:most]).decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)

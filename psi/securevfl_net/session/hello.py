"""The hello: identifies the sender, its agreement and incarnation, and the position of its streams.

Fields of the MessagePack array that follows the versions, in order: the version of messages (see `transport.wire`),
bytes of a part, SHA-256 of the agreement, the sender's name, the receiver's name, the sender's incarnation (count,
nonce), the incarnation that it expects of the receiver (null if unknown), the number of the connection, the
connection's id (16 random bytes), the id that it answers (empty in the first hello), and a position: view tag, number
of the last part that arrived, limit to which the receiver may send (void in the first hello). A first hello may have
one more field: digests of its agreement's fields, see `facts`.

Of two parties, the one with the smaller name sends the first hello; the other answers on the same connection and
repeats the id, and then the smaller name accepts and repeats the answer's id. Nothing else may come before. So a hello
replayed from another connection is detected, and of several connections both ends use the same one: the one on which
the smaller name sent its latest hello.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import msgspec

from securevfl_net.incarnation import NONCE, Incarnation
from securevfl_net.session.facts import MOST, differing_fields
from securevfl_net.session.frames import MAGIC, TAG, VERSIONS, FrameKind, Position, encode_frame
from securevfl_net.session.refusal import SessionRefusal

__all__ = ["Hello", "hello_frame", "known_or_newer", "read_hello"]

_VERSIONS = struct.Struct("<4sHH")
_MOST = 1 << 63
_SHOWN = 6
"""Fields of two agreements that a refusal names."""


class Hello(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """One hello; see the module for the meaning of its fields."""

    messages: int
    part: int
    agreement: bytes
    me: str
    peer: str
    own: tuple[int, bytes]
    expected: tuple[int, bytes] | None
    connection: int
    id: bytes
    answers: bytes
    tag: bytes
    received: int
    allowed: int
    facts: bytes = b""

    @property
    def incarnation(self) -> Incarnation:
        """The sender's."""
        return Incarnation(*self.own)

    @property
    def position(self) -> Position:
        """The sender's position in the stream that it receives."""
        return Position(self.tag, self.received, self.allowed)

    def check_against(self, mine: Hello, answers: bytes, fields: Mapping[str, bytes] | None = None) -> None:
        """Compare it with this end's own hello.

        Args:
            mine: this end's hello.
            answers: the id that it must repeat; empty for a first hello.
            fields: of this end's agreement, name → digest of the value.

        Raises:
            Refusal: it differs where it must not; names the difference.
        """
        if self.messages != mine.messages:
            raise SessionRefusal(
                "other-version",
                f"{self.me!r} writes messages of version {self.messages}, {mine.me!r} of version {mine.messages}: "
                "install the same securevfl",
            )
        if (self.me, self.peer) != (mine.peer, mine.me):
            raise SessionRefusal(
                "other-party",
                f"the hello is from {self.me!r} to {self.peer!r}, expected one from {mine.peer!r} to {mine.me!r}",
            )
        if self.agreement != mine.agreement:
            raise SessionRefusal(
                "other-agreement",
                f"{self.me!r} runs agreement {self.agreement.hex()[:16]}, {mine.me!r} {mine.agreement.hex()[:16]}: "
                + self._find_differences(fields or {}),
            )
        if self.part != mine.part:
            raise SessionRefusal(
                "other-limits",
                f"{self.me!r} sends parts of {self.part} bytes, {mine.me!r} of {mine.part}: set one size",
            )
        if self.answers != answers:
            raise SessionRefusal(
                "replayed-hello",
                f"the hello of {self.me!r} answers connection {self.answers.hex()[:16] or 'none'}, this one "
                f"is {answers.hex()[:16] or 'opened by it'}",
            )
        if self.expected is not None:
            known_or_newer(mine.incarnation, Incarnation(*self.expected), mine.me)

    def _find_differences(self, fields: Mapping[str, bytes]) -> str:
        """Fields in which the two agreements differ, as far as the hello shows; it contains no values."""
        names = differing_fields(fields, self.facts, self.id) if self.facts and fields else []
        shown = [name for name in names if name != "id"][:_SHOWN]
        if not names:
            return "compare the agreement files"
        more = len(names) - ("id" in names) - len(shown)
        return f"they differ in {', '.join(shown) or 'id alone'}{f' and {more} more' if more else ''}"


def known_or_newer(found: Incarnation, known: Incarnation | None, party: str) -> None:
    """Refuse an incarnation of `party` that is older than the known one, or its twin.

    Raises:
        Refusal: it is.
    """
    if known is None or found == known or found.count > known.count:
        return
    if found.count < known.count:
        raise SessionRefusal(
            "stale-incarnation",
            f"this process of {party!r} is start {found.count}, start {known.count} has been seen: end it, or have a "
            "restored state folder approved",
            party,
        )
    raise SessionRefusal(
        "twin-incarnation",
        f"two processes of {party!r} are start {found.count} of one state folder: let one of them run",
        party,
    )


def hello_frame(hello: Hello) -> bytes:
    """The frame of a hello."""
    fields = msgspec.structs.astuple(hello)
    content = _encoder.encode(fields if hello.facts else fields[:-1])
    return encode_frame(FrameKind.HELLO, _VERSIONS.pack(MAGIC, *VERSIONS) + content)


def read_hello(body: memoryview) -> Hello:
    """The hello of a frame's body.

    Raises:
        Refusal: no hello, no version in common, or fields that no hello has.
    """
    magic, lowest, highest = _VERSIONS.unpack_from(body)
    if magic != MAGIC:
        raise SessionRefusal("no-session", f"a hello begins with {bytes(body[:4]).hex()}; expected {MAGIC.hex()}")
    if not lowest <= highest or lowest > VERSIONS[1] or highest < VERSIONS[0]:
        raise SessionRefusal(
            "other-version",
            f"the peer speaks versions {lowest} to {highest} of the session, this end {VERSIONS[0]} to {VERSIONS[1]}: "
            "install the same securevfl",
        )
    try:
        hello = _decoder.decode(body[_VERSIONS.size :])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SessionRefusal("no-session", f"a hello cannot be read: {error}") from None
    if (
        len(hello.agreement) != 32
        or not all(one is None or (1 <= one[0] < _MOST and len(one[1]) == NONCE) for one in (hello.own, hello.expected))
        or len(hello.id) != NONCE
        or len(hello.answers) not in {0, NONCE}
        or len(hello.tag) != TAG
        or len(hello.facts) > MOST
        or not all(0 <= number < _MOST for number in (hello.connection, hello.received, hello.allowed, hello.part))
    ):
        raise SessionRefusal("no-session", "a hello has fields of invalid length or size")
    return hello


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Hello)

"""Encode and decode the session's frames. All integers are little-endian.

Every frame begins with eight bytes::

    byte  0      kind
    byte  1      flags: 1 on the first part of a message, else 0
    bytes 2–3    zero
    bytes 4–7    length of the body (uint32)

and has one of these bodies, whose lengths are bounded before any byte of them is kept::

    1   HELLO    b"SVFS", lowest and highest version of the session (2 × uint16), MessagePack array: see `hello`
    2   ACCEPT   connection id (16 bytes), then position
    3   REFUSE   who is at fault (uint8: 0 either, 1 the sender, 2 the receiver), length of the code (uint8), code
                 (ASCII, to 40 bytes), words (UTF-8, to 400 bytes)
    4   ABORT    reason (UTF-8, to 2,000 bytes)
    5   PING     the gate's sign of life (to 512 bytes)
    6   NOTE     between the programs (to 64 KiB)
    7   ENDORSE  a new certificate, signed (to 64 KiB)
    8   ACK      position
    9   BLOCKED  view tag (8 bytes), the limit that was reached (uint64), step (UTF-8, to 200 bytes)
    10  DATA     view tag (8 bytes), number (uint64), on a first part the message's length (uint64), the part
    11  BYE      empty

A *position* is the view's tag (8 bytes, zero where no view was begun), the number of the last part that arrived
(uint64) and the limit to which the peer may send (uint64). Numbers count parts of one view from 1; limits count bytes
of one view, where each part costs its bytes and `OVERHEAD`. Both only grow, so that repeating them does no harm.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from securevfl_net.session.refusal import SessionRefusal, make_printable

__all__ = [
    "BODY",
    "FIRST",
    "HEAD",
    "MAGIC",
    "NO_VIEW",
    "PREFIX",
    "REASON",
    "STEP",
    "TAG",
    "VERSIONS",
    "WORDS",
    "FrameKind",
    "Position",
    "blocked_frame",
    "data_head",
    "encode_frame",
    "read_blocked",
    "read_head",
    "read_refuse",
    "refuse_frame",
    "text_bytes",
]

MAGIC = b"SVFS"
VERSIONS = (1, 1)
"""Lowest and highest version of the session that this code speaks."""
TAG = 8
"""Bytes of a view that its frames carry."""
NO_VIEW = bytes(TAG)
FIRST = 1
"""The flag of a message's first part."""
WORDS, REASON, STEP = 400, 2_000, 200

PREFIX = struct.Struct("<BBHI")
HEAD = 32
"""Most bytes before a part: prefix, tag, number, length of the message."""
_DATA = struct.Struct("<BBHI8sQ")
_DATA_FIRST = struct.Struct("<BBHI8sQQ")
_POSITION = struct.Struct("<8sQQ")
_BLOCKED = struct.Struct("<8sQ")


class FrameKind(IntEnum):
    """Kind of a frame."""

    HELLO = 1
    ACCEPT = 2
    REFUSE = 3
    ABORT = 4
    PING = 5
    NOTE = 6
    ENDORSE = 7
    ACK = 8
    BLOCKED = 9
    DATA = 10
    BYE = 11


_NEVER = (1, 0)
BODY: tuple[tuple[int, int], ...] = (
    _NEVER,
    (8, 2_048),
    (16 + 24, 16 + 24),
    (3, 2 + 40 + WORDS),
    (0, REASON),
    (0, 512),
    (0, 64 << 10),
    (1, 64 << 10),
    (24, 24),
    (16, 16 + STEP),
    (16 + 1, 16 + 8 + (1 << 24)),
    (0, 0),
)
"""Kind → least and most bytes of its body; limits may lower the most."""


class Position:
    """Position in a received stream: what arrived, and the limit to which the peer may send."""

    __slots__ = ("allowed", "received", "tag")

    def __init__(self, tag: bytes = NO_VIEW, received: int = 0, allowed: int = 0) -> None:
        self.tag = tag
        self.received = received
        self.allowed = allowed

    def pack(self) -> bytes:
        """Encode as 24 bytes."""
        return _POSITION.pack(self.tag, self.received, self.allowed)

    @classmethod
    def unpack(cls, body: bytes | memoryview) -> Position:
        """Decode from 24 bytes."""
        return cls(*_POSITION.unpack(body))


def encode_frame(kind: FrameKind, body: bytes = b"") -> bytes:
    """A whole frame."""
    return PREFIX.pack(kind, 0, 0, len(body)) + body


def data_head(tag: bytes, number: int, size: int, total: int | None) -> bytes:
    """The header of a part of `size` bytes."""
    if total is None:
        return _DATA.pack(FrameKind.DATA, 0, 0, 16 + size, tag, number)
    return _DATA_FIRST.pack(FrameKind.DATA, FIRST, 0, 24 + size, tag, number, total)


def read_head(view: memoryview, at: int, first: bool) -> tuple[bytes, int, int | None]:
    """View tag, number and, on a first part, the message's length of the DATA frame that begins at `at`."""
    if first:
        _, _, _, _, tag, number, total = _DATA_FIRST.unpack_from(view, at)
        return tag, number, total
    _, _, _, _, tag, number = _DATA.unpack_from(view, at)
    return tag, number, None


def text_bytes(text: str, most: int) -> bytes:
    """UTF-8 of at most `most` bytes, whole letters only."""
    return text.encode(errors="replace")[:most].decode(errors="ignore").encode()


def refuse_frame(refusal: SessionRefusal, me: str) -> bytes:
    """A REFUSE frame of party `me`."""
    name = text_bytes(refusal.code, 40)
    fault = 0 if not refusal.party else 1 if refusal.party == me else 2
    return encode_frame(FrameKind.REFUSE, bytes([fault, len(name)]) + name + text_bytes(refusal.words, WORDS))


def read_refuse(body: memoryview) -> tuple[int, str, str]:
    """Who is at fault (1 the sender, 2 the receiver), and the code and text of a REFUSE frame.

    Raises:
        Refusal: an invalid fault or length.
    """
    fault, length = body[0], body[1]
    if fault > 2 or not 0 < length <= min(40, len(body) - 2):
        raise SessionRefusal("broken-rule", f"a refusal of fault {fault} with a code of {length} bytes in {len(body)}")
    return fault, make_printable(body[2 : 2 + length], 40), make_printable(body[2 + length :], WORDS)


def blocked_frame(tag: bytes, limit: int, step: str) -> bytes:
    """A BLOCKED frame."""
    return encode_frame(FrameKind.BLOCKED, _BLOCKED.pack(tag, limit) + text_bytes(step, STEP))


def read_blocked(body: memoryview) -> tuple[bytes, int, str]:
    """View tag, limit and step of a BLOCKED frame."""
    tag, limit = _BLOCKED.unpack_from(body)
    return tag, limit, make_printable(body[16:], STEP)

"""A session's end as a decoder: all that a peer with a right certificate may send."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import msgspec
from fuzz.mutators import blind
from net.session.ends import AGREEMENT, incarnation, view
from securevfl_net.session import Event, Refused, SessionEnd, SessionLimits
from securevfl_net.session.frames import FrameKind, Position, blocked_frame, data_head, encode_frame, refuse_frame
from securevfl_net.session.hello import Hello, hello_frame, read_hello
from securevfl_net.session.refusal import SessionRefusal

from securevfl.errors import WireError

__all__ = ["frames", "session"]

_LIMITS = SessionLimits(part=100_000, window=1 << 18, max_window=1 << 18, message=1 << 20)
_TAG = view(1)[:8]
_ID = bytes(16)


def _end(first: bool) -> SessionEnd:
    me, peer = ("bank", "shop") if first else ("shop", "bank")
    end = SessionEnd(me, peer, agreement=AGREEMENT, own=incarnation(2, me), limits=_LIMITS)
    end.begin_view(view(1))
    end.open_view()
    end.send_part(memoryview(b"abc"), first_total=3, step="out")
    return end


def _opening(first: bool) -> bytes:
    """The peer's part of the handshake, to the end of that place."""
    me, peer = ("shop", "bank") if first else ("bank", "shop")
    start = incarnation(3, me)
    hello = Hello(
        messages=1,
        part=_LIMITS.part,
        agreement=AGREEMENT,
        me=me,
        peer=peer,
        own=(start.count, start.nonce),
        expected=None,
        connection=1,
        id=bytes(range(16)),
        answers=_ID if first else b"",
        tag=_TAG,
        received=0,
        allowed=1 << 18,
    )
    position = Position(_TAG, 0, 1 << 18)
    return hello_frame(hello) + (b"" if first else encode_frame(FrameKind.ACCEPT, _ID + position.pack()))


def _said() -> bytes:
    return (
        encode_frame(FrameKind.PING, b"beat")
        + encode_frame(FrameKind.NOTE, b"note" * 20)
        + data_head(_TAG, 1, 8, 8)
        + bytes(8)
        + encode_frame(FrameKind.ACK, Position(_TAG, 0, 1 << 19).pack())
        + data_head(_TAG, 2, 40, 100)
        + bytes(40)
        + blocked_frame(_TAG, 1 << 18, "step")
        + data_head(_TAG, 3, 60, None)
        + bytes(60)
        + encode_frame(FrameKind.ENDORSE, b"certificate")
        + data_head(_TAG, 4, 40_000, 40_000)
        + bytes(40_000)
        + encode_frame(FrameKind.BYE)
    )


def _run(first: bool, data: bytes, step: int) -> tuple[list[Event], bytes]:
    """All events and all that the end wrote, with the bytes coming `step` at a time."""
    end = _end(first)
    line = end.open_line()
    line.id = _ID
    line.last_words.clear()
    found: list[Event] = []
    written = []
    for at in range(0, len(data), step):
        line.feed(data[at : at + step])
        found += end.take_events()
        if not 0 <= end.unread_bytes <= _LIMITS.window or end.held_bytes > 3 + 512:
            raise AssertionError(f"{end.unread_bytes} bytes are unread, {end.held_bytes} are held")
    for _ in range(4):
        written += line.pull_bytes()
    return found, b"".join(written)


def session(first: bool) -> Callable[[], tuple[list[bytes], Callable[[bytes], object]]]:
    """The end of the smaller name, or the other one. The bytes mean the same however they are cut."""

    def make() -> tuple[list[bytes], Callable[[bytes], object]]:
        opening = _opening(first)

        def decode(data: bytes) -> object:
            found, written = _run(first, data, 1 << 20)
            in_pieces, _ = _run(first, data, 4_099 if len(data) > 2_000 else 7)
            same = [event for event in found if event in in_pieces]
            if len(same) < len(found) - 1:  # of several beats the last is told
                raise AssertionError(f"{found} in one piece, {in_pieces} in several")
            if len(written) > 1_000:
                raise AssertionError(f"{len(written)} bytes in answer to {len(data)}")
            for event in found:
                if isinstance(event, Refused) and event.ours:
                    raise WireError(event.words)
            return found

        refusal = refuse_frame(SessionRefusal("flood", "too much", "shop"), "bank")
        return [opening + _said(), refusal, opening + encode_frame(FrameKind.ABORT, b"no")], decode

    return make


def frames(data: bytes, luck: random.Random) -> bytes:
    """Whole frames left out, doubled and swapped; bodies and fields of hellos changed, lengths made right."""
    pieces, at = [], 0
    while len(data) - at >= 8:
        length = min(struct.unpack_from("<I", data, at + 4)[0], len(data))
        pieces.append(data[at : at + 8 + length])
        at += 8 + length
    if not pieces:
        return blind(data, luck)
    for _ in range(luck.choice((1, 1, 2, 3))):
        at, other = luck.randrange(len(pieces)), luck.randrange(len(pieces))
        piece = pieces[at]
        match luck.randrange(6):
            case 0 if len(pieces) > 1:
                del pieces[at]
            case 1:
                pieces.insert(other, piece)
            case 2:
                pieces[at], pieces[other] = pieces[other], pieces[at]
            case 3 if piece[0] == FrameKind.HELLO:
                pieces[at] = _hello(piece, luck)
            case 4 if len(piece) >= 24:
                word = struct.pack("<Q", luck.choice((0, 1, 2, 5, 1 << 18, 1 << 32, 1 << 63, (1 << 64) - 1)))
                place = luck.choice((8, 16, 24))
                pieces[at] = piece[:place] + word + piece[place + 8 :]
            case _:
                body = blind(piece[8:], luck)
                pieces[at] = piece[:4] + struct.pack("<I", len(body)) + body
    return b"".join(pieces)


def _hello(piece: bytes, luck: random.Random) -> bytes:
    try:
        hello = read_hello(memoryview(piece)[8:])
    except SessionRefusal:
        return piece
    name = luck.choice(hello.__struct_fields__)
    value = getattr(hello, name)
    odd = luck.choice((-1, 0, 1, 2**63, 2**64 - 1)) if isinstance(value, int) else luck.choice((b"", b"x", bytes(99)))
    if name in ("own", "expected"):
        odd = luck.choice(((0, bytes(16)), (2, bytes(16)), (2**63, bytes(16)), (5, b""), None))  # type: ignore[assignment]
    if name in ("me", "peer"):
        odd = luck.choice(("", "bank", "shop", "x" * 1_500))  # type: ignore[assignment]
    return hello_frame(msgspec.structs.replace(hello, **{name: odd}))

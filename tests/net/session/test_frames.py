"""Known answers: the bytes of every frame. A change of one of them is another version of the session."""

from __future__ import annotations

from pathlib import Path

import pytest
from net.session.ends import AGREEMENT, SMALL, incarnation, pair, view
from securevfl_net.session import (
    CODES,
    OVERHEAD,
    Aborted,
    Beaten,
    Blocked,
    Endorsed,
    MessagePart,
    Noted,
    SessionEnd,
    SessionLimits,
    Up,
)
from securevfl_net.session.frames import (
    BODY,
    VERSIONS,
    FrameKind,
    Position,
    blocked_frame,
    data_head,
    encode_frame,
    refuse_frame,
)
from securevfl_net.session.hello import Hello, hello_frame, read_hello
from securevfl_net.session.refusal import SessionRefusal

TAG = bytes.fromhex("0102030405060708")

FRAMES = {
    "REFUSE": (
        refuse_frame(SessionRefusal("flood", "too many", "shop"), "bank"),
        "03 00 0000 0f000000 02 05 666c6f6f64 746f6f206d616e79",
    ),
    "ABORT": (encode_frame(FrameKind.ABORT, b"no"), "04 00 0000 02000000 6e6f"),
    "PING": (encode_frame(FrameKind.PING, b"\x07"), "05 00 0000 01000000 07"),
    "NOTE": (encode_frame(FrameKind.NOTE, b"hi"), "06 00 0000 02000000 6869"),
    "ENDORSE": (encode_frame(FrameKind.ENDORSE, b"c"), "07 00 0000 01000000 63"),
    "ACK": (
        encode_frame(FrameKind.ACK, Position(TAG, 3, 1 << 40).pack()),
        "08 00 0000 18000000 0102030405060708 0300000000000000 0000000000010000",
    ),
    "ACCEPT": (
        encode_frame(FrameKind.ACCEPT, bytes(range(16)) + Position(TAG, 3, 9).pack()),
        "02 00 0000 28000000 000102030405060708090a0b0c0d0e0f 0102030405060708 0300000000000000 0900000000000000",
    ),
    "BLOCKED": (
        blocked_frame(TAG, 1024, "cut/forward"),
        "09 00 0000 1b000000 0102030405060708 0004000000000000 6375742f666f7277617264",
    ),
    "DATA, first": (
        data_head(TAG, 1, 2, 300) + b"ab",
        "0a 01 0000 1a000000 0102030405060708 0100000000000000 2c01000000000000 6162",
    ),
    "DATA": (data_head(TAG, 2, 2, None) + b"ab", "0a 00 0000 12000000 0102030405060708 0200000000000000 6162"),
    "BYE": (encode_frame(FrameKind.BYE), "0b 00 0000 00000000"),
    "HELLO": (
        hello_frame(
            Hello(
                messages=1,
                part=64,
                agreement=bytes(32),
                me="bank",
                peer="shop",
                own=(2, bytes(16)),
                expected=None,
                connection=5,
                id=bytes(range(16)),
                answers=b"",
                tag=TAG,
                received=7,
                allowed=1024,
            )
        ),
        "01 00 0000 6f000000 53564653 0100 0100 9d 01 40 c420" + "00" * 32 + "a462616e6b a473686f70 92 02 c410"
        "00000000000000000000000000000000 c0 05 c410 000102030405060708090a0b0c0d0e0f c400 c408 0102030405060708"
        "07 cd0400",
    ),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_have_their_bytes(name: str) -> None:
    found, expected = FRAMES[name]
    assert found.hex() == expected.replace(" ", "")
    assert FrameKind(found[0]).name == name.partition(",")[0]
    least, most = BODY[found[0]]
    assert least <= len(found) - 8 <= most


def test_every_kind_has_a_known_answer_and_bounds() -> None:
    assert {FrameKind(raw[0]) for raw, _ in FRAMES.values()} == set(FrameKind)
    assert len(BODY) == max(FrameKind) + 1
    assert VERSIONS == (1, 1)


def test_a_hello_is_read_as_it_was_written() -> None:
    raw = FRAMES["HELLO"][0]
    hello = read_hello(memoryview(raw)[8:])
    assert hello_frame(hello) == raw
    assert (hello.me, hello.connection, hello.position.received) == ("bank", 5, 7)


def test_what_is_said_arrives_as_it_was_said() -> None:
    both = pair()
    pipe = both.meet()
    both.begin(1, pipe)
    first, second = both.ends
    second.take_events()
    first.send_note(b"hello")
    first.send_endorsement(b"certificate")
    first.send_ping(b"one")
    first.send_ping(b"two")
    first.send_part(memoryview(b"ab"), first_total=2)
    both.settle(pipe)
    assert second.take_events() == [
        Noted(b"hello"),
        Endorsed(b"certificate"),
        MessagePart(view(1), 2, memoryview(b"ab"), True),
        Beaten(b"two"),
    ]
    first.abort("it failed\x1b[2J" + "é" * 2_000)
    both.settle(pipe)
    (told,) = second.take_events()
    assert isinstance(told, Aborted)
    assert told.reason.startswith("it failed?[2Jéé")
    assert all(line.over for line in pipe.lines)


def test_ends_of_their_real_limits_carry_large_parts_without_a_copy_into_the_frame() -> None:
    ends = [SessionEnd(me, peer, agreement=AGREEMENT, own=incarnation(1, me)) for me, peer in (("a", "b"), ("b", "a"))]
    lines = [end.open_line() for end in ends]

    def settle() -> None:
        while sum(sum(len(lines[1 - s].feed(x) or x) for x in lines[s].pull_bytes()) for s in (0, 1)):
            pass

    settle()
    for end in ends:
        assert [type(event) for event in end.take_events()] == [Up]
        end.begin_view(view(1))
        end.open_view()
    settle()
    message = bytearray(range(256)) * 10_000
    parts = [memoryview(message)[at : at + (1 << 20)] for at in range(0, len(message), 1 << 20)]
    for part in parts:
        ends[0].send_part(part, first_total=len(message) if part is parts[0] else None, step="big")
    written = lines[0].pull_bytes()
    assert [len(piece) for piece in written] == [32, 1 << 20]
    assert written[1].obj is message
    for piece in written:
        lines[1].feed(piece)
    settle()
    found = [event for event in ends[1].take_events() if isinstance(event, MessagePart)]
    assert b"".join(part.data for part in found) == message
    assert [part.last for part in found] == [False, False, True]
    assert sum(part.cost for part in found) == len(message) + 3 * OVERHEAD == ends[1].unread_bytes


def test_limits_that_cannot_work_are_refused() -> None:
    from securevfl.errors import InputError

    for wrong in ({"part": 0}, {"window": 100}, {"max_window": 1 << 20}, {"message": 5}, {"note": 1 << 20}):
        with pytest.raises(InputError, match="is between"):
            SessionLimits(**wrong)
    assert SMALL.window > SMALL.part + OVERHEAD
    assert Blocked("x").step == "x"


def test_the_page_lists_every_frame_and_every_refusal() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/session.md").read_text(encoding="utf-8")
    for kind in FrameKind:
        assert f"| {kind.value} | {kind.name} |" in page
    for code, words in CODES.items():
        assert f"| `{code}` | {words} |" in page
    assert f"plus {OVERHEAD}." in page

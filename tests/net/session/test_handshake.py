"""Who may speak, and when: what is refused is named at both ends, and nothing else comes to harm."""

from __future__ import annotations

import hashlib

import pytest
from net.session.ends import AGREEMENT, SMALL, Pair, Pipe, incarnation, pair, view
from securevfl_net.incarnation import Incarnation
from securevfl_net.session import CODES, ConnectionBroken, Event, MessagePart, Refused, SessionEnd, SessionLimits, Up
from securevfl_net.session.frames import PREFIX, FrameKind, Position, data_head, encode_frame
from securevfl_net.session.hello import Hello, hello_frame, read_hello

from securevfl.errors import InputError


def _end(me: str, peer: str, count: int = 1, **changed: object) -> SessionEnd:
    return SessionEnd(
        me,
        peer,
        **{"agreement": AGREEMENT, "own": incarnation(count, me), "limits": SMALL, **changed},  # type: ignore[arg-type]
    )


def _refusals(*ends: SessionEnd) -> list[tuple[str, bool, str]]:
    found = []
    for end in ends:
        for event in end.take_events():
            if isinstance(event, Refused):
                assert event.words
                found.append((event.code, event.ours, event.party))
    return found


def _frames(data: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at < len(data):
        kind, _, _, length = PREFIX.unpack_from(data, at)
        found.append((kind, data[at + 8 : at + 8 + length]))
        at += 8 + length
    return found


def _changed(raw: bytes, **fields: object) -> bytes:
    """The frame of a hello with other fields."""
    import msgspec

    return hello_frame(msgspec.structs.replace(read_hello(memoryview(raw)[8:]), **fields))


@pytest.mark.parametrize(
    ("code", "other"),
    [
        ("other-agreement", {"agreement": hashlib.sha256(b"another job").digest()}),
        ("other-limits", {"limits": SessionLimits(part=128, window=2048, message=1000)}),
    ],
)
def test_a_difference_is_named_at_both_ends(code: str, other: dict[str, object]) -> None:
    both = Pair((_end("bank", "shop"), _end("shop", "bank", **other)))
    pipe = both.meet()
    assert _refusals(*both.ends) == [(code, False, ""), (code, True, "")]
    assert all(line.over for line in pipe.lines)
    assert not any(end.is_up for end in both.ends)


def test_a_peer_of_another_name_is_refused() -> None:
    both = Pair((_end("bank", "shop"), _end("shop", "club")))
    both.meet()
    # each takes the other for the opener or not by the names that it knows: no hello comes, or a wrong one
    assert {code for code, *_ in _refusals(*both.ends)} <= {"other-party", "broken-rule"}
    assert not any(end.is_up for end in both.ends)


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        ("other-version", {"messages": 2}),
        ("other-party", {"me": "club"}),
        ("other-party", {"peer": "club"}),
        ("no-session", {"agreement": b"short"}),
        ("no-session", {"own": (0, bytes(16))}),
        ("no-session", {"own": (1 << 63, bytes(16))}),
        ("no-session", {"expected": (1, bytes(15))}),
        ("no-session", {"id": b""}),
        ("no-session", {"tag": b"123"}),
        ("no-session", {"received": -1}),
        ("no-session", {"allowed": 1 << 63}),
        ("replayed-hello", {"answers": bytes(16)}),
        ("other-limits", {"part": 1}),
    ],
)
def test_fields_of_a_hello_are_checked(code: str, fields: dict[str, object]) -> None:
    both = pair()
    pipe = both.connect()
    raw = b"".join(pipe.lines[0].pull_bytes())
    pipe.lines[1].feed(_changed(raw, **fields))
    assert _refusals(both.ends[1]) == [(code, True, "")]
    pipe.lines[0].feed(b"".join(pipe.lines[1].pull_bytes()))
    assert _refusals(both.ends[0]) == [(code, False, "")]


def test_versions_are_looked_at_before_anything_else() -> None:
    both = pair()
    pipe = both.connect()
    raw = bytearray(b"".join(pipe.lines[0].pull_bytes()))
    raw[12:16] = bytes([2, 0, 3, 0])
    raw[16:] = b"\xff" * len(raw[16:])  # a later version's fields
    pipe.lines[1].feed(raw)
    (event,) = both.ends[1].take_events()
    assert isinstance(event, Refused)
    assert event.code == "other-version"
    assert "versions 2 to 3 of the session, this end 1 to 1" in event.words


def test_a_later_version_that_still_speaks_this_one_is_taken() -> None:
    both = pair()
    pipe = both.connect()
    raw = bytearray(b"".join(pipe.lines[0].pull_bytes()))
    raw[14] = 9
    pipe.lines[1].feed(raw)
    both.settle(pipe)
    assert all(end.is_up for end in both.ends)


@pytest.mark.parametrize("side", [0, 1])
def test_a_stale_process_is_refused_at_both_ends_and_named(side: int) -> None:
    """The folder's newer process has met the peer; the older one is still alive and comes back."""
    names = ("bank", "shop")
    both = pair(counts=(5, 5))
    both.meet()
    both.ends[1 - side].take_events()
    stale = _end(names[side], names[1 - side], count=4)
    ends = (stale, both.ends[1]) if side == 0 else (both.ends[0], stale)
    Pair(ends).meet()
    found = _refusals(*ends)
    assert found == [("stale-incarnation", False, names[side]), ("stale-incarnation", True, names[side])]


@pytest.mark.parametrize("side", [0, 1])
def test_a_twin_is_refused_at_both_ends(side: int) -> None:
    names = ("bank", "shop")
    both = pair()
    both.meet()
    both.ends[1 - side].take_events()
    twin = SessionEnd(
        names[side], names[1 - side], agreement=AGREEMENT, own=Incarnation(1, b"another process!"), limits=SMALL
    )
    ends = (twin, both.ends[1]) if side == 0 else (both.ends[0], twin)
    Pair(ends).meet()
    assert [code for code, *_ in _refusals(*ends)] == ["twin-incarnation"] * 2
    assert both.ends[1 - side].known == incarnation(1, names[side])


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("side", [0, 1])
def test_another_process_is_refused_while_the_first_one_shows_signs_of_life(side: int, count: int) -> None:
    """It may run on a copy of the folder; a twin, with the same number of starts, alike."""
    names = ("bank", "shop")
    both = pair()
    both.meet()
    peer = both.ends[1 - side]
    peer.take_events()
    alive = [True]
    peer.hears_peer = lambda: alive[0]
    other = SessionEnd(
        names[side], names[1 - side], agreement=AGREEMENT, own=Incarnation(count, b"another process!"), limits=SMALL
    )
    ends = (other, both.ends[1]) if side == 0 else (both.ends[0], other)
    Pair(ends).meet()
    found = _refusals(*ends)
    assert sorted(ours for _, ours, _ in found) == [False, True]
    assert {party for *_, party in found} == {names[side]}
    # A twin that is called learns from the caller's hello which process is expected, and refuses by itself.
    assert {code for code, *_ in found} == {"twin-incarnation" if (side, count) == (1, 1) else "running-incarnation"}
    assert peer.is_up
    assert peer.known == incarnation(1, names[side])
    alive[0] = False
    Pair(ends).meet()
    assert (peer.known == other.own) == (count == 2)


def test_a_process_learns_that_it_is_stale_from_what_its_peer_expects() -> None:
    """Its own count is below the one that the peer knows from before."""
    late = _end("shop", "bank", known=incarnation(9, "bank"))
    both = Pair((_end("bank", "shop", count=8), late))
    both.meet()
    assert _refusals(*both.ends) == [("stale-incarnation", False, "bank"), ("stale-incarnation", True, "bank")]
    assert not late.is_up


def test_a_restarted_process_parks_its_peer() -> None:
    both = pair()
    pipe = both.meet()
    both.begin(1, pipe)
    both.ends[0].send_part(memoryview(b"old"), first_total=3)
    for end in both.ends:
        end.take_events()
    again = Pair((both.ends[0], _end("shop", "bank", count=2)))
    again.meet()
    assert both.ends[0].take_events() == [Up(incarnation(2, "shop"), False)]
    assert both.ends[0].view == b""
    assert not both.ends[0].held_bytes
    assert [type(event) for event in again.ends[1].take_events()] == [Up], (
        "a part of the earlier process's view arrived"
    )


def test_a_recorded_hello_is_refused_and_the_session_goes_on() -> None:
    both = pair()
    first = both.connect()
    recorded = b"".join(first.lines[0].pull_bytes())
    first.lines[1].feed(recorded)
    both.settle(first)
    second = both.meet()
    for end in both.ends:
        end.take_events()
    line = both.ends[1].open_line()
    line.feed(recorded)
    assert _refusals(both.ends[1]) == [("replayed-hello", True, "")]
    assert _frames(b"".join(line.pull_bytes()))[0][0] == FrameKind.REFUSE
    assert line.over
    both.begin(1, second)
    both.ends[0].send_part(memoryview(b"x"), first_total=1)
    both.settle(second)
    assert [type(event) for event in both.ends[1].take_events()] == [MessagePart]


def test_a_recorded_answer_is_refused() -> None:
    both = pair()
    first = both.connect()
    first.lines[1].feed(b"".join(first.lines[0].pull_bytes()))
    recorded = b"".join(first.lines[1].pull_bytes())
    first.close()
    line = both.ends[0].open_line()
    line.pull_bytes()
    line.feed(recorded)
    assert _refusals(both.ends[0]) == [("replayed-hello", True, "")]


def test_a_recorded_acceptance_is_refused() -> None:
    both = pair()
    first = both.connect()
    both.settle(first)
    accept = encode_frame(FrameKind.ACCEPT, first.lines[1].id + Position().pack())
    second = both.connect()
    second.write(0)
    second.carry(0)
    both.ends[1].take_events()
    second.lines[1].feed(accept)
    assert _refusals(both.ends[1]) == [("replayed-hello", True, "")]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    "early",
    [
        data_head(view(1)[:8], 1, 1, 1) + b"x",
        encode_frame(FrameKind.ACK, Position(view(1)[:8], 0, 99).pack()),
        encode_frame(FrameKind.NOTE, b"early"),
        encode_frame(FrameKind.PING, b"early"),
        encode_frame(FrameKind.ABORT, b"early"),
        encode_frame(FrameKind.BYE),
        encode_frame(FrameKind.ACCEPT, bytes(16) + Position().pack()),
    ],
    ids=["data", "ack", "note", "ping", "abort", "bye", "accept"],
)
def test_nothing_comes_before_the_handshake(side: int, early: bytes) -> None:
    both = pair()
    for end in both.ends:
        end.begin_view(view(1))
    pipe = both.connect()
    pipe.lines[side].feed(early)
    (event,) = both.ends[side].take_events()
    assert isinstance(event, Refused)
    assert (event.code, event.ours) == ("broken-rule", True)
    assert "was due" in event.words


def test_no_data_leaves_before_the_acceptance() -> None:
    """The larger name's parts wait for it: where they begin is not known before."""
    both = pair()
    pipe = both.meet()
    both.begin(1, pipe)
    both.ends[1].send_part(memoryview(b"x"), first_total=1)
    pipe.write(1)
    pipe.close()
    pipe = both.connect()
    pipe.write(0)
    pipe.carry(0)
    answered = b"".join(pipe.lines[1].pull_bytes())
    assert [kind for kind, _ in _frames(answered)] == [FrameKind.HELLO]
    pipe.ways[1].extend(answered)
    pipe.carry(1)
    assert pipe.lines[1].pull_bytes() == []
    pipe.write(0)
    pipe.carry(0)
    assert [kind for kind, _ in _frames(b"".join(pipe.lines[1].pull_bytes()))][-1:] == [FrameKind.DATA]


def test_hello_and_acceptance_come_once() -> None:
    for side in (0, 1):
        both = pair()
        pipe = both.meet()
        both.ends[side].take_events()
        hello = Hello(1, 64, AGREEMENT, "a", "b", (1, bytes(16)), None, 1, bytes(16), b"", bytes(8), 0, 0)
        pipe.lines[side].feed(hello_frame(hello))
        assert _refusals(both.ends[side]) == [("broken-rule", True, "")]


@pytest.mark.parametrize("received", [0, 3, 1 << 62])
def test_a_peer_that_claims_parts_that_cannot_be_parks_the_streams(received: int) -> None:
    """Less than it acknowledged, or more than was sent: one of the two lost its memory."""
    both = pair()
    pipe = both.meet()
    both.begin(1, pipe)
    for letter in (b"a", b"b"):
        both.ends[0].send_part(memoryview(letter), first_total=1)
        both.settle(pipe)
    for end in both.ends:
        end.take_events()
    pipe.close()
    pipe = both.connect()
    pipe.write(0)
    pipe.carry(0)
    answer = b"".join(pipe.lines[1].pull_bytes())
    pipe.lines[0].feed(_changed(answer, received=received))
    torn, up = both.ends[0].take_events()
    assert isinstance(torn, ConnectionBroken)
    assert f"acknowledged part {received}" in torn.reason
    assert up == Up(incarnation(1, "shop"), False)
    assert both.ends[0].view == b""
    both.settle(pipe)  # what the peer still sends in that view is dropped
    assert both.ends[0].is_up


def _speaks(pipe: Pipe, both: Pair, side: int) -> list[Event]:
    both.ends[side].send_note(b"who?")
    pipe.write(side)
    pipe.carry(side)
    return both.ends[1 - side].take_events()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_connections_both_ends_use_the_one_that_the_smaller_name_opened_last(order: tuple[int, int]) -> None:
    """Whatever hello comes first at the other end."""
    both = pair()
    pipes = [both.connect()]
    pipes[0].write(0)
    pipes.append(both.connect())
    pipes[1].write(0)
    for at in order:
        pipes[at].carry(0)
    both.settle(*pipes)
    assert pipes[0].lines[0].over
    assert pipes[0].lines[1].over
    assert pipes[1].lines[0].up
    assert pipes[1].lines[1].up
    for end in both.ends:
        assert [type(event) for event in end.take_events()] == [Up]
    assert _speaks(pipes[1], both, 0)
    assert _speaks(pipes[1], both, 1)


def test_bytes_of_an_earlier_connection_are_dropped() -> None:
    both = pair()
    old = both.meet()
    both.begin(1, old)
    both.ends[0].send_part(memoryview(b"abc"), first_total=3)
    old.write(0)
    old.carry(0, 20)
    new = both.meet()
    for end in both.ends:
        end.take_events()
    old.carry(0)
    assert not both.ends[1].take_events()
    assert old.lines[1].over
    assert new.lines[1].up


def test_a_connection_that_never_says_hello_replaces_nothing() -> None:
    both = pair()
    pipe = both.meet()
    for _ in range(20):
        both.ends[0].open_line()
        both.ends[1].open_line()
    assert pipe.lines[0].up
    assert pipe.lines[1].up
    for end in both.ends:
        end.take_events()
    assert _speaks(pipe, both, 0)
    both.settle(pipe)
    assert len(both.ends[1]._young) <= 8


def test_the_gate_refuses_a_connection_by_name() -> None:
    both = pair()
    pipe = both.meet()
    for end in both.ends:
        end.take_events()
    both.ends[0].refuse("revoked", "certificate 0a1b of 'shop' is on the list of 1 May")
    both.settle(pipe)
    assert _refusals(*both.ends) == [("revoked", True, ""), ("revoked", False, "")]
    assert all(line.over for line in pipe.lines)


def test_views_are_begun_once() -> None:
    end = pair().ends[0]
    with pytest.raises(InputError, match="before a view was begun"):
        end.open_view()
    with pytest.raises(InputError, match="no view is begun"):
        end.send_part(memoryview(b"x"), first_total=1)
    end.begin_view(view(1))
    end.leave_view()
    with pytest.raises(InputError, match="was begun before"):
        end.begin_view(view(1))
    for wrong in (b"", b"short", bytes(16)):
        with pytest.raises(InputError, match="it has 16"):
            end.begin_view(wrong)


def test_every_code_says_what_it_means() -> None:
    assert all(len(code) <= 40 and words for code, words in CODES.items())
    for me, peer in (("bank", "bank"), ("", "bank"), ("bank", "x" * 201)):
        with pytest.raises(InputError, match="two names"):
            _end(me, peer)
    with pytest.raises(InputError, match="SHA-256 has 32"):
        _end("bank", "shop", agreement=b"")

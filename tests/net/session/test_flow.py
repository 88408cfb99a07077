"""Room, urgency and memory: what may leave when, and what neither a slow nor a hostile peer can make of it."""

from __future__ import annotations

import gc
import struct
import tracemalloc

import pytest
from net.session.ends import SMALL, Pair, Pipe, pair, view
from securevfl_net.session import OVERHEAD, Blocked, Bye, Deadlocked, Event, Line, MessagePart, Refused, SessionLimits
from securevfl_net.session.frames import PREFIX, FrameKind, Position, blocked_frame, data_head, encode_frame

from securevfl.errors import InputError

TAG = view(1)[:8]


def _begun(limits: SessionLimits = SMALL) -> tuple[Pair, Pipe]:
    both = pair(limits)
    pipe = both.meet()
    both.begin(1, pipe)
    for end in both.ends:
        end.take_events()
    return both, pipe


def _fill(both: Pair, side: int, count: int, step: str = "") -> None:
    for _ in range(count):
        both.ends[side].send_part(memoryview(bytes(64)), first_total=64, step=step)


def _kinds(written: list[memoryview]) -> list[int]:
    data, found, at = b"".join(written), [], 0
    while at < len(data):
        found.append(data[at])
        at += 8 + PREFIX.unpack_from(data, at)[3]
    return found


def _only(both: Pair, side: int, kind: type[Event]) -> list[Event]:
    return [event for event in both.ends[side].take_events() if isinstance(event, kind)]


def _refused(both: Pair, side: int) -> tuple[str, str]:
    (event,) = _only(both, side, Refused)
    assert isinstance(event, Refused)
    assert event.ours
    assert not both.ends[side].is_up
    return event.code, event.words


# --- room


def test_parts_wait_for_room_and_go_on_as_the_program_reads() -> None:
    both, pipe = _begun()
    _fill(both, 0, 9, "cut/forward")
    both.settle(pipe)
    parts = _only(both, 1, MessagePart)
    assert len(parts) == SMALL.window // (64 + OVERHEAD) == 3
    assert both.ends[0].blocked_step == "cut/forward"
    assert both.ends[1].unread_bytes == 3 * (64 + OVERHEAD)
    taken = 3
    while taken < 9:
        for part in parts:
            assert isinstance(part, MessagePart)
            both.ends[1].credit_window(part.view, part.cost)
        both.settle(pipe)
        parts = _only(both, 1, MessagePart)
        assert parts
        taken += len(parts)
    assert both.ends[0].blocked_step is None
    assert not both.ends[0].held_bytes


def test_the_peer_is_told_for_which_step_it_keeps_someone_waiting() -> None:
    both, pipe = _begun()
    _fill(both, 0, 4, "align/blinded")
    both.settle(pipe)
    assert Blocked("align/blinded") in both.ends[1].take_events()
    both.settle(pipe)
    assert not both.ends[1].take_events()  # once for each limit


def test_nothing_leaves_before_this_end_is_opened_and_the_peer_has_begun() -> None:
    both = pair()
    pipe = both.meet()
    first, second = both.ends
    first.begin_view(view(1))
    first.send_part(memoryview(b"x"), first_total=1)
    first.open_view()
    both.settle(pipe)
    assert first.last_sent == 0
    second.begin_view(view(1))
    both.settle(pipe)
    assert first.last_sent == second.last_received == 1, "the peer is in the view: it need not be open itself"


def test_parts_of_a_view_that_was_left_are_dropped() -> None:
    both, pipe = _begun()
    _fill(both, 0, 3)
    pipe.write(0)
    both.ends[1].leave_view()
    both.settle(pipe)
    assert not both.ends[1].take_events()
    for end in both.ends:
        end.begin_view(view(2))
        end.open_view()
    both.settle(pipe)
    both.ends[0].send_part(memoryview(b"new"), first_total=3)
    both.settle(pipe)
    (part,) = _only(both, 1, MessagePart)
    assert isinstance(part, MessagePart)
    assert (part.view, bytes(part.data)) == (view(2), b"new")


def test_a_part_that_is_half_here_when_its_view_ends_is_dropped() -> None:
    both = pair(SessionLimits(part=1 << 17, window=1 << 20, message=1 << 20))
    pipe = both.meet()
    both.begin(1, pipe)
    for end in both.ends:
        end.take_events()
    both.ends[0].send_part(memoryview(bytes(1 << 17)), first_total=1 << 17)
    pipe.write(0)
    pipe.carry(0, 1 << 16)
    for end in both.ends:
        end.begin_view(view(2))
        end.open_view()
    both.ends[0].send_part(memoryview(b"new"), first_total=3)
    both.settle(pipe)
    (part,) = _only(both, 1, MessagePart)
    assert isinstance(part, MessagePart)
    assert bytes(part.data) == b"new"
    assert both.ends[1].unread_bytes == 3 + OVERHEAD


def test_nothing_is_sent_in_a_view_that_the_peer_has_left_before_the_connection_came() -> None:
    both, pipe = _begun()
    pipe.close()
    both.ends[1].leave_view()
    pipe = both.meet()
    both.ends[0].send_part(memoryview(b"x"), first_total=1)
    both.settle(pipe)
    assert both.ends[0].last_sent == 0
    assert all(end.is_up for end in both.ends)


@pytest.mark.parametrize("cut", [False, True])
def test_the_room_of_a_peer_that_began_first_is_kept(cut: bool) -> None:
    both = pair()
    pipe = both.meet()
    both.ends[1].begin_view(view(1))
    both.settle(pipe)
    if cut:
        pipe.close()
        pipe = both.meet()
    both.ends[0].begin_view(view(1))
    both.ends[0].open_view()
    both.ends[0].send_part(memoryview(b"x"), first_total=1)
    both.settle(pipe)
    assert both.ends[1].last_received == 1


def test_credit_of_a_view_that_was_left_is_void_and_none_is_given_twice() -> None:
    both, pipe = _begun()
    _fill(both, 0, 1)
    both.settle(pipe)
    end = both.ends[1]
    end.credit_window(view(9), 10**9)
    with pytest.raises(InputError, match="credits 577 bytes as read; 576 are unread"):
        end.credit_window(view(1), 577)
    end.credit_window(view(1), 576)
    for wrong in (1, -1):
        with pytest.raises(InputError, match="bytes as read; 0 are unread"):
            end.credit_window(view(1), wrong)


def test_two_programs_that_only_send_get_more_room_and_then_an_end() -> None:
    both, pipe = _begun(SessionLimits(part=64, window=2048, max_window=8192, message=1000, patience=3))
    _fill(both, 0, 40, "align/points")
    _fill(both, 1, 40, "align/answer")
    both.settle(pipe)
    grown = []
    found: list[Event] = []
    for _ in range(12):
        for side, end in enumerate(both.ends):
            end.tick()
            found += [event for event in end.take_events() if isinstance(event, Deadlocked) and side == 0]
        both.settle(pipe)
        if both.ends[0].window not in grown:
            grown.append(both.ends[0].window)
    assert grown == [2048, 4096, 8192]
    assert found == [Deadlocked("align/points", "align/answer", 8192)]
    assert both.ends[1].unread_bytes <= 8192


def test_two_programs_that_send_more_than_the_window_and_then_read_finish() -> None:
    """The alignment's exchange at a blocking window: the room that it needs is there in time."""
    both, pipe = _begun()
    waiting = [12, 12]
    for _ in range(60):
        for side, end in enumerate(both.ends):
            while waiting[side] and end.is_ready:
                _fill(both, side, 1)
                waiting[side] -= 1
            end.tick()
        both.settle(pipe)
        if not any(waiting) and not any(end.held_bytes for end in both.ends):
            break
    assert not any(waiting)
    assert not any(end.held_bytes for end in both.ends)


def test_a_peer_that_is_only_slow_gets_no_more_room() -> None:
    both, pipe = _begun()
    _fill(both, 0, 40, "cut/forward")
    for _ in range(100):
        both.settle(pipe)
        for end in both.ends:
            end.tick()
    assert both.ends[1].window == SMALL.window
    assert not _only(both, 0, Deadlocked)


def test_a_program_that_waits_for_a_third_party_gets_more_room_from_its_peer() -> None:
    """Three parties that each wait for room at the next: no two of them wait for each other."""
    both, pipe = _begun()
    _fill(both, 0, 10, "to shop")
    both.settle(pipe)
    for _ in range(3):
        both.ends[1].tick(waits="to club")
    assert both.ends[1].window > SMALL.window
    for _ in range(200):
        both.ends[1].tick(waits="to club")
        both.settle(pipe)
    assert both.ends[1].window <= SMALL.max_window
    assert not _only(both, 1, Deadlocked), "the third party may only be slow"


def test_room_outlives_a_cut() -> None:
    both, pipe = _begun()
    for _ in range(30):
        _fill(both, 0, 3)
        pipe.write(0)
        pipe.close()
        pipe = both.meet()
        for part in _only(both, 1, MessagePart):
            assert isinstance(part, MessagePart)
            both.ends[1].credit_window(part.view, part.cost)
        both.settle(pipe)
    assert not both.ends[0].held_bytes


# --- urgency


def test_pings_and_aborts_pass_bulk() -> None:
    """64 MB wait; a sign of life waits for one part of it at most."""
    both = pair(SessionLimits())
    pipe = both.meet()
    both.begin(1, pipe)
    first = both.ends[0]
    part = memoryview(bytes(1 << 20))
    for at in range(64):
        first.send_part(part, first_total=None if at else 64 << 20)
    line = pipe.lines[0]
    assert _kinds(line.pull_bytes()) == [FrameKind.DATA]
    first.send_ping(b"beat")
    first.send_note(b"note")
    written = line.pull_bytes()
    assert _kinds(written) == [FrameKind.NOTE, FrameKind.PING, FrameKind.DATA]  # who answers the ping has the note
    assert len(b"".join(written)) < (1 << 20) + 200
    first.abort("out of memory")
    assert _kinds(line.pull_bytes()) == [FrameKind.ABORT]
    assert line.over
    assert not line.pull_bytes()


def test_small_parts_leave_together() -> None:
    both = pair(SessionLimits())
    pipe = both.meet()
    both.begin(1, pipe)
    for _ in range(1_000):
        both.ends[0].send_part(memoryview(bytes(1_000)), first_total=1_000)
    written = pipe.lines[0].pull_bytes(1 << 18)
    assert len(written) == 1
    assert (1 << 18) - 2_000 < len(written[0]) <= 1 << 18


def test_goodbye_comes_after_everything_was_acknowledged() -> None:
    both, pipe = _begun()
    first, second = both.ends
    first.send_part(memoryview(b"last"), first_total=4)
    first.say_goodbye()
    with pytest.raises(InputError, match="after the goodbye"):
        first.send_part(memoryview(b"more"), first_total=4)
    pipe.write(0)
    assert not first.is_finished
    pipe.close()
    pipe = both.meet()
    assert [type(event) for event in second.take_events() if not isinstance(event, Blocked)][-2:] == [MessagePart, Bye]
    assert first.is_finished
    pipe.close()
    pipe = both.meet()
    assert second.take_events()[-1] == Bye(), "it is said over each connection again"


# --- hostile peers: a certificate that is right, and everything else that is not


@pytest.mark.parametrize(
    ("code", "words", "raw"),
    [
        ("broken-rule", "part 2 follows part 0", data_head(TAG, 2, 1, 1) + b"x"),
        ("broken-rule", "part 0 follows part 0", data_head(TAG, 0, 1, 1) + b"x"),
        ("broken-rule", "0 are left of the message", data_head(TAG, 1, 1, None) + b"x"),
        ("over-limit", "a message of 1001 bytes", data_head(TAG, 1, 1, 1001) + b"x"),
        ("over-limit", "a message of 0 bytes", data_head(TAG, 1, 1, 0) + b"x"),
        ("over-limit", "a message of 18446744073709551615 bytes", data_head(TAG, 1, 1, 2**64 - 1) + b"x"),
        ("over-limit", "a part of 65 bytes", data_head(TAG, 1, 65, 65)),
        ("over-limit", "a DATA frame of 16 bytes", PREFIX.pack(10, 0, 0, 16)),
        ("over-limit", "a DATA frame of 24 bytes", PREFIX.pack(10, 1, 0, 24)),
        ("over-limit", "a DATA frame of 4294967295 bytes", PREFIX.pack(10, 1, 0, 2**32 - 1)),
        ("over-limit", "a NOTE frame of 65537 bytes", PREFIX.pack(6, 0, 0, 65537)),
        ("over-limit", "a PING frame of 513 bytes", PREFIX.pack(5, 0, 0, 513)),
        ("over-limit", "a BYE frame of 1 bytes", PREFIX.pack(11, 0, 0, 1)),
        ("over-limit", "a BLOCKED frame", PREFIX.pack(9, 0, 0, 15)),
        ("broken-rule", "which this end never opened", data_head(b"unheard!", 1, 64, 64) + bytes(64)),
        ("broken-rule", "which this end never opened", data_head(bytes(8), 1, 64, 64) + bytes(64)),
        ("broken-rule", "acknowledged part 1", encode_frame(FrameKind.ACK, Position(TAG, 1, 1 << 20).pack())),
        ("broken-rule", "the grant goes back", encode_frame(FrameKind.ACK, Position(TAG, 0, 1).pack())),
        ("broken-rule", "it was granted 2048", blocked_frame(TAG, 2049, "x")),
        ("broken-rule", "second goodbye", 2 * encode_frame(FrameKind.BYE)),
        ("broken-rule", "after the goodbye", encode_frame(FrameKind.BYE) + data_head(TAG, 1, 1, 1) + b"x"),
        ("no-session", "a frame begins with", PREFIX.pack(0, 0, 0, 0)),
        ("no-session", "a frame begins with", PREFIX.pack(12, 0, 0, 0)),
        ("no-session", "a frame begins with", PREFIX.pack(10, 2, 0, 17)),
        ("no-session", "a frame begins with", PREFIX.pack(5, 1, 0, 0)),
        ("no-session", "a frame begins with", PREFIX.pack(5, 0, 7, 0)),
        ("no-session", "a frame begins with", b"GET / HTTP/1.1\r\n\r\n"),
        ("broken-rule", "a refusal of fault 3", encode_frame(FrameKind.REFUSE, b"\x03\x01xx")),
        ("broken-rule", "a code of 9 bytes", encode_frame(FrameKind.REFUSE, b"\x00\x09xx")),
    ],
)
def test_what_breaks_a_rule_is_refused_by_name(code: str, words: str, raw: bytes) -> None:
    both, pipe = _begun()
    pipe.lines[1].feed(raw)
    found, said = _refused(both, 1)
    assert found == code
    assert words in said
    both.settle(pipe)
    (event,) = _only(both, 0, Refused)
    assert isinstance(event, Refused)
    assert (event.code, event.ours) == (code, False)


def test_more_than_was_granted_is_refused_before_it_is_kept() -> None:
    both, pipe = _begun()
    raw = b"".join(data_head(TAG, number, 64, 64) + bytes(64) for number in (1, 2, 3))
    pipe.lines[1].feed(raw + data_head(TAG, 4, 64, 64))  # its head alone
    code, words = _refused(both, 1)
    assert code == "over-limit"
    assert "ends at 2304; granted: 2048" in words


def test_announcing_much_takes_no_memory() -> None:
    both = pair(SessionLimits())
    pipe = both.meet()
    both.begin(1, pipe)
    line = pipe.lines[1]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    line.feed(data_head(TAG, 1, 1 << 20, 1 << 30) + bytes(1000))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < (1 << 20) + 100_000  # one part of the gigabyte


def test_a_flood_of_tiny_parts_is_bounded_by_the_window() -> None:
    window = 2 << 20
    both = pair(SessionLimits(window=window))
    pipe = both.meet()
    both.begin(1, pipe)
    line = pipe.lines[1]
    number = 0
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    while line.up:
        number += 1000
        line.feed(b"".join(data_head(TAG, at + 1, 1, 1) + b"x" for at in range(number - 1000, number)))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(isinstance(event, MessagePart) for event in both.ends[1].take_events()) == window // (1 + OVERHEAD)
    assert after - before < 1.5 * window


def test_a_flood_of_control_frames_ends_the_connection() -> None:
    both, pipe = _begun(SessionLimits(part=64, window=2048, message=1000, control=500))
    beat = encode_frame(FrameKind.PING, b"")
    for _ in range(10):
        pipe.lines[1].feed(beat * 400)
        both.ends[1].tick()
    assert both.ends[1].is_up, "an honest peer's beats, however late they come"
    growing = [encode_frame(FrameKind.ACK, Position(TAG, 0, (1 << 20) + at).pack()) for at in range(600)]
    other, lines = _begun(SessionLimits(part=64, window=2048, message=1000, control=500))
    lines.lines[1].feed(b"".join(growing))
    assert _refused(other, 1)[0] == "flood", "room that grows by a byte at a time"
    pipe.lines[1].feed(beat * 600)
    assert _refused(both, 1)[0] == "flood"


def test_acknowledgements_of_what_was_sent_are_no_flood() -> None:
    both, pipe = _begun(SessionLimits(part=64, window=1 << 16, message=1000, control=100))
    for _ in range(300):
        _fill(both, 0, 1)
        both.settle(pipe)
        for part in _only(both, 1, MessagePart):
            assert isinstance(part, MessagePart)
            both.ends[1].credit_window(part.view, part.cost)
        pipe.write(1)
        pipe.carry(1)
    assert both.ends[0].is_up


def test_what_a_peer_says_again_and_again_is_told_once() -> None:
    both, pipe = _begun()
    pipe.lines[1].feed(encode_frame(FrameKind.PING, b"x") * 50 + blocked_frame(TAG, 2048, "y") * 50)
    assert len(both.ends[1].take_events()) == 2
    assert len(b"".join(pipe.lines[1].pull_bytes())) < 100, "answers are no longer than what they answer"


def test_a_peer_that_never_reads_holds_no_more_than_a_window_and_a_message() -> None:
    both, pipe = _begun()
    end = both.ends[0]
    for _ in range(10):
        while end.is_ready:
            _fill(both, 0, 1)
        both.settle(pipe)
    while end.is_ready:
        _fill(both, 0, 1)
    assert end.last_sent == 3
    assert end.held_bytes < SMALL.window + 64 + OVERHEAD
    assert not end.is_ready


def test_a_grant_without_end_lets_no_more_leave_than_is_kept() -> None:
    both, pipe = _begun()
    pipe.lines[0].feed(encode_frame(FrameKind.ACK, Position(TAG, 0, 2**64 - 1).pack()))
    while both.ends[0].is_ready:
        _fill(both, 0, 1)
    pipe.lines[0].pull_bytes()
    assert not both.ends[0].is_ready
    assert both.ends[0].held_bytes <= SMALL.window + 64 + OVERHEAD


def test_notes_that_the_own_program_piles_up_are_refused() -> None:
    both, _ = _begun(SessionLimits())
    with pytest.raises(InputError, match="the limit is 65536"):
        both.ends[0].send_note(bytes(65_537))
    with pytest.raises(InputError, match="limit is 512"):
        both.ends[0].send_ping(bytes(513))
    for _ in range(16):
        both.ends[0].send_note(bytes(65_536))
    with pytest.raises(InputError, match="1048576 bytes of notes wait for 'shop'"):
        both.ends[0].send_note(b"x")


@pytest.mark.parametrize(
    ("size", "total"),
    [(0, 0), (65, 65), (64, 63), (64, 1001), (1, None)],
    ids=["empty", "long", "over", "limit", "none"],
)
def test_parts_that_fit_no_message_are_not_sent(size: int, total: int | None) -> None:
    both, _ = _begun()
    with pytest.raises(InputError, match="bytes"):
        both.ends[0].send_part(memoryview(bytes(size)), first_total=total)
    both.ends[0].send_part(memoryview(bytes(64)), first_total=100)
    with pytest.raises(InputError, match="36 are left"):
        both.ends[0].send_part(memoryview(bytes(37)), first_total=None)
    with pytest.raises(InputError, match="36 are left"):
        both.ends[0].send_part(memoryview(bytes(1)), first_total=1)


def test_connections_that_are_over_are_forgotten() -> None:
    both = pair()
    before = sum(type(one) is Line for one in gc.get_objects())
    for _ in range(50):
        pipe = both.meet()
        pipe.close()
        for end in both.ends:
            assert len(end.take_events()) == 1
    gc.collect()
    assert sum(type(one) is Line for one in gc.get_objects()) <= before + 2


@pytest.mark.parametrize("step", [1, 3, 7, 100])
def test_frames_are_found_however_the_bytes_come(step: int) -> None:
    both = pair(SessionLimits(part=1 << 17, window=1 << 20, message=1 << 20))
    pipe = both.meet()
    both.begin(1, pipe)
    sizes = [1, 100, (32 << 10) - 1, 32 << 10, 1 << 17]
    for size in sizes:
        both.ends[0].send_part(memoryview(struct.pack("<I", size) * size)[:size], first_total=size)
        both.ends[0].send_note(b"between")
    step = step if step > 50 else step * 1_000 + 1
    while data := b"".join(pipe.lines[0].pull_bytes()):
        for at in range(0, len(data), step):
            pipe.lines[1].feed(data[at : at + step])
    parts = _only(both, 1, MessagePart)
    assert [len(part.data) for part in parts if isinstance(part, MessagePart)] == sizes
    for part, size in zip(parts, sizes, strict=True):
        assert isinstance(part, MessagePart)
        assert bytes(part.data) == (struct.pack("<I", size) * size)[:size]

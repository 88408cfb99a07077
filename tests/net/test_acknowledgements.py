"""Small parts are acknowledged with what goes back anyway, soon where nothing does, and before their view is left."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
from net.session.ends import Pair, Pipe, pair
from securevfl_net.gate.frames import Bulk, Frames, Outbox
from securevfl_net.session import SessionLimits
from securevfl_net.session.frames import PREFIX, FrameKind, blocked_frame
from support.networks import Loopback, until

from securevfl.transport import Channel, Connected, Kind, Message, NoteReceived, encode_message
from securevfl.transport.network_channel import NetworkChannel

WIDE = SessionLimits(part=64 << 10, window=1 << 20, max_window=1 << 20, message=1 << 20)
VIEW = bytes(7) + b"one......"


def _begun(limits: SessionLimits = WIDE) -> tuple[Pair, Pipe]:
    both = pair(limits)
    pipe = both.meet()
    both.begin(1, pipe)
    for end in both.ends:
        end.take_events()
    return both, pipe


def _say(both: Pair, pipe: Pipe, side: int, size: int = 100) -> None:
    both.ends[side].send_part(memoryview(bytes(size)), first_total=size)
    pipe.write(side)
    pipe.carry(side)


def _kinds(data: bytes | memoryview) -> list[int]:
    found, at = [], 0
    while at < len(data):
        found.append(data[at])
        at += 8 + PREFIX.unpack_from(data, at)[3]
    return found


def test_an_acknowledgement_goes_with_the_answer_in_one_buffer() -> None:
    both, pipe = _begun()
    _say(both, pipe, 0)
    asked, answers = both.ends
    assert answers.may_wait
    assert asked.held_bytes
    answers.send_part(memoryview(b"yes"), first_total=3)
    assert not answers.may_wait
    (written,) = pipe.lines[1].pull_bytes()
    assert _kinds(written) == [FrameKind.ACK, FrameKind.DATA]
    pipe.lines[0].feed(written)
    assert not asked.held_bytes


def _say_much(both: Pair, pipe: Pipe) -> None:
    for _ in range(150):
        _say(both, pipe, 0)


@pytest.mark.parametrize(
    "hurry",
    [
        lambda both, pipe: both.ends[1].send_ping(b"alive"),
        lambda both, pipe: both.ends[1].send_note(b"note"),
        lambda both, pipe: both.ends[1].say_goodbye(),
        lambda both, pipe: both.ends[1].abort("broken"),
        _say_much,
        lambda both, pipe: pipe.close(),
    ],
    ids=["sign of life", "note", "goodbye", "abort", "much arrived", "no connection"],
)
def test_what_does_not_wait(hurry: Callable[[Pair, Pipe], object]) -> None:
    both, pipe = _begun()
    _say(both, pipe, 0)
    assert both.ends[1].may_wait
    hurry(both, pipe)
    assert not both.ends[1].may_wait


def test_a_peer_that_waits_for_room_is_answered_at_once() -> None:
    both, pipe = _begun()
    _say(both, pipe, 0)
    end = both.ends[1]
    end.credit_window(end.view, 10)
    assert end.may_wait
    pipe.lines[1].feed(blocked_frame(end.view[:8], WIDE.window, "step"))
    assert not end.may_wait


def test_room_that_the_peer_needs_does_not_wait() -> None:
    both, pipe = _begun()
    for _ in range(5):
        _say(both, pipe, 0, 64_000)
    both.settle(pipe)
    _say(both, pipe, 0)
    end = both.ends[1]
    assert end.may_wait
    end.credit_window(end.view, end.unread_bytes)
    assert not end.may_wait


@pytest.mark.parametrize("begins", [False, True], ids=["leaves", "begins another"])
def test_a_view_that_ends_before_anything_was_written_is_acknowledged(begins: bool) -> None:
    """The socket may be full, or more may wait to be read: the gate then writes only after the view has ended."""
    both, pipe = _begun()
    _say(both, pipe, 0)
    asked, end = both.ends
    if begins:
        end.begin_view(bytes(7) + b"two......")
    else:
        end.leave_view()
    assert not end.may_wait
    both.settle(pipe)
    assert not asked.held_bytes


def test_an_acknowledgement_of_a_view_that_ended_stays_with_its_connection() -> None:
    """A new connection tells what arrived by itself; a number from before it could be ahead of what was sent again."""
    both, pipe = _begun()
    _say(both, pipe, 0)
    both.ends[1].leave_view()
    pipe.close()
    pipe = both.meet()
    both.settle(pipe)
    assert all(end.is_up for end in both.ends)


def test_urgent_frames_and_others_take_one_write() -> None:
    outbox = Outbox()
    for kind in (Frames.ROOM, Frames.PART, Frames.BEAT):
        if kind == Frames.PART:
            bulk = Bulk(kind, 1, 0, 3)
            outbox.put_bulk(bulk)
            outbox.add_part(bulk, memoryview(b"abc"))
        else:
            outbox.put_frame(kind)
    writes: list[bytes] = []

    class Sock:
        def sendmsg(self, buffers: list[memoryview]) -> int:
            writes.append(b"".join(buffers))
            return len(writes[-1])

    assert outbox.write(Sock())  # type: ignore[arg-type]
    (written,) = writes
    assert [written[4], written[24], written[44]] == [Frames.ROOM, Frames.BEAT, Frames.PART]
    assert written.endswith(b"abc")
    assert (outbox.waiting, outbox.urgent) == (0, 0)


Play = Callable[[Callable[[Channel, Channel, Loopback], Awaitable[None]]], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(work: Callable[[Channel, Channel, Loopback], Awaitable[None]]) -> None:
        async def main() -> None:
            loopback = Loopback(tmp_path)
            try:
                await asyncio.wait_for(_meet(loopback, work), 60.0)
            finally:
                await loopback.close()

        asyncio.run(main())

    return run


async def _meet(loopback: Loopback, work: Callable[[Channel, Channel, Loopback], Awaitable[None]]) -> None:
    await loopback.start("ab", limits=WIDE)
    meshes = loopback.meshes
    for mesh in meshes.values():
        while not isinstance(await mesh.next_event(), Connected):
            pass
    channels = {name: mesh.begin_view(VIEW) for name, mesh in meshes.items()}
    for mesh in meshes.values():
        await mesh.send_note(mesh.peers[0], b"ready")
    for mesh in meshes.values():
        while not isinstance(await mesh.next_event(), NoteReceived):
            pass
        mesh.open_view()
    await work(channels["a"]["b"], channels["b"]["a"], loopback)


def _message(number: int) -> Message:
    return Message(Kind.STATISTIC, f"m{number}", {"x": np.arange(16.0)})


def test_a_message_without_an_answer_is_acknowledged_soon(play: Play) -> None:
    """A second is far below a sign of life, which would carry it otherwise."""

    async def work(a: Channel, b: Channel, loopback: Loopback) -> None:
        assert isinstance(a, NetworkChannel)
        waited = []
        for number in range(20):
            await a.send(_message(number))
            await b.receive()
            start = time.monotonic()
            await until(lambda: a._out == 0)
            waited.append(time.monotonic() - start)
        assert sorted(waited)[5] < 0.1

    play(work)


def test_who_leaves_the_view_at_once_has_acknowledged(play: Play) -> None:
    """Otherwise its peer would keep the parts, and say no goodbye, until it leaves the view as well."""

    async def work(a: Channel, b: Channel, loopback: Loopback) -> None:
        assert isinstance(a, NetworkChannel)
        await a.send(_message(0))
        await b.receive()
        loopback.meshes["b"].park_view("done")
        await asyncio.wait_for(until(lambda: a._out == 0), 20.0)

    play(work)


def test_what_a_reader_answers_goes_with_its_credit(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = [0]
    write = Outbox.write

    def count(self: Outbox, sock: socket.socket) -> bool:
        writes[0] += 1
        return write(self, sock)

    async def work(a: Channel, b: Channel, loopback: Loopback) -> None:
        async def echo() -> None:
            for _ in range(100):
                message, _ = await b.receive()
                await b.send(message)

        echoing = asyncio.create_task(echo())
        await asyncio.sleep(0.05)
        monkeypatch.setattr(Outbox, "write", count)
        for number in range(100):
            await a.send(_message(number))
            await a.receive()
        await echoing
        # One for each message, one for the last credit, and some for signs of life; with credits apart it were 400.
        assert writes[0] < 300

    play(work)


def test_an_answer_takes_the_acknowledgement_along(play: Play) -> None:
    """Seen by what crosses the wire: each TLS record of its own has a head and a tag, of 22 bytes together."""

    async def work(a: Channel, b: Channel, loopback: Loopback) -> None:
        wire, size, batches = loopback.wire("a", "b"), len(encode_message(_message(0))), []
        for _ in range(40):
            before = wire.passed
            for _ in range(10):
                await a.send(_message(0))
                await b.receive()
                await b.send(_message(0))
                await a.receive()
            batches.append((wire.passed - before) / 20)
        # On a busy machine some answers come too late to take it along; of all of them apart, 44 + 64 + size.
        assert min(batches) < 22 + 64 + size + 16

    play(work)

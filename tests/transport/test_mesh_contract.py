"""The contract of channels and meshes, over memory and over the network."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from securevfl_net.link_state import Beat
from support.networks import SMALL, Loopback, until

from securevfl.errors import InputError, Parked, PeerEnded, ProtocolError
from securevfl.transport import (
    Channel,
    Connected,
    Disconnected,
    Kind,
    MemoryHub,
    Mesh,
    MeshEvent,
    Message,
    NoteReceived,
    encode_message,
    measure_message,
)

PATIENCE = 60.0
NAMES = ("a", "b", "c")


@dataclass
class Field:
    """Three connected parties, kept for all tests of one kind; each test has a view of its own."""

    meshes: Mapping[str, Mesh]
    cut: Callable[[str, str], Awaitable[None]]
    runner: asyncio.Runner
    views: int = 0
    channels: dict[str, Mapping[str, Channel]] = field(default_factory=dict)

    def run(self, work: Callable[[], Awaitable[None]]) -> None:
        async def bounded() -> None:
            await asyncio.wait_for(work(), PATIENCE)

        self.runner.run(bounded())

    def view(self) -> bytes:
        self.views += 1
        return self.views.to_bytes(8, "little") + bytes(8)

    async def begin(self) -> dict[str, Mapping[str, Channel]]:
        """All begin, then all open, as parties do that said to each other that they are ready."""
        view = self.view()
        self.channels = {name: mesh.begin_view(view) for name, mesh in self.meshes.items()}
        await self.settled()
        for mesh in self.meshes.values():
            mesh.open_view()
        return self.channels

    async def pair(self) -> tuple[Channel, Channel]:
        channels = await self.begin()
        return channels["a"]["b"], channels["b"]["a"]

    async def settled(self) -> None:
        """Every party has heard of what every other one did before: a note from each to each came."""
        for name, mesh in self.meshes.items():
            for peer in mesh.peers:
                await mesh.send_note(peer, b"settle" + name.encode())
        for mesh in self.meshes.values():
            missing = {b"settle" + peer.encode() for peer in mesh.peers}
            while missing:
                event = await mesh.next_event()
                if isinstance(event, NoteReceived):
                    missing.discard(event.payload)


async def _until(mesh: Mesh, kind: type[MeshEvent]) -> Any:
    while not isinstance(event := await mesh.next_event(), kind):
        pass
    return event


@pytest.fixture(scope="module", params=["memory", "network"])
def field_(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    with asyncio.Runner() as runner:
        if request.param == "memory":
            hub = MemoryHub(NAMES, window=SMALL.window)

            async def cut(one: str, other: str) -> None:
                hub.cut(one, other)
                hub.mend(one, other)

            yield Field(hub, cut, runner)
            return
        loopback = Loopback(tmp_path_factory.mktemp("parties"))

        async def start() -> None:
            await loopback.start(NAMES)
            for mesh in loopback.meshes.values():
                for _ in mesh.peers:
                    await _until(mesh, Connected)

        async def sever(one: str, other: str) -> None:
            loopback.wire(one, other).cut()

        runner.run(asyncio.wait_for(start(), PATIENCE))
        yield Field(loopback.meshes, sever, runner)
        runner.run(loopback.close())


def _message(i: int, size: int = 10) -> Message:
    return Message(Kind.STATISTIC, f"m{i}", {"a": np.full(size, i % 100, np.uint8)}, {"i": i})


def test_messages_arrive_once_and_in_order_both_ways(field_: Field) -> None:
    async def work() -> None:
        a, b = await field_.pair()
        sizes: list[int] = []

        async def write() -> None:
            for i in range(300):
                sizes.append(await a.send(_message(i, i * i)))

        writer = asyncio.create_task(write())
        await b.send(_message(9))
        for i in range(300):
            message, size = await b.receive()
            assert message.meta["i"] == i
            assert size == len(encode_message(_message(i, i * i)))
        await writer
        assert sizes == [len(encode_message(_message(i, i * i))) for i in range(300)]
        assert (await a.receive())[0].what == "m9"

    field_.run(work)


DTYPES = [
    *(np.dtype(name) for name in ("bool", "u1", "i4", "i8", "u4", "u8", "f2", "f4", "f8")),
    *(torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64),
]


def test_every_element_type_arrives_as_it_was_and_with_its_digest(field_: Field) -> None:
    async def work() -> None:
        a, b = await field_.pair()
        for i, dtype in enumerate(DTYPES):
            values = np.arange(24).reshape(2, 3, 4)
            array = torch.tensor(values).to(dtype) if isinstance(dtype, torch.dtype) else values.astype(dtype)
            empty = array[:, :0]
            sent = Message(Kind.ACTIVATION, "all", {"x": array, "none": empty, "slice": array[:, 1:2]}, {"i": i})
            assert await a.send(sent) == len(encode_message(sent))
            got, size = await b.receive()
            assert (size, got.meta, got.kind, got.guard) == (
                len(encode_message(sent)),
                sent.meta,
                sent.kind,
                sent.guard,
            )
            for name, one in sent.arrays.items():
                found = np.asarray(got.arrays[name])
                np.testing.assert_array_equal(found, np.asarray(one))
                assert found.dtype == np.asarray(one).dtype
            assert measure_message(got) == measure_message(sent)

    field_.run(work)


def test_a_message_far_larger_than_the_window_passes(field_: Field) -> None:
    async def work() -> None:
        a, b = await field_.pair()
        large = Message(Kind.STATISTIC, "large", {"a": np.arange(8 << 20)})  # 64 MB
        await a.send(_message(0))
        await a.send(large)
        assert not a.can_send
        assert (await b.receive())[0].what == "m0"
        got, _ = await b.receive()
        assert measure_message(got) == measure_message(large)
        await until(lambda: a.can_send)

    field_.run(work)


def test_bulk_both_ways_passes_small_windows(field_: Field) -> None:
    async def work() -> None:
        channels = await field_.begin()

        async def party(me: str) -> None:
            ends = channels[me].values()

            async def write(end: Channel) -> None:
                for i in range(12):
                    await end.send(_message(i, 1 << 20))

            async def read(end: Channel) -> None:
                for i in range(12):
                    assert (await end.receive())[0].meta["i"] == i

            await asyncio.gather(*(write(end) for end in ends), *(read(end) for end in ends))

        await asyncio.gather(*(party(name) for name in NAMES))

    field_.run(work)


def test_a_full_window_makes_the_sender_wait_and_reading_lets_it_go_on(field_: Field) -> None:
    async def work() -> None:
        a, b = await field_.pair()
        done = 0

        async def write() -> None:
            nonlocal done
            for i in range(100):
                await a.send(_message(i, 100_000))
                done += 1

        writer = asyncio.create_task(write())
        before = -1
        while before < done or a.can_send:
            before = done
            await asyncio.sleep(0.2)
        assert done <= 25, "10 MB were taken where nobody read, with windows of 512 KiB at both ends"
        for i in range(100):
            assert (await b.receive())[0].meta["i"] == i
        await writer

    field_.run(work)


def test_what_was_sent_before_closing_still_arrives_and_then_reading_is_an_error(field_: Field) -> None:
    async def work() -> None:
        a, b = await field_.pair()
        await a.send(_message(1))
        a.close()
        assert (await b.receive())[0].what == "m1"
        with pytest.raises(PeerEnded, match="the peer ended"):
            await b.receive()
        with pytest.raises(ProtocolError, match="closed"):
            await a.send(_message(2))
        await b.send(_message(3))
        assert (await a.receive())[0].what == "m3"

    field_.run(work)


def test_a_sender_that_waits_learns_that_nobody_will_read(field_: Field) -> None:
    async def work() -> None:
        a, b = await field_.pair()

        async def write() -> None:
            while True:
                await a.send(_message(0, 300_000))

        writer = asyncio.create_task(write())
        await until(lambda: not a.can_send)
        b.close()
        with pytest.raises(PeerEnded, match="will not read"):
            await writer

    field_.run(work)


def test_closing_wakes_who_waits(field_: Field) -> None:
    async def work() -> None:
        a, b = await field_.pair()
        reader = asyncio.create_task(b.receive())
        await asyncio.sleep(0)
        with pytest.raises(ProtocolError, match="two readers"):
            await b.receive()
        a.close()
        with pytest.raises(PeerEnded):
            await reader

    field_.run(work)


def test_beats_pass_and_the_last_one_counts(field_: Field) -> None:
    async def work() -> None:
        a, b = await field_.pair()
        assert b.last_beat.steps == 0
        for steps in (3, 4):
            a.send_beat(Beat(steps=steps, sent=1, read=2, awaits="b", step="cut/back"))
        await until(lambda: b.last_beat.steps == 4)
        beat = b.last_beat
        assert (beat.sent, beat.read, beat.awaits, beat.step) == (1, 2, "b", "cut/back")

    field_.run(work)


def test_notes_pass_bulk_and_keep_their_order(field_: Field) -> None:
    async def work() -> None:
        a, _ = await field_.pair()
        for i in range(8):
            task = asyncio.create_task(a.send(_message(i, 400_000)))
        for i in range(50):
            await field_.meshes["a"].send_note("b", b"%d" % i)
        found = [(await _until(field_.meshes["b"], NoteReceived)).payload for _ in range(50)]
        assert found == [b"%d" % i for i in range(50)]
        field_.meshes["a"].park_view("enough")
        with pytest.raises(Parked):
            await task
        with pytest.raises(InputError, match="at most 65536"):
            await field_.meshes["a"].send_note("b", bytes(65537))
        with pytest.raises(InputError, match="no peer"):
            await field_.meshes["a"].send_note("z", b"")

    field_.run(work)


def test_what_is_sent_before_open_waits_for_it(field_: Field) -> None:
    async def work() -> None:
        view = field_.view()
        channels = {name: mesh.begin_view(view) for name, mesh in field_.meshes.items()}
        await channels["a"]["b"].send(_message(1))
        await field_.settled()
        reader = asyncio.create_task(channels["b"]["a"].receive())
        await field_.settled()
        assert not reader.done()
        field_.meshes["a"].open_view()
        assert (await reader)[0].what == "m1"

    field_.run(work)


def test_a_parked_view_is_over_and_nothing_of_it_reaches_the_next(field_: Field) -> None:
    async def work() -> None:
        old = await field_.begin()
        for i in range(4):
            await old["a"]["b"].send(_message(i, 100_000))
        reader = asyncio.create_task(old["c"]["a"].receive())
        await asyncio.sleep(0)
        for mesh in field_.meshes.values():
            mesh.park_view("'x' is gone")
        with pytest.raises(Parked, match="is gone"):
            await reader
        with pytest.raises(Parked, match="is gone"):
            await old["a"]["b"].send(_message(1))
        new = await field_.begin()
        await new["a"]["b"].send(_message(77))
        assert (await new["b"]["a"].receive())[0].what == "m77"
        with pytest.raises(Parked):
            await old["b"]["a"].receive()
        with pytest.raises(InputError, match="16 bytes"):
            field_.meshes["a"].begin_view(b"short")
        with pytest.raises(InputError, match="no earlier view had"):
            field_.meshes["a"].begin_view(field_.views.to_bytes(8, "little") + bytes(8))

    field_.run(work)


def test_cuts_are_not_noticed_by_channels(field_: Field) -> None:
    async def work() -> None:
        channels = await field_.begin()
        a, b = channels["a"]["b"], channels["b"]["a"]
        before = field_.meshes["b"].link_states()["a"].connections

        async def write(end: Channel) -> None:
            for i in range(200):
                await end.send(_message(i, 40_000))

        async def read(end: Channel) -> None:
            for i in range(200):
                message, _ = await end.receive()
                assert message.meta["i"] == i
                assert measure_message(message) == measure_message(_message(i, 40_000))
                if i % 40 == 20:
                    await field_.cut("a", "b")

        await asyncio.gather(write(a), read(b), write(b), read(a))
        await until(lambda: field_.meshes["b"].link_states()["a"].connections > before)
        event = await _until(field_.meshes["a"], Disconnected)
        assert event.peer == "b"
        event = await _until(field_.meshes["a"], Connected)
        assert (event.peer, event.resumed, event.incarnation) == ("b", True, field_.meshes["b"].incarnation)

    field_.run(work)


def test_a_beat_grows_old_when_the_program_reports_no_more(field_: Field) -> None:
    """A gate goes on showing signs of life for a program that was stopped; the beat shows when the program wrote it."""

    async def work() -> None:
        a, b = await field_.pair()
        a.send_beat(Beat(steps=7, awaits="b", step="x"))
        await until(lambda: b.last_beat.steps == 7)
        written = b.last_beat.at
        assert 0 < time.monotonic() - written < PATIENCE
        await asyncio.sleep(1.0)  # several pings
        assert time.monotonic() - b.last_beat.at > 0.7
        a.send_beat(Beat(steps=8))
        await until(lambda: b.last_beat.steps == 8)
        assert b.last_beat.at > written + 0.7

    field_.run(work)

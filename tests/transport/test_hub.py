"""Meshes in memory: gathering, views, and the faults of a network."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest
from securevfl_net.incarnation import Incarnation

from securevfl.errors import InputError, Parked, PeerEnded, ProtocolError
from securevfl.transport import (
    Connected,
    ConnectionRefused,
    Disconnected,
    JobAborted,
    Kind,
    MemoryHub,
    MemoryMesh,
    MeshEvent,
    Message,
    NoteReceived,
    PeerLeft,
)

VIEW, NEXT = b"v" * 16, b"w" * 16


def _message(i: int = 0) -> Message:
    return Message(Kind.STATISTIC, f"m{i}", {"a": np.full(10, i)})


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 20))


async def _events(mesh: MemoryMesh, count: int) -> list[MeshEvent]:
    return [await mesh.next_event() for _ in range(count)]


def _begun(hub: MemoryHub, view: bytes = VIEW) -> dict[str, Any]:
    channels = {name: hub[name].begin_view(view) for name in hub}
    for name in hub:
        hub[name].open_view()
    return channels


def test_all_are_connected_at_first_and_write_notes_in_order() -> None:
    async def main() -> None:
        hub = MemoryHub(["a", "b", "c"])
        assert await _events(hub["a"], 2) == [Connected(p, hub[p].incarnation, False) for p in "bc"]
        assert hub["c"].peers == ("a", "b")
        assert await _events(hub["b"], 2) == [Connected(p, hub[p].incarnation, False) for p in "ac"]
        for word in (b"one", b"two"):
            await hub["a"].send_note("b", word)
        assert await _events(hub["b"], 2) == [NoteReceived("a", b"one"), NoteReceived("a", b"two")]

    _run(main())


def test_what_is_sent_before_open_waits_for_it() -> None:
    async def main() -> None:
        hub = MemoryHub("ab")
        ours, theirs = hub["a"].begin_view(VIEW)["b"], hub["b"].begin_view(VIEW)["a"]
        await ours.send(_message(1))
        reader = asyncio.create_task(theirs.receive())
        await asyncio.sleep(0)
        assert not reader.done()
        hub["a"].open_view()
        assert (await reader)[0].what == "m1"

    _run(main())


def test_a_view_that_the_peer_never_began_is_refused_on_both_sides() -> None:
    async def main() -> None:
        hub = MemoryHub("ab")
        hub["a"].begin_view(VIEW)
        hub["a"].open_view()
        for me, peer in ("ab", "ba"):
            _, event = await _events(hub[me], 2)
            assert isinstance(event, ConnectionRefused)
            assert (event.peer, event.code) == (peer, "other-view")

    _run(main())


def test_a_cut_link_goes_on_where_it_was() -> None:
    async def main() -> None:
        hub = MemoryHub("ab")
        channels = _begun(hub)
        hub.cut("a", "b")
        await channels["a"]["b"].send(_message(1))
        await hub["a"].send_note("b", b"lost")
        reader = asyncio.create_task(channels["b"]["a"].receive())
        await asyncio.sleep(0)
        assert not reader.done()
        assert not hub["a"].link_states()["b"].connected
        hub.mend("a", "b")
        assert (await reader)[0].what == "m1"
        assert hub["a"].link_states()["b"].connections == 2
        up = hub["a"].incarnation
        assert await _events(hub["b"], 3) == [
            Connected("a", up, False),
            Disconnected("a", "the connection was cut"),
            Connected("a", up, True),
        ]

    _run(main())


def test_a_crash_is_silent_and_a_new_start_has_another_incarnation() -> None:
    async def main() -> None:
        hub = MemoryHub("ab")
        channels = _begun(hub)
        before = hub["a"].incarnation
        waits = [asyncio.create_task(channels[x][y].receive()) for x, y in ("ab", "ba")]
        await asyncio.sleep(0)
        hub.crash("a")
        with pytest.raises(PeerEnded, match="crashed"):
            await waits[0]
        with pytest.raises(ProtocolError, match="crashed"):
            await hub["a"].send_note("b", b"")
        assert not waits[1].done()
        with pytest.raises(InputError, match="runs already"):
            hub.start("b")
        after = hub.start("a").incarnation
        assert (after.count, after.nonce != before.nonce) == (before.count + 1, True)
        assert (await _events(hub["b"], 3))[1:] == [
            Disconnected("a", "the connection broke"),
            Connected("a", after, False),
        ]
        hub["b"].park_view("'a' restarted")
        with pytest.raises(Parked, match="restarted"):
            await waits[1]
        channels = _begun(hub, NEXT)
        await channels["a"]["b"].send(_message(2))
        assert (await channels["b"]["a"].receive())[0].what == "m2"

    _run(main())


def test_messages_of_a_parked_view_never_arrive_in_the_next() -> None:
    async def main() -> None:
        hub = MemoryHub("ab", window=100)
        old = _begun(hub)
        await old["a"]["b"].send(_message(1))
        hub["b"].park_view("gone")
        new = hub["b"].begin_view(NEXT)
        late = [asyncio.create_task(old["a"]["b"].send(_message(i))) for i in (2, 3)]
        await asyncio.sleep(0)
        hub["a"].begin_view(NEXT)
        for task in late:
            with pytest.raises(Parked):
                await task
        for name in hub:
            hub[name].open_view()
        reader = asyncio.create_task(new["a"].receive())
        await asyncio.sleep(0)
        assert not reader.done()
        reader.cancel()
        with pytest.raises(InputError, match="no earlier view had"):
            hub["a"].begin_view(VIEW)
        assert len(hub.pipes) == 2

    _run(main())


def test_an_abort_reaches_peers_and_ends_their_channels() -> None:
    async def main() -> None:
        hub = MemoryHub("abc")
        channels = _begun(hub)
        waits = asyncio.create_task(channels["b"]["c"].receive())
        await asyncio.sleep(0)
        await hub["a"].abort_job("the table changed")
        with pytest.raises(PeerEnded, match="'a' ended the job for all: the table changed"):
            await waits
        assert (await _events(hub["b"], 3))[2] == JobAborted("a", "the table changed")

    _run(main())


def test_who_closes_is_read_to_the_end() -> None:
    async def main() -> None:
        hub = MemoryHub("ab")
        channels = _begun(hub)
        await channels["a"]["b"].send(_message(1))
        await hub["a"].close()
        assert (await channels["b"]["a"].receive())[0].what == "m1"
        with pytest.raises(PeerEnded):
            await channels["b"]["a"].receive()
        assert (await _events(hub["b"], 2))[1] == PeerLeft("a")
        with pytest.raises(ProtocolError, match="was closed"):
            hub["a"].begin_view(NEXT)

    _run(main())


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_parties_have_names_of_their_own(names: list[str]) -> None:
    with pytest.raises(InputError, match="different name"):
        MemoryHub(names)


def test_notes_and_views_have_bounds() -> None:
    async def main() -> None:
        a = MemoryHub("ab")["a"]
        with pytest.raises(InputError, match="at most 65536"):
            await a.send_note("b", bytes(65537))
        with pytest.raises(InputError, match="no peer 'x'"):
            await a.send_note("x", b"")
        with pytest.raises(InputError, match="16 bytes"):
            a.begin_view(b"short")
        with pytest.raises(InputError, match="no view"):
            a.open_view()

    _run(main())


def test_incarnations_have_a_text() -> None:
    one = Incarnation.start_after(11)
    assert str(one).startswith("12-")
    assert Incarnation.from_text(str(one)) == one
    for text in ("", "12", "0-" + "00" * 16, "12-00", "012-" + "00" * 16, "12-" + "AA" * 16):
        with pytest.raises(InputError):
            Incarnation.from_text(text)
    with pytest.raises(InputError):
        Incarnation(1, b"short")

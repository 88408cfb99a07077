"""Parties that nobody can call: they dial out to a relay, or through a proxy, whoever of them is TLS server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
from securevfl_net.gate import Route
from securevfl_net.identity import Identity, PeerBook
from securevfl_net.incarnation import Incarnation
from support.identity_parties import World, pinned
from support.networks import AGREEMENT, LOCAL, QUICK, SMALL
from support.proxies import proxy
from support.relays import MEETING, OTHER_TOKEN, TOKEN, Running, relay

from securevfl.errors import InputError
from securevfl.transport import Connected, ConnectionRefused, Kind, Message, NoteReceived
from securevfl.transport.network_mesh import NetworkMesh

PATIENCE = 60.0
TOKENS = {"bank": TOKEN, "shop": OTHER_TOKEN}


class Two:
    """bank, TLS server by its name, and shop."""

    def __init__(self, folder: Path) -> None:
        world = World(folder)
        self.own = {name: world.own(name) for name in ("bank", "shop")}
        self.meshes: dict[str, NetworkMesh] = {}

    async def start(self, name: str, route: Route | None = None, *, listens: bool = False) -> NetworkMesh:
        (peer,) = {"bank", "shop"} - {name}
        own: Identity = self.own[name]
        self.meshes[name] = await NetworkMesh.start(
            own,
            PeerBook(name, {peer: pinned(self.own[peer])}, agreement=AGREEMENT),
            agreement=AGREEMENT,
            incarnation=Incarnation.start_after(0),
            listen=[LOCAL] if listens else [],
            routes={peer: route} if route else {},
            limits=SMALL,
            timing=QUICK,
        )
        return self.meshes[name]

    async def up(self) -> None:
        for mesh in self.meshes.values():
            while not isinstance(event := await mesh.next_event(), Connected):
                assert not isinstance(event, ConnectionRefused), event

    async def exchange(self, number: int, between: Callable[[], object] = bool) -> None:
        """Messages of 4 MB both ways at once, in a view of their own."""
        ends = [mesh.begin_view(bytes([number]) * 16)[mesh.peers[0]] for mesh in self.meshes.values()]
        for mesh in self.meshes.values():
            await mesh.send_note(mesh.peers[0], b"begun")
        for mesh in self.meshes.values():
            while not isinstance(await mesh.next_event(), NoteReceived):
                pass
            mesh.open_view()
        data = np.arange(1 << 20, dtype=np.float32)
        sent = Message(Kind.STATISTIC, "bulk", {"a": data}, {})
        sending = [asyncio.create_task(end.send(sent)) for end in ends]
        between()
        for got, _ in await asyncio.gather(*(end.receive() for end in ends)):
            assert np.array_equal(got.arrays["a"], data)
        await asyncio.gather(*sending)


Play = Callable[[Callable[[Two], Awaitable[None]]], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(work: Callable[[Two], Awaitable[None]]) -> None:
        async def main() -> None:
            two = Two(tmp_path)
            try:
                await asyncio.wait_for(work(two), PATIENCE)
            finally:
                for mesh in two.meshes.values():
                    mesh.kill_gate()

        asyncio.run(main())

    return run


def _route(running: Running, name: str) -> Route:
    return Route(running.address, rendezvous=MEETING.hex(), token=TOKENS[name].hex())


def test_both_dial_out_to_a_relay_and_a_pair_that_is_cut_goes_on(play: Play) -> None:
    with relay(attempts=10_000) as running:

        def cut() -> None:
            assert running.loop is not None
            pairs = list(running.server._pairs.values())
            assert pairs
            for pair in pairs:
                running.loop.call_soon_threadsafe(pair.task.cancel)

        async def work(two: Two) -> None:
            for name in ("bank", "shop"):
                await two.start(name, _route(running, name))
            await two.up()
            await two.exchange(1)
            await two.exchange(2, cut)
            await two.exchange(3, cut)

        play(work)
        ended = [event for event in running.log if event["event"] == "ended"]
        assert len(ended) >= 2
    assert b"bulk" not in repr(running.log).encode()


@pytest.mark.parametrize("caller", ["bank", "shop"])
def test_one_dials_through_a_proxy_whoever_is_tls_server(play: Play, caller: str) -> None:
    (other,) = {"bank", "shop"} - {caller}
    seen: list[bytes] = []
    with proxy(lambda _: None, seen) as where:

        async def work(two: Two) -> None:
            mesh = await two.start(other, listens=True)
            await two.start(caller, Route(mesh.listening[0], proxy=where))
            await two.up()
            await two.exchange(1)
            assert seen[0].startswith(f"CONNECT {mesh.listening[0]} HTTP/1.1".encode())

        play(work)


def test_a_relay_that_refuses_the_token_is_told_with_its_reason(play: Play) -> None:
    with relay() as running:

        async def work(two: Two) -> None:
            mesh = await two.start("bank", Route(running.address, rendezvous=MEETING.hex(), token="77" * 32))
            while not isinstance(event := await mesh.next_event(), ConnectionRefused):
                pass
            assert (event.peer, event.code) == ("shop", "relay")
            assert "unknown token or wrong proof" in event.words

        play(work)


def test_a_proxy_that_wants_a_password_is_told_with_its_reason(play: Play) -> None:
    with proxy(lambda _: b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n") as where:

        async def work(two: Two) -> None:
            mesh = await two.start("bank", Route(LOCAL, proxy=where))
            while not isinstance(event := await mesh.next_event(), ConnectionRefused):
                pass
            assert (event.peer, event.code) == ("shop", "proxy")
            assert "it requires a user and password" in event.words

        play(work)


def test_a_peer_that_is_not_at_the_relay_yet_is_no_refusal(play: Play) -> None:
    with relay(waiting=0.05, attempts=10_000) as running:

        async def work(two: Two) -> None:
            bank = await two.start("bank", _route(running, "bank"))
            end = time.monotonic() + PATIENCE
            while "did not arrive in time" not in bank.link_states()["shop"].why:
                assert time.monotonic() < end
                await asyncio.sleep(0.02)
            assert not bank._events

        play(work)


@pytest.mark.parametrize("wrong", [{"rendezvous": "00" * 32, "token": "11" * 32}, {"rendezvous": MEETING.hex()}])
def test_a_route_that_cannot_be_right_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"32 random bytes|needs a token"):
        Route(LOCAL, **wrong).build_dialer(server=True)

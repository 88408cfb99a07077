"""One port for many parties: callers are told apart by a name in their first bytes, and nobody can stop the front."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
from pathlib import Path

import pytest
from securevfl_net.entrance import NOT_HERE, Call, knock_for, name_entrance, read_call
from support.fronts import ONE, TWO, hello_for, play, running_front, until_connected
from support.networks import until


@pytest.mark.parametrize("hosted", ["a", "b"], ids=["the caller is the TLS client", "the caller is the TLS server"])
def test_two_agreements_share_a_port_and_each_caller_reaches_its_own(hosted: str, tmp_path: Path) -> None:
    caller = "b" if hosted == "a" else "a"

    async def work() -> None:
        async with running_front(tmp_path) as here:
            behind = [await here.mesh(hosted, caller, one, hosted=True) for one in (ONE, TWO)]
            before = [await here.mesh(caller, hosted, one, hosted=False) for one in (TWO, ONE)]
            await asyncio.gather(*map(until_connected, [*behind, *before]))
            assert here.front.handed == 2
            assert sum(here.front.refused.values()) == (2 if hosted == "b" else 0)  # asked once whom they call

    play(work)


@pytest.mark.parametrize("hosted", ["a", "b"])
def test_a_caller_that_names_nobody_reaches_the_only_agreement(
    hosted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of the release before calls. The caller's gate is another process, so its wire is changed here."""
    caller = "b" if hosted == "a" else "a"

    async def work() -> None:
        async with running_front(tmp_path) as here:
            behind = await here.mesh(hosted, caller, ONE, hosted=True)
            monkeypatch.setattr("securevfl_net.front.server.read_call", lambda seen: seen and Call(""))
            before = await here.mesh(caller, hosted, ONE, hosted=False)
            await asyncio.gather(until_connected(behind), until_connected(before))

    play(work)


def test_an_agreement_that_takes_no_calls_yet_is_called_until_it_does(tmp_path: Path) -> None:
    told: list[str] = []

    async def work() -> None:
        async with running_front(tmp_path) as here:
            here.front._called = told.append
            name = name_entrance(ONE, "a")
            here.front.doors |= {name: None, name_entrance(TWO, "a"): None}
            before = await here.mesh("b", "a", ONE, hosted=False)
            await until(lambda: len(told) >= 2)
            assert set(told) == {name}
            await until(lambda: "node is at this address" in before.link_states()["a"].why)
            behind = await here.mesh("a", "b", ONE, hosted=True)
            await asyncio.gather(until_connected(behind), until_connected(before))

    play(work)


def test_junk_and_a_flood_stop_nobody(tmp_path: Path) -> None:
    """Hostile first bytes, half a hello, silence and torn connections, while a peer connects."""
    rng = random.Random(5)
    hello = hello_for("a.example")

    def junk() -> bytes:
        kind = rng.randrange(4)
        if kind == 0:
            return rng.randbytes(rng.randrange(1, 400))
        if kind == 1:
            return hello[: rng.randrange(1, len(hello))]
        if kind == 2:
            torn = bytearray(hello)
            for _ in range(8):
                torn[rng.randrange(len(torn))] = rng.randrange(256)
            return bytes(torn)
        return b"D" + rng.randbytes(rng.randrange(40))

    async def work() -> None:
        async with running_front(tmp_path, most=32, seconds=1.0) as here:
            behind = await here.mesh("a", "b", ONE, hosted=True)
            here.front.doors[name_entrance(TWO, "a")] = None
            held: list[socket.socket] = []
            target = here.address.host, here.address.port

            async def flood() -> None:
                while True:
                    sock = socket.create_connection(target, source_address=("127.0.0.2", 0))
                    sock.send(junk())
                    held.append(sock)
                    if len(held) > 100:
                        held.pop(rng.randrange(len(held))).close()
                    await asyncio.sleep(0)

            flooding = asyncio.create_task(flood())
            try:
                await until(lambda: sum(here.front.refused.values()) > 200)
                before = await here.mesh("b", "a", ONE, hosted=False)
                await asyncio.gather(until_connected(behind), until_connected(before))
                assert here.front.handed == 1, "junk went to a party"
            finally:
                flooding.cancel()
                for sock in held:
                    sock.close()

    play(work)


def test_a_caller_of_nobody_gets_an_alert_and_no_party_is_bothered(tmp_path: Path) -> None:
    async def work() -> None:
        async with running_front(tmp_path) as here:
            here.front.doors |= {name_entrance(ONE, "a"): None, name_entrance(TWO, "a"): None}
            reader, writer = await asyncio.open_connection(here.address.host, here.address.port)
            writer.write(hello_for("nobody.example"))
            assert await reader.read() == NOT_HERE
            writer.close()
            context = ssl.create_default_context()
            with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
                await asyncio.open_connection(here.address.host, here.address.port, ssl=context, server_hostname="x.y")

    play(work)


def test_names_are_read_from_real_hellos_as_soon_as_they_are_whole() -> None:
    name = name_entrance(ONE, "bank")
    hello = hello_for(name)
    assert read_call(hello) == Call(name)
    assert read_call(hello_for(None)) == Call("")
    for end in range(len(hello)):
        assert read_call(hello[:end]) is None
    knock = knock_for(ONE, "bank")
    assert read_call(knock + b"S") == read_call(knock) == Call(name, 21)
    assert read_call(knock[:20]) is None
    assert read_call(b"S") == Call("")
    assert name_entrance(TWO, "bank") != name != name_entrance(ONE, "shop")


def test_no_bytes_make_the_reader_fail_otherwise_than_it_says() -> None:
    rng, hello = random.Random(3), hello_for(name_entrance(ONE, "bank"))
    for _ in range(20_000):
        torn = bytearray(hello)
        for _ in range(rng.randrange(1, 6)):
            torn[rng.choice((rng.randrange(len(torn)), rng.randrange(6)))] = rng.randrange(256)
        try:
            found = read_call(bytes(torn))
        except ValueError:
            continue
        assert found is None or isinstance(found.name, str)
    for _ in range(2_000):
        try:
            read_call(os.urandom(rng.randrange(64)))
        except ValueError:
            continue

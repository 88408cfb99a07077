"""What strangers, and peers of another agreement, get from a node's port: nothing, and at nobody's cost."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from securevfl_net.entrance import NOT_HERE, knock_for, name_entrance, read_call
from securevfl_net.gate.connection import Phase
from support.fronts import ONE, TWO, hello_for, play, running_front, until_connected
from support.networks import until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a front hands descriptors over, on Unix alone")


def _hello_with_name(name: bytes) -> bytes:
    """A hello of which the host's name is any bytes of 20 letters' length."""
    assert len(name) == 20
    return hello_for("a" * 20).replace(b"a" * 20, name)


def test_callers_cannot_add_reasons(tmp_path: Path) -> None:
    """Reasons are kept, shown and written: their number must not grow with what callers send."""
    rng = random.Random(7)

    async def work() -> None:
        async with running_front(tmp_path, most=16, seconds=0.3) as here:
            here.front.doors |= {name_entrance(ONE, "a"): None, name_entrance(TWO, "a"): None}
            for k in range(300):
                torn = bytearray(hello_for("b" * 20))
                for _ in range(6):
                    torn[rng.randrange(len(torn))] = rng.randrange(256)
                name = bytearray(b"c" * 20)
                name[k % 20] = 128 + k % 128
                for data in (_hello_with_name(bytes(name)), bytes(torn), rng.randbytes(30)):
                    with socket.create_connection((here.address.host, here.address.port)) as sock:
                        sock.send(data)
                    await asyncio.sleep(0)
            await until(lambda: sum(here.front.refused.values()) >= 300)
            assert len(here.front.refused) < 12, here.front.refused

    play(work)


def test_no_reason_repeats_a_callers_bytes() -> None:
    for k in range(128, 256):
        with pytest.raises(ValueError, match=r"^the name in its ClientHello is no host's$"):
            read_call(_hello_with_name(b"d" * 19 + bytes([k])))


@pytest.mark.parametrize("way", ["hello", "knock"])
def test_a_waiting_agreement_and_an_unknown_one_answer_alike(way: str, tmp_path: Path) -> None:
    """The same bytes, then the end: nobody can ask a node which agreements it has."""

    def begin(agreement: bytes, party: str) -> bytes:
        name = name_entrance(agreement, party)
        return hello_for(name) if way == "hello" else knock_for(agreement, party) + b"S"

    async def work() -> None:
        async with running_front(tmp_path) as here:
            here.front.doors |= {name_entrance(ONE, "a"): None, name_entrance(TWO, "a"): None}
            answers = []
            for first in (begin(ONE, "a"), begin(ONE, "b"), begin(b"x" * 32, "a"), hello_for("f" * 40 + ".svfl")):
                reader, writer = await asyncio.open_connection(here.address.host, here.address.port)
                writer.write(first)
                answers.append(await reader.read())
                writer.close()
            assert answers == [NOT_HERE] * 4

    play(work)


@pytest.mark.parametrize("hosted", ["a", "b"])
def test_a_peer_of_one_agreement_does_not_get_into_another(hosted: str, tmp_path: Path) -> None:
    """It is a peer in both, with one certificate, and names the one while it speaks of the other."""
    caller = "b" if hosted == "a" else "a"

    async def work() -> None:
        async with running_front(tmp_path) as here:
            behind = await here.mesh(hosted, caller, TWO, hosted=True)
            here.front.doors[name_entrance(ONE, hosted)] = here.front.doors[name_entrance(TWO, hosted)]
            before = await here.mesh(caller, hosted, ONE, hosted=False)
            refused = await asyncio.wait_for(before.next_event(), 20)
            assert "Refused" in type(refused).__name__, refused
            assert "agreement" in str(refused)
            assert not behind.link_states()[caller].connected
            right = await here.mesh(caller, hosted, TWO, hosted=False)  # and this harms nobody
            await asyncio.gather(until_connected(right), until_connected(behind, refusals=True))

    play(work)


def test_slow_callers_are_few_and_end(tmp_path: Path) -> None:
    """A byte now and then, from one address: its places are bounded, and so is their time."""

    async def work() -> None:
        async with running_front(tmp_path, most=16, seconds=0.5) as here:
            target = here.address.host, here.address.port
            held = [socket.create_connection(target, source_address=("127.0.0.2", 0)) for _ in range(64)]
            first = hello_for(name_entrance(ONE, "a"))
            for at in range(8):
                for sock in held:
                    try:
                        sock.send(first[at : at + 1])
                    except OSError:
                        continue
                assert len(here.front._callers) <= 16
                await asyncio.sleep(0.01)
            await until(lambda: len(here.front._callers) == 0)
            assert here.front.refused["it did not say in time whom it calls"] > 0
            assert here.front.refused["too many callers at once"] >= 48
            for sock in held:
                sock.close()

    play(work)


def test_only_who_names_an_agreement_keeps_a_place_in_a_flood(tmp_path: Path) -> None:
    async def work() -> None:
        async with running_front(tmp_path) as here:
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            here.front.doors[name_entrance(ONE, "a")] = ours
            for first, source, known in (
                (b"S", "127.0.0.2", False),
                (hello_for(None), "127.0.0.3", False),
                (knock_for(ONE, "a") + b"S", "127.0.0.4", True),
            ):
                before = here.front.handed
                with socket.create_connection((here.address.host, here.address.port), source_address=(source, 0)) as s:
                    s.send(first)
                    await until(lambda: here.front.handed > before)  # noqa: B023
                    await until(lambda: len(here.front._callers) == 0)
                assert (source in here.front._callers._known) == known
            assert Phase.LIVE > Phase.SHAKE
            ours.close()
            theirs.close()

    play(work)


@contextmanager
def _few_descriptors(spare: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)  # the lowest
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_node_without_descriptors_left_takes_callers_again_later(tmp_path: Path) -> None:
    async def work() -> None:
        async with running_front(tmp_path, seconds=0.2) as here:
            behind = await here.mesh("a", "b", ONE, hosted=True)
            held = [socket.socket() for _ in range(40)]
            with _few_descriptors(spare=3):
                for sock in held:
                    sock.setblocking(False)
                    sock.connect_ex((here.address.host, here.address.port))
                await until(lambda: here.front._listeners[0]._rests > 0)
            before = await here.mesh("b", "a", ONE, hosted=False)
            await asyncio.gather(until_connected(before), until_connected(behind))
            for sock in held:
                sock.close()

    play(work)

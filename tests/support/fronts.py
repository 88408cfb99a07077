"""A node's front with gates behind it, and parties that call it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from securevfl_net.dialers import Address
from securevfl_net.entrance import name_entrance
from securevfl_net.front import Front
from securevfl_net.gate import Route, Timing
from securevfl_net.identity import Identity, PeerBook, Pin
from securevfl_net.incarnation import Incarnation

from securevfl.transport import Connected
from securevfl.transport.network_mesh import NetworkMesh
from support.identity_parties import World
from support.networks import LOCAL, QUICK

__all__ = ["ONE", "TWO", "Organisation", "hello_for", "play", "running_front", "until_connected"]

PATIENCE = 60.0
ONE, TWO = bytes(range(32)), bytes(range(1, 33))


@dataclass
class Organisation:
    """A front, and the gates behind and before it."""

    folder: Path
    front: Front
    identities: dict[str, Identity]
    meshes: list[NetworkMesh] = field(default_factory=list)
    doors: list[socket.socket] = field(default_factory=list)

    @property
    def address(self) -> Address:
        return self.front.addresses[0]

    async def mesh(self, me: str, peer: str, agreement: bytes, *, hosted: bool, timing: Timing = QUICK) -> NetworkMesh:
        """A party with one peer: behind the front, or one that calls it."""
        theirs = None
        if hosted:
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            self.front.doors[name_entrance(agreement, me)] = ours
            self.doors += [ours, theirs]
        mesh = await NetworkMesh.start(
            self.identities[me],
            PeerBook(me, {peer: Pin((self.identities[peer].certificate,))}, agreement=agreement),
            agreement=agreement,
            incarnation=Incarnation.start_after(len(self.meshes)),
            routes={} if hosted else {peer: Route(self.address)},
            timing=timing,
            door=None if theirs is None else theirs.fileno(),
        )
        self.meshes.append(mesh)
        return mesh


@asynccontextmanager
async def running_front(folder: Path, **options: float) -> AsyncIterator[Organisation]:
    world = World(folder)
    front = Front([LOCAL], **options)  # type: ignore[arg-type]
    found = Organisation(folder, front, {name: world.own(name) for name in ("a", "b")})
    running = asyncio.create_task(front.run())
    try:
        yield found
    finally:
        for mesh in found.meshes:
            mesh.kill_gate()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for sock in found.doors:
            sock.close()


def play(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), PATIENCE))


async def until_connected(mesh: NetworkMesh, *, refusals: bool = False) -> None:
    """Wait until its peer is there; nobody may be refused before, unless `refusals` says so."""
    while not isinstance(event := await mesh.next_event(), Connected):
        assert refusals or "refused" not in type(event).__name__.lower(), event


def hello_for(host: str | None) -> bytes:
    out = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=host).do_handshake()
    return out.read()

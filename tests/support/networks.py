"""Meshes over loopback, with a wire between the parties that can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from securevfl_net.gate import Address, Route, Timing
from securevfl_net.identity import Authority, Identity, PeerBook, Pin
from securevfl_net.incarnation import Incarnation
from securevfl_net.session import SessionLimits

from securevfl.transport.network_mesh import NetworkMesh
from support.identity_parties import World

AGREEMENT = bytes(range(32))
SMALL = SessionLimits(part=64 << 10, window=512 << 10, max_window=8 << 20, message=1 << 27)
"""Windows far below the largest messages of the tests."""
QUICK = Timing(first=0.02, most=0.2, ping=0.2, handshake=5.0, farewell=2.0)
LOCAL = Address("127.0.0.1", 0)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that no event tells of."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


class Splice:
    """A wire between a caller and a listener that the test can cut; it keeps nothing, and holds bytes back only
    while it is not `opened`.
    """

    def __init__(self, target: Address) -> None:
        self.target = target
        self.address = target
        self.joined = 0
        self.passed = 0
        self.plugged = False
        self.opened = asyncio.Event()
        self.opened.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> Splice:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])
        return self

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.plugged:
            writer.transport.abort()
            return
        try:
            far, away = await asyncio.open_connection(self.target.host, self.target.port)
        except OSError:  # who listened there is gone
            writer.transport.abort()
            return
        self.joined += 1
        self._writers += [writer, away]
        for source, sink in ((reader, away), (far, writer)):
            task = asyncio.create_task(self._carry(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                self.passed += len(data)
                await self.opened.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()

    def cut(self) -> None:
        """Break what is joined now."""
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.transport.abort()

    async def close(self) -> None:
        self.plugged = True
        self.cut()
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Loopback:
    """Parties on this machine: of two, the one with the larger name calls the other through a `Splice`."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.meshes: dict[str, NetworkMesh] = {}
        self.wires: dict[tuple[str, str], Splice] = {}
        self.identities: dict[str, Identity] = {}
        self.counts: dict[str, int] = {}

    def book(self, me: str) -> PeerBook:
        return PeerBook(me, self.pins(me), agreement=AGREEMENT)

    def pins(self, me: str) -> dict[str, Pin | Authority]:
        return {name: Pin((one.certificate,)) for name, one in self.identities.items() if name != me}

    async def start(
        self, names: Iterable[str], *, limits: SessionLimits = SMALL, timing: Timing = QUICK
    ) -> Mapping[str, NetworkMesh]:
        names = sorted(names)
        self.identities = {name: self.world.own(name) for name in names}
        for name in names:
            await self.one(name, limits=limits, timing=timing)
        return self.meshes

    async def one(self, name: str, *, limits: SessionLimits = SMALL, timing: Timing = QUICK) -> NetworkMesh:
        """Start a party, or start it anew at its address."""
        routes = {}
        for peer in sorted(self.identities):
            if peer < name:
                if (peer, name) not in self.wires:
                    self.wires[peer, name] = await Splice(self.meshes[peer].listening[0]).start()
                routes[peer] = Route(self.wires[peer, name].address)
        self.counts[name] = self.counts.get(name, 0) + 1
        mesh = self.meshes[name] = await NetworkMesh.start(
            self.identities[name],
            self.book(name),
            agreement=AGREEMENT,
            incarnation=Incarnation.start_after(self.counts[name] - 1),
            listen=[LOCAL],
            routes=routes,
            limits=limits,
            timing=timing,
        )
        for (peer, _), wire in self.wires.items():
            if peer == name:
                wire.target = mesh.listening[0]
        return mesh

    def wire(self, one: str, other: str) -> Splice:
        return self.wires[min(one, other), max(one, other)]

    async def close(self) -> None:
        for mesh in self.meshes.values():
            mesh.kill_gate()
        for wire in self.wires.values():
            await wire.close()

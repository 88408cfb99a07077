"""Round trips of small messages between two parties as processes: the session beside a bare TLS socket, in one run.

Each party is a process with a gate of its own, over mutual TLS 1.3 on loopback. *Session* is a channel as programs
have it: codec, gate, session, gate, codec. *Recorded* adds what a link adds: policy, digest and a line in the ledger's
file at both ends. *Bare* is one blocking `ssl` socket between the same two processes, with the same certificates and as
many bytes a frame, and nothing else. The kinds take turns, so that other work on the machine disturbs single rounds.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from securevfl_net.gate.settings import Address, Route
from securevfl_net.identity import Identity, PeerBook, Pin, make_tls_context, read_certificates
from securevfl_net.identity.making import Key, self_signed
from securevfl_net.incarnation import Incarnation

from securevfl.ledger import Ledger
from securevfl.privacy import Clock, Link, Policy
from securevfl.transport import Channel, Connected, Kind, Message, NoteReceived, encode_message
from securevfl.transport.network_mesh import NetworkMesh

__all__ = ["KINDS", "measure_trips"]

KINDS = ("bare", "session", "recorded")
_AGREEMENT = bytes(range(32))
_VIEW = b"small messages.."
_HEAD = 32
"""Bytes of a session's frame before the message."""
_PEER = {"a": "b", "b": "a"}
_WAIT = 120.0
_MOST = 1 << 23
"""Most numbers of a round each way."""


def measure_trips(sizes: Mapping[str, int], *, rounds: int, trips: int) -> dict[str, Any]:
    """Round trips a second and CPU time of one, by size and kind.

    Args:
        sizes: name → float32 numbers of the message.
        rounds: of each kind, in turns.
        trips: round trips of a round, of long messages fewer.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for party in _PEER:
            _make_identity(folder, party)
        context = multiprocessing.get_context("spawn")
        ends: dict[str, Connection] = {}
        processes = []
        try:
            for party in _PEER:
                ends[party], end = context.Pipe()
                processes.append(context.Process(target=_serve_party, args=(party, folder, end), name=party))
                processes[-1].start()
            address = _hear(ends["a"])
            ends["b"].send(address)
            for end in ends.values():
                _hear(end)
            found = {
                title: _measure_size(ends, size, rounds, max(1, min(trips, _MOST // size)))
                for title, size in sizes.items()
            }
            for end in ends.values():
                end.send(None)
            return found
        finally:
            for process in processes:
                process.join(20.0)
                process.kill()


def _hear(end: Connection) -> Any:
    if not end.poll(_WAIT):
        raise SystemExit("a party said nothing: look at its error above")
    return end.recv()


def _measure_size(ends: Mapping[str, Connection], size: int, rounds: int, trips: int) -> dict[str, Any]:
    taken: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for number in range(rounds + 1):
        for kind in KINDS:
            for end in ends.values():
                end.send((kind, size, trips))
            a, b = (_hear(ends[party]) for party in _PEER)
            if number:  # the first one fills caches
                taken[kind].append(
                    {
                        "wall": a["wall"] / trips,
                        "programs": (a["program"] + b["program"]) / trips,
                        "gates": (a["gate"] + b["gate"]) / trips,
                    }
                )
    found: dict[str, Any] = {"bytes of a frame": _HEAD + len(encode_message(_message(size)))}
    for kind, rows in taken.items():
        cpu = [row["programs"] + row["gates"] for row in rows]
        found[kind] = {
            "round trips a second, median": round(1 / statistics.median(row["wall"] for row in rows)),
            "round trips a second, best": round(1 / min(row["wall"] for row in rows)),
            "CPU µs of a round trip, least": _micro(min(cpu)),
            "of it both programs": _micro(min(row["programs"] for row in rows)),
            "of it both gates": _micro(min(row["gates"] for row in rows)),
        }
        pairs = list(zip(rows, taken["bare"], strict=True))
        found[kind]["time over bare, median of pairs"] = round(
            statistics.median(row["wall"] / bare["wall"] for row, bare in pairs), 2
        )
        found[kind]["time over bare, fastest rounds"] = round(
            min(row["wall"] for row, _ in pairs) / min(bare["wall"] for _, bare in pairs), 2
        )
    return found


def _micro(seconds: float) -> float:
    return round(1e6 * seconds, 1)


def _message(size: int) -> Message:
    return Message(Kind.ACTIVATION, "cut/forward", {"z": np.arange(size, dtype=np.float32)})


def _make_identity(folder: Path, name: str) -> None:
    key = Key.generate()
    (folder / f"{name}.crt").write_bytes(self_signed(name, key, datetime.now(UTC)).pem)
    (folder / f"{name}.key").touch(mode=0o600)
    (folder / f"{name}.key").write_bytes(key.pem)


def _serve_party(name: str, folder: Path, end: Connection) -> None:
    asyncio.run(_Party(name, folder, end).serve())


class _Party:
    """Be one party, and measure what the orders say."""

    def __init__(self, name: str, folder: Path, end: Connection) -> None:
        self.name, self.peer, self.folder, self.end = name, _PEER[name], folder, end
        self.identity = Identity.load(folder / f"{name}.crt", folder / f"{name}.key")
        (certificate,) = read_certificates(folder / f"{self.peer}.crt")
        self.book = PeerBook(name, {self.peer: Pin((certificate,))}, agreement=_AGREEMENT)

    async def serve(self) -> None:
        """Connect, and measure until told that it is over."""
        listener = socket.create_server(("127.0.0.1", 0))
        routes = {}
        port = 0
        if self.name == "b":
            gate, port = self.end.recv()
            routes = {"a": Route(Address("127.0.0.1", gate))}
        mesh = await NetworkMesh.start(
            self.identity,
            self.book,
            agreement=_AGREEMENT,
            incarnation=Incarnation.start_after(0),
            listen=[Address("127.0.0.1", 0)],
            routes=routes,
        )
        if self.name == "a":
            self.end.send((mesh.listening[0].port, listener.getsockname()[1]))
        with listener, await asyncio.to_thread(self._bare_socket, listener, port) as bare:
            while not isinstance(await mesh.next_event(), Connected):
                pass
            channel = mesh.begin_view(_VIEW)[self.peer]
            await mesh.send_note(self.peer, b"ready")
            while not isinstance(await mesh.next_event(), NoteReceived):
                pass
            mesh.open_view()
            self.end.send("ready")
            await self._obey(mesh, channel, bare)
        mesh.kill_gate()

    def _bare_socket(self, listener: socket.socket, port: int) -> ssl.SSLSocket:
        server = self.name == "a"
        plain = listener.accept()[0] if server else socket.create_connection(("127.0.0.1", port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return make_tls_context(self.identity, self.book, server=server).wrap_socket(plain, server_side=server)

    async def _obey(self, mesh: NetworkMesh, channel: Channel, bare: ssl.SSLSocket) -> None:
        ledger = Ledger(self.name, run="trips", job="", path=self.folder / f"{self.name}.jsonl", kept=False)
        link = Link(self.name, self.peer, channel, ledger, Policy(), Clock())
        while (told := await asyncio.to_thread(self.end.recv)) is not None:
            kind, size, trips = told
            message = _message(size)
            program, gate, wall = time.process_time(), _process_cpu(mesh.gate_pid), time.perf_counter()
            if kind == "bare":
                self._bounce_bytes(bare, bytes(_HEAD + len(encode_message(message))), trips)
            elif kind == "session":
                await self._bounce_messages(channel, message, trips)
            else:
                await self._bounce_links(link, message, trips)
            wall = time.perf_counter() - wall
            self.end.send(
                {
                    "wall": wall,
                    "program": time.process_time() - program,
                    "gate": _process_cpu(mesh.gate_pid) - gate,
                }
            )

    def _bounce_bytes(self, bare: ssl.SSLSocket, frame: bytes, trips: int) -> None:
        room = memoryview(bytearray(len(frame)))

        def take() -> None:
            got = 0
            while got < len(room):
                got += bare.recv_into(room[got:])

        first, second = self._in_turn(lambda: bare.sendall(frame), take)
        for _ in range(trips):
            first()
            second()

    async def _bounce_messages(self, channel: Channel, message: Message, trips: int) -> None:
        begins = self.name == "a"
        for _ in range(trips):
            if begins:
                await channel.send(Message(message.kind, message.what, message.arrays))
            await channel.receive()
            if not begins:
                await channel.send(Message(message.kind, message.what, message.arrays))

    async def _bounce_links(self, link: Link, message: Message, trips: int) -> None:
        begins, numbers = self.name == "a", message.arrays["z"]
        for _ in range(trips):
            if begins:
                await link.send(message.kind, message.what, z=numbers)
            await link.receive(message.kind, message.what, "z")
            if not begins:
                await link.send(message.kind, message.what, z=numbers)

    def _in_turn(
        self, send: Callable[[], None], take: Callable[[], None]
    ) -> tuple[Callable[[], None], Callable[[], None]]:
        return (send, take) if self.name == "a" else (take, send)


def _process_cpu(process: int) -> float:
    """CPU seconds of another process of this user, to the nanosecond (Linux: `clock_getcpuclockid`)."""
    return time.clock_gettime(~process << 3 | 2)

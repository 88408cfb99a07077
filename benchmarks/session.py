"""The session between two parties: speed beside a bare TLS socket, beside a program that computes, and its memory.

    python -m benchmarks.session [--quick] [--out NAME]

Four processes: two programs and their gates; the bare socket has two. Every ratio is taken within one run, turn by
turn, and beside it stand the CPU seconds for a gigabyte of each process: on a machine with two cores the four processes
share them, and the wall clock of a busy machine says little. The bare socket moves the same messages in blocking calls
with a length before each, without digests; the session's figures include SHA-256 of each message at both ends, as the
ledgers need them.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import signal
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from securevfl_net.gate import Address, Route, Timing
from securevfl_net.identity import Identity, PeerBook, Pin, context
from securevfl_net.identity.making import Key, self_signed
from securevfl_net.incarnation import Incarnation

from benchmarks.common import write
from securevfl.privacy import Clock, Ledger, Link, Policy
from securevfl.transport import Channel, Kind, Message, Up, measure
from securevfl.transport.network_mesh import NetworkMesh

AGREEMENT = bytes(32)
MB = 1 << 20
PAUSE = 0.3
SMALL = 1000
NAMES = ("receiver", "sender")
_TICKS = os.sysconf("SC_CLK_TCK")


def own(folder: Path, name: str) -> Identity:
    """A certificate that the party signs itself."""
    key = Key.generate()
    now = datetime.now(UTC)
    (folder / f"{name}.crt").write_bytes(self_signed(name, key, now).pem)
    (folder / f"{name}.key").touch(mode=0o600)
    (folder / f"{name}.key").write_bytes(key.pem)
    return Identity.load(folder / f"{name}.crt", folder / f"{name}.key")


def identities(folder: Path, me: str) -> tuple[Identity, PeerBook]:
    """A party's identity, and its book of the other."""
    loaded = {name: Identity.load(folder / f"{name}.crt", folder / f"{name}.key") for name in NAMES}
    (peer,) = set(NAMES) - {me}
    return loaded[me], PeerBook(me, {peer: Pin((loaded[peer].certificate,))}, agreement=AGREEMENT)


def taken(process: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def most(process: int) -> int:
    """Most bytes that a process ever had in memory."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


async def mesh_of(folder: Path, me: str, **more: Any) -> NetworkMesh:
    """A party's mesh."""
    identity, book = identities(folder, me)
    return await NetworkMesh.start(
        identity, book, agreement=AGREEMENT, incarnation=Incarnation.after(0), timing=Timing(first=0.02), **more
    )


async def channel_of(mesh: NetworkMesh, peer: str) -> Channel:
    """The channel of a first view, once both are connected."""
    while not isinstance(await mesh.next(), Up):
        pass
    channel = mesh.begin(bytes(range(16)))[peer]
    await asyncio.sleep(PAUSE)  # the other side begins, too
    mesh.open()
    return channel


def message(size: int) -> Message:
    """A message of about `size` bytes; a new object, so that nothing is remembered of the last one."""
    return Message(Kind.STATISTIC, "benchmark", {"a": np.frombuffer(_CONTENT, np.uint8, size)})


_CONTENT = os.urandom(64 * MB)


def link(me: str, peer: str, channel: Channel, folder: Path) -> Link:
    """With a ledger that is written to a file as the program goes."""
    ledger = Ledger(me, run="benchmark", job="benchmark", path=folder / f"{me}-{time.monotonic_ns()}.jsonl")
    return Link(me, peer, channel, ledger, Policy(), Clock())


# --- the sender's process


def send(folder: Path, port: int, gate_port: int, orders: Connection) -> None:
    """Do what the receiver's process says, until it hangs up."""
    asyncio.run(_send(folder, port, gate_port, orders))


async def _send(folder: Path, port: int, gate_port: int, orders: Connection) -> None:
    mesh = await mesh_of(folder, "sender", routes={"receiver": Route(Address("127.0.0.1", gate_port))})
    channel = await channel_of(mesh, "receiver")
    identity, book = identities(folder, "sender")
    bare = context(identity, book, server=False).wrap_socket(socket.create_connection(("127.0.0.1", port)))
    orders.send((os.getpid(), mesh.gate))
    while True:
        try:
            how, size, count = await asyncio.to_thread(orders.recv)
        except EOFError:
            return
        if how == "bare":
            head, body = struct.pack("<Q", size), memoryview(_CONTENT)[:size]
            for _ in range(count):
                bare.sendall(head)
                bare.sendall(body)
        elif how == "ledger":
            one, array = link("sender", "receiver", channel, folder), np.frombuffer(_CONTENT, np.uint8, size)
            for _ in range(count):
                await one.send(Kind.STATISTIC, "benchmark", a=array)
        elif how == "flood":
            try:
                async with asyncio.timeout(count):
                    while True:
                        await channel.send(message(size))
            except TimeoutError:
                pass
        else:
            for _ in range(count):
                one_message = message(size)
                measure(one_message)  # as a link does before it sends
                await channel.send(one_message)
        orders.send(None)


# --- the receiver's process


class Bench:
    """Both ends of both ways, from the receiver's side."""

    def __init__(self, channel: Channel, bare: socket.socket, orders: Connection, processes: dict[str, int]) -> None:
        self.channel, self.bare, self.orders, self.processes = channel, bare, orders, processes
        self.folder = Path()

    async def go(self, how: str, size: int, count: int) -> dict[str, object]:
        """Messages of one size one way, and what they took."""
        before, start = self._taken(), time.perf_counter()
        self.orders.send((how, size, count))
        if how == "bare":
            await asyncio.to_thread(self._read, count)
        elif how == "ledger":
            one = link("receiver", "sender", self.channel, self.folder)
            for _ in range(count):
                await one.receive(Kind.STATISTIC, "benchmark", "a")
        else:
            for _ in range(count):
                got, _ = await self.channel.receive()
                if got.written is None:
                    raise SystemExit("a message came without the digest that the benchmark times")
        passed = time.perf_counter() - start
        await asyncio.to_thread(self.orders.recv)
        after = self._taken()
        volume = size * count / 1e9
        names = ("sender", "receiver") if how == "bare" else tuple(self.processes)
        return {
            "MB_per_s": size * count / passed / 1e6,
            "messages_per_s": count / passed,
            "cpu_s_per_GB": {name: (after[name] - before[name]) / volume for name in names},
            "cpu_us_per_message": {name: (after[name] - before[name]) / count * 1e6 for name in names},
        }

    def _read(self, count: int) -> None:
        for _ in range(count):
            (size,) = struct.unpack("<Q", self._exactly(8))
            self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        whole = np.empty(size, np.uint8).data
        got = 0
        while got < size:
            got += self.bare.recv_into(whole[got:])
        return whole

    def _taken(self) -> dict[str, float]:
        return {name: taken(process) for name, process in self.processes.items()}

    async def beside(self, size: int, count: int, turns: int) -> dict[str, object]:
        """Bare and session, turn by turn."""
        found: dict[str, list[dict[str, Any]]] = {"bare": [], "session": []}
        for _ in range(turns):
            for how, runs in found.items():
                runs.append(await self.go(how, size, count))
        rates = {how: [run["MB_per_s"] for run in runs] for how, runs in found.items()}
        ratios = [session / bare for session, bare in zip(rates["session"], rates["bare"], strict=True)]
        return {
            "session_of_bare": statistics.median(ratios),
            "session_of_bare_each_turn": ratios,
            **{how: _median(runs) for how, runs in found.items()},
        }


def _median(runs: list[dict[str, Any]]) -> dict[str, object]:
    return {
        key: {name: statistics.median(run[key][name] for run in runs) for name in runs[0][key]}
        if isinstance(runs[0][key], dict)
        else statistics.median(run[key] for run in runs)
        for key in runs[0]
    }


def _pure() -> None:
    sum(i * i for i in range(20_000))


def _blas() -> Callable[[], None]:
    torch.set_num_threads(1)
    square = torch.randn(1000, 1000)

    def work() -> None:
        _ = square @ square

    return work


def _seal() -> Callable[[], None]:
    import securevfl_crypto as crypto
    from securevfl_crypto.masks import ZeroShares

    scheme = crypto.BFV()
    key = scheme.generate()
    block = crypto.Block(batch=256, width_in=32, width_out=16, x_bits=16, s_bits=22, w_bits=35, z_bits=58)
    owner, holder = scheme.owner(key, block), scheme.holder(key.public, block, ZeroShares([]))
    weights = np.zeros((32, 16), dtype=object) + 5
    sealed, rows = owner.seal_weights(weights), np.ones((256, 32), dtype=np.int64)

    def work() -> None:
        holder.product(sealed, rows, weights)

    return work


async def computing(bench: Bench, work: Callable[[], None], count: int, turns: int) -> dict[str, object]:
    """Both ways while the receiver's program computes in another thread all the time."""
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            work()

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        return await bench.beside(8 * MB, count, turns)
    finally:
        stop.set()
        thread.join()


async def memory(folder: Path, seconds: float) -> dict[str, object]:
    """Most memory of a sender's and a receiver's processes while the receiver is frozen, does not read, is flooded."""
    found: dict[str, object] = {"window_MB": 32}
    for case in ("program frozen", "gate frozen", "slow reader", "flood of small messages"):
        async with pair(folder) as (bench, mesh):
            start = {name: most(process) for name, process in bench.processes.items()}
            small = case.startswith("flood")
            frozen = mesh.gate if case == "gate frozen" else 0
            if frozen:
                os.kill(frozen, signal.SIGSTOP)
            bench.orders.send(("flood", SMALL if small else 8 * MB, seconds))
            if case == "program frozen":
                time.sleep(seconds + 1.0)  # noqa: ASYNC251  # the event loop stands still, as a stopped program's
            else:
                end = time.monotonic() + seconds + 1.0
                while time.monotonic() < end:
                    if case == "slow reader":
                        await bench.channel.receive()
                    await asyncio.sleep(0.5)
            grown = {name: (most(process) - start[name]) / 1e6 for name, process in bench.processes.items()}
            found[case] = {"grown_MB": grown}
            if frozen:
                os.kill(frozen, signal.SIGCONT)
    return found


class pair:  # noqa: N801  # used as a function
    """Two parties, connected."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def __aenter__(self) -> tuple[Bench, NetworkMesh]:
        self._mesh = await mesh_of(self._folder, "receiver", listen=[Address("127.0.0.1", 0)])
        listener = socket.create_server(("127.0.0.1", 0))
        self._orders, theirs = multiprocessing.Pipe()
        self._sender = multiprocessing.get_context("spawn").Process(
            target=send,
            args=(self._folder, listener.getsockname()[1], self._mesh.listening[0].port, theirs),
            daemon=True,
        )
        self._sender.start()
        theirs.close()
        channel = await channel_of(self._mesh, "sender")
        identity, book = identities(self._folder, "receiver")
        with listener:
            sock, _ = await asyncio.to_thread(listener.accept)
        server = context(identity, book, server=True)
        self._bare = await asyncio.to_thread(lambda: server.wrap_socket(sock, server_side=True))
        sender, gate = await asyncio.to_thread(self._orders.recv)
        processes = {
            "sender": sender,
            "sender's gate": gate,
            "receiver's gate": self._mesh.gate,
            "receiver": os.getpid(),
        }
        bench = Bench(channel, self._bare, self._orders, processes)
        bench.folder = self._folder
        return bench, self._mesh

    async def __aexit__(self, *_: object) -> None:
        self._orders.close()
        self._bare.close()
        self._mesh.kill()
        self._sender.kill()
        self._sender.join()


async def main(*, quick: bool) -> dict[str, object]:
    """All figures."""
    turns = 2 if quick else 5
    large = 12 if quick else 60
    figures: dict[str, object] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for one in NAMES:
            own(folder, one)
        async with pair(folder) as (bench, mesh):
            await bench.go("session", 8 * MB, 4)
            figures["8 MB"] = await bench.beside(8 * MB, large, turns)
            figures["64 MB"] = await bench.beside(64 * MB - 4096, max(2, large // 8), turns)
            count = 5_000 if quick else 50_000
            figures["1 kB"] = await bench.go("session", SMALL, count)
            figures["1 kB with ledgers in files"] = await bench.go("ledger", SMALL, count)
            for what, work in (("pure Python", _pure), ("BLAS", _blas()), ("SEAL", _seal())):
                figures[f"8 MB while the receiver computes in {what}"] = await computing(bench, work, large // 3, turns)
            figures["round_trip_ms"] = 1e3 * (mesh.links()["sender"].round_trip or 0.0)
        figures["memory"] = await memory(folder, 2.0 if quick else 6.0)
    figures["load_after"] = os.getloadavg()[0]
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--out", default="session", help="name of the file of results")
    given = parser.parse_args()
    write(given.out, asyncio.run(main(quick=given.quick)))

"""A line of a given length and width: a TCP forwarder that delays each byte and limits bytes a second, each way.

    python -m benchmarks.shaping --to HOST:PORT --delay 20 --megabits 100

It prints the port that it listens at. Delay and rate hold in each direction alone, so that a round trip takes twice the
delay. What a sender may have on the line is the line's own product of rate and delay and a buffer of a quarter of a
second; beyond it the forwarder reads no further, as a router's queue would push back. No packet is lost. Kernels that
have `tc netem` measure the same with losses; this one needs no rights and no kernel module.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Line", "shaped"]

_CHUNK = 1 << 14
_BUFFER_SECONDS = 0.25


class Line:
    """One direction of a connection.

    Args:
        delay: seconds that each byte is on its way.
        rate: bytes a second; 0 for no limit.
    """

    def __init__(self, delay: float, rate: float) -> None:
        self._delay = delay
        self._rate = rate
        self._queue: deque[tuple[float, bytes]] = deque()
        self._held = 0
        self._most = (delay + _BUFFER_SECONDS) * rate if rate else float(1 << 28)
        self._free = 0.0
        self._more = asyncio.Event()
        self._room = asyncio.Event()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes until the reader's end, and then tell the writer's peer that nothing more comes."""
        writing = asyncio.ensure_future(self._deliver(writer))
        try:
            while data := await reader.read(_CHUNK):
                now = asyncio.get_running_loop().time()
                self._free = max(self._free, now) + (len(data) / self._rate if self._rate else 0.0)
                self._queue.append((self._free + self._delay, data))
                self._held += len(data)
                self._more.set()
                while self._held > self._most:
                    self._room.clear()
                    await self._room.wait()
            self._queue.append((asyncio.get_running_loop().time() + self._delay, b""))
            self._more.set()
            await writing
        finally:
            writing.cancel()

    async def _deliver(self, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._queue:
                self._more.clear()
                await self._more.wait()
            due, data = self._queue[0]
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            self._queue.popleft()
            if not data:
                if writer.can_write_eof():
                    writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
            self._held -= len(data)
            self._room.set()


async def forward(to: tuple[str, int], delay: float, rate: float, port: int = 0) -> asyncio.Server:
    """Listen, and carry each connection to `to` over two lines of its own."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*to, limit=1 << 20)
        except OSError:
            writer.close()
            return
        for one in (writer, far_writer):
            one.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ways = [
            asyncio.ensure_future(Line(delay, rate).carry(reader, far_writer)),
            asyncio.ensure_future(Line(delay, rate).carry(far_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for way in ways:
                way.cancel()
            for one in (writer, far_writer):
                with contextlib.suppress(OSError):
                    one.close()

    return await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 20)


@contextmanager
def shaped(port: int, *, delay_ms: float, megabits: float) -> Iterator[int]:
    """A line to a port of this machine, in a process of its own, as long as the block lasts; gives the port to dial.

    Args:
        port: where the far end listens, now or later.
        delay_ms: milliseconds one way.
        megabits: 10^6 bits a second one way; 0 for no limit.
    """
    command = [sys.executable, "-m", "benchmarks.shaping", "--to", f"127.0.0.1:{port}"]
    command += ["--delay", str(delay_ms), "--megabits", str(megabits)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline() if process.stdout else ""
        yield int(line)
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Forward until killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--to", required=True)
    parser.add_argument("--delay", type=float, default=20.0, help="milliseconds one way")
    parser.add_argument("--megabits", type=float, default=100.0, help="10^6 bits a second one way; 0: no limit")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    host, _, port = given.to.rpartition(":")

    async def run() -> None:
        server = await forward((host, int(port)), given.delay / 1e3, given.megabits * 1e6 / 8, given.port)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(run())


if __name__ == "__main__":
    main()

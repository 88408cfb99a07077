"""Serving over loopback: requests a second and the time of an answer, three processes with certificates, two passive.

    python -m benchmarks.serving [--quick]

Each party is a process of its own, `securevfl serve`, with its gate; the bank answers HTTP. A client in this process
keeps some requests in flight over connections that stay open, for a bounded time and count. Plain and BFV; one customer
a request, and 32. All of it shares this machine's cores, so the figures are of all parties together.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import securevfl as sv
from benchmarks import skip
from benchmarks.common import write
from securevfl.agreement import ServingTerms
from securevfl.testing.companies import Companies
from securevfl.testing.parties import parties

PROTECTIONS = {"plain": "", "bfv": '\n[protection]\nname = "bfv"\n'}
JOB = """
[job]
epochs = 1
batch_size = 64
seed = 5

[algorithm]
name = "splitnn"
hidden = 16
top = [16]
"""
BANK = '[http]\nlisten = "127.0.0.1:0"\nmetrics = "127.0.0.1:0"\n[limits]\n' + "".join(
    f"{name} = 1e9\n"
    for name in ("client_rows_per_minute", "client_burst", "customer_scores_per_minute", "customer_burst")
)
START = 180.0
"""Seconds in which a process has to be ready."""


@contextmanager
def process(where: Companies, name: str, ports: dict[str, int]) -> Iterator[subprocess.Popen[str]]:
    """One party that serves; of two, the one with the larger name dials."""
    dials = {peer: f"127.0.0.1:{port}" for peer, port in ports.items() if peer < name}
    file = where.party_file(name, dials, f"127.0.0.1:{ports[name]}")
    words = [sys.executable, "-m", "securevfl", "serve", str(where.agreement), "--as", name, "--file", str(file)]
    if name == "bank":
        serving = where.folder / name / "serving.toml"
        serving.write_text(BANK, encoding="utf-8")
        words += ["--serving", str(serving)]
    environment = dict(os.environ) | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    started = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(30)
        except subprocess.TimeoutExpired:
            started.kill()


def free_ports(names: tuple[str, ...]) -> dict[str, int]:
    """A port for each; they start side by side, and each has to know where the others are."""
    with ExitStack() as held:
        sockets = {name: held.enter_context(socket.create_server(("127.0.0.1", 0))) for name in names}
        return {name: int(one.getsockname()[1]) for name, one in sockets.items()}


def said(started: subprocess.Popen[str], pattern: str) -> str:
    """What a process says in a line like this."""
    for line in started.stdout or ():
        found = re.search(pattern, line)
        if found is not None:
            return found.group(1)
    raise RuntimeError(f"a process ended without saying {pattern}")


async def request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes) -> int:
    """One request over a connection that stays open; its status."""
    method = b"POST" if body else b"GET"
    head = b"%s %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    writer.write(head % (method, path.encode(), len(body)) + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", answer).group(1))  # type: ignore[union-attr]
    await reader.readexactly(length)
    return int(answer.split(b" ", 2)[1])


async def measure(port: int, names: list[str], rows: int, flights: int, limit: float, most: int) -> dict[str, float]:
    """Requests a second and the time of an answer, with so many requests in flight."""
    times: list[float] = []
    turn, end = count(), time.perf_counter() + limit

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end and (number := next(turn)) < most:
            asked = [names[(number * rows + i) % len(names)] for i in range(rows)]
            content = {"customer": asked[0]} if rows == 1 else {"customers": asked}
            began = time.perf_counter()
            status = await request(reader, writer, f"/v1/score{'s' * (rows > 1)}", json.dumps(content).encode())
            times.append(time.perf_counter() - began)
            if status != 200:
                raise RuntimeError(f"a request was answered with {status}")
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(flights)))
    passed = time.perf_counter() - began
    times.sort()
    return {
        "requests": len(times),
        "requests a second": round(len(times) / passed, 1),
        "rows a second": round(len(times) * rows / passed, 1),
        "median ms": round(statistics.median(times) * 1000, 2),
        "99th percentile ms": round(times[min(int(len(times) * 0.99), len(times) - 1)] * 1000, 2),
    }


async def ready(port: int) -> None:
    """Wait until all parties are there."""
    async with asyncio.timeout(START):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while await request(reader, writer, "/readyz", b"") != 200:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)
        writer.close()


def served(protection: str, *, quick: bool) -> dict[str, object]:
    """Figures of one protection."""
    people = parties(rows=400)
    text = JOB + PROTECTIONS[protection]
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as held:
        where = Companies(Path(temporary), people, text, ServingTerms(asks=("bank",)))
        trained = sv.simulate(where.proposal.job_of(), people).model()
        where.put(trained.parts)
        names = list(sv.predict(trained, people).ids)
        ports = free_ports(where.names)
        started = {name: held.enter_context(process(where, name, ports)) for name in where.names}
        port = int(said(started["bank"], r"Questions: http://127\.0\.0\.1:(\d+)"))
        limit, most = (3.0, 200) if quick else (15.0, 5000)

        async def all_of_it() -> dict[str, object]:
            await ready(port)
            await measure(port, names, 1, 1, limit / 5, most)
            return {
                f"{rows} a request, {flights} in flight": await measure(port, names, rows, flights, limit, most)
                for rows in (1, 32)
                for flights in (1, 16)
            }

        return asyncio.run(all_of_it())


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few seconds for each figure")
    arguments = parser.parse_args()
    skip.needed("uvicorn", "serving")
    found = {name: served(name, quick=arguments.quick) for name in PROTECTIONS}
    write("serving", {"cores": os.cpu_count(), "load before": os.getloadavg()[0], **found})


if __name__ == "__main__":
    main()

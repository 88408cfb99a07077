"""Answers of `securevfl serve` beside an echo of the same web framework: rows a second and the time of an answer.

    python -m benchmarks.serving [--quick] [--rows 20000] [kind ...]

Three parties, each a process with its own files, certificate and gate, on this machine; the bank answers HTTP. A client
in this process keeps some requests in flight over connections that stay open. No customer is asked about twice, so no
answer comes from those that the bank holds. The echo is FastAPI under the same server and settings, in a process of its
own; it answers at once, with as many bytes. It runs before and after each kind, and the mean of both counts. All share
this machine's cores.
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
from pathlib import Path

import securevfl as sv
from benchmarks import skip
from benchmarks.common import write
from securevfl.agreement import ServingTerms
from securevfl.testing.parties import make_parties

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.companies import Companies

_NETWORK = """
[job]
epochs = 1
batch_size = 64
seed = 5
keep = "last"

[algorithm]
name = "splitnn"
hidden = 16
top = [16]

[protection]
name = """
_TREES = """
[job]
epochs = 20
seed = 5
keep = "last"

[algorithm]
name = "boosting"

[protection]
name = """
KINDS = {
    "plain": _NETWORK + '"plain"\n',
    "shares": _NETWORK + '"shares"\n',
    "bfv": _NETWORK + '"bfv"\n',
    "boosting": _TREES + '"plain"\n',
}
LOADS = ((1, 1), (1, 16), (32, 1), (32, 16))
"""Customers of a request, and connections."""
BANK = '[http]\nlisten = "127.0.0.1:0"\nmetrics = "127.0.0.1:0"\n[limits]\n' + "".join(
    f"{name} = 1e9\n"
    for name in (
        "client_requests_per_second",
        "address_requests_per_second",
        "client_rows_per_minute",
        "client_burst",
        "customer_scores_per_minute",
        "customer_burst",
    )
)
START = 300.0
"""Seconds in which a process has to be ready."""
ECHO = """
import socket, sys
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
class Question(BaseModel):
    customer: str = ""
    customers: list[str] = []
score = {"model": "joint", "digest": "0" * 64, "classes": ["0", "1"], "probabilities": [0.1234567890123456] * 2}
app = FastAPI()
@app.get("/readyz")
async def ready(): return {}
@app.post("/v1/score")
async def one(question: Question): return score
@app.post("/v1/scores")
async def many(question: Question): return {"answers": [{"status": 200, "score": score} for _ in question.customers]}
bound = socket.create_server(("127.0.0.1", 0))
bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as `securevfl serve` does
print(f"Questions: http://127.0.0.1:{bound.getsockname()[1]}", flush=True)
config = uvicorn.Config(app, http="h11", ws="none", lifespan="off", access_log=False, log_level="error")
uvicorn.Server(config).run(sockets=[bound])
"""


@contextmanager
def start_process(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process whose lines can be read."""
    environment = dict(os.environ) | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    started = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(30)
        except subprocess.TimeoutExpired:
            started.kill()
        if started.stdout is not None:
            started.stdout.close()


def party_command(where: Companies, name: str, ports: dict[str, int]) -> list[str]:
    """Arguments with which a party serves; of two, the one with the larger name dials."""
    dials = {peer: f"127.0.0.1:{port}" for peer, port in ports.items() if peer < name}
    file = where.party_file(name, dials, f"127.0.0.1:{ports[name]}")
    words = ["-m", "securevfl", "serve", str(where.agreement), "--as", name, "--file", str(file)]
    if name == "bank":
        serving = where.folder / name / "serving.toml"
        serving.write_text(BANK, encoding="utf-8")
        words += ["--serving", str(serving)]
    return words


def free_ports(names: tuple[str, ...]) -> dict[str, int]:
    """A port for each party; all start side by side, and each has to know where the others are."""
    with ExitStack() as held:
        sockets = {name: held.enter_context(socket.create_server(("127.0.0.1", 0))) for name in names}
        return {name: int(one.getsockname()[1]) for name, one in sockets.items()}


def read_port(started: subprocess.Popen[str]) -> int:
    """The port at which a process answers HTTP, from its lines."""
    for line in started.stdout or ():
        found = re.search(r"Questions: http://127\.0\.0\.1:(\d+)", line)
        if found is not None:
            return int(found.group(1))
    raise RuntimeError("a process ended before it answered HTTP")


def cpu_seconds(started: subprocess.Popen[str]) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{started.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes) -> int:
    """One request over a connection that stays open; its status."""
    method = b"POST" if body else b"GET"
    head = b"%s %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    writer.write(head % (method, path.encode(), len(body)) + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", answer).group(1))  # type: ignore[union-attr]
    content = await reader.readexactly(length)
    if b'"status":200' not in content and rb'"answers"' in content:
        raise RuntimeError(f"customers were refused: {content[:300]!r}")
    return int(answer.split(b" ", 2)[1])


async def measure(port: int, names: Iterator[str], rows: int, flights: int, limit: float) -> dict[str, float]:
    """Rows a second and the time of an answer, with so many requests in flight.

    Args:
        port: of the server.
        names: customers to ask about; it ends when they are used up.
        rows: customers of a request.
        flights: connections.
        limit: seconds.
    """
    times: list[float] = []
    end = time.perf_counter() + limit

    async def keep_asking() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end and len(asked := [name for _, name in zip(range(rows), names)]) == rows:  # noqa: B905 - the shorter one ends it
            content = {"customer": asked[0]} if rows == 1 else {"customers": asked}
            began = time.perf_counter()
            status = await request(reader, writer, f"/v1/score{'s' * (rows > 1)}", json.dumps(content).encode())
            times.append(time.perf_counter() - began)
            if status != 200:
                raise RuntimeError(f"a request was answered with {status}")
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(keep_asking() for _ in range(flights)))
    passed = time.perf_counter() - began
    times.sort()
    return {
        "requests": len(times),
        "rows a second": round(len(times) * rows / passed, 1),
        "median ms": round(statistics.median(times) * 1000, 2),
        "99th percentile ms": round(times[min(int(len(times) * 0.99), len(times) - 1)] * 1000, 2),
    }


async def wait_until_ready(port: int) -> None:
    """Wait until all parties are there."""
    async with asyncio.timeout(START):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while await request(reader, writer, "/readyz", b"") != 200:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)
        writer.close()


def measure_echo(names: list[str], seconds: float) -> dict[str, dict[str, float]]:
    """Figures of the echo."""
    with start_process(["-c", ECHO]) as started:
        port = read_port(started)

        async def measure_all() -> dict[str, dict[str, float]]:
            await wait_until_ready(port)
            await measure(port, iter(names), 1, 1, seconds / 5)
            return {
                f"{rows} x {flights}": await measure(port, iter(names * 10), rows, flights, seconds)
                for rows, flights in LOADS
            }

        return asyncio.run(measure_all())


def measure_kind(kind: str, rows: int, seconds: float) -> dict[str, dict[str, float]]:
    """Figures of one protection or algorithm."""
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as held:
        where = Companies(Path(temporary), make_parties(rows=rows), KINDS[kind], ServingTerms(asks=("bank",)))
        where.write_models(sv.simulate(where.proposal.job_of(), make_parties(rows=600)).model().parts)
        ports = free_ports(where.names)
        started = {name: held.enter_context(start_process(party_command(where, name, ports))) for name in where.names}
        port = read_port(started["bank"])
        names = [f"p{number:04d}" for number in range(rows)]
        common = set.intersection(*(set(table.ids) for table in make_parties(rows=rows).values()))
        customers = (name for name in names if name in common)

        async def measure_all() -> dict[str, dict[str, float]]:
            await wait_until_ready(port)
            await measure(port, customers, 1, 1, seconds / 5)
            found = {}
            for each, flights in LOADS:
                before = {name: cpu_seconds(one) for name, one in started.items()}
                figures = await measure(port, customers, each, flights, seconds)
                answered = figures["requests"] * each
                for name, one in started.items():
                    spent = cpu_seconds(one) - before[name]
                    figures[f"CPU ms of {name}, a row"] = round(1000 * spent / answered, 3)
                found[f"{each} x {flights}"] = figures
            return found

        return asyncio.run(measure_all())


def _beside_echo(kind: dict[str, dict[str, float]], echoes: list[dict[str, dict[str, float]]]) -> dict[str, float]:
    """Rows a second as a share of the echo's, by load."""
    rate = "rows a second"
    return {
        load: round(one[rate] / statistics.mean(echo[load][rate] for echo in echoes), 3) for load, one in kind.items()
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a second for each figure")
    parser.add_argument("--rows", type=int, default=60_000, help="customers in each table")
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="all unless given")
    arguments = parser.parse_args()
    skip.needed("uvicorn", "serving")
    seconds = 1.0 if arguments.quick else 5.0
    rows = min(arguments.rows, 20_000) if arguments.quick else arguments.rows
    echoes = [measure_echo([f"p{number:04d}" for number in range(rows)], seconds)]
    found: dict[str, object] = {}
    for kind in arguments.kinds or KINDS:
        figures = measure_kind(kind, rows, seconds)
        echoes.append(measure_echo([f"p{number:04d}" for number in range(rows)], seconds))
        share = _beside_echo(figures, echoes[-2:])
        found[kind] = {"answers": figures, "of the echo": share}
        print(kind, json.dumps(found[kind], indent=1), flush=True)
    if not arguments.kinds:
        write("serving", {"cores": os.cpu_count(), "rows": rows, "echo": echoes, **found}, show=False)


if __name__ == "__main__":
    main()

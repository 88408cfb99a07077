"""Our two-party PSI between two processes over localhost TCP, measured as benchmarks/peers/spu_ecdh.py measures SPU.

python -m benchmarks.psi_two_processes [--ids 1048576] [--sender-ids 1048576] [--protocols dh ot]

Timed in both processes, from when both are ready (modules imported, socket connected) to when both are done: reading
a one-column CSV with n identifiers, running the protocol, and writing a CSV with the common rows in the order that both
parties share. Not timed: making the CSVs, importing, connecting. What a protocol compiles at its first call is timed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import resource
import socket
import struct
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from securevfl_psi.identifiers import Identifiers

ROLES = ("receiver", "sender")
_PLAIN = pa_csv.WriteOptions(quoting_style="none")

Party = Callable[[str, socket.socket, Sequence[str]], Sequence[int] | np.ndarray | None]
"""What is measured: `party(role, sock, ids)` gets one of `ROLES`, a blocking TCP socket connected to the other party,
and this party's identifiers in the order of its rows. It returns its rows (indices into `ids`) in the intersection, in
an order that both parties share, or None where its role learns nothing. It must be importable by name, because the
processes are spawned."""

Line = Callable[[int], AbstractContextManager[int]]
"""From the port that the receiver listens at to the one that the sender dials."""


def run_two_processes(
    party: Party, n: int, timeout: float = 900.0, sender: int | None = None, line: Line | None = None
) -> dict[str, Any]:
    """`party` in both roles with `n` identifiers a side, half of them common; the sender has `sender`, if given.

    `line`: what stands between the two, made from the port that the receiver listens at; nothing unless given.

    Returns wall seconds (first start to last end), and by role: seconds, seconds by phase, CPU seconds of all threads,
    TCP payload bytes sent, MiB resident before the start and at the peak; then the size of the intersection and whether
    it is exact: the right identifiers, each once, in one order at both parties. Raises RuntimeError with the traceback
    of a party that failed, or after `timeout` seconds without a result.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_identifiers(folder / "receiver.csv", n, 0, seed=5)
        _write_identifiers(folder / "sender.csv", n if sender is None else sender, n // 2, seed=6)
        load = os.getloadavg()[0]  # what else runs here distorts wall time far more than CPU time
        measured = _run(party, folder, timeout, line or nullcontext)
        results = [_read_result(folder / f"{role}-common.csv") for role in ROLES]
    expected = sorted(f"user-{i}@example.com" for i in range(n // 2, min(n, n // 2 + (sender or n))))
    learned = [result for result in results if result is not None]
    exact = bool(learned) and all(sorted(result) == expected for result in learned)
    return {
        "n": n,
        **({} if sender is None else {"n of the sender": sender}),
        **measured,
        "microseconds an identifier": measured["seconds"] / n * 1e6,
        "both learn the result": len(learned) == len(ROLES),
        "intersection": len(learned[0]) if learned else 0,
        "exact": exact and all(result == learned[0] for result in learned),
        "load average before": load,
    }


def _run(party: Party, folder: Path, timeout: float, line: Line) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    ports = dict(zip(ROLES, (context.Queue(), context.Queue()), strict=True))
    processes = [
        context.Process(target=_process, args=(party, role, folder, ports[role], barrier, results), daemon=True)
        for role in ROLES
    ]
    for process in processes:
        process.start()
    figures: dict[str, dict[str, Any]] = {}
    try:
        with line(ports["receiver"].get(timeout=60)) as port:
            ports["sender"].put(port)
            for _ in processes:
                one = results.get(timeout=timeout)
                if "error" in one:
                    raise RuntimeError(f"{one['role']} failed:\n{one['error']}")
                figures[one.pop("role")] = one
            for process in processes:
                process.join(20)
    except queue.Empty:
        raise RuntimeError(f"no result after {timeout:.0f} s") from None
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
    # The monotonic clock is one for all processes of a machine.
    seconds = max(one["end"] for one in figures.values()) - min(one["start"] for one in figures.values())
    for one in figures.values():
        one["seconds"] = one.pop("end") - one.pop("start")
    return {"seconds": seconds, **{role: figures[role] for role in ROLES}}


def _process(party: Party, role: str, folder: Path, ports: Any, barrier: Any, results: Any) -> None:
    try:
        with _connect(role, ports) as sock:
            results.put({"role": role, **_measure(party, role, sock, folder, barrier)})
    except BaseException:
        results.put({"role": role, "error": traceback.format_exc()})
        raise


def _connect(role: str, ports: Any) -> socket.socket:
    if role == "receiver":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ports.put(listener.getsockname()[1])
            listener.settimeout(60)
            sock = listener.accept()[0]
    else:
        sock = socket.create_connection(("127.0.0.1", ports.get(timeout=60)), timeout=60)
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _measure(party: Party, role: str, sock: socket.socket, folder: Path, barrier: Any) -> dict[str, Any]:
    before = _status_mib("VmRSS")
    barrier.wait(60)
    cpu, start = time.process_time(), time.perf_counter()
    path = folder / f"{role}.csv"
    whole = pa_csv.ReadOptions(block_size=path.stat().st_size + 1)  # in one block, else Arrow holds the column twice
    column = pa_csv.read_csv(path, whole)["id"].combine_chunks()
    ids = _identifiers(column)
    read = time.perf_counter()
    rows = party(role, sock, ids)
    done = time.perf_counter()
    if rows is not None:
        # From a buffer: `pa.array` would import pandas where it is installed, a third of a CPU-second at each party.
        taken = column.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)]))
        pa_csv.write_csv(pa.table({"id": taken}), folder / f"{role}-common.csv", _PLAIN)
    end = time.perf_counter()
    cpu = time.process_time() - cpu
    sent, peak = _tcp_bytes_sent(sock), _status_mib("VmHWM")
    barrier.wait(60)  # neither closes its socket before the other has finished
    return {
        "start": start,
        "end": end,
        "seconds by phase": {"read": read - start, "protocol": done - read, "write": end - done},
        "CPU seconds": cpu,
        "bytes sent": sent,
        "MiB before": before,
        "peak MiB": peak,
    }


def _identifiers(column: pa.StringArray) -> Identifiers:
    """Arrow's column as ours, without a copy."""
    _, offsets, data = column.buffers()
    borders = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return Identifiers(np.frombuffer(data, dtype=np.uint8), borders[:-1], np.diff(borders).astype(np.int32))


def _tcp_bytes_sent(sock: socket.socket) -> int | None:
    """Payload bytes: tcpi_bytes_sent less tcpi_bytes_retrans of Linux's struct tcp_info; None elsewhere."""
    if not hasattr(socket, "TCP_INFO"):
        return None
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    if len(info) < 216:
        return None
    sent, again = struct.unpack_from("=QQ", info, 200)
    return int(sent - again)


def _status_mib(field: str) -> float:
    """MiB in a field of /proc/self/status: VmHWM, the peak of this program image, or VmRSS, what it holds now.

    `ru_maxrss` starts at the parent's peak in a process made by fork and exec, so it is only the fallback.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _write_identifiers(path: Path, n: int, first: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(n) + first
    path.write_text("id\n" + "".join(f"user-{i}@example.com\n" for i in order), encoding="ascii")


def _read_result(path: Path) -> list[str] | None:
    if not path.exists():
        return None
    return path.read_text(encoding="utf-8").splitlines()[1:]


def main() -> None:
    # Here, so that the spawned processes, which import this module, stay as small as the protocol is.
    from benchmarks.common import write
    from benchmarks.psi_party import run_party, run_transfer

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ids", type=int, default=1 << 20, help="identifiers a side, half of them common")
    parser.add_argument("--sender-ids", type=int, help="identifiers of the sender, if it has another number")
    parser.add_argument("--protocols", nargs="+", choices=("dh", "ot"), default=["dh", "ot"])
    options = parser.parse_args()
    parties = {"dh": run_party, "ot": run_transfer}
    write(
        "psi_two_processes",
        {name: run_two_processes(parties[name], options.ids, sender=options.sender_ids) for name in options.protocols},
    )


if __name__ == "__main__":
    main()

"""SecretFlow's SPU: two-party PSI between two processes over localhost TCP. Prints one line of JSON.

Run by the peers' interpreter (see benchmarks/peers-requirements.txt); imports nothing of this project:

    .venv-peers/bin/python benchmarks/peers/spu_ecdh.py 1048576 [--protocol ecdh]

Timed: `spu.psi.psi_execute` in both processes, from when both are ready (library loaded, link connected) to when both
are done. That call reads a one-column CSV with n identifiers, runs the protocol, and writes a CSV with the common
rows at both parties. Not timed: making the CSVs, importing SPU, connecting. Every run has a folder of its own,
because SPU keeps a `.meta` file beside each CSV and reuses it; its small traces (psi_*.trace) stay in /tmp. The two
sets must differ: SPU compares a digest of both inputs first, and skips the protocol where they are the same.

By default both parties get the result, in the same order (SPU sorts by key), and SPU is told that keys are unique,
its quicker way. Told so about a file with duplicates it does not notice: ECDH gives the two parties different numbers
of rows and RR22 fails; `--check-duplicates` is the sound setting for keys that nobody has checked.

ecdh is SPU's CURVE_25519, the default of its documentation; ecdh-elligator its CURVE_25519_ELLIGATOR2.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import multiprocessing
import os
import queue
import resource
import socket
import struct
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

PROTOCOLS = {
    "ecdh": ("PROTOCOL_ECDH", "CURVE_25519"),
    "ecdh-elligator": ("PROTOCOL_ECDH", "CURVE_25519_ELLIGATOR2"),
    "kkrt": ("PROTOCOL_KKRT", None),
    "rr22": ("PROTOCOL_RR22", None),
}
ROLES = ("receiver", "sender")  # by rank


def status_mib(field: str) -> float:
    """MiB in a field of /proc/self/status: VmHWM, the peak of this program image, or VmRSS, what it holds now.

    `ru_maxrss` starts at the parent's peak in a process made by fork and exec, so it is only the fallback.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def tcp_bytes_sent() -> int | None:
    """Payload bytes by all open TCP sockets of this process: bytes_sent less bytes_retrans of Linux's tcp_info."""
    total, found = 0, False
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []:
        with contextlib.suppress(OSError, struct.error), socket.socket(fileno=os.dup(int(name))) as sock:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            sent, again = struct.unpack_from("=QQ", info, 200)
            total += sent - again
            found = True
    return total if found else None


def cpu_seconds() -> float:
    """Of this process, all its threads, and the `sort` commands that it has run."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def party(rank: int, ports: list[int], folder: str, options: argparse.Namespace, barrier: Any, results: Any) -> None:
    os.dup2(2, 1)  # SPU logs to standard output, which is for the result
    try:
        results.put({"rank": rank, **execute(rank, ports, Path(folder), options, barrier)})
    except BaseException:
        results.put({"rank": rank, "error": traceback.format_exc()})
        raise


def execute(rank: int, ports: list[int], folder: Path, options: argparse.Namespace, barrier: Any) -> dict[str, Any]:
    from spu import libspu, psi

    description = libspu.link.Desc()
    for i, (port, seen) in enumerate(zip(ports, options.seen or ports, strict=True)):
        description.add_party(ROLES[i], f"127.0.0.1:{port if i == rank else seen}")
    link = libspu.link.create_brpc(description, rank)
    protocol, curve = PROTOCOLS[options.protocol]
    arguments: dict[str, Any] = {}
    if curve is not None:
        arguments["ecdh_params"] = psi.EcdhParams(curve=getattr(psi.EllipticCurveType, curve))
    config = psi.PsiExecuteConfig(
        protocol_conf=psi.PsiProtocolConfig(
            protocol=getattr(psi.PsiProtocol, protocol), receiver_rank=0, broadcast_result=True, **arguments
        ),
        input_params=psi.InputParams(
            path=str(folder / f"{ROLES[rank]}.csv"), selected_keys=["id"], keys_unique=not options.check_duplicates
        ),
        output_params=psi.OutputParams(
            path=str(folder / f"{ROLES[rank]}-common.csv"), disable_alignment=options.unaligned
        ),
    )
    before, sent = status_mib("VmRSS"), tcp_bytes_sent()
    barrier.wait(60)
    cpu, start = cpu_seconds(), time.perf_counter()
    report = psi.psi_execute(config, link)
    end = time.perf_counter()
    cpu = cpu_seconds() - cpu
    now = tcp_bytes_sent()
    peak = status_mib("VmHWM")
    barrier.wait(60)  # neither closes its link before the other has finished
    link.stop_link()
    return {
        "start": start,
        "end": end,
        "CPU seconds": cpu,
        "bytes sent": None if now is None or sent is None else now - sent,
        "MiB before": before,
        "peak MiB": peak,
        "reported": report.intersection_count,
    }


def write_identifiers(path: Path, n: int, first: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(n) + first
    path.write_text("id\n" + "".join(f"user-{i}@example.com\n" for i in order), encoding="ascii")


def read_identifiers(path: Path) -> list[str]:
    return [line.strip('"') for line in path.read_text(encoding="ascii").splitlines()[1:]]


def free_ports() -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in ROLES]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]


def run(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Both parties' figures; raises RuntimeError with the first party's traceback where one failed."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    ports = options.ports or free_ports()
    processes = [
        context.Process(target=party, args=(rank, ports, str(folder), options, barrier, results), daemon=True)
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    figures: list[dict[str, Any]] = [{}, {}]
    try:
        for _ in processes:
            one = results.get(timeout=options.timeout)
            if "error" in one:
                raise RuntimeError(one["error"])
            figures[one.pop("rank")] = one
        for process in processes:
            process.join(20)
    except queue.Empty:
        raise RuntimeError(f"no result after {options.timeout} s") from None
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
    seconds = max(one["end"] for one in figures) - min(one["start"] for one in figures)
    for one in figures:
        one["seconds"] = one.pop("end") - one.pop("start")
    return {"seconds": seconds, **dict(zip(ROLES, figures, strict=True))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("n", type=int, help="identifiers a side, half of them common")
    parser.add_argument("--protocol", choices=list(PROTOCOLS), default="ecdh")
    parser.add_argument("--check-duplicates", action="store_true", help="do not tell SPU that keys are unique")
    parser.add_argument("--unaligned", action="store_true", help="do not put the two results into the same order")
    parser.add_argument("--ports", nargs=2, type=int, help="where the two listen; free ones unless given")
    parser.add_argument("--seen", nargs=2, type=int, help="where each is reached by the other, if by a forwarder")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds")
    options = parser.parse_args()
    n: int = options.n
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["TMPDIR"] = name  # SPU's caches and traces
        write_identifiers(folder / "receiver.csv", n, 0, seed=5)
        write_identifiers(folder / "sender.csv", n, n // 2, seed=6)
        measured = run(folder, options)
        mine, other = (read_identifiers(folder / f"{role}-common.csv") for role in ROLES)
    expected = [f"user-{i}@example.com" for i in range(n // 2, n)]
    exact = sorted(mine) == sorted(expected) and sorted(other) == sorted(expected)
    figures = {
        "peer": "SecretFlow SPU",
        "version": importlib.metadata.version("spu"),
        "protocol": " ".join(part for part in PROTOCOLS[options.protocol] if part),
        "n": n,
        **measured,
        "reads CSV inside": True,
        "writes CSV inside": True,
        "both learn the result": True,
        "keys declared unique": not options.check_duplicates,
        "same order at both": mine == other,
        "intersection": len(mine),
        "exact": exact and (options.unaligned or mine == other),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

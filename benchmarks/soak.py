"""Ten parties on one machine; and a long training between processes: memory, descriptors and files over its steps.

    python -m benchmarks.soak [--quick] [--minutes 20] [--step 0.5]

Ten parties, each with a process and a gate, train over TLS on loopback and are compared with the simulation. Then two
parties train on small batches for as long as is asked, and memory (resident set) and descriptors of both programs and
both gates are read every few seconds. What a job of 72 hours takes is counted in steps of `--step` seconds, as a sealed
step over a long line takes: the benchmark says how many of those steps it did, and how much memory grew in the second
half of them, when caches are full. Ledgers grow by what is written: bytes a step are told.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import securevfl as sv
from benchmarks.common import write
from benchmarks.parties import compare, through_processes
from securevfl.party_context import PartySecret
from securevfl.testing.company import Company, found
from securevfl.testing.parties import parties

_LOOK = 2.0


def ten(folder: Path) -> dict[str, Any]:
    """Ten parties train; what differed from the simulation."""
    job = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=8), epochs=2, batch_size=64, seed=3)
    company = found(folder, parties(passive=9, rows=600, width=3), job)
    secrets = {name: PartySecret.derived(7, name) for name in company.people}
    company.keep(secrets)
    begin = time.perf_counter()
    codes = through_processes(company)
    seconds = time.perf_counter() - begin
    if any(codes.values()):
        raise SystemExit(f"ten parties: {codes}")
    different = compare(company, job, secrets)
    return {"parties": len(codes), "seconds": round(seconds, 1), "different from the simulation": different}


def _children(process: int) -> list[int]:
    path = Path(f"/proc/{process}/task/{process}/children")
    return [int(text) for text in path.read_text().split()]


def _look(process: int) -> tuple[int, int]:
    """Resident bytes, and open descriptors."""
    status = Path(f"/proc/{process}/status").read_text()
    resident = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))
    return resident, len(list(Path(f"/proc/{process}/fd").iterdir()))


def _steps(company: Company, name: str) -> int:
    """Batches that a party has trained, by its ledger: one message forward for each."""
    with (company.state(name) / "ledgers" / f"{name}.jsonl").open("rb") as file:
        return sum(b'"way":"sent"' in line and b'"what":"cut/forward"' in line for line in file)


def long(folder: Path, minutes: float, step: float) -> dict[str, Any]:
    """Train until the time is over; what grew."""
    job = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4, top=()), epochs=100_000, batch_size=8, seed=3)
    company = found(folder, parties(passive=1, rows=2000, width=2), job, attempts=5)
    processes = {
        name: subprocess.Popen(company.command(name), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for name in company.names
    }
    looks: dict[str, list[tuple[int, int]]] = {}
    ledger = company.state("shop1") / "ledgers" / "shop1.jsonl"
    sizes: list[int] = []
    try:
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            time.sleep(_LOOK)
            if any(process.poll() is not None for process in processes.values()):
                raise SystemExit(f"a party ended: { {n: p.returncode for n, p in processes.items()} }")
            if not ledger.exists():
                end += _LOOK  # they load libraries and align
                continue
            sizes.append(ledger.stat().st_size)
            for name, process in processes.items():
                for kind, number in zip(("program", "gate"), [process.pid, *_children(process.pid)], strict=False):
                    looks.setdefault(f"{name}'s {kind}", []).append(_look(number))
    finally:
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        codes = {}
        for name, process in processes.items():
            try:
                codes[name] = process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[name] = process.wait()
    steps = _steps(company, "shop1")
    figures: dict[str, Any] = {
        "steps": steps,
        "hours of a job with a step of so many seconds": [round(steps * step / 3600, 1), step],
        "ledger bytes a step": round(sizes[-1] / max(steps, 1)),
        "exit codes after SIGTERM": codes,
    }
    for what, every in looks.items():
        half = [one for one, _ in every[len(every) // 2 :]]
        third = max(1, len(half) // 3)
        grew = statistics.mean(half[-third:]) - statistics.mean(half[:third])
        figures[what] = {
            "MiB at the end": round(half[-1] / (1 << 20), 1),
            "MiB grown in the second half": round(grew / (1 << 20), 2),
            "descriptors [least, most] in the second half": [
                min(d for _, d in every[len(every) // 2 :]),
                max(d for _, d in every[len(every) // 2 :]),
            ],
        }
    return figures


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a minute, and no ten parties")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--step", type=float, default=0.5, help="seconds of a step in the job that is stood for")
    options = parser.parse_args()
    torch.set_num_threads(1)
    place = Path(tempfile.mkdtemp())
    try:
        figures: dict[str, Any] = {} if options.quick else {"ten": ten(place / "ten")}
        figures["long"] = long(place / "long", 0.5 if options.quick else options.minutes, options.step)
        write("soak", figures)
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()

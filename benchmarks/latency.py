"""Seconds of an epoch between processes over lines of given length and width, and what `auto` chooses on them.

    python -m benchmarks.latency [--quick] [--rows 4000] [--epochs 3]

Two parties train SplitNN, each a process with its own files and gate, over TLS through a line that delays each byte and
limits the rate each way (`benchmarks.shaping`). *Latency* is the round trip: half of it each way. The first epoch is
left out: connections and caches warm up in it. A step needs some round trips, so that latency, and not bytes, decides
what a plain epoch takes over a long line.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

import securevfl as sv
from benchmarks.common import write
from benchmarks.parties import through_processes
from benchmarks.shaping import shaped
from securevfl.report import Record
from securevfl.testing.company import create_company
from securevfl.testing.parties import make_parties

LINES = ((0.0, 0.0), (20.0, 100.0), (80.0, 100.0), (20.0, 20.0), (20.0, 5.0))
"""Round trip in milliseconds, and 10^6 bits a second; 0 for none and no limit."""
PROTECTIONS: dict[str, sv.Plain | sv.BFV | sv.CKKS | sv.Paillier | sv.Auto] = {
    "plain": sv.Plain(),
    "bfv": sv.BFV(),
    "ckks": sv.CKKS(),
    "paillier": sv.Paillier(),
    "auto": sv.Auto(),
}


def one(folder: Path, protection: str, line: tuple[float, float], rows: int, epochs: int) -> dict[str, Any]:
    """Train over one line; what an epoch took and what crossed."""
    job = sv.Job(
        algorithm=sv.SplitNN(hidden=16), protection=PROTECTIONS[protection], epochs=epochs, batch_size=256, seed=3
    )
    company = create_company(folder, make_parties(passive=1, rows=rows, width=8), job)
    latency, megabits = line
    bank, shop = company.folder / "bank.toml", company.folder / "shop1.toml"
    port = next(text for text in bank.read_text().splitlines() if text.startswith("listen ="))
    number = int(port.rpartition(":")[2].strip('"'))
    with ExitStack() as held:
        if latency or megabits:
            through = held.enter_context(shaped(number, delay_ms=latency / 2, megabits=megabits))
            shop.write_text(shop.read_text().replace(f"127.0.0.1:{number}", f"127.0.0.1:{through}"))
        codes = through_processes(company)
    if any(codes.values()):
        said = "\n".join((company.folder / f"{name}.output").read_text()[-1500:] for name in company.names)
        raise SystemExit(f"{protection} over {line}: {codes}\n{said}")
    run = Record.read(company.state_folder("bank") / "report" / "metrics.json").runs[0]
    later = run.epochs[1:]
    return {
        "protection": protection,
        "round trip ms": latency,
        "megabits a second": megabits,
        "seconds of an epoch": round(statistics.median(e.seconds for e in later), 3),
        "steps": -(-run.rows_trained // 256),
        "bytes sent by the active party in an epoch": sum(later[-1].bytes.values()),
        "says": [note for note in run.notes if "auto" in note],
    }


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="plain alone, one line")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines, protections = (LINES[1:2], ["plain"]) if options.quick else (LINES, list(PROTECTIONS))
    found_: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        for line in lines:
            for protection in protections:
                folder = Path(place) / f"{protection}-{line[0]:g}-{line[1]:g}"
                found_.append(one(folder, protection, line, options.rows, options.epochs))
                print(found_[-1], flush=True)
    write("latency", {"rows": options.rows, "batch": 256, "runs": found_})


if __name__ == "__main__":
    main()

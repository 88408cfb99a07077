"""Seconds of an epoch on shares and under encrypted cuts, between processes over lines of given length.

    python -m benchmarks.shares_latency [--quick] [--rows 5700] [--epochs 3]

The three parties of the credit table train the same SplitNN, each a process with its own files and gate, over TLS. Each
of the three connections goes through a line that delays every byte and limits the rate each way (`benchmarks.shaping`).
*Latency* is the round trip: half of it each way. On shares the three parties are the computing ones, too. The first
epoch is left out. What an epoch takes on shares is, but for computing, its rounds times the way of one message, so that
from some latency on an encrypted cut is faster. Seconds are those of the shortest epoch where two protections are
compared: on a busy machine it is the one least disturbed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
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
from securevfl.report import Record, RunRecord
from securevfl.testing.company import Company, create_company

LATENCIES = (0.2, 20.0, 80.0)
"""Round trips in milliseconds."""
MEGABITS = 1000.0
"""10^6 bits a second each way."""
PROTECTIONS: dict[str, sv.Shares | sv.CKKS | sv.BFV] = {"shares": sv.Shares(), "ckks": sv.CKKS(), "bfv": sv.BFV()}
_DIAL = re.compile(r'dial = "127\.0\.0\.1:(\d+)"')


def through_lines(company: Company, held: ExitStack, latency: float, megabits: float = MEGABITS) -> None:
    """Put a line of its own between each two parties."""
    for name in company.names:
        file = company.folder / f"{name}.toml"

        def longer(dialled: re.Match[str]) -> str:
            port = held.enter_context(shaped(int(dialled[1]), delay_ms=latency / 2, megabits=megabits))
            return f'dial = "127.0.0.1:{port}"'

        file.write_text(_DIAL.sub(longer, file.read_text()))


def train_over_lines(
    folder: Path, people: sv.Parties, job: sv.Job, latency: float, megabits: float = MEGABITS
) -> tuple[Company, dict[str, RunRecord]]:
    """Train a job, each party a process, over lines of one round trip; the parties' folders, and what each reports."""
    company = create_company(folder, people, job)
    with ExitStack() as held:
        through_lines(company, held, latency, megabits)
        codes = through_processes(company)
    if any(codes.values()):
        said = "\n".join((company.folder / f"{name}.output").read_text()[-1500:] for name in company.names)
        raise SystemExit(f"{job.protection.name} over {latency} ms: {codes}\n{said}")
    return company, {
        name: Record.read(company.state_folder(name) / "report" / "metrics.json").runs[0] for name in company.names
    }


def one(folder: Path, protection: str, latency: float, rows: int, epochs: int) -> dict[str, Any]:
    """Train over lines of one length; what an epoch took and what crossed."""
    job = sv.Job(
        algorithm=sv.SplitNN(hidden=16, top=(16,)),
        protection=PROTECTIONS[protection],
        epochs=epochs,
        batch_size=256,
        seed=3,
    )
    load = os.getloadavg()[0]
    people = sv.datasets.default_credit(overlap=0.85, seed=0, rows=rows)
    _, runs = train_over_lines(folder, people, job, latency)
    own = runs["bank"]
    later = [e.seconds for e in own.epochs[1:]]
    return {
        "protection": protection,
        "round trip ms": latency,
        "seconds of an epoch": round(statistics.median(later), 3),
        "shortest": round(min(later), 3),
        "steps": -(-own.rows_trained // 256),
        "bytes sent by a party in an epoch": {name: sum(run.epochs[-1].bytes.values()) for name, run in runs.items()},
        "rounds a step": [float(n) for note in own.notes for n in re.findall(r"([\d.]+) rounds a step", note)],
        "load before": round(load, 1),
        "auc": round(own.test["auc"], 4),
    }


def overtakes(runs: list[dict[str, Any]], other: str) -> str:
    """Between which round trips an epoch under `other` becomes shorter than one on shares, and where straight lines
    between these figures cross."""
    ours, theirs = (
        {run["round trip ms"]: run["shortest"] for run in runs if run["protection"] == protection}
        for protection in ("shares", other)
    )
    measured = sorted(ours)
    slower = [ours[ms] - theirs[ms] for ms in measured]
    if slower[0] >= 0:
        return f"at {measured[0]:g} ms already"
    for i, (before, after) in enumerate(itertools.pairwise(slower)):
        if after >= 0:
            low, high = measured[i : i + 2]
            cross = low + (high - low) * -before / (after - before)
            return f"between {low:g} and {high:g} ms, on a straight line at {cross:.0f} ms"
    return f"not up to {measured[-1]:g} ms"


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shares alone, one length")
    parser.add_argument("--rows", type=int, default=5700)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    latencies, protections = (LATENCIES[1:2], ["shares"]) if options.quick else (LATENCIES, list(PROTECTIONS))
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        for latency in latencies:
            for protection in protections:
                folder = Path(place) / f"{protection}-{latency:g}"
                runs.append(one(folder, protection, latency, options.rows, options.epochs))
                print(runs[-1], flush=True)
    figures: dict[str, Any] = {"rows": options.rows, "batch": 256, "megabits a second": MEGABITS, "runs": runs}
    if not options.quick:
        figures["encryption overtakes"] = {name: overtakes(runs, name) for name in ("ckks", "bfv")}
        write("shares_latency", figures)


if __name__ == "__main__":
    main()

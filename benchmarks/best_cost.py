"""What Best costs beside its methods: messages, bytes and processor seconds, counted in whole jobs.

    python -m benchmarks.best_cost [--quick]

The data sets, overlaps and sizes of `benchmarks.best_members`, seed 100. A job's links count every message and byte of
training, validation and the test rows, each direction separately. A cell takes about ten seconds on an idle core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any

import securevfl as sv
from benchmarks.best_members import OVERLAPS, SETS, SIZES
from benchmarks.common import data, write
from securevfl.report.derived import bytes_each_way

SEED = 100
METHODS: Mapping[str, sv.SplitNN] = {
    "local": sv.Local(**SIZES),
    "laser": sv.LaserVFL(**SIZES),
    "residual": sv.ResidualAtTheCut(**SIZES),
    "best": sv.Best(**SIZES),
}


def count(people: sv.Parties, algorithm: sv.SplitNN, terms: Mapping[str, Any], *, epochs: int = 10) -> dict[str, float]:
    """Messages and bytes that the active party and the passive parties sent in one job, and its processor seconds."""
    job = sv.Job(
        algorithm=algorithm,
        protection=sv.Plain(),
        **{"epochs": epochs, "steps": 25, "batch_size": 96, "seed": SEED, "keep": "auto"} | dict(terms),
    )
    begun = time.process_time()
    record = sv.simulate(job, people).record
    seconds, run = time.process_time() - begun, record.runs[-1]
    active, passive = bytes_each_way(record, run)
    return {
        "messages": sum(link.messages for link in run.links),
        "bytes, active": active,
        "bytes, passive": passive,
        "seconds": seconds,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="one place, one epoch, nothing written")
    quick, cells = options.parse_args().quick, []
    for name, (load, given, terms) in SETS.items():
        for overlap in OVERLAPS[-1:] if quick else OVERLAPS:
            people = data(lambda: load(overlap=overlap, seed=SEED, validation="overlap", **given), name)  # noqa: B023
            if people is None:
                continue
            counts = {method: count(people, one, terms, epochs=1 if quick else 10) for method, one in METHODS.items()}
            cells.append({"data": name, "overlap": overlap, "seed": SEED, "methods": counts})
        if quick:
            break
    if not quick:
        write("best_cost", {"cells": cells}, show=False)


if __name__ == "__main__":
    main()

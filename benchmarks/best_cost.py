"""What Best costs beside its methods and beside trees: messages, bytes and processor seconds, counted in whole jobs.

    python -m benchmarks.best_cost [--quick] [--afresh]

The data sets, overlaps and sizes of `benchmarks.best_members`, seed 100. A job's links count every message and byte of
training, validation and the test rows, each direction separately. A network takes about ten seconds on an idle core.
Trees are counted on the credit table alone. Counts that are there are kept, unless all are asked for afresh.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any

import securevfl as sv
from benchmarks.best_members import OVERLAPS, SETS, SIZES
from benchmarks.common import before, data, write
from securevfl.report.derived import bytes_each_way

SEED = 100
TREES: Mapping[str, Any] = {"depth": 3, "bins": 16}
OWN: Mapping[str, Any] = {"own_trees": 50, "own_depth": 3}
METHODS: Mapping[str, sv.Algorithm] = {
    "local": sv.Local(**SIZES),
    "laser": sv.LaserVFL(**SIZES),
    "residual": sv.ResidualAtTheCut(**SIZES),
    "best": sv.Best(**SIZES),
    "boosted_residual": sv.BoostedResidual(**TREES, **OWN, lr=0.1, corrects_by="partners"),
    "hybrid_tree": sv.HybridTree(bins=16, lr=0.1),
    "best_with_trees": sv.BestWithTrees(**SIZES, **TREES, **OWN, rounds=50),
}
"""With the settings of examples/experiments/few-rows.toml."""
GROWN = ("boosted_residual", "hybrid_tree", "best_with_trees")
"""Methods that grow trees."""
TABLE = "Default of credit, 2 parties"
"""Where they are counted."""
ROUNDS: Mapping[str, Any] = {"epochs": 50, "valid_every": 5}
"""Of the methods that grow trees alone."""


def count(
    people: sv.Parties, algorithm: sv.Algorithm, terms: Mapping[str, Any], *, epochs: int = 10
) -> dict[str, float]:
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
    options.add_argument("--afresh", action="store_true", help="count what is there again")
    asked = options.parse_args()
    quick, cells = asked.quick, []
    stored: Any = {} if quick or asked.afresh else before("best_cost")
    kept = {(one["data"], one["overlap"]): one["methods"] for one in stored.get("cells", [])}
    for name, (load, given, terms) in SETS.items():
        for overlap in OVERLAPS[-1:] if quick else OVERLAPS:
            people = data(lambda: load(overlap=overlap, seed=SEED, validation="overlap", **given), name)  # noqa: B023
            if people is None:
                continue
            counts = dict(kept.get((name, overlap), {}))
            wanted = [method for method in METHODS if name == TABLE or method not in GROWN]
            for method in wanted:
                if method in counts:
                    continue
                grown = ROUNDS if not quick and method in GROWN[:2] else {}
                counts[method] = count(people, METHODS[method], {**terms, **grown}, epochs=1 if quick else 10)
            counts = {method: counts[method] for method in wanted}
            cells.append({"data": name, "overlap": overlap, "seed": SEED, "methods": counts})
        if quick:
            break
    if not quick:
        write("best_cost", {"cells": cells}, show=False)


if __name__ == "__main__":
    main()

"""Boosted trees for few common rows: the active party alone, common rows alone, and the own model with its correction.

    python -m benchmarks.few_trees [--quick] [--seeds 3] [--overlaps 0.05 0.2] [--shares]

Default of credit card clients, three parties, who share so many clients. `own` is the own model alone, trained by the
bank on all of its labelled rows; `boosting` grows trees over all columns of the common rows; `boosted_residual` begins
at the own model. AUC of the test rows, all of which are common. Cells stay in the JSON file, by overlap and seed.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import securevfl as sv
from benchmarks.common import before, data, write
from securevfl.training import Algorithm

ROUNDS = 50
TREES: dict[str, Any] = {"depth": 3, "bins": 16, "lr": 0.1, "min_hessian": 1.0}
OWN: dict[str, Any] = {"own_trees": 60, "own_depth": 4}


def measure(people: sv.Parties, algorithm: Algorithm, seed: int, protection: Any, rounds: int) -> dict[str, float]:
    """AUC of one job's test rows, of the active party alone where the model has such scores, and its seconds."""
    job = sv.Job(algorithm=algorithm, protection=protection, epochs=rounds, seed=seed, valid_every=5)
    start = time.perf_counter()
    run = sv.simulate(job, people).record.runs[-1]
    found = {"auc": run.test["auc"], "seconds": time.perf_counter() - start}
    return found | ({"own": run.alone["auc"]} if run.alone else {})


def cell(overlap: float, seed: int, *, rows: int | None, rounds: int, shares: bool) -> dict[str, Any] | None:
    """All methods on one partition."""
    people = data(lambda: sv.datasets.default_credit(overlap=overlap, seed=seed, rows=rows, shared=True), "credit")
    if people is None:
        return None
    protection = sv.Shares(few_rows=True) if shares else sv.Plain()
    corrected = measure(people, sv.BoostedResidual(**TREES, **OWN), seed, protection, rounds)
    plain = measure(people, sv.Boosting(**TREES), seed, protection, rounds)
    common = len(set.intersection(*(set(table.ids) for table in people.values())))
    return {
        "common": common,
        "own": corrected["own"],
        "boosting": plain["auc"],
        "boosted_residual": corrected["auc"],
        "seconds": {"boosting": plain["seconds"], "boosted_residual": corrected["seconds"]},
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="1,500 clients and 5 rounds")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--overlaps", type=float, nargs="+", default=[0.05, 0.2])
    options.add_argument("--shares", action="store_true", help="train on secret shares, with few_rows")
    given = options.parse_args()
    rows, rounds = (1500, 5) if given.quick else (None, ROUNDS)
    overlaps, seeds = ([0.5], 1) if given.quick else (given.overlaps, given.seeds)
    figures, part = ({} if given.quick else before("few_trees")), "shares" if given.shares else "plain"
    cells: dict[str, Any] = dict(figures.get(part, {}))  # type: ignore[call-overload]
    for overlap in overlaps:
        for seed in range(seeds):
            found = cell(overlap, seed, rows=rows, rounds=rounds, shares=given.shares)
            if found is not None:
                cells[f"{overlap:g}, seed {seed}"] = found
                print(overlap, seed, found, flush=True)
    if not given.quick:
        write("few_trees", figures | {part: cells})


if __name__ == "__main__":
    main()

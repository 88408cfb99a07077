"""Trees for few common rows, on both sides of the credit table, beside networks and HybridTree.

    python -m benchmarks.few_trees [--quick] [--seeds 0 1 2 3 4] [--overlaps 0.01 0.05 0.2] [--only best_with_trees …]

Default of credit card clients, two parties, 21,000 training clients of whom a share is common; validation inside the
overlap; 6,000 test clients, scored with all columns and by the bank alone. *Weak*: the bank has the five columns of a
client's person and limit, as in `few-rows`. *Strong*: it has the eighteen columns of payments, and its partner the
five.

- `own trees`: boosting over the bank's columns, on all of its labelled rows.
- `boosting`: trees over all columns of the common rows.
- `boosted_residual`: from the own trees' margins on; by all columns, and by the partner's alone.
- `hybrid_tree`: HybridTree (arXiv 2310.11865).
- `best_with_trees`: the networks of `best` and boosted trees. Its members also give the figures of `best`, of the four
  trees averaged, and of other ways to combine them.

Figures are AUC. Seconds are of the processor, bytes those at the links. Cells stay in the JSON file and are skipped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

import securevfl as sv
from benchmarks.common import RESULTS, data, write
from securevfl.algorithms.best_roles import BestProgram, method_of
from securevfl.algorithms.best_with_trees_roles import TreesWeighting
from securevfl.data import datasets
from securevfl.data.overlap import hold_out, limited_overlap
from securevfl.report.derived import bytes_each_way
from securevfl.training import Algorithm
from securevfl.training.pooling import add_log_odds
from securevfl.training.task import Task

SIDES = ("weak", "strong")
OVERLAPS = (0.01, 0.05, 0.2)
TEST, VALID = 0.2, 0.1
ROUNDS, OWN = 50, 60
TREES: dict[str, Any] = {"depth": 3, "bins": 32, "lr": 0.1}
NETWORKS: dict[str, Any] = {"bottom": (64,), "hidden": 64, "top": (64,), "lr": 3e-3, "cut_lr": 0.1}
JOB: dict[str, Any] = {"keep": "auto", "valid_every": 5}


def credit(side: str, overlap: float, seed: int, rows: int | None = None) -> sv.Parties:
    """The two parties: a bank with the weak columns, or with the strong ones."""
    table = datasets._credit_table(seed, rows)
    own, *others = datasets._CREDIT_COLUMNS.values()
    weak, strong = own, tuple(name for columns in others for name in columns)
    columns = {"bank": weak, "network": strong} if side == "weak" else {"bank": strong, "network": weak}
    fold = hold_out(table.rows, valid=VALID, test=TEST, seed=seed)
    return limited_overlap(table, columns, fold, overlap=overlap, seed=seed, validation="overlap")


def method(name: str, *, quick: bool) -> tuple[Algorithm, dict[str, Any]]:
    """The algorithm of a method and its job's settings."""
    rounds, own = (3, 3) if quick else (ROUNDS, OWN)
    residual = {**TREES, "own_trees": own, "own_depth": 4}
    grown = {**JOB, "epochs": rounds}
    if name == "boosting":
        return sv.Boosting(**TREES), grown
    if name == "boosted_residual":
        return sv.BoostedResidual(**residual), grown
    if name == "boosted_residual, partner":
        return sv.BoostedResidual(**residual, corrects_by="partners"), grown
    if name == "hybrid_tree":
        return sv.HybridTree(lr=0.1, bins=32), grown
    trees = {"rounds": rounds, "own_trees": own, "bins": 32, "folds": 2 if quick else 4}
    epochs = {"epochs": 1 if quick else 10, "steps": 25, "batch_size": 96, "scale": "quantile"}
    return sv.BestWithTrees(**NETWORKS, **trees), {**JOB, **epochs}


METHODS = ("boosting", "boosted_residual", "boosted_residual, partner", "hybrid_tree", "best_with_trees")


@contextmanager
def members_heard() -> Iterator[tuple[dict[str, Any], dict[str, dict[str, float]]]]:
    """What runs inside weigh, and what each kind of member costs at the parties."""
    heard: dict[str, Any] = {}
    costs: dict[str, dict[str, float]] = {}
    weigh, add = TreesWeighting.write_to, BestProgram.add_readings

    def weighed(self: TreesWeighting, trained: Any, epochs: int) -> dict[str, float]:
        found = weigh(self, trained, epochs)
        heard.update(opinions=self.opinions, y=self.y, test=self.table.split.test, weights=dict(found))
        return found

    def added(self: BestProgram, trained: Any, done: Any) -> None:
        add(self, trained, done)
        site = self.setting.site
        side = "bytes, active" if site.name == site.active else "bytes, passive"
        for one in done:
            kind = "trees" if method_of(one.name) == "boosted_residual" else "best"
            here = costs.setdefault(kind, {"bytes, active": 0, "bytes, passive": 0, "seconds": 0.0})
            for reading in one.readings:
                here[side] += sum(reading.sent.values())
                here["seconds"] += reading.compute + reading.he

    with mock.patch.object(TreesWeighting, "write_to", weighed), mock.patch.object(BestProgram, "add_readings", added):
        yield heard, costs


def combinations(heard: Mapping[str, Any]) -> dict[str, float]:
    """AUC of the test rows by each opinion, and by other ways to combine them."""
    _, tested = heard["opinions"]["pool"]
    _, alone = heard["opinions"]["pool alone"]
    best, trees, own = tested
    ways = {
        "best": best,
        "trees, four": trees,
        "own trees, four": own,
        "mean of best and trees": (best + trees) / 2,
        "mean of all three": np.mean(tested, axis=0),
        "log-odds with equal weights": add_log_odds(tested, [1 / 3] * 3),
        "best, alone": alone[0],
    }
    labels, task = heard["y"][heard["test"]], Task(2)
    return {name: task.compute_metrics(scores, labels)["auc"] for name, scores in ways.items()}


def measure(people: sv.Parties, name: str, seed: int, *, quick: bool) -> dict[str, Any]:
    """AUC with all columns and alone, and the cost, of one job; of all that its members give."""
    algorithm, terms = method(name, quick=quick)
    begun = time.process_time()
    with members_heard() as (heard, costs):
        record = sv.simulate(sv.Job(algorithm=algorithm, protection=sv.Plain(), seed=seed, **terms), people).record
    run = record.runs[-1]
    active, passive = bytes_each_way(record, run)
    found: dict[str, Any] = {"auc": run.test["auc"], "seconds": time.process_time() - begun}
    found |= {"bytes, active": active, "bytes, passive": passive, "messages": sum(one.messages for one in run.links)}
    found |= {"alone": run.alone["auc"]} if run.alone else {}
    if heard:
        found |= {"ways": combinations(heard), "weights": heard["weights"], "members": costs}
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="one partition of 1,500 clients and 3 rounds")
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    options.add_argument("--overlaps", type=float, nargs="+", default=list(OVERLAPS))
    options.add_argument("--only", nargs="+", default=list(METHODS), choices=METHODS)
    given = options.parse_args()
    file = RESULTS / "few_trees.json"
    cells: list[dict[str, Any]] = [] if given.quick or not file.exists() else json.loads(file.read_text())["cells"]
    for seed in [0] if given.quick else given.seeds:
        for side in SIDES[:1] if given.quick else SIDES:
            for overlap in [0.2] if given.quick else given.overlaps:
                people = data(lambda: credit(side, overlap, seed, 1500 if given.quick else None), "credit")  # noqa: B023
                if people is None:
                    continue
                for name in given.only:
                    where = {"side": side, "overlap": overlap, "seed": seed, "method": name}
                    if any(where.items() <= cell.items() for cell in cells):
                        continue
                    cells.append(where | measure(people, name, seed, quick=given.quick))
                    print(where, f"{cells[-1]['auc']:.4f}", flush=True)
                    if not given.quick:
                        write("few_trees", {"cells": cells}, show=False)


if __name__ == "__main__":
    main()

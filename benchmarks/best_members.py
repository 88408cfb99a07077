"""Best's members, trained once, and every way to average them: how its pull was chosen, and what each part does.

    python -m benchmarks.best_members [--seeds 100 101] [--quick]

Members are whole trainings that do not depend on each other, so one run of Best gives the figures of all variants:
one model of a method, its four models averaged, equal weights, weights with another pull, fewer methods. Partitions and
seeds are others than those of the experiments' tables, so that no choice was made on rows that these are tested on.

MNIST halves, Handwritten (two views) and the default of credit at 1, 5 and 20 % overlap, 250 steps of 96 rows, no
validation rows beside the overlap. A cell takes about ten seconds on an idle core. Cells stay in the JSON file and are
skipped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.common import RESULTS, data, write
from securevfl.algorithms import best_roles
from securevfl.algorithms.best import Best
from securevfl.cut import Plain
from securevfl.data import Parties, datasets
from securevfl.party import Job
from securevfl.run.simulation import join_parties, run_parties
from securevfl.training import FEWEST_TO_CHOOSE
from securevfl.training.pooling import average_probabilities, fit_stacking_weights, log_loss
from securevfl.training.task import Task

SETS: Mapping[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "MNIST halves": (datasets.mnist, {"rows": 4000, "test_rows": 2000}, {}),
    "Handwritten, 2 views": (datasets.handwritten, {"parties": 2}, {}),
    "Default of credit, 2 parties": (datasets.limited_credit, {"parties": 2}, {"scale": "quantile"}),
}
OVERLAPS = (0.01, 0.05, 0.2)
PULLS = (0.0, 1.0, 3.0, 10.0, 30.0)
METHODS = ("laser", "residual", "local")
SIZES: dict[str, Any] = {"bottom": (64,), "hidden": 64, "top": (64,), "lr": 3e-3, "cut_lr": 0.1}


def cell(people: Parties, seed: int, terms: Mapping[str, Any], *, epochs: int = 10) -> dict[str, Any]:
    """Train the members on one partition; the score of each variant on the test rows."""
    job = Job(
        algorithm=Best(methods=METHODS, **SIZES),
        protection=Plain(),
        **{"epochs": epochs, "steps": 25, "batch_size": 96, "seed": seed, "keep": "auto"} | dict(terms),
    )
    kept: dict[str, Any] = {}
    onto = best_roles.MemberWeighting.write_to

    def heard(self: Any, trained: Any, count: int) -> dict[str, float]:
        rows = self.unseen_probabilities(METHODS[0])[0]
        kept.update(
            unseen={name: self.unseen_probabilities(name)[1] for name in METHODS},
            labels=self.y[rows],
            scores={name: np.stack([one.scores for one in self.of_method(name)]) for name in METHODS},
            alone={name: np.stack([one.alone_scores for one in self.of_method(name)]) for name in METHODS},
            tested=self.y[self.table.split.test],
        )
        return onto(self, trained, count)

    begun = time.process_time()
    with mock.patch.object(best_roles.MemberWeighting, "write_to", heard):
        run_parties(job, people, join_parties(people, job), run="members")
    return scored(**kept) | {"seconds": time.process_time() - begun}


def scored(
    unseen: Mapping[str, np.ndarray],
    labels: np.ndarray,
    scores: Mapping[str, np.ndarray],
    alone: Mapping[str, np.ndarray],
    tested: np.ndarray,
) -> dict[str, Any]:
    """The score of each variant.

    Args:
        unseen: method → probabilities of rows by members that did not see them.
        labels: classes of these rows.
        scores: method → probabilities of the test rows by each member.
        alone: likewise, without the passive party.
        tested: classes of the test rows.
    """
    task = Task(next(iter(scores.values())).shape[-1])
    bagged = {name: members.mean(axis=0) for name, members in scores.items()}
    variants = {f"{name}, one model": members[0] for name, members in scores.items()}
    variants |= {f"{name}, bagged": mean for name, mean in bagged.items()}
    variants["equal weights"] = np.mean(list(bagged.values()), axis=0)
    variants["laser and local, equal weights"] = (bagged["laser"] + bagged["local"]) / 2
    variants["laser and residual, equal weights"] = (bagged["laser"] + bagged["residual"]) / 2
    few = len(labels) < FEWEST_TO_CHOOSE
    losses = [log_loss(unseen[name], labels) for name in METHODS]
    variants["the method with the smallest loss"] = (
        variants["equal weights"] if few else bagged[METHODS[int(np.argmin(losses))]]
    )
    for pull in PULLS:
        weights = [1 / len(METHODS)] * len(METHODS)
        if not few:
            weights = fit_stacking_weights([unseen[name] for name in METHODS], labels, pull=pull).tolist()
        variants[f"pull {pull:g}"] = average_probabilities([bagged[name] for name in METHODS], weights)
    variants["alone: local, one model"] = alone["local"][0]
    variants["alone: local, bagged"] = alone["local"].mean(axis=0)
    variants["alone: best"] = (alone["laser"].mean(axis=0) + alone["local"].mean(axis=0)) / 2
    return {
        "rows": len(labels),
        "losses": dict(zip(METHODS, losses, strict=True)),
        "scores": {name: task.compute_metrics(p, tested)[task.score_name] for name, p in variants.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102, 103, 104])
    parser.add_argument("--quick", action="store_true", help="one cell, one epoch")
    args = parser.parse_args()
    if args.quick:
        people = data(
            lambda: datasets.handwritten(overlap=0.05, seed=100, parties=2, validation="overlap"), "Handwritten"
        )
        if people is not None:
            print(json.dumps(cell(people, 100, {}, epochs=1), indent=2))
        return
    file = RESULTS / "best_members.json"
    cells: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["cells"] if file.exists() else []
    for seed in args.seeds:
        for name, (load, options, terms) in SETS.items():
            for overlap in OVERLAPS:
                where = {"data": name, "overlap": overlap, "seed": seed}
                if any(where.items() <= one.items() for one in cells):
                    continue
                people = data(lambda: load(overlap=overlap, seed=seed, validation="overlap", **options), name)  # noqa: B023
                if people is None:
                    continue
                cells.append(where | cell(people, seed, terms))
                write("best_members", {"cells": cells})


if __name__ == "__main__":
    main()

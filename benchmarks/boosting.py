"""Vertical boosting beside scikit-learn's `HistGradientBoosting…` over the pooled table, with like settings.

    python -m benchmarks.boosting [--quick] [--seeds 5] [--only credit]

Three jobs: default of credit card clients (two classes; bank, network and retailer; 12,900 training rows that all
hold), handwritten digits (ten classes, four parties), and a number, the clients' credit limit from the other columns.
Each runs in the clear: sealed trees are the same bit by bit, see `tests/algorithms/test_boosting.py`. Both methods see
the same columns of the same rows, grow as many trees of the same depth from as many bins, and neither stops early.
Figures are of the test rows: AUC for two classes, accuracy for ten, R² for the number.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import securevfl as sv
from benchmarks.common import before, data, write
from securevfl.run import join_parties
from securevfl.run.simulation import run_parties
from securevfl.testing.trial import roles_begun

_BINS, _RATE = 32, 0.1


def credit(seed: int, rows: int | None) -> sv.Parties:
    """Two classes."""
    return sv.datasets.default_credit(overlap=0.85, seed=seed, rows=rows)


def digits(seed: int, rows: int | None) -> sv.Parties:
    """Ten classes."""
    return sv.datasets.handwritten(overlap=1.0, seed=seed, parties=4)


def limit(seed: int, rows: int | None) -> sv.Parties:
    """A number: the bank's credit limit, in thousands, from the network's and the retailer's columns."""
    people = credit(seed, rows)
    bank = people.active
    columns = {name: values for name, values in bank.columns.items() if name != "LIMIT_BAL"}
    amount = np.asarray(bank.columns["LIMIT_BAL"], dtype=np.float64) / 1000
    bank = replace(bank, columns=columns, label=amount, classes=(), label_name="LIMIT_BAL")
    return sv.Parties.of(bank, *people.passive)


JOBS: Mapping[str, tuple[Callable[[int, int | None], sv.Parties], str, int, int]] = {
    "credit": (credit, "auc", 5, 100),
    "handwritten": (digits, "accuracy", 4, 20),
    "credit limit": (limit, "r2", 5, 100),
}
"""Name → data, metric, depth, rounds."""


def run(name: str, seed: int, trees: int, rows: int | None) -> dict[str, float] | None:
    """One job, one seed: both methods, and the active party alone."""
    make, metric, depth, _ = JOBS[name]
    people = data(lambda: make(seed, rows), f"{name}")
    if people is None:
        return None
    numeric = people.active.target == "number"
    plan: dict[str, Any] = {"epochs": trees, "patience": None, "keep": "last", "seed": seed, "valid_every": trees}
    if numeric:
        plan |= {"task": "regression"}
    config = sv.Boosting(depth=depth, bins=_BINS, lr=_RATE, min_hessian=1e-3)
    work = sv.Job(algorithm=config, protection=sv.Plain(), **plan)
    start = time.perf_counter()
    with roles_begun() as begun:
        ran = run_parties(work, people, join_parties(people, work), run="boosting")
    spent = time.perf_counter() - start
    roles: dict[str, Any] = {role.site.name: role for role in begun}
    names = [people.active.name, *sorted(table.name for table in people.passive)]
    train, test = ran.split.train, ran.split.test
    owner = roles[names[0]]
    y, held = (owner.labels(part).cpu().numpy() for part in (train, test))
    both = [np.concatenate([roles[one].columns_of(part) for one in names], axis=1) for part in (train, test)]
    own = [owner.columns_of(part) for part in (train, test)]
    # scores are tempered where there are enough validation rows, which changes no order and no class
    return {
        "vertical": ran.trained[names[0]].test[metric],
        "pooled": _theirs(both, y, held, owner.task, metric, trees, depth),
        "alone": _theirs(own, y, held, owner.task, metric, trees, depth) if own[0].shape[1] else float("nan"),
        "seconds": spent,
        "rows": float(len(train)),
        "columns": float(both[0].shape[1]),
    }


def _theirs(
    x: list[np.ndarray], y: np.ndarray, held: np.ndarray, task: Any, metric: str, trees: int, depth: int
) -> float:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    alike = {
        "learning_rate": _RATE,
        "max_iter": trees,
        "max_depth": depth,
        "max_leaf_nodes": None,
        "l2_regularization": 1.0,
        "min_samples_leaf": 1,
        "max_bins": _BINS,
        "early_stopping": False,
    }
    if task.is_numeric:
        scaled = (y - task.center) / task.scale
        found = HistGradientBoostingRegressor(**alike).fit(x[0], scaled).predict(x[1])
        return float(task.compute_metrics((found * task.scale + task.center)[:, None], held)[metric])
    fitted = HistGradientBoostingClassifier(**alike).fit(x[0], y)
    return float(task.compute_metrics(fitted.predict_proba(x[1]), held)[metric])


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, ten trees, 3,000 rows")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=sorted(JOBS), help="one of the jobs; figures of the others stay as they are")
    asked = parser.parse_args()
    seeds, rows = (1, 3000) if asked.quick else (asked.seeds, None)
    kept = before("boosting").get("jobs") if asked.only else None
    jobs: dict[str, object] = dict(kept) if isinstance(kept, dict) else {}
    for name, (_, metric, depth, rounds) in JOBS.items():
        if asked.only not in (None, name):
            continue
        trees = 10 if asked.quick else rounds
        found = []
        for seed in range(seeds):
            one = run(name, seed, trees, rows)
            if one is None:
                break
            found.append(one)
            print(name, seed, {what: round(value, 5) for what, value in one.items()}, flush=True)
        if found:
            gaps = [one["vertical"] - one["pooled"] for one in found]
            jobs[name] = {
                "metric": metric,
                "depth": depth,
                "trees": trees,
                "seeds": found,
                "mean gap": statistics.fmean(gaps),
                "largest gap": max(map(abs, gaps)),
            }
    write("boosting", {"jobs": jobs})


if __name__ == "__main__":
    main()

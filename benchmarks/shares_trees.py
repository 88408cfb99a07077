"""Boosted trees on shares beside plain ones, beside Paillier, and beside SecretFlow's SPU.

    python -m benchmarks.shares_trees [--quick] [--only auc cost rows] [--seeds 5] [--peers-python PATH]

*auc*: whole jobs by `sv.simulate`, under `sv.Plain()` and `sv.Shares()` with like settings: credit (two classes),
handwritten digits (ten classes, four parties), the credit limit (a number) and marked late payers of the credit table
with half of the columns. Two classes: AUC; ten: accuracy; a number: R² of the answers.

*cost*: one tree of depth 5 on the credit table's 12,945 × 23 cells, 32 bins, by the three computing parties in one
process, each after the other: CPU-seconds of all three, rounds, bytes. Then, in the same run and on one core, the
sealed sums of a tree under Paillier with hidden nodes (`benchmarks.sealed_boosting`, without the growing), and SPU's
program of a tree of the same shape under ABY3 (`benchmarks/peers/spu_tree.py`).

*rows*: a tree of 100,000 rows, and its ratio to 12,945.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import securevfl_crypto as crypto
from securevfl_crypto.replicated import Run, deal_shares, run_three
from securevfl_crypto.ring import encode_words

import securevfl as sv
from benchmarks import sealed_boosting, skip
from benchmarks.boosting import credit, digits, limit
from benchmarks.common import data, write
from benchmarks.psi_peers import _run as run_peer
from benchmarks.psi_peers import peers_python
from securevfl.shares.trees import (
    CellLayout,
    NarrowCells,
    TreeRule,
    choose_gradient_bits,
    compute_gradients,
    deal_cells,
    grow_trees,
)

BINS, RATE, DEPTH = 32, 0.1, 5
COLUMNS = (5, 6, 12)
"""Columns of each party."""


def late_half(seed: int, rows: int | None) -> sv.Parties:
    """The credit table without every second column."""
    people = credit(seed, rows)
    tables = [
        sv.PartyTable(
            table.name,
            table.ids,
            dict(list(table.columns.items())[::2]),
            label=table.label,
            classes=table.classes,
        )
        for table in (people.active, *people.passive)
    ]
    return sv.Parties.of(*tables)


JOBS: Mapping[str, tuple[Any, str, int]] = {
    "credit": (credit, "auc", 20),
    "credit, half of the columns": (late_half, "auc", 20),
    "handwritten": (digits, "accuracy", 10),
    "credit limit": (limit, "r2", 20),
}
"""Name → data, metric, rounds of trees."""


def compare_jobs(seeds: int, rows: int | None, trees: int | None) -> dict[str, Any]:
    """Whole jobs: each seed's figures, and the mean difference."""
    found: dict[str, Any] = {}
    for name, (make, metric, rounds) in JOBS.items():
        per: list[dict[str, float]] = []
        for seed in range(seeds):
            people = data(lambda m=make, s=seed: m(s, rows), name)
            if people is None:
                break
            count = trees or rounds
            plan: dict[str, Any] = {"epochs": count, "patience": None, "keep": "last", "seed": seed}
            plan |= {"valid_every": count, "task": "regression"} if metric == "r2" else {"valid_every": count}
            one: dict[str, float] = {}
            for kind, protection in (("plain", sv.Plain()), ("shares", sv.Shares())):
                job = sv.Job(algorithm=sv.Boosting(depth=4, bins=BINS, lr=RATE), protection=protection, **plan)
                start, used = time.perf_counter(), time.process_time()
                run = sv.simulate(job, people).record.runs[-1]
                one[kind] = run.test[metric]
                one[f"{kind}, seconds"] = time.perf_counter() - start
                one[f"{kind}, CPU seconds"] = time.process_time() - used
            print(name, seed, {key: round(value, 4) for key, value in one.items()}, flush=True)
            per.append(one)
        if per:
            gaps = [one["shares"] - one["plain"] for one in per]
            found[name] = {
                "metric": metric,
                "rounds of trees": trees or rounds,
                "seeds": per,
                "shares − plain, mean": statistics.mean(gaps),
                "shares − plain, worst": min(gaps),
            }
    return found


def table(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes (columns, rows) of the credit table's columns, rows repeated where there are too few, and labels."""
    people = sv.datasets.default_credit(overlap=1.0, seed=0)
    columns = [column for party in (people.active, *people.passive) for column in party.columns.values()]
    values = np.stack([np.asarray(column, dtype=float) for column in columns])
    places = np.resize(np.random.default_rng(0).permutation(values.shape[1]), rows)
    values = values[:, places]
    codes = np.zeros(values.shape, np.uint8)
    for j, column in enumerate(values):
        edges = np.unique(np.quantile(column, np.arange(1, BINS) / BINS))
        codes[j] = np.searchsorted(edges, column, side="left")
    labels = people.active.label
    if labels is None:
        raise ValueError("the credit table has labels")
    return codes, np.asarray(labels, dtype=np.int64)[places]


def grow(rows: int, trees: int) -> dict[str, Any]:
    """Trees on shares with the cells at their owners; figures of one tree, without dealing."""
    codes, y = table(rows)
    owners = tuple(np.repeat(np.arange(3), COLUMNS).tolist())
    layout = CellLayout((BINS,) * len(owners), (False,) * len(owners), (0,) * len(owners), owners)
    own = [np.ascontiguousarray(codes[[one == party for one in owners]]) for party in range(3)]
    start = time.process_time()
    dealt = [deal_cells(layout, party, own[party], computing=party) for party in range(3)]
    dealing = time.process_time() - start
    rule = TreeRule(
        depth=DEPTH,
        l2=1.0,
        min_hessian=1.0,
        min_gain=0.0,
        rate=RATE,
        gradient_bits=choose_gradient_bits(rows),
        rows=rows,
    )
    base = float(np.log(y.mean() / (1 - y.mean())))
    targets = deal_shares(encode_words(y[:, None].astype(np.float64)))
    scores = deal_shares(encode_words(np.full((1, rows), base)))

    async def program(engine: Any) -> tuple[int, int, float]:
        index = engine.index
        cells = NarrowCells(
            layout, [own[party] if party == index else dealt[party][index] for party in range(3)], index
        )
        raw, targeted = engine.read_dealt(scores[index]), engine.read_dealt(targets[index])
        before = engine.rounds, engine.sent
        for _ in range(trees):
            gradients = await compute_gradients(engine, "logistic", raw, targeted, rule)
            _, added = await grow_trees(engine, cells, gradients, rule)
            raw = raw + added
        return engine.rounds - before[0], engine.sent - before[1], 0.0

    used, wall = time.process_time(), time.perf_counter()
    run: Run = run_three(program)
    spent, lasted = time.process_time() - used, time.perf_counter() - wall
    return {
        "rows": rows,
        "trees": trees,
        "CPU seconds a tree, all three parties": spent / trees,
        "seconds a tree, one party after the other": lasted / trees,
        "rounds a tree": run.results[0][0] / trees,
        "MB sent a tree, all three": sum(one[1] for one in run.results) / trees / 1e6,
        "MB dealt once": sum(part.nbytes for each in dealt for part in each.values()) / 1e6,
        "CPU seconds of dealing": dealing,
    }


def compare_costs(rows: int, trees: int, python: Path | None) -> dict[str, Any]:
    """A tree on shares, under Paillier with hidden nodes, and by SPU, one after the other."""
    grow(min(rows, 1000), 1)
    ours = grow(rows, trees)
    mine = ours["CPU seconds a tree, all three parties"]
    size = sealed_boosting.Size(rows=rows)
    values = sealed_boosting.table(rows)
    key = crypto.generate_keypair(size.bits)
    sealed = sealed_boosting.figures(sealed_boosting.tree(key, size, values, hidden=True))
    theirs = float(sealed["seconds, all parts of all parties"])  # type: ignore[arg-type]
    codes, y = table(rows)
    p = y.mean()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work.npz"
        np.savez(
            work,
            codes=codes.T,
            bins=BINS,
            g=(p - y).astype(np.float32),
            h=np.full(len(y), p * (1 - p), np.float32),
        )
        spu = run_peer(python, "spu", ["spu_tree.py", str(work), "--depth", str(DEPTH)], 1800.0)
    if spu.get("seconds") is None:
        skip.note("SPU's tree", str(spu.get("reason", "")))
    return {
        "shares": ours,
        "Paillier, nodes hidden": sealed,
        "Paillier / shares, CPU": theirs / mine,
        "SPU": spu,
        "SPU / shares, CPU": spu["CPU seconds"] / mine if spu.get("CPU seconds") else None,
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, 3 rounds of trees, 2,000 rows, no peers")
    parser.add_argument("--only", nargs="+", choices=("auc", "cost", "rows"), default=("auc", "cost", "rows"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--peers-python", help="the interpreter that has SPU; see benchmarks/peers-requirements.txt")
    given = parser.parse_args()
    os.environ["SECUREVFL_THREADS"] = "1"
    quick = given.quick
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    content: dict[str, Any] = {}
    if "cost" in given.only:
        python = None if quick else peers_python(given.peers_python)
        content["cost"] = compare_costs(2000 if quick else 12945, 1 if quick else 5, python)
        print(content["cost"], flush=True)
    if "rows" in given.only and not quick:
        few, many = grow(12945, 3), grow(100_000, 2)
        name = "CPU seconds a tree, all three parties"
        content["rows"] = {"12945": few, "100000": many, "ratio of CPU": many[name] / few[name]}
        print(content["rows"], flush=True)
    if "auc" in given.only:
        content["auc"] = compare_jobs(1 if quick else given.seeds, 2000 if quick else None, 3 if quick else None)
    write("shares_trees-quick" if quick else "shares_trees", content)


if __name__ == "__main__":
    main()

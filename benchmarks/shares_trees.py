"""Boosted trees on shares beside plain ones, beside Paillier, and beside SecretFlow's SPU.

    python -m benchmarks.shares_trees [--quick] [--only auc cost rows] [--tables credit …] [--seeds 5]
                                      [--peers-python PATH]

*auc*: whole jobs by `sv.simulate`, under `sv.Plain()` and `sv.Shares()` with like settings: the credit table (two
classes, and another time its credit limit, a number, twice), wives' health insurance (two classes), handwritten digits
(ten classes, four parties), vehicle silhouettes (four classes) and breast cancer (two), both of two companies and a
coordinator. Two classes: AUC; more: accuracy; a number: R² of the answers.

*cost*: one tree of depth 5 on the credit table's 12,945 × 23 cells, 32 bins, by the three computing parties in one
process, each after the other: CPU-seconds of all three, rounds, bytes. Then, in the same run and on one core, the
sealed sums of a tree under Paillier with hidden nodes (`benchmarks.sealed_boosting`, without the growing), and SPU's
program of a tree of the same shape under ABY3 (`benchmarks/peers/spu_tree.py`).

*rows*: a tree of 100,000 rows, its ratio to 12,945, and the memory of all three parties in one process.

Sections and tables that a run does not make keep the figures that they have; *cost* and *rows* name their machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import securevfl_crypto as crypto
from securevfl_crypto.replicated import Run, deal_shares, run_three
from securevfl_crypto.ring import encode_words

import securevfl as sv
from benchmarks import sealed_boosting, skip
from benchmarks.additive_tables import load_table
from benchmarks.boosting import credit, digits, limit
from benchmarks.common import before, data, write
from benchmarks.psi_peers import _run as run_peer
from benchmarks.psi_peers import peers_python
from securevfl.data.resampling import compute_ratio
from securevfl.report.statistics import compute_error
from securevfl.run.machine import describe_machine
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


@dataclass(frozen=True)
class Compared:
    """A table on which trees on shares are compared with plain ones.

    Attributes:
        parties: seed, number of rows → who takes part.
        metric: of the test rows.
        rounds: of trees.
        settings: of `sv.Shares`, beside its defaults.
        task: of the job.
    """

    parties: Callable[[int, int | None], sv.Parties]
    metric: str
    rounds: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    task: str = "classification"


def numbered_limit(seed: int, rows: int | None) -> sv.Parties:
    """The credit limit, with sex, education and marriage as the numbers that the table has."""
    tables = []
    for one in limit(seed, rows).values():
        numbers = {name: np.asarray(one.columns[name], dtype=np.float64) for name in one.categorical}
        tables.append(replace(one, columns={**one.columns, **numbers}, categorical=frozenset()))
    return sv.Parties.of(*tables)


def silhouettes(seed: int, rows: int | None) -> sv.Parties:
    """Four classes, a guest and a host."""
    return sv.datasets.fate(table="vehicle_silhouettes", seed=seed)


def cancer(seed: int, rows: int | None) -> sv.Parties:
    """Two classes, a clinic and a lab."""
    return sv.datasets.breast_cancer(overlap=1.0, seed=seed)


def insured(seed: int, rows: int | None) -> sv.Parties:
    """Two classes, four columns of categories with few levels."""
    return load_table("insurance", seed, rows or 18_000)[0]


_FEW = {"few_rows": True, "useful": "off"}
"""For tables too small for the rule of usefulness."""

JOBS: Mapping[str, Compared] = {
    "credit": Compared(credit, "auc", 20),
    "credit limit": Compared(limit, "r2", 20, task="regression"),
    "credit limit, levels as numbers": Compared(numbered_limit, "r2", 20, task="regression"),
    "health insurance": Compared(insured, "auc", 20),
    "handwritten": Compared(digits, "accuracy", 5, {"useful": "off"}),
    "silhouettes": Compared(silhouettes, "accuracy", 20, _FEW | {"computing": ("guest", "host", "helper")}),
    "breast cancer": Compared(cancer, "auc", 20, _FEW | {"computing": ("clinic", "lab", "helper")}),
}


_RATIO = compute_ratio(0.2)
"""Seeds split the same rows, a fifth for the test."""


def compare_table(one: Compared, seed: int, people: sv.Parties, trees: int) -> dict[str, float]:
    """Test figures, seconds and CPU-seconds of both jobs of one seed."""
    found: dict[str, float] = {}
    for kind, protection in (("plain", sv.Plain()), ("shares", sv.Shares(**one.settings))):
        job = sv.Job(
            algorithm=sv.Boosting(depth=4, bins=BINS, lr=RATE),
            protection=protection,
            task=one.task,
            epochs=trees,
            valid_every=trees,
            patience=None,
            keep="last",
            seed=seed,
        )
        start, used = time.perf_counter(), time.process_time()
        run = sv.simulate(job, people).record.runs[-1]
        found[kind] = run.test[one.metric]
        found[f"{kind}, seconds"] = time.perf_counter() - start
        found[f"{kind}, CPU seconds"] = time.process_time() - used
    return found


def summarize(one: Compared, per: list[dict[str, float]], trees: int) -> dict[str, Any]:
    """Each seed's figures, the mean and worst difference, and how far chance moves the mean."""
    gaps = [each["shares"] - each["plain"] for each in per]
    return {
        "metric": one.metric,
        "rounds of trees": trees,
        "seeds": per,
        "shares − plain, mean": statistics.mean(gaps),
        "shares − plain, worst": min(gaps),
        "shares − plain, error of the mean": compute_error(len(gaps), statistics.stdev(gaps), _RATIO)
        if len(gaps) > 1
        else None,
    }


def compare_jobs(
    names: Iterable[str], seeds: int, rows: int | None, trees: int | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Whole jobs, a table after the other: name, and its figures."""
    for name in names:
        one = JOBS[name]
        per: list[dict[str, float]] = []
        for seed in range(seeds):
            people = data(lambda m=one.parties, s=seed: m(s, rows), name)  # type: ignore[misc]
            if people is None:
                break
            per.append(compare_table(one, seed, people, trees or one.rounds))
            print(name, seed, {key: round(value, 4) for key, value in per[-1].items()}, flush=True)
        if per:
            yield name, summarize(one, per, trees or one.rounds)


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


def compare_rows() -> dict[str, Any]:
    """A tree of many rows beside one of few, each in a process of its own, so that each has its own peak of memory."""
    make = get_context("spawn")
    found: dict[str, Any] = {}
    for rows, trees in ((12945, 3), (100_000, 2)):
        with make.Pool(1) as pool:
            found[str(rows)] = pool.apply(_grow_alone, (rows, trees))
    name = "CPU seconds a tree, all three parties"
    return found | {"ratio of CPU": found["100000"][name] / found["12945"][name]}


def _grow_alone(rows: int, trees: int) -> dict[str, Any]:
    found = grow(rows, trees)
    return found | {"peak MB, all three parties": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3}


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
    parser.add_argument("--quick", action="store_true", help="one seed, two tables, 3 rounds, 2,000 rows, no peers")
    parser.add_argument("--only", nargs="+", choices=("auc", "cost", "rows"), default=("auc", "cost", "rows"))
    parser.add_argument("--tables", nargs="+", choices=list(JOBS), default=list(JOBS), help="of auc")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--peers-python", help="the interpreter that has SPU; see benchmarks/peers-requirements.txt")
    given = parser.parse_args()
    os.environ["SECUREVFL_THREADS"] = "1"
    quick = given.quick
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    name = "shares_trees-quick" if quick else "shares_trees"
    content: dict[str, Any] = {} if quick else dict(before(name))
    if "cost" in given.only:
        python = None if quick else peers_python(given.peers_python)
        content["cost"] = compare_costs(2000 if quick else 12945, 1 if quick else 5, python)
        content["cost"]["machine"] = describe_machine()
        write(name, content, show=False)
        print(content["cost"], flush=True)
    if "rows" in given.only and not quick:
        content["rows"] = compare_rows() | {"machine": describe_machine()}
        write(name, content, show=False)
        print(content["rows"], flush=True)
    if "auc" in given.only:
        amount = (1, 2000, 3) if quick else (given.seeds, None, None)
        content["auc"] = dict(content.get("auc", {}))
        for which, figures in compare_jobs(given.tables[:2] if quick else given.tables, *amount):
            content["auc"][which] = figures
            write(name, content, show=False)
    write(name, content)


if __name__ == "__main__":
    main()

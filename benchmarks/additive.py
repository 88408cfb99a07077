"""The additive model on shares beside other models with differential privacy: AUC by table, rows and ε.

    python -m benchmarks.additive [--quick] [--seeds 5] [--first 0] [--tables credit] [--rows 18000 4000 1000]
        [--methods additive] [--only auc|cost|epsilon] [--shares] [--peers-python PATH]

Tables are those of `benchmarks.additive_tables`, peers those of `benchmarks.additive_peers`, on the same rows. A cell
is one method at one ε for one table, number of training rows, and seed of rows and training. ε is that of a row
replaced, δ = 1e-5.

*Additive*: a job's own edges and masses within ε, ranges and levels declared as the table's, and the noise of three
computing parties. Parties set up as in a job; their epochs then run in the clear, which gives the shapes of a run on
shares word by word (`tests/shares/additive`), or on shares with ``--shares``. Where a job is refused, because n·μ is
below 50·F, the cell says so, and gives the figure of a run without the refusal.

*Epsilon*: what `benchmarks.additive_epsilon` says of the ε that jobs state.

Cells that the results file has are not run again: a run that was cut off goes on. Peers need an interpreter that has
them (`benchmarks/peers-dp-requirements.txt`), without which they are left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import securevfl as sv
from benchmarks.additive_cost import EPOCHS, measure_cost
from benchmarks.additive_epsilon import account_jobs
from benchmarks.additive_peers import DELTA, Work, boost_trees, run_script, train_noisily
from benchmarks.additive_tables import TABLES, declare_columns, load_table, merge_passive
from benchmarks.common import before, data, write
from securevfl.algorithms.additive.clear import train_in_clear
from securevfl.algorithms.additive.edges import signed_log
from securevfl.algorithms.additive.shapes import to_logits
from securevfl.data import Parties
from securevfl.errors import InputError
from securevfl.privacy import sums_budget
from securevfl.run import join_parties
from securevfl.run.machine import describe_machine
from securevfl.run.simulation import run_parties
from securevfl.shares.additive.noise import PartyNoise
from securevfl.testing.trial import roles_begun

EPSILONS = (None, 8.0, 3.0, 1.0, 0.5)
ROWS = (18_000, 4_000, 1_000)
OURS = {"additive": 3, "additive, two data parties": 2}
"""Method → number of data parties."""

FREE = {"boosted trees": False, "boosted trees, active alone": True}
"""Method without privacy → whether it sees the active party's columns only."""

OPACUS = "DP-SGD"
SCRIPT = {"DP-EBM": "ebm", "DP descent": "descent", "DP objective": "objective"}
METHODS = (*OURS, *FREE, OPACUS, *SCRIPT)
PEERS_PYTHON = Path(__file__).parent.parent / ".venv-dp/bin/python"


@dataclass(frozen=True)
class Setting:
    """One table, number of rows and seed.

    Attributes:
        table: its name.
        rows: that train.
        seed: of people, split and training.
    """

    table: str
    rows: int
    seed: int


def make_job(
    people: Parties, epsilon: float | None, setting: Setting, epochs: int, held: tuple[float, float]
) -> sv.Job:
    """The job of one run; without ε no noise, and edges from the common rows."""
    dp = None if epsilon is None else sv.DP(model=sv.Gaussian(epsilon=epsilon, delta=DELTA))
    declared = {} if epsilon is None else declare_columns(people)
    computing = (people.active.name, people.passive[0].name, "coordinator") if len(people.passive) == 1 else ()
    return sv.Job(
        algorithm=sv.Additive(**declared),
        protection=sv.Shares(dp=dp, metrics="none", computing=computing),
        epochs=epochs,
        keep="last",
        valid=held[0],
        test=held[1],
        seed=setting.seed,
    )


class _Stops(sv.Observer):
    """Ends a job when its parties have set up."""

    def phase(self, name: str) -> None:
        if name == "training":
            raise _SetUpError


class _SetUpError(Exception):
    """All parties have set up."""


def set_up(setting: Setting, epsilon: float | None, parties: int, epochs: int) -> tuple[sv.Job, list[Any]]:
    """Set up a job whether or not it would be refused; return it and the data parties' roles, the active one first."""
    people, *shares = load_table(setting.table, setting.seed, setting.rows)
    if parties == 2:
        people = merge_passive(people)
    job = make_job(people, epsilon, setting, epochs, (shares[0], shares[1]))
    with roles_begun() as begun, suppress(sv.PartyFailed), patch.object(sums_budget, "WORTHLESS", 0.0):
        run_parties(job, people, join_parties(people, job), run="additive", observer=_Stops())
    roles = {role.site.name: role for role in begun}
    return job, [roles[one.name] for one in (people.active, *people.passive)]


def train_cell(setting: Setting, method: str, epsilon: float | None, epochs: int) -> dict[str, Any]:
    """One run of ours whose parties set up as in a job and train in the clear."""
    job, ordered = set_up(setting, epsilon, OURS[method], epochs)
    active, shapes = ordered[0], [role.shapes.training for role in ordered]
    plan = job.algorithm.plan_sums(  # type: ignore[attr-defined]
        job.protection,
        rows=shapes[0].plan.rows,
        outputs=active.outputs,
        columns=shapes[0].plan.columns,
        epochs=epochs,
    )
    noises = [PartyNoise(plan) for _ in range(3)] if plan.own_sigma else []

    def draw_noise(epoch: int, shape: tuple[int, ...]) -> np.ndarray:
        found: np.ndarray = np.sum([one.draw(shape) for one in noises], axis=0)
        return found

    train_in_clear(shapes, active.targets, epochs, draw_noise if noises else None)
    test = active.table.split.test
    sums = sum(role.sum_shapes(test) for role in ordered)
    # Answers are log-odds rounded at 2^-4 by chance.
    chance = np.random.default_rng(setting.seed).random(sums.shape)
    logits = np.floor(to_logits(sums, numeric=False) * 2**4 + chance) / 2**4
    found = active.task.compute_metrics(
        active.task.compute_probabilities(torch.from_numpy(logits)), active.labels(test).cpu().numpy()
    )
    refused = False
    if active.budget is not None:
        try:
            active.budget.check_worth()
        except InputError:
            refused = True
    return {"trained": shapes[0].plan.rows, "refused": refused, "auc": found["auc"], "log_loss": found["log_loss"]}


def share_cell(setting: Setting, method: str, epsilon: float | None, epochs: int) -> dict[str, Any]:
    """One run of ours on shares."""
    people, *shares = load_table(setting.table, setting.seed, setting.rows)
    if OURS[method] == 2:
        people = merge_passive(people)
    job = make_job(people, epsilon, setting, epochs, (shares[0], shares[1]))
    ran = run_parties(job, people, join_parties(people, job), run="additive")
    test = ran.trained[people.active.name].test
    return {"trained": len(ran.split.train), "refused": False, "auc": test["auc"], "log_loss": test["log_loss"]}


@lru_cache(maxsize=1)
def gather_rows(setting: Setting) -> Work:
    """The same rows for peers: numbers on the scale of private bins, between −1 and 1, and categories as codes."""
    people, *_ = load_table(setting.table, setting.seed, setting.rows)
    _, roles = set_up(setting, EPSILONS[1], 3, EPOCHS)
    ranges = declare_columns(people)["ranges"]
    columns: dict[str, list[np.ndarray]] = {"x": [], "tx": []}
    levels, own = [], []
    for role in roles:
        split = role.table.split
        parts = {"x": role.columns_of(split.train), "tx": role.columns_of(split.test)}
        for j, (name, many) in enumerate(zip(role.table.encoded, role.table.codes, strict=True)):
            levels.append(many)
            own.append(role is roles[0])
            for part, x in parts.items():
                values = x[:, j]
                if not many:
                    low, high = (signed_log(end) for end in ranges[f"{role.site.name}.{name}"])
                    values = 2 * (np.clip(signed_log(values), low, high) - low) / (high - low) - 1
                columns[part].append(values)
    labels = {
        name: roles[0].labels(rows).cpu().numpy()
        for name, rows in (("y", roles[0].table.split.train), ("ty", roles[0].table.split.test))
    }
    stacked = {part: np.column_stack(values) for part, values in columns.items()}
    return {**stacked, **labels, "levels": np.array(levels), "own": np.array(own)}


def fill_cells(
    setting: Setting, wanted: Sequence[tuple[str, float | None]], python: Path | None, epochs: int, *, on_shares: bool
) -> Iterator[dict[str, Any]]:
    """Run the wanted methods at their ε, and yield a row for each."""
    named = {"table": setting.table, "rows": setting.rows, "seed": setting.seed}
    scripted = [(SCRIPT[method], epsilon) for method, epsilon in wanted if method in SCRIPT and epsilon is not None]
    for method, epsilon in wanted:
        start = time.process_time()
        if method in OURS:
            found = (share_cell if on_shares else train_cell)(setting, method, epsilon, epochs)
        elif method in FREE:
            found = {"auc": boost_trees(gather_rows(setting), setting.seed, alone=FREE[method])}
        elif method == OPACUS and epsilon is not None:
            found = {"auc": train_noisily(gather_rows(setting), epsilon, setting.seed)}
        else:
            continue
        yield {**named, "method": method, "epsilon": epsilon, **found, "cpu": time.process_time() - start}
    titles = {name: title for title, name in SCRIPT.items()}
    if scripted and python is not None:
        for found in run_script(python, gather_rows(setting), setting.seed, scripted):
            yield {**named, **found, "method": titles[found["method"]]}


def strengths_of(method: str) -> tuple[float | None, ...]:
    """The ε at which a method runs."""
    return EPSILONS if method in OURS else EPSILONS[:1] if method in FREE else EPSILONS[1:]


def mean_cells(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The mean AUC of each method, table, rows and ε over the seeds, their deviation, and how many were refused."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        groups.setdefault((cell["table"], cell["rows"], cell["method"], cell["epsilon"]), []).append(cell)
    found = []
    for (table, rows, method, epsilon), own in sorted(groups.items(), key=str):
        aucs = [cell["auc"] for cell in own]
        found.append(
            {
                "table": table,
                "rows": rows,
                "method": method,
                "epsilon": epsilon,
                "auc": statistics.mean(aucs),
                "deviation": statistics.stdev(aucs) if len(aucs) > 1 else None,
                "seeds": len(own),
                "refused": any(cell.get("refused", False) for cell in own),
            }
        )
    return found


def main() -> None:
    """Run what is missing, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows, one seed, one ε; nothing is written")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--shares", action="store_true", help="train on shares, which takes minutes a run")
    parser.add_argument("--only", choices=("auc", "cost", "epsilon"))
    parser.add_argument("--peers-python", default=os.environ.get("SECUREVFL_DP_PYTHON", str(PEERS_PYTHON)))
    parser.add_argument("--results", default="additive", help="name of the results file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    python = Path(options.peers_python) if Path(options.peers_python).is_file() else None
    kept: dict[str, Any] = {"cells": [], "costs": [], "epsilons": []} | (
        {} if options.quick else before(options.results)
    )
    epochs = 5 if options.quick else EPOCHS

    def store() -> None:
        if not options.quick:
            figures = {"delta": DELTA, "epochs": EPOCHS, "means": mean_cells(kept["cells"])}
            parts = {name: kept[name] for name in ("cells", "costs", "epsilons")}
            write(options.results, {**figures, **parts}, show=False)

    def is_missing(part: str, wanted: Mapping[str, Any]) -> bool:
        return not any(all(run.get(name) == value for name, value in wanted.items()) for run in kept[part])

    if options.only in (None, "epsilon") and python is not None and not options.quick:
        kept["epsilons"] = account_jobs(python, DELTA, EPOCHS)
        print(*kept["epsilons"], sep="\n", flush=True)
        store()
    for rows in () if options.only in ("auc", "epsilon") else (2000,) if options.quick else (13_000, 100_000):
        for bounded in (False, True):
            if is_missing("costs", {"rows": rows, "bounded": bounded}):
                kept["costs"].append({**measure_cost(rows, (6, 6, 12), bounded=bounded), "machine": describe_machine()})
                print(kept["costs"][-1], flush=True)
                store()
    seeds = range(options.first, options.first + (1 if options.quick else options.seeds))
    sizes = [1000] if options.quick else options.rows
    tables = options.tables[:1] if options.quick else options.tables
    settings = [Setting(table, rows, seed) for seed in seeds for rows in sizes for table in tables]
    for setting in settings if options.only in (None, "auc") else ():
        if data(partial(load_table, setting.table, setting.seed, setting.rows), f"the {setting.table} table") is None:
            continue
        named = {"table": setting.table, "rows": setting.rows, "seed": setting.seed}
        wanted = [
            (method, epsilon)
            for method in options.methods
            for epsilon in (strengths_of(method)[:2] if options.quick else strengths_of(method))
            if is_missing("cells", {**named, "method": method, "epsilon": epsilon})
        ]
        for cell in fill_cells(setting, wanted, python, epochs, on_shares=options.shares):
            kept["cells"].append(cell)
            print(cell, flush=True)
            store()


if __name__ == "__main__":
    main()

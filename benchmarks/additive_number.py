"""An additive model of a number by ε, beside boosted trees on the pooled table and the active party alone.

    python -m benchmarks.additive_number [--quick] [--seeds 3]

Default of credit card clients, three parties: the logarithm of the credit limit from all other columns. With a budget
the model trains on secret shares, with private edges and the noise of three computing parties; without one in plain,
which gives the sums of shares word for word. R² of the test rows, by seed, stays in the JSON file.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

import securevfl as sv
from benchmarks.common import data, write
from securevfl.data import Parties

LIMIT, RANGE = "LIMIT_BAL", (9.0, 14.0)
"""The column, and the range of its logarithm: limits from 8,100 to 1.2 million."""

EPOCHS = 60
BUDGETS = (None, 8.0, 1.0)


def read_people(seed: int, rows: int) -> Parties | None:
    """The parties of one seed; None without the table."""
    people = data(lambda: sv.datasets.default_credit(overlap=0.85, seed=seed, rows=rows), "credit")
    if people is None:
        return None
    bank = people.active
    columns = {name: values for name, values in bank.columns.items() if name != LIMIT}
    label = np.log(np.asarray(bank.columns[LIMIT], dtype=np.float64))
    table = sv.PartyTable(
        name=bank.name, ids=bank.ids, columns=columns, label=label, label_name="limit", categorical=bank.categorical
    )
    return Parties.of(table, *people.passive)


def declare_columns(people: Parties) -> sv.Additive:
    """The model with what a budget needs: ranges and levels by the meaning of the columns."""
    network, retailer = people["network"], people["retailer"]
    return sv.Additive(
        ranges={"bank.AGE": (18.0, 100.0)}
        | {f"network.{name}": (-2.0, 9.0) for name in network.columns}
        | {f"retailer.{name}": (-1e6, 1e6) for name in retailer.columns},
        levels={"bank.SEX": ("1", "2"), "bank.EDUCATION": ("1", "2", "3", "4"), "bank.MARRIAGE": ("1", "2", "3")},
    )


def train(people: Parties, epsilon: float | None, seed: int) -> tuple[dict[str, float], tuple[str, ...]]:
    """Figures of one job, and names of its test rows."""
    protection: sv.cut.Protection = sv.Plain()
    if epsilon is not None:
        protection = sv.Shares(dp=sv.DP(model=sv.Gaussian(epsilon=epsilon)), metrics="none")
    job = sv.Job(
        algorithm=sv.Additive() if epsilon is None else declare_columns(people),
        protection=protection,
        epochs=EPOCHS,
        keep="last",
        seed=seed,
        task="regression",
        target_range=RANGE,
    )
    start = time.perf_counter()
    result = sv.simulate(job, people)
    found = {"r2": result.record.runs[-1].test["r2"], "seconds": time.perf_counter() - start}
    return found, tuple(result.test_ids)


def fit_trees(people: Parties, tested: tuple[str, ...], *, alone: bool) -> tuple[float, int]:
    """R² of boosted trees on the pooled columns of the same rows, or on the active party's; and how many rows train."""
    tables = [people.active] if alone else list(people.values())
    common = set.intersection(*(set(table.ids) for table in people.values()))

    def rows(names: list[str]) -> tuple[np.ndarray, np.ndarray]:
        columns, y = [], np.empty(0)
        for table in tables:
            at = {name: place for place, name in enumerate(table.ids)}
            places = [at[name] for name in names]
            columns += [np.asarray(values)[places].astype(float) for values in table.columns.values()]
            y = np.asarray(table.label)[places] if table.label is not None else y
        return np.stack(columns, axis=1), y

    trained = sorted(common - set(tested))
    model = HistGradientBoostingRegressor(random_state=0).fit(*rows(trained))
    return float(model.score(*rows(list(tested)))), len(trained)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="4,000 clients, one seed, and no ε of 1")
    options.add_argument("--seeds", type=int, default=3)
    given = options.parse_args()
    cells: dict[str, Any] = {}
    for seed in range(1 if given.quick else given.seeds):
        people = read_people(seed, 4000 if given.quick else 18_000)
        if people is None:
            return
        cell: dict[str, Any] = {}
        for epsilon in BUDGETS[:2] if given.quick else BUDGETS:
            cell["no noise" if epsilon is None else f"ε = {epsilon:g}"], tested = train(people, epsilon, seed)
        cell["pooled trees"], cell["rows"] = fit_trees(people, tested, alone=False)
        cell["active party alone"], _ = fit_trees(people, tested, alone=True)
        cells[f"seed {seed}"] = cell
        print(seed, cell, flush=True)
    if not given.quick:
        write("additive_number", cells)


if __name__ == "__main__":
    main()

"""Ten public tables, cut between two parties, through the three commands, beside pooled models in the clear.

    python -m benchmarks.ten_tables [--minutes 60] [--seeds 5] [--only loans] [--ways trees drafted …] [--quick]

Four ways: `trees` is boosting with its defaults in plain, in this process; `boosting` is ``securevfl init --algorithm
boosting``, ``check`` and ``run``, with the protection that is drafted; `unsealed` is the same job in this process
without the encryption, with as many bins; `drafted` is the three commands without naming an algorithm. Nothing is
edited. Beside them scikit-learn's `HistGradientBoosting…` and a linear model, over all columns, of the same test rows:
AUC for two classes, accuracy for more, R² for a number. A seed shuffles rows and identifiers, and so draws which rows
train.

Each cell is stored as it ends, and a later call goes on with those that are missing. Six of the tables need the
packages of `benchmarks/tables-requirements.txt`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import before, write
from benchmarks.skip import note
from benchmarks.ten_tables.ours import run_commands, train_plain_trees, train_unsealed
from benchmarks.ten_tables.peers import LIKE_OURS, METRICS, measure_boosted, measure_linear
from benchmarks.ten_tables.tables import TABLES, write_parties

_WAYS = ("trees", "unsealed", "boosting", "drafted")


def measure_cell(name: str, seed: int, way: str, seconds: float) -> dict[str, Any]:
    """One table, one seed, one way, with the pooled models of the same rows.

    Args:
        name: of the table.
        seed: of the rows.
        way: one of the four.
        seconds: after which commands are given up.
    """
    table = TABLES[name]
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        frame = write_parties(table, seed, folder)
        if way == "trees":
            found, split = train_plain_trees(table, folder, seed)
        elif way == "unsealed":
            found, split = train_unsealed(table, folder)
        else:
            found, split = run_commands(table, folder, "boosting" if way == "boosting" else "", seconds)
    boosted, linear = (measure(table, frame, split) for measure in (measure_boosted, measure_linear))
    like = {}
    if way == "trees":
        peer = measure_boosted(table, frame, split, LIKE_OURS)
        like = {"pooled like ours": peer, "gap to like": found["metric"] - peer["metric"]}
    return like | {
        "rows": len(frame),
        "columns": frame.shape[1] - 1,
        "ours": found,
        "pooled boosted": boosted,
        "pooled linear": linear,
        "gap": found["metric"] - boosted["metric"],
        "gap to linear": found["metric"] - linear["metric"],
    }


def summarise(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Of each way: each table's seeds and mean gap, the mean gap of the tables and the worst."""
    found: dict[str, Any] = {}
    for way in _WAYS:
        tables: dict[str, dict[str, Any]] = {}
        for name, table in TABLES.items():
            mine = [one for key, one in cells.items() if key.startswith(f"{way}, {name}, ")]
            if mine:
                tables[name] = {
                    "metric": METRICS[table.task],
                    "seeds": len(mine),
                    "ours": statistics.fmean(one["ours"]["metric"] for one in mine),
                    "pooled boosted": statistics.fmean(one["pooled boosted"]["metric"] for one in mine),
                    "pooled linear": statistics.fmean(one["pooled linear"]["metric"] for one in mine),
                    "gap": statistics.fmean(one["gap"] for one in mine),
                    "error of the gap": _standard_error([one["gap"] for one in mine]),
                    "minutes": statistics.fmean(one["ours"]["cpu seconds"] for one in mine) / 60,
                }
                likes = [one["gap to like"] for one in mine if "gap to like" in one]
                if likes:
                    found_like = {
                        "gap to like": statistics.fmean(likes),
                        "error of the gap to like": _standard_error(likes),
                    }
                    tables[name] |= found_like
        if tables:
            worst = min(tables, key=lambda name: tables[name]["gap"])
            mean = statistics.fmean(one["gap"] for one in tables.values())
            found[way] = {"tables": tables, "mean gap": mean, "worst": worst, "worst gap": tables[worst]["gap"]}
    return found


def _standard_error(values: list[float]) -> float | None:
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None


def main() -> None:
    """Measure what is missing, as long as there is time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="no cell begins after so many")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--ways", nargs="+", choices=_WAYS, default=list(_WAYS))
    parser.add_argument("--quick", action="store_true", help="plain trees of the smallest table, one seed")
    asked = parser.parse_args()
    if asked.quick:
        asked.only, asked.ways, asked.seeds = ["diabetes"], ["trees"], 1
    kept = before("ten_tables").get("cells")
    cells: dict[str, Any] = dict(kept) if isinstance(kept, dict) else {}
    end = time.monotonic() + 60 * asked.minutes
    wanted = [(seed, way, name) for seed in range(asked.seeds) for way in asked.ways for name in asked.only]
    for seed, way, name in wanted:
        key = f"{way}, {name}, seed {seed}"
        if key in cells:
            continue
        if time.monotonic() >= end:
            note(key, f"the {asked.minutes:g} minutes are over; call again to go on")
            break
        try:
            cells[key] = measure_cell(name, seed, way, end - time.monotonic())
        except subprocess.TimeoutExpired:
            note(key, f"the {asked.minutes:g} minutes ended in it")
            continue
        except SystemExit:
            continue  # the package with this table is not installed, which was noted
        print(key, {what: cells[key][what] for what in ("ours", "pooled boosted", "gap")}, flush=True)
        write("ten_tables", {"summary": summarise(cells), "cells": cells}, show=False)


if __name__ == "__main__":
    main()

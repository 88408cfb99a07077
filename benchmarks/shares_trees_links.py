"""Seconds of a tree on shares between three processes over lines of given length, beside its rounds times their delay.

    python -m benchmarks.shares_trees_links [--quick] [--delays 0.2 5 20] [--epochs 6] [--repeat 3]

The three parties of the credit table grow trees of depth 5, each a process with its own files and gate, over TLS. Each
of the three connections goes through a line that delays every byte and limits the rate each way (`benchmarks.shaping`);
*delay* is one way. The first and the last round of trees are left out: the first deals the cells, the last validates.
Of all others the shortest counts as well as the median: other work on the machine only adds, and does so the more, the
less the line delays. *Reckoned* is the number of rounds times the delay.

A simulation of the same tables grows the trees again. The last bits of products are cut at random, so that words are
not the same; the parties' parts of both models are put together here, as no party could, to compare splits and leaves.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from securevfl_crypto.ring import decode_words

import securevfl as sv
from benchmarks.common import before, write
from benchmarks.shares_latency import MEGABITS, train_over_lines
from securevfl.run.store import read_tree
from securevfl.testing.company import Company

DELAYS = (0.2, 5.0, 20.0)
"""Milliseconds one way."""
DEPTH, BINS = 5, 32


def open_trees(parts: Mapping[str, Any]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Trees of which each party has a part: the cells that go left, of each node, and the leaves."""
    found = []
    for three in zip(*(part["parts"]["shares"]["trees"] for part in parts.values()), strict=True):
        sides = sum(one["sides"][0].numpy() for one in three)
        leaves = sum(one["leaves"][0].numpy().view(np.uint64) for one in three)
        found.append((np.asarray(sides), decode_words(np.asarray(leaves))))
    return found


def compare_models(company: Company, job: sv.Job, test: Mapping[str, float]) -> dict[str, Any]:
    """The trees that the processes grew beside those of a simulation, and what both predict."""
    names = company.names
    theirs = open_trees({n: read_tree(company.state_folder(n) / "model" / f"{n}.model.safetensors") for n in names})
    alone = sv.simulate(job, company.people)
    ours = open_trees(alone.model().parts)
    same = [(one[0] == other[0]).all(axis=1) for one, other in zip(ours, theirs, strict=True)]
    gaps = [float(np.abs(one[1] - other[1]).max()) for one, other in zip(ours, theirs, strict=True)]
    equal = [gap for gap, nodes in zip(gaps, same, strict=True) if nodes.all()]
    return {
        "nodes with the same split": float(np.mean(same)),
        "trees of the same splits": len(equal),
        "their leaves differ at most by": max(equal, default=None),
        "auc": test["auc"],
        "auc of the simulation": alone.record.runs[-1].test["auc"],
    }


def grow_over_lines(
    folder: Path, delay: float, rows: int | None, epochs: int
) -> tuple[dict[str, Any], Company, sv.Job]:
    """Grow trees over lines of one length; what a tree took and what crossed."""
    job = sv.Job(
        algorithm=sv.Boosting(depth=DEPTH, bins=BINS),
        protection=sv.Shares(),
        epochs=epochs,
        valid_every=epochs,
        patience=None,
        keep="last",
        seed=3,
    )
    load = os.getloadavg()[0]
    people = sv.datasets.default_credit(overlap=0.85, seed=0, rows=rows)
    company, runs = train_over_lines(folder, people, job, 2 * delay)
    own = runs["bank"]
    later = [epoch.seconds for epoch in own.epochs[1:-1]]
    (rounds,) = [float(number) for note in own.notes for number in re.findall(r"([\d.]+) rounds a round", note)]
    found = {
        "delay ms": delay,
        "rows": own.rows_trained,
        "seconds of a tree": round(statistics.median(later), 2),
        "shortest": round(min(later), 2),
        "rounds a tree": rounds,
        "reckoned, rounds × delay": round(rounds * delay / 1e3, 2),
        "bytes sent by a party in a tree": {name: sum(run.epochs[-2].bytes.values()) for name, run in runs.items()},
        "load before and after": [round(load, 1), round(os.getloadavg()[0], 1)],
        "auc": round(own.test["auc"], 4),
    }
    return found, company, job


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="4,000 rows, three trees, one length")
    parser.add_argument("--delays", nargs="+", type=float, default=DELAYS, help="milliseconds one way")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows, epochs, repeat = (4000, 3, 1) if given.quick else (None, given.epochs, given.repeat)
    name = "shares_trees_links-quick" if given.quick else "shares_trees_links"
    figures: dict[str, Any] = {} if given.quick else dict(before(name))
    runs: list[dict[str, Any]] = [one for one in figures.get("runs", []) if one["delay ms"] not in given.delays]
    with tempfile.TemporaryDirectory() as place:
        for delay in given.delays[: 1 if given.quick else None]:
            for turn in range(repeat):
                found, company, job = grow_over_lines(Path(place) / f"{delay:g}-{turn}", delay, rows, epochs)
                runs.append(found)
                print(found, flush=True)
        figures = {"megabits a second": MEGABITS, "runs": sorted(runs, key=lambda one: one["delay ms"])}
        figures["beside a simulation"] = compare_models(company, job, {"auc": found["auc"]})
    write(name, figures)


if __name__ == "__main__":
    main()

"""How many of a passive party's cells the active party of boosted trees computes from the sums that it reads.

    python -m benchmarks.boosting_cells [--quick]

Credit tables of several sizes, depth 5, 32 bins, 100 trees, nodes hidden and shown (20 rows a bin). The active party
knows every row's gradients, so each sum is a linear equation in who is in a bin; `cells_solved` takes the solution of
least length. For each passive party: the share of its training rows' cells whose bin is right, beside that of the most
frequent bin. In the clear, in the integers that a sealed job has.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import securevfl as sv
from benchmarks.common import write
from benchmarks.gate.on_trees import cells_solved, watch
from securevfl.algorithms.boosting.histograms import merged_bins
from securevfl.run import join_parties
from securevfl.run.simulation import run_parties
from securevfl.testing.trial import roles_begun

__all__ = ["cells"]


def cells(rows: int | None, trees: int, nodes: str) -> dict[str, object]:
    """One job, and what its sums tell of each passive party.

    Args:
        rows: clients; None for all.
        trees: how many are grown.
        nodes: ``"hidden"`` or ``"shown"``.
    """
    people = sv.datasets.default_credit(overlap=0.85, seed=0, rows=rows)
    algorithm = sv.Boosting.from_values({"name": "boosting", "depth": 5, "bins": 32, "nodes": nodes})
    plan: dict[str, Any] = {"epochs": trees, "patience": None, "keep": "last", "valid_every": trees, "seed": 0}
    job, shown = sv.Job(algorithm=algorithm, protection=sv.Plain(), **plan), nodes == "shown"
    with watch() as sights, roles_begun() as begun:
        ran = run_parties(job, people, join_parties(people, job), run="boosting cells")
    found: dict[str, object] = {"training rows": len(ran.split.train)}
    roles: dict[str, Any] = {role.site.name: role for role in begun}
    for name in sights.sums:
        codes, counts = roles[name].codes, roles[name].bins.code_counts
        truth = merged_bins(codes, counts, job.algorithm.merge).codes if shown else codes  # type: ignore[attr-defined]
        found[name] = {
            "cells right": cells_solved(sights, name, truth, counts, merged=shown),
            "most frequent bin": float(np.mean([np.bincount(one).max() / len(one) for one in truth.T])),
        }
    return found


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="400 clients, 20 trees")
    sizes, trees = ((400,), 20) if parser.parse_args().quick else ((2_000, 6_000, None), 100)
    figures: dict[str, object] = {}
    for rows in sizes:
        for nodes in ("hidden", "shown"):
            name = f"{'all' if rows is None else rows} clients, nodes {nodes}"
            figures[name] = cells(rows, trees, nodes)
            print(name, figures[name], flush=True)
    write("boosting_cells", figures)


if __name__ == "__main__":
    main()

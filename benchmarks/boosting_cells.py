"""How many of a passive party's cells the active party of boosted trees computes from the sums that it reads.

    python -m benchmarks.boosting_cells [--quick]

Credit tables of several sizes, depth 5, 32 bins, 100 trees, nodes hidden and shown (20 rows a bin). The active party
knows every row's gradients, so each sum is a linear equation in who is in a bin; `cells_solved` takes the solution of
least length. For each passive party: the share of its training rows' cells whose bin is right, beside that of the most
frequent bin. In the clear, in the integers that a sealed job has. The full size also grows 5 and 20 trees at the
smallest table, and writes the worst party's shares to ``securevfl/privacy/measured.json``, for the cards of such jobs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

import securevfl as sv
from benchmarks.common import write
from benchmarks.gate.__main__ import MEASURED, kept_worst
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


_VIEWS = {"hidden": "sums over bins", "shown": "sums over merged bins"}
"""Nodes → what ``measured.json`` calls what is attacked."""
_FEWER = (5, 20)


def measured_view(nodes: str, by_trees: Mapping[int, Mapping[str, Any]]) -> dict[str, object]:
    """What the card shows of such jobs: of the party with the largest gain, the shares after so many trees.

    Args:
        nodes: ``"hidden"`` or ``"shown"``.
        by_trees: trees → what `cells` found, rising.
    """
    *_, most = by_trees
    last = {name: one for name, one in by_trees[most].items() if isinstance(one, dict)}
    worst = max(last, key=lambda name: last[name]["cells right"] - last[name]["most frequent bin"])
    return {
        "about": "cells",
        "got": round(last[worst]["cells right"], 4),
        "without": round(last[worst]["most frequent bin"], 4),
        "cell": f"credit, boosting, nodes {nodes}, sealed, {by_trees[most]['training rows']:,} training rows, {most} "
        f"trees, columns of {worst}",
        "after": {str(trees): round(found[worst]["cells right"], 4) for trees, found in by_trees.items()},
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="400 clients, 20 trees")
    quick = parser.parse_args().quick
    sizes, trees = ((400,), 20) if quick else ((2_000, 6_000, None), 100)
    figures: dict[str, Any] = {}
    for rows in sizes:
        for nodes in ("hidden", "shown"):
            name = f"{'all' if rows is None else rows} clients, nodes {nodes}"
            figures[name] = cells(rows, trees, nodes)
            print(name, figures[name], flush=True)
    write("boosting_cells", figures)
    if not quick:
        write_views({nodes: {trees: figures[f"{sizes[0]} clients, nodes {nodes}"]} for nodes in _VIEWS}, sizes[0])


def write_views(found: Mapping[str, Mapping[int, Mapping[str, Any]]], rows: int | None) -> None:
    """Add fewer trees to what was found of jobs on `rows` clients, and write the views of cards."""
    views = {}
    for nodes, by_trees in found.items():
        fewer = {count: cells(rows, count, nodes) for count in _FEWER}
        views[_VIEWS[nodes]] = measured_view(nodes, {**fewer, **by_trees})
    before = json.loads(MEASURED.read_text(encoding="utf-8"))
    content = kept_worst(before, {"command": before["command"], "views": views})
    MEASURED.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

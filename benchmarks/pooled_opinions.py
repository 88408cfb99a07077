"""Ways to combine the three opinions of `best_with_trees`: networks, own trees, and own trees that partners corrected.

    python -m benchmarks.pooled_opinions [--quick] [--seeds 0 1 2 3 4]

The cells of `best with trees` in examples/experiments/few-rows.toml, on both sides of the credit table and of
Parkinson's speech. Each trains once; every way then combines the same opinions of the same test rows:

- `best`, `trees`, `own trees`: one of them.
- `mean`: of the probabilities.
- `weighted mean`: weights from rows that the scoring members did not train on, as `best_with_trees` has them.
- `log-odds`: the sum of log-odds with equal weights, a logarithmic pool (Genest and Zidek 1986).
- `weighted log-odds`: with weights w ≥ 0 that have the least log-loss on those rows, and a pull towards equal ones.

Figures are AUC. Cells stay in the JSON file and are skipped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
from scipy.optimize import minimize

from benchmarks.common import RESULTS, write
from benchmarks.evidence_plan import Table
from benchmarks.skip import note
from securevfl.algorithms.best_with_trees_roles import TreesWeighting
from securevfl.errors import InputError
from securevfl.experiments.cells import Cell
from securevfl.experiments.pool import run_cell
from securevfl.training.pooling import average_probabilities

METHOD = "best with trees"
PLACES: Mapping[str, tuple[float, ...]] = {
    "Default of credit, 2 parties": (0.01, 0.05, 0.2),
    "Default of credit, network active": (0.01, 0.05, 0.2),
    "Parkinson's speech": (0.05, 0.2),
    "Parkinson's speech, lab active": (0.05, 0.2),
}
_PULL = 10.0
"""The pull of log-odds' weights towards equal ones."""
_TINY = 1e-12


def add_log_odds(probabilities: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """The product of probabilities (n, classes), each to the power of its weight, normalised."""
    logs = np.tensordot(np.asarray(weights), np.log(np.stack(probabilities).clip(_TINY)), axes=1)
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    found: np.ndarray = powers / powers.sum(axis=1, keepdims=True)
    return found


def fit_log_odds(probabilities: Sequence[np.ndarray], labels: np.ndarray) -> list[float]:
    """Weights of `add_log_odds` with the least log-loss and pull."""
    equal = 1 / len(probabilities)

    def loss(weights: np.ndarray) -> float:
        right = add_log_odds(probabilities, weights.tolist())[np.arange(len(labels)), labels]
        return float(-np.log(right.clip(_TINY)).sum() + _PULL * ((weights - equal) ** 2).sum())

    found = minimize(loss, np.full(len(probabilities), equal), bounds=[(0, None)] * len(probabilities))
    weights: list[float] = found.x.tolist()
    return weights


def score_combinations(weighting: TreesWeighting, pool: str, names: Sequence[str]) -> dict[str, float]:
    """AUC of the test rows by each way.

    Args:
        weighting: of a run.
        pool: of which rows.
        names: of its opinions.
    """
    unseen, tested = weighting.opinions[pool]
    rows = weighting.unseen_probabilities("boosted_residual")[0]
    y, equal = weighting.y[rows], [1 / len(tested)] * len(tested)
    ways = dict(zip(names, tested, strict=True)) | {
        "mean": average_probabilities(tested, equal),
        "weighted mean": average_probabilities(tested, weighting.fit_pool(unseen, rows)),
        "log-odds": add_log_odds(tested, equal),
        "weighted log-odds": add_log_odds(tested, fit_log_odds(unseen, y) if weighting.choosing_rows(rows) else equal),
    }
    labels = weighting.y[weighting.table.split.test]
    return {name: weighting.task.compute_metrics(scores, labels)["auc"] for name, scores in ways.items()}


def measure_cell(cell: Cell) -> dict[str, Any]:
    """Train it, and combine what its members say."""
    heard: list[TreesWeighting] = []
    write_to = TreesWeighting.write_to

    def listen(self: TreesWeighting, trained: Any, epochs: int) -> dict[str, float]:
        heard.append(self)
        return write_to(self, trained, epochs)

    with mock.patch.object(TreesWeighting, "write_to", listen):
        run_cell(cell)
    (one,) = heard
    ways = score_combinations(one, "pool", ("best", "trees", "own trees"))
    alone = score_combinations(one, "pool alone", ("best", "own trees"))
    return {"rows": len(one.unseen_probabilities("boosted_residual")[0]), "ways": ways, "alone": alone}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="one cell, nothing written")
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    given = options.parse_args()
    file = RESULTS / "pooled_opinions.json"
    found: list[dict[str, Any]] = [] if given.quick or not file.exists() else json.loads(file.read_text())["cells"]
    cells = [cell for cell in Table.read("few-rows").sweep.cells if cell.method == METHOD]
    wanted = [one for one in cells if one.x in PLACES.get(one.data, ()) and one.seed in given.seeds]
    for cell in sorted(wanted, key=lambda one: one.seed)[: 1 if given.quick else None]:
        where = {"data": cell.data, "overlap": cell.x, "seed": cell.seed}
        if any(where.items() <= one.items() for one in found):
            continue
        try:
            found.append(where | measure_cell(cell))
        except InputError as error:
            if "is not here" not in str(error):
                raise
            note(cell.data, str(error))
            continue
        print(where, {name: round(auc, 4) for name, auc in found[-1]["ways"].items()}, flush=True)
        if not given.quick:
            write("pooled_opinions", {"cells": found}, show=False)


if __name__ == "__main__":
    main()

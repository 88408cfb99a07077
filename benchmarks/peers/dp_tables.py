"""Other people's models with differential privacy on one table: InterpretML's DP-EBM, and logistic regression by noisy
gradient descent and by diffprivlib's objective perturbation. Prints a line of JSON for each.

Run by an interpreter that has them (see benchmarks/peers-dp-requirements.txt); imports nothing of this project:

    .venv-dp/bin/python benchmarks/peers/dp_tables.py WORK.npz [--epsilon 8 3 1 0.5] [--seed 0] [--only ebm]
        [--neighbours replaced|added]

WORK.npz is what `benchmarks.additive_peers` writes: x and tx float64 (rows, columns) of the training and test rows, y
and ty, and levels int (columns,), 0 for numbers. Numbers lie between −1 and 1, on a logarithmic scale of their declared
ranges; ranges and levels cost nothing.

*Neighbours.* With `replaced`, the default, ε (δ = 1e-5) is that of a row replaced by another. DP-EBM's authors account
for a row added or left out; two such steps replace a row, so it gets the ε of half of the μ of Gaussian differential
privacy. The descent's noise is sized for twice the longest row. Objective perturbation (Chaudhuri, Monteleoni and
Sarwate 2011) is for a replaced row as it is, and its ε needs no δ. With `added`, DP-EBM gets ε itself and the descent
half of the noise.

*Favours.* All see the pooled table at one trusted place. The descent standardises by the columns' exact medians and
deviations, which it would have to pay for; it clips rows at the square root of half of its columns, and takes 60 full
steps with Gaussian noise, composed exactly.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import time
import warnings

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

DELTA = 1e-5
STEPS, RATE = 60, 2.0
OBJECTIVE_C = {True: 0.01, False: 0.001}
"""Whether ε is above 2 → the regression's C. Chosen, as rates are, on rows of other seeds, which it would pay for."""

PACKAGES = {"ebm": "interpret-core", "objective": "diffprivlib", "descent": None}


def delta_of(epsilon, mu):
    """δ of Gaussian differential privacy with μ at ε (Dong, Roth and Su 2022, corollary 1)."""
    return norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)


def mu_of(epsilon):
    """μ of Gaussian differential privacy with this ε at `DELTA`."""
    return brentq(lambda mu: delta_of(epsilon, mu) - DELTA, 1e-4, 80)


def halve(epsilon):
    """ε of half of the μ: a mechanism with it for a row added or left out has `epsilon` for a row replaced."""
    mu = mu_of(epsilon) / 2
    return brentq(lambda one: delta_of(one, mu) - DELTA, 1e-9, epsilon)


def spread(work, part):
    """Rows as numbers, a column for each level."""
    x = work[part]
    columns = []
    for j, many in enumerate(work["levels"]):
        columns += [(x[:, j] == level).astype(float) for level in range(many)] if many else [x[:, j]]
    return np.column_stack(columns)


def descend(work, epsilon, seed, replaced):
    """Scores of the test rows by noisy gradient descent."""
    rng = np.random.default_rng(seed)
    train, test = (spread(work, part) for part in ("x", "tx"))
    middle, deviation = np.median(train, axis=0), train.std(axis=0) + 1e-9
    longest = math.sqrt((train.shape[1] + 1) / 2)
    rows = []
    for x in (train, test):
        z = np.column_stack([np.ones(len(x)), np.clip((x - middle) / deviation, -3, 3)])
        rows.append(z / np.maximum(1, np.linalg.norm(z, axis=1, keepdims=True) / longest))
    train, test = rows
    sigma = (2 if replaced else 1) * longest * math.sqrt(STEPS) / mu_of(epsilon)
    weights = np.zeros(train.shape[1])
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-train @ weights))
        noisy = train.T @ (p - work["y"]) + rng.normal(0, sigma, len(weights))
        weights -= RATE / len(train) * noisy / (longest / 2)
    return test @ weights


def perturb_objective(work, epsilon, seed, replaced):
    """Scores of the test rows by diffprivlib; a row replaced is its only neighbour."""
    from diffprivlib.models import LogisticRegression

    train, test = (spread(work, part) for part in ("x", "tx"))
    model = LogisticRegression(
        epsilon=epsilon,
        data_norm=math.sqrt(len(work["levels"])),  # a number is 1 at most, and so is the one of a category's levels
        C=OBJECTIVE_C[epsilon > 2],
        max_iter=1000,
        random_state=seed,
    )
    model.fit(train, work["y"].astype(int))
    return model.decision_function(test)


def boost_shapes(work, epsilon, seed, replaced):
    """Scores of the test rows by DP-EBM, with InterpretML's defaults."""
    from interpret.privacy import DPExplainableBoostingClassifier

    levels, bounds, frames = work["levels"], {}, []
    for x in (work["x"], work["tx"]):
        columns = {}
        for j, many in enumerate(levels):
            columns[f"c{j}"] = pd.Series(x[:, j].astype(int).astype(str) if many else x[:, j])
            if not many:
                bounds[j] = (-1.0, 1.0)
        frames.append(pd.DataFrame(columns))
    model = DPExplainableBoostingClassifier(
        epsilon=halve(epsilon) if replaced else epsilon,
        delta=DELTA,
        random_state=seed,
        n_jobs=1,
        feature_types=["nominal" if many else "continuous" for many in levels],
        privacy_bounds=bounds,
    )
    model.fit(frames[0], work["y"].astype(int))
    return model.predict_proba(frames[1])[:, 1]


METHODS = {"descent": descend, "objective": perturb_objective, "ebm": boost_shapes}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[8.0, 3.0, 1.0, 0.5])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=sorted(METHODS), default=sorted(METHODS))
    parser.add_argument("--neighbours", choices=("replaced", "added"), default="replaced")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    work = dict(np.load(asked.work))
    for name in asked.only:
        for epsilon in asked.epsilon:
            used = time.process_time()
            scores = METHODS[name](work, epsilon, asked.seed, asked.neighbours == "replaced")
            package = PACKAGES[name]
            print(
                json.dumps(
                    {
                        "method": name,
                        "epsilon": epsilon,
                        "auc": float(roc_auc_score(work["ty"], scores)),
                        "cpu": time.process_time() - used,
                        "version": package and f"{package} {importlib.metadata.version(package)}",
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()

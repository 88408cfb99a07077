"""Other people's models with differential privacy on one table: InterpretML's DP-EBM, and logistic regression by noisy
gradient descent. Prints a line of JSON for each.

Run by an interpreter that has them (see benchmarks/peers-dp-requirements.txt); imports nothing of this project:

    .venv-dp/bin/python benchmarks/peers/dp_tables.py WORK.npz [--epsilon 8 3 1 0.5] [--seed 0] [--without ebm]

WORK.npz is what `benchmarks.additive` writes: x and tx float64 (rows, columns) of the training and test rows, NaN where
missing, y and ty, levels int (columns,), 0 for numbers, and low and high of each column, the declared ranges.

Both are accounted for one row added or left out, δ = 1e-5: half of the sensitivity of a replaced row. Ranges and levels
are declared, and cost nothing. DP-EBM runs with InterpretML's defaults. The regression standardises by the ranges'
middle and the columns' exact deviations, which it would have to pay for, clips rows at the square root of half of its
columns, and takes 60 full steps with Gaussian noise, composed exactly.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import time

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

DELTA = 1e-5
STEPS, RATE = 60, 2.0


def mu_of(epsilon):
    """μ of Gaussian differential privacy with this ε at `DELTA` (Dong, Roth and Su 2022, corollary 1)."""

    def excess(mu):
        return norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2) - DELTA

    return brentq(excess, 1e-4, 80)


def regression(work, epsilon, rng):
    """Scores of the test rows."""
    levels = work["levels"]
    parts = []
    for x in (work["x"], work["tx"]):
        columns = []
        for j, many in enumerate(levels):
            if many:
                columns += [(x[:, j] == level).astype(float) for level in range(many)]
            else:
                middle = np.nanmedian(work["x"][:, j])
                filled = np.where(np.isnan(x[:, j]), middle, x[:, j])
                known = np.where(np.isnan(work["x"][:, j]), middle, work["x"][:, j])
                columns.append(np.clip((filled - middle) / (known.std() + 1e-9), -3, 3))
        parts.append(np.column_stack([np.ones(len(x)), *columns]))
    longest = math.sqrt(parts[0].shape[1] / 2)
    train, test = (z / np.maximum(1, np.linalg.norm(z, axis=1, keepdims=True) / longest) for z in parts)
    sigma = longest * math.sqrt(STEPS) / mu_of(epsilon)
    weights = np.zeros(train.shape[1])
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-train @ weights))
        noisy = train.T @ (p - work["y"]) + rng.normal(0, sigma, len(weights))
        weights -= RATE / len(train) * noisy / (longest / 2)
    return test @ weights


def boosting_machine(work, epsilon, seed):
    """Scores of the test rows by DP-EBM."""
    from interpret.privacy import DPExplainableBoostingClassifier

    levels, bounds, frames = work["levels"], {}, []
    for x in (work["x"], work["tx"]):
        columns = {}
        for j, many in enumerate(levels):
            if many:
                columns[f"c{j}"] = pd.Series(np.where(np.isnan(x[:, j]), -1, x[:, j]).astype(int).astype(str))
            else:
                middle = np.nanmedian(work["x"][:, j])
                columns[f"c{j}"] = pd.Series(np.where(np.isnan(x[:, j]), middle, x[:, j]))
                bounds[j] = (float(work["low"][j]), float(work["high"][j]))
        frames.append(pd.DataFrame(columns))
    kinds = ["nominal" if many else "continuous" for many in levels]
    model = DPExplainableBoostingClassifier(
        epsilon=epsilon, delta=DELTA, random_state=seed, n_jobs=1, feature_types=kinds, privacy_bounds=bounds
    )
    model.fit(frames[0], work["y"].astype(int))
    return model.predict_proba(frames[1])[:, 1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[8.0, 3.0, 1.0, 0.5])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without", nargs="*", default=[])
    told = parser.parse_args()
    work = dict(np.load(told.work))
    methods = {
        "regression": lambda epsilon: regression(work, epsilon, np.random.default_rng(told.seed)),
        "ebm": lambda epsilon: boosting_machine(work, epsilon, told.seed),
    }
    for name, run in methods.items():
        for epsilon in () if name in told.without else told.epsilon:
            used = time.process_time()
            scores = run(epsilon)
            print(
                json.dumps(
                    {
                        "method": name,
                        "epsilon": epsilon,
                        "AUC": float(roc_auc_score(work["ty"], scores)),
                        "CPU seconds": time.process_time() - used,
                        "version": importlib.metadata.version("interpret-core") if name == "ebm" else None,
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()

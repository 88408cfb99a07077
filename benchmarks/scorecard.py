"""The scorecard beside logistic regressions of scikit-learn over the pooled table, on the credit table.

    python -m benchmarks.scorecard [--quick] [--seeds 5]

Default of credit card clients: bank, network and retailer, about 12,900 training rows that all hold. The scorecard runs
as its own job does: counts by bin on labels under Paillier, the regression at a plain cut (a sealed one computes the
same; see `tests/algorithms/test_scorecard.py`). Beside it, over the same training and test rows, scikit-learn's
`LogisticRegression` on

- *standardised*: the pooled columns, each with mean 0 and deviation 1, categories as 0 and 1;
- *bins*: the pooled columns cut into ten quantile bins, one 0 or 1 for each bin (`KBinsDiscretizer`);
- *evidence*: the scorecard's own weights of evidence, pooled: what is lost by training vertically is the gap to it;
- *alone*: as *bins*, over the bank's own columns.

Figures are AUC on the test rows, of each seed and mean ± deviation.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from typing import Any

import numpy as np
import torch

import securevfl as sv
from benchmarks.common import data, write
from securevfl.run import join_parties
from securevfl.run.simulation import run_parties
from securevfl.testing.trial import roles_begun

__all__ = ["run"]


def run(seed: int, rows: int | None, epochs: int) -> dict[str, float] | None:
    """One seed: the scorecard and the regressions beside it.

    Args:
        seed: of the clients that each party holds, of the split and of training.
        rows: clients to take; None for all.
        epochs: of the scorecard.
    """
    people = data(lambda: sv.datasets.default_credit(overlap=0.85, seed=seed, rows=rows), "credit")
    if people is None:
        return None
    job = sv.Job(
        algorithm=sv.Scorecard(key_bits=2048),
        protection=sv.Plain(),
        epochs=epochs,
        patience=None,
        keep="last",
        seed=seed,
    )
    start = time.perf_counter()
    with roles_begun() as begun:
        ran = run_parties(job, people, join_parties(people, job), run="scorecard")
    spent = time.perf_counter() - start
    roles: dict[str, Any] = {role.site.name: role for role in begun}
    owner, train, test = people.active.name, ran.split.train, ran.split.test
    names = [owner, *sorted(table.name for table in people.passive)]
    y, held = (roles[owner].labels(part).cpu().numpy() for part in (train, test))
    columns = [[roles[name].features(part) for name in names] for part in (train, test)]
    with torch.no_grad():
        evidence = [
            np.concatenate([roles[n].half.bottom(x).cpu().numpy() for n, x in zip(names, each, strict=True)], axis=1)
            for each in columns
        ]
    pooled = [np.concatenate([x.cpu().numpy() for x in each], axis=1) for each in columns]
    own = [each[0].cpu().numpy() for each in columns]
    return {
        "scorecard": ran.trained[owner].test["auc"],
        "standardised": _theirs(pooled, y, held, cut=False),
        "bins": _theirs(pooled, y, held, cut=True),
        "evidence": _theirs(evidence, y, held, cut=False),
        "alone": _theirs(own, y, held, cut=True),
        "seconds": spent,
        "training rows": float(len(train)),
    }


def _theirs(x: list[np.ndarray], y: np.ndarray, held: np.ndarray, *, cut: bool) -> float:
    """The AUC of scikit-learn's regression, trained on x[0], on x[1]."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import KBinsDiscretizer

    fit: Any = LogisticRegression(max_iter=2000)
    if cut:
        bins = KBinsDiscretizer(10, encode="onehot", strategy="quantile", quantile_method="linear", subsample=None)
        fit = make_pipeline(bins, fit)
    with warnings.catch_warnings():
        # columns that are 0 or 1, or mostly one value, have fewer bins
        warnings.filterwarnings("ignore", "Bins whose width are too small")
        fit.fit(x[0], y)
    return float(roc_auc_score(held, fit.predict_proba(x[1])[:, 1]))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, 3,000 clients, three epochs")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=30)
    asked = parser.parse_args()
    seeds, rows, epochs = (1, 3000, 3) if asked.quick else (asked.seeds, None, asked.epochs)
    found: list[dict[str, float]] = []
    for seed in range(seeds):
        one = run(seed, rows, epochs)
        if one is None:
            return
        found.append(one)
        print(seed, {name: round(value, 4) for name, value in one.items()}, flush=True)
    summary = {
        name: {
            "mean": statistics.fmean(one[name] for one in found),
            "deviation": statistics.stdev(one[name] for one in found) if len(found) > 1 else 0.0,
        }
        for name in found[0]
        if name not in ("seconds", "training rows")
    }
    gaps = [one["scorecard"] - one["evidence"] for one in found]
    write(
        "scorecard", {"epochs": epochs, "seeds": found, "AUC": summary, "largest gap to evidence": max(map(abs, gaps))}
    )


if __name__ == "__main__":
    main()

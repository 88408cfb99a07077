"""What noise inside the shares costs: logistic regression on the whole credit table, for several ε, beside none.

    python -m benchmarks.shares_noise [--quick] [--seeds 3] [--metrics none]

Three parties, all training rows in one batch, ten epochs. Learning rate, momentum and clipping norm were chosen once,
on other seeds (100 to 102), for all ε alike. The run without noise does not clip.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch

import securevfl as sv
from benchmarks.common import data, write

EPSILONS = (None, 8.0, 4.0, 2.0, 1.0)
DELTA = 1e-5
CLIP = 6.0
EPOCHS = 10


def one(epsilon: float | None, seed: int, rows: int | None, metrics: str) -> dict[str, Any] | None:
    """Figures of one run; None where there is no table.

    Args:
        epsilon: of a row; None for no noise.
        seed: of the job and of the overlap.
        rows: of the table; None for all.
        metrics: of the validation rows, as `sv.Shares` has them; without any the last epoch is kept.
    """
    people = data(lambda: sv.datasets.default_credit(overlap=0.85, seed=seed, rows=rows), "the credit table")
    if people is None:
        return None
    dp = None if epsilon is None else sv.DP(model=sv.Gaussian(epsilon=epsilon, delta=DELTA, clip=CLIP))
    job = sv.Job(
        algorithm=sv.LogisticRegression(),
        protection=sv.Shares(lr=1.0, momentum=0.5, dp=dp, metrics=metrics),
        epochs=EPOCHS,
        batch_size=1 << 15,
        scale="quantile",
        keep="best" if metrics == "rounded" else "last",
        seed=seed,
    )
    run = sv.simulate(job, people).record.runs[-1]
    spent = max((total.epsilon_rdp for total in run.epsilon_totals), default=None)
    return {"epsilon": epsilon, "seed": seed, "reported": spent, **run.test}


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rows, one seed, one ε")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--metrics", choices=("rounded", "none"), default="rounded")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = [(e, s) for s in range(1 if options.quick else options.seeds) for e in EPSILONS]
    runs: list[dict[str, Any]] = []
    for epsilon, seed in cells[:2] if options.quick else cells:
        found = one(epsilon, seed, 1500 if options.quick else None, options.metrics)
        if found is None:
            return
        runs.append(found)
        print(found, flush=True)
    if not options.quick:
        means = {
            "none" if epsilon is None else f"{epsilon:g}": {
                what: statistics.mean(run[what] for run in runs if run["epsilon"] == epsilon)
                for what in ("auc", "log_loss")
            }
            for epsilon in EPSILONS
        }
        name = "shares_noise" if options.metrics == "rounded" else "shares_noise_no_metrics"
        write(name, {"delta": DELTA, "clip": CLIP, "epochs": EPOCHS, "means": means, "runs": runs})


if __name__ == "__main__":
    main()

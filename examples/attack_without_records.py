"""What z tells an active party that knows no record of the passive parties: their first weights are secret, and the
distribution of the features may not be.

python examples/attack_without_records.py [--rows 3500] [--out benchmarks/results/attack_without_records.json]

Four attacks on the rows that train, on whole jobs with identity bottoms, whose first weights come from the operating
system:

- *with the job file*: first weights drawn as the passive parties draw them, from what the job file says;
- *with a share of the weights*: what version 0.1's active party knew of its own, half of them; now it knows nothing;
- *with a public sample, one look*: features are X = Z A for an unknown A where h ≥ d. Independent components (FastICA,
  Hyvärinen 1999) of X and of Z are the same up to order and sign; a sample of the same population tells which is which;
- *with a public sample and the Gram matrix*: the same from the features up to a rotation, after a few epochs.

The sample is of other clients of the same table, encoded as the parties do.
"""

import argparse
import json
import math
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from attack_on_z import View, watch
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning

import securevfl as sv
from securevfl.attacks.gram import factor_gram
from securevfl.data import FeatureEncoder
from securevfl.party_context import PartySecret, derive_seed
from securevfl.privacy.noise import draw_gaussian
from securevfl.run.machine import describe_machine, package_versions

QUANTILES = np.linspace(0.005, 0.995, 200)
SAMPLE = 6_000


def score(found: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Mean correlation of the columns, and rms error over the deviation; guessing the mean has an error of 1."""
    columns = [j for j in range(truth.shape[1]) if min(found[:, j].std(), truth[:, j].std()) > 0]
    deviation = np.sqrt(((truth - truth.mean(axis=0)) ** 2).mean())
    return {
        "correlation": float(np.mean([np.corrcoef(found[:, j], truth[:, j])[0, 1] for j in columns])),
        "error": float(np.sqrt(((found - truth) ** 2).mean()) / deviation),
    }


def in_order(found: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Columns of `found` (n, d), each turned and put where `like` (N, d) has the column of the nearest quantiles."""
    there = np.quantile(like, QUANTILES, axis=0)[:, None, :]
    cost = np.stack(
        [np.abs(np.quantile(sign * found, QUANTILES, axis=0)[:, :, None] - there).mean(axis=0) for sign in (1, -1)]
    )
    mine, theirs = linear_sum_assignment(cost.min(axis=0))
    ordered = np.empty_like(found)
    ordered[:, theirs] = found[:, mine] * np.where(cost[0, mine, theirs] <= cost[1, mine, theirs], 1, -1)
    return ordered


def by_components(seen: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """Features (n, d) from an unknown linear image of them (n, k), k ≥ d, and a sample (N, d) of their distribution."""
    d = sample.shape[1]
    basis = np.linalg.svd(seen - seen.mean(axis=0), full_matrices=False)[0][:, :d] * math.sqrt(len(seen))
    theirs, public = (FastICA(d, whiten="unit-variance", random_state=0, max_iter=500) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        components, like = theirs.fit_transform(basis), public.fit_transform(sample)
    return np.asarray(in_order(components, like) @ public.mixing_.T + public.mean_)


def from_the_job_file(job: sv.Job, widths: dict[str, int], h: int) -> np.ndarray:
    """First weights (d, h) by the passive parties' rule, with what the job's seed gives in place of their secrets."""

    def stream(name: str, count: int) -> bytes:
        return PartySecret.from_seed(job.seed, name).keystream(count, "cut", "first weights")

    blocks = [
        draw_gaussian((width, h), math.sqrt(1 / width), lambda count, name=name: stream(name, count)).numpy()  # type: ignore[misc]
        for name, width in widths.items()
    ]
    return np.vstack(blocks)


def half_of_them(job: sv.Job, active: str, widths: dict[str, int], h: int) -> np.ndarray:
    """What version 0.1's active party had: its own half of the first weights, (d, h)."""
    own = derive_seed(job.seed, "private", active)
    halves = [
        np.random.default_rng(derive_seed(own, "cut", name)).normal(scale=math.sqrt(0.5 / width), size=(width, h))
        for name, width in widths.items()
    ]
    return np.vstack(halves)


def first_looks(view: View) -> np.ndarray:
    """z of each training row as it was first seen, (n, h)."""
    seen = view.shown
    found = np.zeros((seen.training_rows, seen.z[0].shape[1]))
    for rows, z in zip(seen.batches[: seen.per_epoch], seen.z, strict=False):
        found[rows] = z
    return found


def attacks(view: View, sample: np.ndarray, known: np.ndarray, half: np.ndarray) -> dict[str, dict[str, float]]:
    """Name of each attack → its score on the training rows."""
    rows = view.shown.training_rows
    truth, z = view.truth[:rows], first_looks(view)
    prior = half @ half.T + np.eye(len(half))
    found = {
        "the job file, one look": score(z @ np.linalg.pinv(known), truth),
        "half of the first weights by the rule of 0.1, one look": score(np.linalg.solve(prior, half @ z.T).T, truth),
        "Gram matrix, public sample": score(by_components(factor_gram(view.shown)[0][:rows], sample), truth),
        "other clients (control)": score(np.resize(sample, truth.shape), truth),
    }
    if z.shape[1] >= truth.shape[1]:
        found["one look, public sample"] = score(by_components(z, sample), truth)
    return found


def main(arguments: Sequence[str] | None = None) -> dict[str, dict[str, dict[str, float]]]:
    """Run the attacks for several widths of the cut; means over runs with secrets of their own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=3_500, help="clients of the credit table")
    parser.add_argument("--runs", type=int, default=3, help="runs, each with new secrets")
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 32, 64], help="of the cut")
    parser.add_argument("--out", type=Path, help="file for the figures")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    parties = sv.datasets.default_credit(overlap=0.85, seed=0, rows=options.rows)
    everyone = sv.datasets.default_credit(overlap=1.0, seed=0)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for h in options.widths:
        algorithm = sv.SplitNN(hidden=h, top=(16,), lr=0.005, cut_lr=1.0)
        job = sv.Job(algorithm=algorithm, protection=sv.Plain(fixed_point=True), epochs=4, batch_size=256, seed=0)
        aligned = sv.align_parties(parties, job)
        runs = []
        for _ in range(options.runs):
            view = watch(job, parties, aligned, secrets={name: PartySecret.generate() for name in parties})
            sample, widths = [], {}
            for table in parties.passive:
                held, other = set(table.ids), everyone[table.name]
                free = np.array([row for row, name in enumerate(other.ids) if name not in held])[:SAMPLE]
                sample.append(FeatureEncoder.fit(other, free).transform(other, free).astype(np.float64))
                widths[table.name] = sample[-1].shape[1]
            known, half = from_the_job_file(job, widths, h), half_of_them(job, parties.active.name, widths, h)
            runs.append(attacks(view, np.hstack(sample), known, half))
        found[f"h = {h}"] = {
            name: {what: float(np.mean([run[name][what] for run in runs])) for what in ("correlation", "error")}
            for name in runs[0]
        }
        for name, figures in found[f"h = {h}"].items():
            print(f"h = {h:<4}{name:<58}{figures['correlation']:>7.2f}{figures['error']:>8.0%}", flush=True)
    if options.out:
        content = {
            "machine": describe_machine(),
            "versions": package_versions(),
            "rows": options.rows,
            "runs": options.runs,
            **found,
        }
        options.out.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return found


if __name__ == "__main__":
    main()

"""Does it help a model to know how likely each linked row is true? Weights, a mixture, posteriors that see the label.

python -m benchmarks.linkage_weights [--seeds N] [--quick]
"""

from __future__ import annotations

import argparse

import numpy as np
from securevfl_psi.linkage import FamilyErrors, encode_records, link_records
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.common import write
from benchmarks.linkage import KEY, credit
from benchmarks.linkage_families import NAMES, files_of, schema

DIRTY = FamilyErrors(typo=0.3, missing=0.08)


def one(seed: int, rows: int) -> dict[str, dict[str, float]]:
    """AUC on clients that were never linked, by what is made of the probabilities; at two thresholds."""
    bank, other, label = credit()
    files = files_of(rows, 0.6, 0.5, seed, DIRTY)
    order, everyone = np.random.default_rng(seed).permutation(len(label)), np.union1d(*files.people)
    client = dict(zip(everyone.tolist(), order[: len(everyone)].tolist(), strict=True))
    test, own = order[len(everyone) :], bank.shape[1]
    a, b = (encode_records({n: table[n] for n in NAMES}, schema(NAMES), KEY) for table in files.tables)
    automatic = link_records(a, b)
    out = {}
    for name, found in (
        ("automatic", automatic),
        ("generous", link_records(a, b, threshold=automatic.threshold - 0.1)),
    ):
        of_a, of_b = (
            np.array([client[p] for p in people[taken].tolist()])
            for people, taken in zip(files.people, (found.rows_a, found.rows_b), strict=True)
        )
        x, y, likely = np.hstack([bank[of_a], other[of_b]]), label[of_a], np.clip(found.probabilities, 1e-3, 1)
        mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-9
        z, held = (x - mean) / scale, (np.hstack([bank[test], other[test]]) - mean) / scale

        def fit(x: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> LogisticRegression:
            return LogisticRegression(max_iter=1000).fit(x, y, sample_weight=weight)

        without = z.copy()
        without[:, own:] = 0  # with probability 1 - p the other's columns are somebody else's
        mixed = fit(np.vstack([z, without]), np.r_[y, y], np.r_[likely, 1 - likely + 1e-6])
        at, posterior = (np.arange(len(y)), y), likely
        alone = fit(z[:, :own], y, None).predict_proba(z[:, :own])[at]
        for _ in range(5):
            learned = fit(z, y, np.maximum(posterior, 1e-6))
            seen = likely * learned.predict_proba(z)[at]
            posterior = seen / (seen + (1 - likely) * alone)
        true = of_a == of_b
        models = {"plain": fit(z, y, None), "weighted": fit(z, y, likely), "mixture": mixed, "posterior": learned}
        models["true rows only"] = fit(z[true], y[true], None)
        out[name] = {k: float(roc_auc_score(label[test], m.predict_proba(held)[:, 1])) for k, m in models.items()}
        out[name]["wrong"] = float((~true).mean())
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="one seed of 500 rows")
    options = parser.parse_args()
    runs = [one(seed, 500 if options.quick else 2500) for seed in range(1 if options.quick else options.seeds)]
    figures: dict[str, object] = {"seeds": len(runs)}
    for name in runs[0]:
        for what in runs[0][name]:
            values = np.array([run[name][what] for run in runs])
            gains = values - np.array([run[name]["plain"] for run in runs])
            spread = float(gains.std(ddof=1) / np.sqrt(len(runs))) if len(runs) > 1 else 0.0
            figures[f"{name}, {what}"] = {"mean": float(values.mean()), "gain": float(gains.mean()), "error": spread}
    write("linkage_weights", figures)


if __name__ == "__main__":
    main()

"""What explained scores tell the active party of other parties' columns, beyond the scores themselves.

    python -m benchmarks.explained [--quick]

The bank of the credit table explains 1,500 clients' scores. It knows the other parties' columns of 300 of them, and
estimates these columns of the rest, by ridge and by boosted trees; of the two the better one counts for each column. It
has its own columns and *scores*, and of a sum its own part of each score, too; in addition what each party added
(*totals*, exact or Shapley values); or all answers to rows that mix persons, from which Shapley values are computed
(*answers*). R² is that of the rest, a mean over all columns of a party, and of the column that gains most over scores.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

import securevfl as sv
from benchmarks.common import data, write
from securevfl.attacks.learners import fit_ridge, standardise
from securevfl.attacks.measure import Known
from securevfl.data import FeatureEncoder, Parties
from securevfl.run import Aligned, join_parties
from securevfl.run.explained.coalitions import Coalitions, draw_background
from securevfl.run.simulation import predict_parties

ROWS, EXPLAINED, KNOWN, BACKGROUND = 6_000, 1_500, 300, 8
JOBS = {
    "additive, terms": (sv.Additive(), 60),
    "logistic regression, terms": (sv.LogisticRegression(), 10),
    "SplitNN, Shapley values": (sv.SplitNN(hidden=16), 10),
    "boosting, Shapley values": (sv.Boosting(), 40),
}


def encode_columns(model: sv.Model, parties: Parties, aligned: Aligned, rows: np.ndarray, party: str) -> np.ndarray:
    """A party's encoded columns of common rows, standardised, (n, d)."""
    encoder = FeatureEncoder.from_state(model.parts[party]["encoder"])
    x = np.nan_to_num(encoder.transform(parties[party], aligned.parties[party].rows[rows])).astype(np.float64)
    return standardise(x[:, x.std(axis=0) > 0])


def open_answers(model: sv.Model, parties: Parties, aligned: Aligned, rows: np.ndarray) -> np.ndarray:
    """All answers to rows that mix each explained person with others, (n, answers)."""
    players = (parties.active.name, *sorted(name for name in parties if name != parties.active.name))
    others = draw_background(BACKGROUND, aligned.common_rows, model.job.seed, rows.tolist())
    sets = Coalitions(players=players, explained=rows, background=others)
    mixed = {
        name: {owner: replace(one, rows=one.rows[sets.places(name)]) for owner, one in found.items()}
        for name, found in aligned.alignments.items()
    }
    scores, _ = predict_parties(model.job, parties, replace(aligned, alignments=mixed), model.parts, run="explain")
    whole, _, more = np.split(scores[:, 1], [len(rows), len(rows) + len(others)])
    by_row = more.reshape(-1, len(rows), len(others)).transpose(1, 0, 2).reshape(len(rows), -1)
    return np.hstack([whole[:, None], by_row])


def attack(view: np.ndarray, wanted: np.ndarray, known: np.ndarray, seed: int) -> np.ndarray:
    """R² of each wanted column of the rows that are not known, by the better of two learners, at least 0."""
    rest = np.setdiff1d(np.arange(len(view)), known)
    spread = ((wanted[rest] - wanted[rest].mean(axis=0)) ** 2).mean(axis=0)
    linear = fit_ridge(np.arange(len(view)), view, Known(known, wanted[known])).values[rest]
    trees = np.stack(
        [
            HistGradientBoostingRegressor(max_iter=80, learning_rate=0.1, max_leaf_nodes=8, random_state=seed)
            .fit(view[known], column[known])
            .predict(view[rest])
            for column in wanted.T
        ],
        axis=1,
    )
    found = [1 - ((one - wanted[rest]) ** 2).mean(axis=0) / spread for one in (linear, trees)]
    return np.maximum(np.max(found, axis=0), 0.0)


def measure_job(model: sv.Model, parties: Parties, seed: int) -> dict[str, Mapping[str, object]]:
    """R² of every passive party's columns from each view."""
    aligned = join_parties(parties, model.job)
    rows = np.sort(np.random.default_rng(seed).permutation(aligned.common_rows)[:EXPLAINED])
    active = parties.active
    ids = list(active.ids_of(aligned.parties[active.name].rows[rows]))
    explained = sv.explain(model, parties, ids, background=BACKGROUND, aligned=aligned)
    own = encode_columns(model, parties, aligned, rows, active.name)
    known_own = explained.totals[:, :1] if explained.method == "terms" else own[:, :0]  # its own part gives its own sum
    scores = np.hstack([own, explained.sums[:, None], known_own])
    if explained.method == "terms":
        scores = np.hstack([scores, explained.sums[:, None] - known_own])
    views = {"own columns": own, "scores": scores, "totals": np.hstack([scores, explained.totals])}
    if explained.method == "shapley":
        views["answers"] = np.hstack([own, open_answers(model, parties, aligned, rows)])
    known = np.sort(np.random.default_rng(seed + 1).permutation(len(rows))[: min(KNOWN, len(rows) // 2)])
    found: dict[str, Mapping[str, object]] = {}
    for party in sorted(name for name in parties if name != active.name):
        wanted = encode_columns(model, parties, aligned, rows, party)
        each = {name: attack(standardise(view), wanted, known, seed) for name, view in views.items()}
        gains = {name: float((each[name] - each["scores"]).max()) for name in views if name not in ("own columns",)}
        found[party] = {
            "columns": wanted.shape[1],
            "mean R²": {name: round(float(values.mean()), 3) for name, values in each.items()},
            "largest gain over scores": {name: round(gain, 3) for name, gain in gains.items() if name != "scores"},
        }
    return found


def main() -> None:
    """Measure all jobs, and write `explained.json`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rows and epochs")
    quick = parser.parse_args().quick
    parties = data(lambda: sv.datasets.default_credit(rows=600 if quick else ROWS), "the credit table")
    if parties is None:
        return
    two = Parties.of(parties.active, parties["network"])
    found = {}
    for name, (algorithm, epochs) in JOBS.items():
        job = sv.Job(algorithm=algorithm, protection=sv.Plain(), epochs=2 if quick else epochs)
        for title, tables in (("three parties", parties), ("two parties", two)):
            found[f"{name}, {title}"] = measure_job(sv.simulate(job, tables).model(), tables, 0)
    write("explained", {"rows": ROWS, "explained": EXPLAINED, "known": KNOWN, "background": BACKGROUND, "R²": found})


if __name__ == "__main__":
    main()

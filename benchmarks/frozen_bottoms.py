"""Which bottom should a passive party have? Utility and attacks, under a sealed cut, of identity, frozen and trainable
bottoms on three data sets.

    python -m benchmarks.frozen_bottoms [--quick] [--data credit|handwritten|mnist …] [--seeds N] [--out FILE]

Two parties. Jobs run without encryption; the attackers are given what a sealed cut opens: z of each row at the active
party, and ∂L/∂a at a passive party whose bottom is trained (`benchmarks.gate.measure.opened`). Cells that the file has
already are left out, so that a broken run goes on. Features: R² of the passive party's standardised columns, from all
looks at a row, with known records: the best of the suite's linear solve, its ridge with the active party's own columns,
and a ridge on squares and absolute values beside them. Without a known record: how well distances between
looks give distances between rows (Spearman). Labels: AUC from gradients, with none known and with 40.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import securevfl as sv
from benchmarks.common import RESULTS, data
from benchmarks.gate.measure import opened
from securevfl.jobs.machine import machine, versions
from securevfl.jobs.recorder import Recorder
from securevfl.privacy.attacks import Known, View
from securevfl.privacy.attacks import features as on_features
from securevfl.privacy.attacks import label_gradients as on_labels
from securevfl.privacy.attacks.learners import ridge
from securevfl.privacy.attacks.measure import draw_known, r_squared, ranked

__all__ = ["BOTTOMS", "DATA", "main"]

BOTTOMS: Mapping[str, Any] = {
    "identity": (),
    "trainable 64": (64,),
    "frozen relu 64": sv.Frozen(64),
    "frozen fourier 64": sv.Frozen(64, "fourier"),
    "frozen relu 256": sv.Frozen(256),
    "self-supervised 64": sv.Frozen(64, learned="own rows"),
    "self-supervised 256": sv.Frozen(256, learned="own rows"),
}
"""Name → bottom of both parties; where it is frozen, the active party trains a perceptron of that width."""

EPOCHS = 20
KNOWN = (100, 600)
_LABELS = 40
_IMAGE = 300
"""Columns from which a row is an image."""
_BENT = 12
"""Principal directions of the looks whose squares and absolute values a learner gets too."""


def _credit(seed: int, quick: bool) -> sv.Parties:
    return sv.datasets.limited_credit(
        overlap=1.0, seed=seed, rows=900 if quick else 8000, parties=2, valid=0.2, test=0.2, labels="own"
    )


def _handwritten(seed: int, quick: bool) -> sv.Parties:
    return sv.datasets.load("handwritten", overlap=1.0, seed=seed, parties=2, valid=0.2, test=0.2)


def _mnist(seed: int, quick: bool) -> sv.Parties:
    rows, tests = (1000, 300) if quick else (7000, 2000)
    return sv.datasets.load("mnist", overlap=1.0, seed=seed, rows=rows, test_rows=tests)


DATA = {
    "credit": (_credit, {"scale": "quantile"}, "auc"),
    "handwritten": (_handwritten, {}, "accuracy"),
    "mnist": (_mnist, {}, "accuracy"),
}
"""Name → what loads it, what its job has beside the others', and the metric."""


def job_of(name: str, bottom: str, hidden: int, seed: int, *, epochs: int, valid_every: int) -> sv.Job:
    """The job of a cell; `hidden` 1 stands for logistic regression: a cut of one value, or one for each class."""
    rates = {"lr": 0.003, "cut_lr": 0.1, "bottom": BOTTOMS[bottom]}
    algorithm: sv.Algorithm
    if hidden == 1 and bottom.startswith("trainable"):
        algorithm = sv.SplitNN(hidden=1 if name == "credit" else 10, top=(16,), **rates)  # logistic trains no bottom
    elif hidden == 1:
        algorithm = sv.LogisticRegression(**rates)
    else:
        algorithm = sv.SplitNN(hidden=hidden, top=(16,), **rates)
    return sv.Job(
        algorithm=algorithm,
        protection=sv.Plain(),
        epochs=epochs,
        batch_size=128,
        seed=seed,
        valid_every=valid_every,
        **DATA[name][1],  # type: ignore[arg-type]
    )


def features(bank: View, victim: str, x: np.ndarray, which: on_features.Which, count: int, seed: int) -> float | None:
    """R² of a party's columns by the best attack with `count` known records; None where there are too few rows."""
    rows, seen = on_features.sights(bank, victim, which)
    if len(rows) < count + 50 or not seen.size:
        return None
    known = draw_known(rows, x, count, seed)
    found = [
        on_features.infer(bank, victim, known, learner="linear", which=which),
        on_features.infer_with_own(bank, victim, known, which=which),
        ridge(rows, np.hstack([_bent(seen, count), bank.own(rows)]), known),
    ]
    rests = [estimate.without(known.rows) for estimate in found]
    return max(_explained(rest.values, x[rest.rows]) for rest in rests)


def _explained(estimate: np.ndarray, truth: np.ndarray) -> float:
    """R² over standardised columns; of images over all pixels together, for most of their edge hardly varies."""
    if truth.shape[1] < _IMAGE:
        return r_squared(estimate, truth)
    return float(1 - ((estimate - truth) ** 2).sum() / ((truth - truth.mean(axis=0)) ** 2).sum())


def _bent(seen: np.ndarray, count: int) -> np.ndarray:
    """Principal directions of the looks, with the squares and absolute values of the first ones: bottoms bend."""
    u, s, _ = np.linalg.svd(seen - seen.mean(axis=0), full_matrices=False)
    c = u[:, : min(int((s > s[0] * 1e-6).sum()), max(count // 4, 8), 64)] * np.sqrt(len(seen))
    return np.hstack([c, c[:, :_BENT] ** 2, np.abs(c[:, :_BENT])])


def own_columns(bank: View, victim: str, x: np.ndarray, count: int, seed: int) -> float:
    """R² by the active party's own columns and labels, without z."""
    rows, _ = on_features.sights(bank, victim, "trained")
    known = draw_known(rows, x, count, seed)
    rest = on_features.own_only(bank, victim, known).without(known.rows)
    return _explained(rest.values, x[rest.rows])


def distances(bank: View, victim: str, x: np.ndarray, which: on_features.Which) -> float:
    """Without a known record: Spearman correlation of distances between looks with distances between rows."""
    from scipy.stats import spearmanr

    rows, seen = on_features.sights(bank, victim, which)
    chosen = np.random.default_rng(0).permutation(len(rows))[:300]
    whitened = np.linalg.svd(seen - seen.mean(axis=0), full_matrices=False)
    u, s, _ = whitened
    z = u[:, s > s[0] * 1e-3][chosen]
    pairs = np.array(list(itertools.combinations(range(len(chosen)), 2)))[::7]
    true = x[rows][chosen]

    def apart(values: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.linalg.norm(values[pairs[:, 0]] - values[pairs[:, 1]], axis=1)
        return found

    return float(spearmanr(apart(z), apart(true)).statistic)


def labels(view: View, y: np.ndarray, seed: int) -> float | None:
    """AUC of the best attack on labels of training rows from gradients; None where none came."""
    if not view.gradients():
        return None
    known: Known = draw_known(view.train, y, _LABELS, seed)
    tried = [on_labels.norm(view), on_labels.direction(view), on_labels.spectral(view), on_labels.learned(view, known)]
    return max(ranked(one.without(known.rows), y, view.classes)[0] for one in tried)


def cell(name: str, bottom: str, hidden: int, seed: int, *, quick: bool) -> dict[str, Any]:
    """One job and what attacks got of it; a second one that validates once."""
    load, _, metric = DATA[name]
    people, epochs = load(seed, quick), 4 if quick else EPOCHS
    known = [count for count in KNOWN if not quick or count < 200]
    found: dict[str, Any] = {"data": name, "bottom": bottom, "hidden": hidden, "seed": seed}
    for every in (1, epochs):
        recorder = Recorder()
        job = job_of(name, bottom, hidden, seed, epochs=epochs, valid_every=every)
        result = sv.simulate(job, people, observers=dict.fromkeys(people, recorder))
        transcript = recorder.transcript()
        views = {party: opened_by(v) for (party, _), v in transcript.views.items()}
        bank, truth = views[people.active.name], transcript.truth(people.active.name)
        (victim,) = bank.passive
        x = truth.x[victim]
        rows = "validation rows, every epoch" if every == 1 else "validation rows, once"
        found[rows] = {str(k): features(bank, victim, x, "scored", k, seed) for k in known}
        found[rows] |= {"0": distances(bank, victim, x, "scored")}
        if every > 1:
            found["test, validated once"] = result.record.runs[-1].test[metric]
            continue
        found["test"] = result.record.runs[-1].test[metric]
        found["training rows"] = {str(k): features(bank, victim, x, "trained", k, seed) for k in known}
        found["training rows"] |= {"0": distances(bank, victim, x, "trained")}
        found["own columns"] = {str(k): own_columns(bank, victim, x, k, seed) for k in known}
        found["labels"] = labels(views[victim], truth.y, seed)
        found["labels, own columns"] = _without(views[victim], truth.y, seed)
        width = bank.looks["z", victim].all[0].values.shape[1]
        found |= {"width of z": width, "columns": x.shape[1], "values a column": epochs * width / x.shape[1]}
        sent = result.ledgers["plain"][people.active.name].entries
        found["messages of gradients"] = sum(entry.what == "cut/input gradient" for entry in sent)
    return found


def opened_by(view: View) -> View:
    """What a sealed cut leaves of a view. With one passive party, z is its part."""
    parts = {("z", about): looks for (what, about), looks in view.looks.items() if what == "part of z"}
    left = opened(view)
    left.looks.update(parts)  # type: ignore[attr-defined]
    return left


def _without(view: View, y: np.ndarray, seed: int) -> float:
    known = draw_known(view.train, y, _LABELS, seed)
    return ranked(on_labels.without_gradients(view, known).without(known.rows), y, view.classes)[0]


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the cells that are missing, write all, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frozen_bottoms", description="Bottoms compared.")
    parser.add_argument("--quick", action="store_true", help="small tables, one seed")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no cell after so long")
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args(arguments)
    if asked.quick:
        os.environ.setdefault("SECUREVFL_BENCHMARKS", str(Path("runs") / "benchmarks-quick"))
    out = asked.out or (Path("runs/benchmarks-quick") if asked.quick else RESULTS) / "frozen_bottoms.json"
    torch.set_num_threads(1)
    cells = json.loads(out.read_text(encoding="utf-8"))["cells"] if out.exists() and not asked.quick else []
    have = {(c["data"], c["bottom"], c["hidden"], c["seed"]) for c in cells}
    began = time.perf_counter()
    for seed, name, hidden, bottom in itertools.product(
        range(1 if asked.quick else asked.seeds), asked.data, (16, 1), BOTTOMS
    ):
        if (name, bottom, hidden, seed) in have or time.perf_counter() - began > 60 * asked.minutes:
            continue
        if data(lambda name=name, seed=seed: DATA[name][0](seed, asked.quick), name) is None:  # type: ignore[misc]
            continue
        start = time.perf_counter()
        cells.append(cell(name, bottom, hidden, seed, quick=asked.quick))
        cells[-1]["seconds"] = round(time.perf_counter() - start, 1)
        content = {"machine": machine(), "versions": versions(), "epochs": 4 if asked.quick else EPOCHS, "cells": cells}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(line(cells[-1:]), flush=True)
    print()
    for name, hidden, bottom in itertools.product(asked.data, (16, 1), BOTTOMS):
        some = [c for c in cells if (c["data"], c["hidden"], c["bottom"]) == (name, hidden, bottom)]
        if some:
            print(line(some))
    return {"cells": cells}


def line(cells: Sequence[Mapping[str, Any]]) -> str:
    """Means over seeds of one cell."""

    def mean(*path: str) -> str:
        values = []
        for one in cells:
            value: Any = one
            for key in path:
                value = None if value is None else value.get(key)
            if value is not None:
                values.append(float(value))
        return f"{statistics.fmean(values):.3f}" if values else "–"

    first = cells[0]
    told = [f"{first['data']:<12}{first['bottom']:<20} h={first['hidden']:<3} n={len(cells)}"]
    told += [f"test {mean('test')}/{mean('test, validated once')}", f"labels {mean('labels')}"]
    for what in ("training rows", "validation rows, every epoch", "validation rows, once", "own columns"):
        told.append(f"{what} " + "/".join(mean(what, k) for k in ("0", "100", "600")))
    return "; ".join(told)


if __name__ == "__main__":
    main()

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
from securevfl.attacks import Known, PartyView, feature_inference, label_inference
from securevfl.attacks.learners import fit_ridge, linear_solve
from securevfl.attacks.measure import draw_known, r_squared, score_ranking
from securevfl.experiments.recorder import Recorder
from securevfl.run import join_parties
from securevfl.run.machine import describe_machine, package_versions
from securevfl.run.simulation import Aligned

__all__ = ["BOTTOMS", "CELLS", "DATA", "main", "tables"]

Cell = dict[str, Any]

BOTTOMS: Mapping[str, Any] = {
    "identity": (),
    "trainable 64": (64,),
    "frozen relu 64": sv.Frozen(64),
    "frozen fourier 64": sv.Frozen(64, "fourier"),
    "self-supervised 64": sv.Frozen(64, learned="own rows", steps=300),
    "frozen relu 256": sv.Frozen(256),
}
"""Name → bottom of both parties; where it is frozen, the active party trains a perceptron of that width."""

CELLS = [(16, bottom) for bottom in BOTTOMS] + [
    (1, bottom) for bottom in ("identity", "frozen relu 64", "frozen fourier 64", "self-supervised 64")
]
"""Width of the cut, and bottom; 1 stands for logistic regression, with one value for each class where there are more
than two."""

EPOCHS = 16
KNOWN = (100, 600)
_LABELS = 40
_IMAGE = 300
"""Columns from which a row is an image."""
_DIRECTIONS = 50
_BENT = 12
"""Principal directions of the looks whose squares and absolute values a learner gets too."""


def _credit(seed: int, quick: bool) -> sv.Parties:
    return sv.datasets.limited_credit(
        overlap=1.0, seed=seed, rows=900 if quick else 4000, parties=2, valid=0.25, test=0.25, labels="own"
    )


def _handwritten(seed: int, quick: bool) -> sv.Parties:
    return sv.datasets.load("handwritten", overlap=1.0, seed=seed, parties=2, valid=0.2, test=0.2)


def _mnist(seed: int, quick: bool) -> sv.Parties:
    rows, tests = (1000, 300) if quick else (4000, 2000)
    return sv.datasets.load("mnist", overlap=1.0, seed=seed, rows=rows, test_rows=tests)


DATA = {
    "credit": (_credit, {"scale": "quantile"}, "auc"),
    "handwritten": (_handwritten, {}, "accuracy"),
    "mnist": (_mnist, {}, "accuracy"),
}
"""Name → what loads it, what its job has beside the others', and the metric."""


def job_of(name: str, bottom: str, hidden: int, seed: int, *, epochs: int) -> sv.Job:
    """The job of a cell."""
    rates = {"lr": 0.003, "cut_lr": 0.1, "bottom": BOTTOMS[bottom]}
    narrow = hidden == 1
    return sv.Job(
        algorithm=sv.LogisticRegression(**rates) if narrow else sv.SplitNN(hidden=hidden, top=(16,), **rates),
        protection=sv.Plain(),
        epochs=epochs,
        batch_size=128,
        seed=seed,
        **DATA[name][1],  # type: ignore[arg-type]
    )


def features(bank: PartyView, rows: np.ndarray, seen: np.ndarray, x: np.ndarray, count: int, seed: int) -> float | None:
    """R² of a party's columns by the best attack with `count` known records; None where there are too few rows.

    Args:
        bank: the attacker's view.
        rows: numbers of the rows that were seen, (n,).
        seen: all that was seen of each, side by side, (n, numbers).
        x: the party's columns, of all numbered rows.
        count: of known records.
        seed: of their choice.
    """
    if len(rows) < count + 50 or not seen.size:
        return None
    known = draw_known(rows, x, count, seed)
    own = _own(bank, rows)
    found = [
        linear_solve(rows, seen, known),
        fit_ridge(rows, np.hstack([seen, own]), known),
        fit_ridge(rows, np.hstack([_bent(seen, count), own]), known),
    ]
    rests = [estimate.exclude_rows(known.rows) for estimate in found]
    return max(_explained(rest.values, x[rest.rows]) for rest in rests)


def _own(bank: PartyView, rows: np.ndarray) -> np.ndarray:
    """The active party's own columns and labels; of images the principal directions."""
    own = bank.own_columns(rows)
    if own.shape[1] < _IMAGE:
        return own
    u, s, _ = np.linalg.svd(own - own.mean(axis=0), full_matrices=False)
    found: np.ndarray = u[:, :_DIRECTIONS] * s[:_DIRECTIONS]
    return found


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


def own_columns(bank: PartyView, rows: np.ndarray, x: np.ndarray, count: int, seed: int) -> float:
    """R² by the active party's own columns and labels, without z."""
    known = draw_known(rows, x, count, seed)
    rest = fit_ridge(rows, _own(bank, rows), known).exclude_rows(known.rows)
    return _explained(rest.values, x[rest.rows])


def distances(rows: np.ndarray, seen: np.ndarray, x: np.ndarray) -> float:
    """Without a known record: Spearman correlation of distances between looks with distances between rows."""
    from scipy.stats import spearmanr

    chosen = np.random.default_rng(0).permutation(len(rows))[:300]
    u, s, _ = np.linalg.svd(seen - seen.mean(axis=0), full_matrices=False)
    z = u[:, s > s[0] * 1e-3][chosen]
    pairs = np.array(list(itertools.combinations(range(len(chosen)), 2)))[::7]
    true = x[rows][chosen]

    def apart(values: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.linalg.norm(values[pairs[:, 0]] - values[pairs[:, 1]], axis=1)
        return found

    return float(spearmanr(apart(z), apart(true)).statistic)


def labels(view: PartyView, y: np.ndarray, seed: int) -> float | None:
    """AUC of the best attack on labels of training rows from gradients; None where none came."""
    if not view.gradients():
        return None
    known: Known = draw_known(view.train, y, _LABELS, seed)
    tried = [
        label_inference.score_by_norm(view),
        label_inference.score_by_direction(view),
        label_inference.score_by_spectrum(view),
        label_inference.fit_on_gradients(view, known),
    ]
    return max(score_ranking(one.exclude_rows(known.rows), y, view.classes)[0] for one in tried)


def cell(name: str, people: sv.Parties, aligned: Aligned, bottom: str, hidden: int, seed: int, *, quick: bool) -> Cell:
    """One job, and what attacks got of it."""
    metric, epochs = DATA[name][2], 4 if quick else EPOCHS
    known = [count for count in KNOWN if not quick or count < 200]
    recorder, job = Recorder(), job_of(name, bottom, hidden, seed, epochs=epochs)
    result = sv.simulate(job, people, aligned=aligned, observers=dict.fromkeys(people, recorder))
    transcript = recorder.transcript()
    views = {party: opened_by(v) for (party, _), v in transcript.views.items()}
    bank, truth = views[people.active.name], transcript.truth(people.active.name)
    (victim,) = bank.passive
    x, width = truth.x[victim], bank.observations["z", victim].all[0].values.shape[1]
    found: Cell = {"data": name, "bottom": bottom, "hidden": hidden, "seed": seed}
    found |= {"test": result.record.runs[-1].test[metric], "labels": labels(views[victim], truth.y, seed)}
    found |= {"labels, own columns": _without(views[victim], truth.y, seed)}
    found |= {"width of z": width, "columns": x.shape[1], "values a column": epochs * width / x.shape[1]}
    trained, shown = feature_inference.stacked_observations(bank, victim, "trained")
    validated, scored = feature_inference.stacked_observations(bank, victim, "scored")
    sights = {
        "training rows": (trained, shown),
        "validation rows, every epoch": (validated, scored),
        "validation rows, once": (validated, scored[:, -width:]),  # of a job that validates after its last epoch
    }
    for what, (rows, seen) in sights.items():
        found[what] = {str(k): features(bank, rows, seen, x, k, seed) for k in known}
        found[what] |= {"0": distances(rows, seen, x)}
    if name == "credit" and bottom in ("identity", "frozen relu 64", "frozen fourier 64"):
        found["after epochs"] = {
            str(count): {
                which: {str(k): features(bank, rows, seen[:, : count * width], x, k, seed) for k in known}
                for which, (rows, seen) in (("trained", (trained, shown)), ("validated", (validated, scored)))
            }
            for count in (1, 2, 4, 8, 16)
            if count <= epochs
        }
    found["own columns"] = {str(k): own_columns(bank, trained, x, k, seed) for k in known}
    return found


def opened_by(view: PartyView) -> PartyView:
    """What a sealed cut leaves of a view. With one passive party, z is its part."""
    parts = {("z", about): found for (what, about), found in view.observations.items() if what == "part of z"}
    left = opened(view)
    left.observations.update(parts)  # type: ignore[attr-defined]
    return left


def _without(view: PartyView, y: np.ndarray, seed: int) -> float:
    known = draw_known(view.train, y, _LABELS, seed)
    return score_ranking(label_inference.fit_on_own_columns(view, known).exclude_rows(known.rows), y, view.classes)[0]


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the cells that are missing, write all, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frozen_bottoms", description="Bottoms compared.")
    parser.add_argument("--quick", action="store_true", help="small tables, one seed")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no cell after so long")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--page", action="store_true", help="write the tables of the file into the page, and end")
    asked = parser.parse_args(arguments)
    if asked.page:
        return _to_page(asked.out or RESULTS / "frozen_bottoms.json")
    if asked.quick:
        os.environ.setdefault("SECUREVFL_BENCHMARKS", str(Path("runs") / "benchmarks-quick"))
    out = asked.out or (Path("runs/benchmarks-quick") if asked.quick else RESULTS) / "frozen_bottoms.json"
    torch.set_num_threads(1)
    cells = json.loads(out.read_text(encoding="utf-8"))["cells"] if out.exists() and not asked.quick else []
    have = {(c["data"], c["bottom"], c["hidden"], c["seed"]) for c in cells}
    began = time.perf_counter()
    for seed, name in itertools.product(range(1 if asked.quick else asked.seeds), asked.data):
        wanted = [(hidden, bottom) for hidden, bottom in CELLS if (name, bottom, hidden, seed) not in have]
        if not wanted or time.perf_counter() - began > 60 * asked.minutes:
            continue
        people = data(lambda name=name, seed=seed: DATA[name][0](seed, asked.quick), name)  # type: ignore[misc]
        if people is None:
            continue
        aligned = join_parties(people, job_of(name, "identity", 16, seed, epochs=1))
        for hidden, bottom in wanted:
            if time.perf_counter() - began > 60 * asked.minutes:
                break
            start = time.perf_counter()
            cells.append(cell(name, people, aligned, bottom, hidden, seed, quick=asked.quick))
            cells[-1]["seconds"] = round(time.perf_counter() - start, 1)
            content = {
                "machine": describe_machine(),
                "versions": package_versions(),
                "epochs": 4 if asked.quick else EPOCHS,
            }
            out.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(content | {"cells": cells}, indent=1, ensure_ascii=False)
            out.write_text(text + "\n", encoding="utf-8")
            print(line(cells[-1:]), flush=True)
    print()
    for name, (hidden, bottom) in itertools.product(asked.data, CELLS):
        some = [c for c in cells if (c["data"], c["hidden"], c["bottom"]) == (name, hidden, bottom)]
        if some:
            print(line(some))
    return {"cells": cells}


_PAGE = Path(__file__).parents[1] / "docs/howto/frozen-bottoms.md"
_TITLES = {
    "credit": "Default of credit, 18 columns at the passive party, AUC",
    "handwritten": "Handwritten, accuracy",
    "mnist": "MNIST halves, accuracy",
}


def tables(cells: Sequence[Cell]) -> dict[str, str]:
    """Name → a table of the page, in Markdown: of each data set, and of what longer training shows."""
    found = {name: _table(name, cells) for name in DATA if any(one["data"] == name for one in cells)}
    longer = [one for one in cells if "after epochs" in one]
    return found | ({"epochs": _longer(longer)} if longer else {})


def _mean(cells: Sequence[Cell], *path: str) -> float | None:
    values = []
    for one in cells:
        value: Any = one
        for key in path:
            value = None if value is None else value.get(key)
        if value is not None:
            values.append(float(value))
    return statistics.fmean(values) if values else None


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _table(name: str, cells: Sequence[Cell]) -> str:
    lines = [
        f"| {_TITLES[name]} | `h` | seeds | test | labels | trained rows | validated rows | validated once |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for hidden, bottom in CELLS:
        some = [one for one in cells if (one["data"], one["hidden"], one["bottom"]) == (name, hidden, bottom)]
        if not some:
            continue
        tests = [float(one["test"]) for one in some]
        spread = f" ± {statistics.stdev(tests):.3f}" if len(tests) > 1 else ""
        parts = [bottom, f"{some[0]['width of z']}", f"{len(some)}", f"{statistics.fmean(tests):.3f}{spread}"]
        parts.append("none" if some[0]["labels"] is None else _shown(_mean(some, "labels")))
        for what in ("training rows", "validation rows, every epoch", "validation rows, once"):
            parts.append(" / ".join(_shown(_mean(some, what, count)) for count in ("100", "600")))
        lines.append(f"| {' | '.join(parts)} |")
    return "\n".join(lines) + "\n"


def _longer(cells: Sequence[Cell]) -> str:
    counts = list(cells[0]["after epochs"])
    lines = [
        "| R², 100 known records | `h` | rows | " + " | ".join(f"{count} epochs" for count in counts) + " |",
        "|---|---|---|" + "---|" * len(counts),
    ]
    for hidden, bottom in CELLS:
        some = [one for one in cells if (one["hidden"], one["bottom"]) == (hidden, bottom)]
        for which in ("trained", "validated") if some else ():
            values = [_shown(_mean(some, "after epochs", count, which, "100")) for count in counts]
            lines.append(f"| {bottom} | {hidden} | {which} | " + " | ".join(values) + " |")
    columns = cells[0]["columns"]
    for hidden in (16, 1):
        values = [f"{int(count) * hidden / columns:.2g}" for count in counts]
        lines.append(f"| *values a column* | {hidden} | | " + " | ".join(values) + " |")
    return "\n".join(lines) + "\n"


def _to_page(file: Path) -> dict[str, Any]:
    found = tables(json.loads(file.read_text(encoding="utf-8"))["cells"])
    text = _PAGE.read_text(encoding="utf-8")
    for name, table in found.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        head, rest = text.split(begin)
        text = f"{head}{begin}\n{table}\n{end}{rest.split(end)[1]}"
    _PAGE.write_text(text, encoding="utf-8")
    return {"tables": found}


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
    told += [f"test {mean('test')}", f"labels {mean('labels')}"]
    for what in ("training rows", "validation rows, every epoch", "validation rows, once", "own columns"):
        told.append(f"{what} " + "/".join(mean(what, k) for k in ("0", "100", "600")))
    return "; ".join(told)


if __name__ == "__main__":
    main()

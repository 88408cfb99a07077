"""What does a model tell that is handed out after training on shares? Attacks by each receiver of a part, on the full
credit table, with its three parties.

    python -m benchmarks.handed_out [--seeds N] [--rows N] [--epochs N] [--out FILE]

The passive party `network` has its own columns and the weights above them. First weights follow from the job's seed,
so that it knows their change, too. It ranks rows by the direction of its columns that changed most (the first singular
vector), with the sign open, which costs one bit. No label, and nobody else's data, is used. Then 80 columns are put
into its table, each of which marks one common row: the weights of those that mark training rows, less their mean, rank
the labels of these rows by their first singular vector. From the same weights, and half of the marked rows known, it
learns the retailer's columns of the others (ridge), beside its own columns.

The active party `bank` has its part, the layers above, and final predictions of the test rows. It looks for the
smallest change of each row's z that explains the prediction, and learns from that, its own columns and the prediction
what the others' columns are (ridge, with known records). The baseline is the same without its part.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from securevfl_crypto.ring import decode_words

import securevfl as sv
from benchmarks.common import RESULTS
from securevfl.attacks.learners import fit_ridge
from securevfl.attacks.measure import Estimate, auc, draw_known, r_squared
from securevfl.data import Parties
from securevfl.experiments.attacking import record_job
from securevfl.run.machine import describe_machine, package_versions
from securevfl.shares import NetworkShape, split_weights

MARKED = 80
KNOWN = (100, 1_000)


def job_of(algorithm: sv.Algorithm, seed: int, epochs: int) -> sv.Job:
    """The job that is attacked."""
    return sv.Job(algorithm=algorithm, protection=sv.Shares(model="parts"), epochs=epochs, batch_size=256, seed=seed)


def marked(people: Parties, seed: int) -> tuple[Parties, list[str]]:
    """The same tables, with columns at the network that mark rows which all parties hold; and whom they mark."""
    common = sorted(set.intersection(*(set(table.ids) for table in people.values())))
    chosen = np.random.default_rng(seed).permutation(len(common))[:MARKED]
    names = [common[i] for i in chosen]
    table = people["network"]
    at = {name: row for row, name in enumerate(table.ids)}
    columns = dict(table.columns)
    for number, name in enumerate(names):
        column = np.zeros(table.rows)
        column[at[name]] = 1.0
        columns[f"mark{number}"] = column
    tables = dict(people) | {"network": replace(table, columns=columns)}
    return Parties(tables, active=people.active.name), names


def parts_of(model: sv.Model, name: str) -> dict[str, np.ndarray]:
    """Block → weights."""
    return {block: one.numpy() for block, one in model.parts[name]["parts"]["shares"]["handed out"].items()}


def first_part(shape: NetworkShape, party: int, seed: int) -> np.ndarray:
    """The first weights of a party's block, which everybody knows."""
    block = split_weights(shape)[party][0]
    return decode_words(shape.first_weights(seed)[block.layer][block.first : block.last])


def either(positive: np.ndarray, score: np.ndarray) -> float:
    """AUC with the better sign."""
    found = auc(positive, score)
    return max(found, 1 - found)


def measure(algorithm: sv.Algorithm, seed: int, epochs: int, rows: int | None) -> dict[str, Any]:
    """All attacks on one job, and on the same with marked rows."""
    people = sv.datasets.default_credit(overlap=0.85, seed=seed, rows=rows)
    began = time.perf_counter()
    job = job_of(algorithm, seed, epochs)
    result, transcript, _ = record_job(job, people)
    view, truth = transcript.view("bank"), transcript.truth()
    found: dict[str, Any] = {"test auc": result.record.runs[-1].test["auc"]}
    model = result.model()
    shape = _shape(job, truth.x)
    x, y = truth.x["network"], truth.y
    (own,) = parts_of(model, "network").values()
    change = own - first_part(shape, 1, seed)
    direction = np.linalg.svd(change)[0][:, 0]
    for name, part in (("train", view.train), ("test", view.test)):
        found[f"labels, {name} rows"] = either(y[part] == 1, x[part] @ direction)
    found |= _active(model, result, truth.x, view.test, seed)
    found |= _marks(algorithm, people, seed, epochs)
    found["seconds"] = round(time.perf_counter() - began, 1)
    return found


def _shape(job: sv.Job, x: Any) -> NetworkShape:
    outputs = job.algorithm.build_architecture(1)
    hidden = () if outputs.top is None else (outputs.hidden, *outputs.top)
    names = ["bank", *sorted(name for name in x if name != "bank")]
    return NetworkShape(tuple(x[name].shape[1] for name in names), (), hidden, 2)


def _marks(algorithm: sv.Algorithm, people: Parties, seed: int, epochs: int) -> dict[str, Any]:
    tables, names = marked(people, seed)
    job = job_of(algorithm, seed, epochs)
    result, transcript, aligned = record_job(job, tables)
    view, truth = transcript.view("bank"), transcript.truth()
    ids, order = tables["network"].ids, aligned.parties["network"].rows
    place = {ids[row]: number for number, row in enumerate(order.tolist())}
    (own,) = parts_of(result.model(), "network").values()
    change = own - first_part(_shape(job, truth.x), 1, seed)
    columns = list(result.model().parts["network"]["encoder"]["columns"])
    inside = set(view.train.tolist())
    train = [(columns.index(f"mark{i}"), place[name]) for i, name in enumerate(names) if place[name] in inside]
    shift = change[[column for column, _ in train]]
    numbers = np.array([row for _, row in train])
    shift = shift - shift.mean(axis=0)
    score = shift @ np.linalg.svd(shift)[2][0]
    labels = truth.y[numbers] == 1
    known = len(numbers) // 2
    other = truth.x["retailer"]
    seen = np.hstack([truth.x["network"][numbers][:, : -len(names)], shift])
    bare = truth.x["network"][numbers][:, : -len(names)]
    told = draw_known(np.arange(len(numbers)), other[numbers], known, seed)
    gain = [
        _explained(fit_ridge(np.arange(len(numbers)), one, told).exclude_rows(told.rows), other[numbers])
        for one in (seen, bare)
    ]
    return {
        "marked training rows": len(numbers),
        "labels, marked rows": either(labels, score),
        "test auc, marked": result.record.runs[-1].test["auc"],
        "retailer's columns, marked rows, R²": gain[0],
        "retailer's columns, marked rows, R² without": gain[1],
    }


def _active(model: sv.Model, result: Any, x: Any, test: np.ndarray, seed: int) -> dict[str, Any]:
    (scores,) = result.scores.values()
    logits = np.log(scores[:, 1] / scores[:, 0])
    parts = list(parts_of(model, "bank").values())
    own, bias, above = parts[0], parts[1][0], parts[2:]
    at = x["bank"][test] @ own + bias
    implied = explain(at, above, logits)
    found = {}
    for victim in ("network", "retailer"):
        target = x[victim][test]
        for count in [one for one in KNOWN if one <= len(test) // 2]:
            told = draw_known(np.arange(len(test)), target, count, seed)
            bare = np.column_stack([x["bank"][test], logits])
            seen = np.hstack([bare, at, implied])
            for name, one in (("with its part", seen), ("without", bare), ("own columns", x["bank"][test])):
                guess = fit_ridge(np.arange(len(test)), one, told).exclude_rows(told.rows)
                found[f"{victim}'s columns, {count} known, {name}"] = _explained(guess, target)
    return found


def _explained(guess: Estimate, target: np.ndarray) -> float:
    return r_squared(guess.values, target[guess.rows])


def explain(at: np.ndarray, above: list[np.ndarray], logits: np.ndarray) -> np.ndarray:
    """The smallest change of each row's z with which the layers above give its prediction, (n, h)."""
    base, want = torch.from_numpy(at), torch.from_numpy(logits)
    layers = [torch.from_numpy(one) for one in above]
    z = torch.zeros_like(base, requires_grad=True)
    rule = torch.optim.Adam([z], lr=0.05)
    for _ in range(300):
        rule.zero_grad()
        a = base + z
        for layer in layers:
            a = torch.relu(a) @ layer[:-1] + layer[-1]
        (((a[:, 0] - want) ** 2).sum() + 1e-3 * (z**2).sum()).backward()  # type: ignore[no-untyped-call]
        rule.step()
    return z.detach().numpy()


ALGORITHMS = {"splitnn": sv.SplitNN(hidden=16, top=(16,)), "logistic": sv.LogisticRegression()}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--out", type=Path, default=RESULTS / "handed_out.json")
    asked = parser.parse_args()
    content: dict[str, Any] = json.loads(asked.out.read_text()) if asked.out.exists() else {"cells": {}}
    content |= {
        "machine": describe_machine(),
        "versions": package_versions(),
        "epochs": asked.epochs,
        "rows": asked.rows,
    }
    for seed in range(asked.seeds):
        for name, algorithm in ALGORITHMS.items():
            key = f"{name}, seed {seed}"
            if key not in content["cells"]:
                content["cells"][key] = measure(algorithm, seed, asked.epochs, asked.rows)
                asked.out.write_text(json.dumps(content, indent=1))
            print(key, json.dumps(content["cells"][key], indent=1))
    for name in ALGORITHMS:
        cells = [cell for key, cell in content["cells"].items() if key.startswith(name)]
        print(name, {figure: round(statistics.mean(cell[figure] for cell in cells), 3) for figure in cells[0]})


if __name__ == "__main__":
    main()

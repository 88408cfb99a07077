"""What training on shares costs in quality: fixed point, chords and truncations beside floating point.

    python -m benchmarks.shares_parity [--quick] [--data credit mnist]

Three columns. *Shares*: the job, with all parties in one process. *Floating point*: the same network from the same
first weights by the same optimiser, over the same batches that the parties dealt, in float64; of the epoch that the job
kept. *Plain*: `sv.Plain()`, the same algorithm under its own optimiser (Adam above the cut) from first weights of its
own. The first pair differs by the arithmetic alone; the second also by the optimiser and by chance.

- The full credit table, three parties, 16-16, ten seeds: one run's AUC moves by 0.003 with the chance of truncations.
- MNIST halves, 784-128-64-10: a part of the rows, with a coordinator without data as the third computing party,
  three seeds.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from securevfl_crypto.ring import decode_words
from sklearn.metrics import roc_auc_score

import securevfl as sv
from benchmarks.common import data, write
from securevfl.shares import NetworkShape, SharedTraining
from securevfl.shares.sharing import optimiser_of
from securevfl.testing.shared_reference import SharedReference

Batch = list[torch.Tensor]


@dataclass
class Heard:
    """What the parties dealt, before it was shared.

    Attributes:
        steps: party → its inputs, and the active party's targets, of each step.
        tested: party → its inputs of the test rows.
        shape: of the network.
    """

    steps: dict[str, list[Batch]] = field(default_factory=lambda: defaultdict(list))
    tested: dict[str, list[Batch]] = field(default_factory=lambda: defaultdict(list))
    shape: NetworkShape | None = None


@contextmanager
def listening() -> Iterator[Heard]:
    """Note what every party of this process deals, in training and for the predictions."""
    heard = Heard()
    train, predict = SharedTraining.train, SharedTraining.predict

    def noting(course: SharedTraining, words: Any, into: dict[str, list[Batch]]) -> Callable[[int], list[np.ndarray]]:
        def noted(number: int) -> list[np.ndarray]:
            found: list[np.ndarray] = words(number)
            into[course.member.site.name].append([torch.from_numpy(decode_words(one)) for one in found])
            return found

        return noted

    async def training(self: SharedTraining, sizes: Sequence[int], words: Any, **more: Any) -> None:
        if self.network is not None:
            heard.shape = self.network.shape
        await train(self, sizes, None if words is None else noting(self, words, heard.steps), **more)

    async def predicting(self: SharedTraining, sizes: Sequence[int], words: Any) -> np.ndarray | None:
        return await predict(self, sizes, None if words is None else noting(self, words, heard.tested))

    with patch.object(SharedTraining, "train", training), patch.object(SharedTraining, "predict", predicting):
        yield heard


def metrics(logits: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    """AUC where there are two classes, accuracy, log-loss."""
    if targets.shape[1] == 1:
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)
        right = (logits > 0) == (targets > 0.5)
        auc = {"auc": float(roc_auc_score(targets.numpy().ravel(), logits.numpy().ravel()))}
        return {**auc, "accuracy": float(right.double().mean()), "log_loss": float(loss)}
    right = logits.argmax(dim=1) == targets.argmax(dim=1)
    loss = torch.nn.functional.cross_entropy(logits, targets)
    return {"accuracy": float(right.double().mean()), "log_loss": float(loss)}


def in_floats(heard: Heard, job: sv.Job, names: Sequence[str], epochs: int, kept: int) -> dict[str, float]:
    """Metrics of the test rows by the float64 network as it is after `kept` of the `epochs` that the job ran."""
    if heard.shape is None:
        raise SystemExit("nothing was trained on shares")
    active = heard.steps[names[0]]
    network = SharedReference(heard.shape, optimiser_of(job.protection), job.batch_size, job.seed)
    for number in range(len(active) // epochs * kept):
        network.step([heard.steps[name][number][0] for name in names], active[number][1])
    tested = [torch.cat([part[0] for part in heard.tested[name]]) for name in names]
    with torch.no_grad():
        return metrics(network(tested), torch.cat([part[1] for part in heard.tested[names[0]]]))


@dataclass(frozen=True)
class Case:
    """Data, and what trains on them.

    Attributes:
        load: seed → the parties.
        algorithm: also under `sv.Plain()`.
        shares: how the parties share.
        epochs: of both.
        batch_size: of both.
        seeds: how many.
    """

    load: Callable[[int], sv.Parties]
    algorithm: sv.SplitNN
    shares: Callable[[sv.Parties], sv.Shares]
    epochs: int
    batch_size: int
    seeds: int

    def run(self, parties: sv.Parties, seed: int) -> dict[str, dict[str, float]]:
        """Column → metrics of the test rows."""
        common = {"algorithm": self.algorithm, "epochs": self.epochs, "batch_size": self.batch_size, "seed": seed}
        job = sv.Job(protection=self.shares(parties), **common)  # type: ignore[arg-type]
        names = [parties.active.name, *(table.name for table in parties.passive)]
        with listening() as heard:
            run = sv.simulate(job, parties).record.runs[-1]
        floats = in_floats(heard, job, names, len(run.epochs), run.best_epoch)
        plain = sv.simulate(sv.Job(protection=sv.Plain(), **common), parties).record.runs[-1]  # type: ignore[arg-type]
        found = {"shares": run.test, "floating point": floats, "plain": plain.test}
        return {name: {what: column[what] for what in floats} for name, column in found.items()}


def _with_helper(parties: sv.Parties) -> sv.Shares:
    return sv.Shares(computing=(parties.active.name, parties.passive[0].name, "helper"), lr=0.05)


def cases(*, quick: bool) -> dict[str, Case]:
    """Name of the data → what runs."""
    rows = {"rows": 1500} if quick else {}
    images = {"rows": 1500, "test_rows": 500} if quick else {"rows": 12_000, "test_rows": 10_000}
    return {
        "credit": Case(
            lambda seed: sv.datasets.default_credit(overlap=0.85, seed=seed, **rows),
            sv.SplitNN(hidden=16, top=(16,), lr=0.005, cut_lr=1.0),
            lambda parties: sv.Shares(),
            epochs=2 if quick else 8,
            batch_size=256,
            seeds=1 if quick else 10,
        ),
        "mnist": Case(
            lambda seed: sv.datasets.mnist(overlap=0.9, seed=seed, **images),  # type: ignore[arg-type]
            sv.SplitNN(hidden=128, top=(64,), lr=0.002, cut_lr=0.3),
            _with_helper,
            epochs=1 if quick else 6,
            batch_size=128,
            seeds=1 if quick else 3,
        ),
    }


def summary(runs: Sequence[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Metric → mean of each column, and the mean and largest difference of shares from the others."""
    found: dict[str, dict[str, float]] = {}
    for what in runs[0]["shares"]:
        row = {name: statistics.mean(run[name][what] for run in runs) for name in runs[0]}
        for other in ("floating point", "plain"):
            apart = [run["shares"][what] - run[other][what] for run in runs]
            row[f"mean difference from {other}"] = statistics.mean(apart)
            row[f"largest difference from {other}"] = max(apart, key=abs)
        found[what] = {name: round(value, 5) for name, value in row.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small data, one seed, and nothing is written")
    parser.add_argument("--data", nargs="+", default=["credit", "mnist"], choices=["credit", "mnist"])
    options = parser.parse_args()
    figures: dict[str, object] = {}
    for name in options.data:
        case = cases(quick=options.quick)[name]
        runs = []
        for seed in range(case.seeds):
            parties = data(lambda case=case, seed=seed: case.load(seed), name)  # type: ignore[misc]
            if parties is None:
                break
            runs.append(case.run(parties, seed))
            print(name, seed, runs[-1], flush=True)
        if runs:
            figures[name] = {"by seed": runs, "summary": summary(runs)}
    if options.quick:
        print(figures)
    else:
        write("shares_parity", figures)


if __name__ == "__main__":
    main()

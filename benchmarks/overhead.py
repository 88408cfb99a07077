"""What protection costs: the same job in plain, on secret shares, sealed by each scheme, and with differential privacy.

    python -m benchmarks.overhead [--quick] [--only credit,]

The whole credit table in three parties (SplitNN) and in two (logistic regression, which two can train on shares without
a third), at 20 % overlap in two (Entity Augmentation, RISA, FedCVT, FedDA), MNIST in two halves of the image (SplitNN
with a small CNN at each party) and in strips with two label owners (Multi-VFL), each algorithm under protections that
it can have, on the CPU and, in plain, on a GPU when torch sees one. Seconds of work are those of all parties together,
by phase; a simulation takes turns, so waiting is left out. CPU seconds are those of the process, with what its threads
take. Both are averaged over the epochs after the first, on shares over all epochs, because the first one makes random
numbers for the others.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch

import securevfl as sv
from benchmarks.common import RESULTS, data, write
from securevfl.data import datasets
from securevfl.party_context import Observer
from securevfl.report import RunRecord


def protections(*, full: bool) -> dict[str, Any]:
    """Label → protection."""
    found: dict[str, Any] = {
        "plain": sv.Plain(),
        "plain, fixed point": sv.Plain(fixed_point=True),
        "shares of three": sv.Shares(),
        "CKKS": sv.CKKS(),
        "BFV": sv.BFV(),
        "Paillier 2048": sv.Paillier(bits=2048),
    }
    if full:
        found["Paillier 3072, 2 epochs"] = sv.Paillier(bits=3072)
    found["DP on labels, ε = 8"] = sv.Plain(dp=sv.DP(labels=sv.Gaussian(epsilon=8)))
    found["CKKS + DP on labels, ε = 8"] = sv.CKKS(dp=sv.DP(labels=sv.Gaussian(epsilon=8)))
    return found


class CpuClock(Observer):
    """Notes the CPU time of this process when training begins and when each epoch ends.

    Attributes:
        epochs: CPU seconds of each epoch, its validation rows among them.
    """

    def __init__(self) -> None:
        self.epochs: list[float] = []
        self._last = time.process_time()

    def phase(self, name: str) -> None:
        """See `Observer.phase`."""
        self._last = time.process_time()

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        """See `Observer.epoch`."""
        now = time.process_time()
        self.epochs.append(now - self._last)
        self._last = now


def figures(run: RunRecord, cpu: list[float], baseline: float | None) -> dict[str, object]:
    """Of one run: medians would hide the first epoch's tables, so epochs are averaged from the second on.

    On shares the first epoch counts: it makes the random numbers that the others use.
    """
    first = 0 if run.protection.startswith("secret shares") else 1
    epochs, cpu = run.epochs[first:] or run.epochs, cpu[first:] or cpu
    phases = {
        phase: sum(getattr(p, phase) for e in epochs for p in e.phases.values()) / len(epochs)
        for phase in ("compute", "he")
    }
    work, taken = sum(phases.values()), sum(cpu) / len(cpu)
    score = run.test.get("auc", run.test.get("accuracy", 0.0))
    return {
        "seconds of work per epoch": work,
        "of it plain work": phases["compute"],
        "of it encryption": phases["he"],
        "CPU seconds per epoch": taken,
        "MB per epoch": sum(sum(e.bytes.values()) for e in epochs) / len(epochs) / 1e6,
        "test": score,
        "epsilon": max((e.epsilon_rdp for e in run.epsilon), default=None),
        "ratio to plain": None if baseline is None else taken / baseline,
    }


def table(parties: sv.Parties, jobs: dict[str, sv.Job]) -> dict[str, object]:
    """Figures of each job; ratios are of CPU seconds, to the job called plain."""
    found: dict[str, object] = {}
    base: float | None = None
    for label, job in jobs.items():
        start, clock = time.perf_counter(), CpuClock()
        result = sv.compare({"run": job}, parties, baselines=(), observer=clock)
        run = result.run("run")
        found[label] = figures(run, clock.epochs, base)
        if label == "plain":
            base = float(str(found[label]["CPU seconds per epoch"]))  # type: ignore[index]
        print(f"{label}: {time.perf_counter() - start:.1f} s, {found[label]}", flush=True)
    return found


def tables(*, quick: bool) -> dict[str, tuple[Callable[[], sv.Parties], dict[str, sv.Job]]]:
    """Title → the parties, and the jobs by label."""
    rows = 3000 if quick else None
    base = sv.Job(
        protection=sv.Plain(),
        algorithm=sv.SplitNN(hidden=16, top=(16,), lr=0.005, cut_lr=1.0),
        epochs=2 if quick else 8,
        batch_size=256,
    )
    few = [("plain", sv.Plain()), ("CKKS", sv.CKKS()), ("BFV", sv.BFV()), ("Paillier 2048", sv.Paillier(bits=2048))]
    found: dict[str, tuple[Callable[[], sv.Parties], dict[str, sv.Job]]] = {
        "credit, SplitNN": (
            lambda: datasets.default_credit(overlap=0.85, seed=0, rows=rows),
            {
                name: base.replace(protection=p, epochs=2 if name.endswith("2 epochs") else base.epochs)
                for name, p in protections(full=not quick).items()
            },
        )
    }
    linear = base.replace(algorithm=sv.LogisticRegression(lr=0.05))
    third = ("bank", "network", "notary")
    two: dict[str, Any] = {
        "plain": sv.Plain(),
        "shares of three, one without data": sv.Shares(computing=third, lr=0.05),
        "shares of two": sv.Shares(computing=2, lr=0.05),
        "shares of two with helper": sv.Shares(computing=2, helper="notary", lr=0.05),
        "CKKS": sv.CKKS(),
        "BFV": sv.BFV(),
        "Paillier 2048": sv.Paillier(bits=2048),
    }
    found["credit, logistic regression of two parties"] = (
        lambda: datasets.load("limited_credit", overlap=0.85, parties=2, seed=0, **({"rows": rows} if rows else {})),
        {name: linear.replace(protection=p) for name, p in two.items()},
    )
    limited = {"overlap": 0.2, "parties": 2, "seed": 0, "labels": "all"} | ({"rows": rows} if rows else {})
    for title, algorithm in (
        ("Entity Augmentation", sv.EntityAugmentation(hidden=16, top=(16,), lr=0.005, cut_lr=0.5)),
        ("RISA", sv.RISA(hidden=16, top=(16,), lr=0.005, cut_lr=0.5, self_training=1)),
    ):
        job = base.replace(algorithm=algorithm, epochs=max(3, algorithm.least_epochs), steps=20, scale="quantile")
        found[f"credit at 20 % overlap, {title}"] = (
            lambda: datasets.load("limited_credit", **limited),
            {name: job.replace(protection=p) for name, p in few},
        )
    entity = found["credit at 20 % overlap, Entity Augmentation"][1]
    entity["shares of three, one without data"] = entity["plain"].replace(
        protection=sv.Shares(computing=third, soft=True)
    )
    for title, algorithm in (  # they hand over representations: nothing can seal them
        ("FedCVT", sv.FedCVT(bottom=(16,), lr=0.005)),
        ("FedDA", sv.FedDA(hidden=16, top=(16,), bottom=(16,), lr=0.005, cut_lr=0.5, first=1, generator_steps=40)),
    ):
        job = base.replace(algorithm=algorithm, epochs=max(3, algorithm.least_epochs), steps=20, scale="quantile")
        noisy = sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=8)))
        found[f"credit at 20 % overlap, {title}"] = (
            lambda: datasets.load("limited_credit", **limited),
            {"plain": job, "DP on features, ε = 8": job.replace(protection=noisy)},
        )
    cnn = base.replace(
        algorithm=sv.SplitNN(bottom="cnn", hidden=64, top=(64,), lr=0.001, cut_lr=0.1),
        epochs=2,
        batch_size=64,
        steps=10 if quick else 60,
    )
    images = {name: cnn.replace(protection=p) for name, p in few}
    if torch.cuda.is_available():
        images["plain, GPU"] = cnn.replace(device="cuda")
    size = {"rows": 1500, "test_rows": 500} if quick else {"rows": 8000, "test_rows": 2000}
    found["MNIST halves, SplitNN with CNN bottoms"] = (
        lambda: datasets.load("mnist", overlap=1.0, seed=0, **size),
        images,
    )
    many = sv.MultiVFL(bottom=(16,), hidden=16, top=(16,), lr=0.001, cut_lr=0.1)
    rounds = base.replace(algorithm=many, epochs=2, batch_size=64, steps=5 if quick else 15)
    blind = many.replace(aggregation="ckks")
    found["MNIST strips, Multi-VFL, two label owners"] = (
        lambda: datasets.load("mnist", rows=3000, test_rows=500, pieces="strips", owners=2, owner_rows=1000, seed=0),
        {
            "plain": rounds,
            "plain, aggregation under CKKS": rounds.replace(algorithm=blind),
            "CKKS, aggregation under CKKS": rounds.replace(algorithm=blind, protection=sv.CKKS()),
            "BFV, aggregation under CKKS": rounds.replace(algorithm=blind, protection=sv.BFV()),
        },
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small tables, to see that it works")
    parser.add_argument("--only", default="", help="tables whose title holds this; the others are kept as they were")
    options = parser.parse_args()
    torch.set_num_threads(1)  # these networks are small: a second thread only waits
    name = "overhead-quick" if options.quick else "overhead"
    path = RESULTS / f"{name}.json"
    known = json.loads(path.read_text(encoding="utf-8")) if options.only and path.exists() else {}
    for title, (parties, jobs) in tables(quick=options.quick).items():
        if options.only in title and (found := data(parties, title)) is not None:
            known[title] = table(found, jobs)
            write(name, {key: value for key, value in known.items() if key not in ("machine", "versions")})


if __name__ == "__main__":
    main()

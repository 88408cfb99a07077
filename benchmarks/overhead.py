"""What protection costs: the same job in plain, sealed by each scheme, and with differential privacy.

    python -m benchmarks.overhead [--quick]

The whole credit table in three parties (SplitNN, Entity Augmentation and RISA at identity bottoms) and MNIST in two
halves of the image (SplitNN with a small CNN at each party), each algorithm under each protection that it can have, on
the CPU and, in plain, on a GPU when torch sees one. Seconds of work are those of all parties together, by phase; a
simulation takes turns, so waiting is left out.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import torch

import securevfl as sv
from benchmarks.common import write
from securevfl.data import datasets
from securevfl.report import RunRecord


def protections(*, full: bool) -> dict[str, Any]:
    """Label → protection."""
    found: dict[str, Any] = {
        "plain": sv.Plain(),
        "plain, fixed point": sv.Plain(fixed_point=True),
        "CKKS": sv.CKKS(),
        "BFV": sv.BFV(),
        "Paillier 2048": sv.Paillier(bits=2048),
    }
    if full:
        found["Paillier 3072, 2 epochs"] = sv.Paillier(bits=3072)
    found["DP on labels, ε = 8"] = sv.Plain(dp=sv.DP(epsilon=8, activations=False))
    found["CKKS + DP on labels, ε = 8"] = sv.CKKS(dp=sv.DP(epsilon=8, activations=False))
    return found


def figures(run: RunRecord, baseline: float | None) -> dict[str, object]:
    """Of one run: medians would hide the first epoch's tables, so epochs are averaged from the second on."""
    epochs = run.epochs[1:] or run.epochs
    phases = {
        phase: sum(getattr(p, phase) for e in epochs for p in e.phases.values()) / len(epochs)
        for phase in ("compute", "he")
    }
    work = sum(phases.values())
    score = run.test.get("auc", run.test.get("accuracy", 0.0))
    return {
        "seconds of work per epoch": work,
        "of it plain work": phases["compute"],
        "of it encryption": phases["he"],
        "MB per epoch": sum(sum(e.bytes.values()) for e in epochs) / len(epochs) / 1e6,
        "test": score,
        "epsilon": max((e.epsilon_rdp for e in run.epsilon), default=None),
        "ratio to plain": None if baseline is None else work / baseline,
    }


def table(parties: sv.Parties, jobs: dict[str, sv.Job]) -> dict[str, object]:
    """Figures of each job; ratios are to the job called plain."""
    found: dict[str, object] = {}
    base: float | None = None
    for label, job in jobs.items():
        start = time.perf_counter()
        result = sv.compare({"run": job}, parties, baselines=())
        run = result.run("run")
        found[label] = figures(run, base)
        if label == "plain":
            base = float(str(found[label]["seconds of work per epoch"]))  # type: ignore[index]
        print(f"{label}: {time.perf_counter() - start:.1f} s, {found[label]}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small tables, to see that it works")
    quick = parser.parse_args().quick
    rows = 3000 if quick else None
    credit = datasets.default_credit(overlap=0.85, seed=0, rows=rows)
    base = sv.Job(
        algorithm=sv.SplitNN(hidden=16, top=(16,), lr=0.005, cut_lr=1.0), epochs=2 if quick else 8, batch_size=256
    )
    out: dict[str, object] = {}
    out["credit, SplitNN"] = table(
        credit,
        {
            name: replace(base, protection=p, epochs=2 if name.endswith("2 epochs") else base.epochs)
            for name, p in protections(full=not quick).items()
        },
    )
    limited = datasets.load(
        "limited_credit", overlap=0.2, parties=2, seed=0, labels="all", **({"rows": rows} if rows else {})
    )
    few = [("plain", sv.Plain()), ("CKKS", sv.CKKS()), ("BFV", sv.BFV()), ("Paillier 2048", sv.Paillier(bits=2048))]
    for title, algorithm in (
        ("Entity Augmentation", sv.EntityAugmentation(hidden=16, top=(16,), lr=0.005, cut_lr=0.5)),
        ("RISA", sv.RISA(hidden=16, top=(16,), lr=0.005, cut_lr=0.5)),
    ):
        job = replace(base, algorithm=algorithm, epochs=3, steps=20, scale="quantile")
        out[f"credit at 20 % overlap, {title}"] = table(limited, {n: replace(job, protection=p) for n, p in few})
    images = datasets.load("mnist", rows=1500 if quick else 8000, test_rows=500 if quick else 2000, overlap=1.0, seed=0)
    cnn = replace(
        base,
        algorithm=sv.SplitNN(bottom="cnn", hidden=64, top=(64,), lr=0.001, cut_lr=0.1),
        epochs=2,
        batch_size=64,
        steps=10 if quick else 60,
    )
    jobs = {name: replace(cnn, protection=p) for name, p in few}
    if torch.cuda.is_available():
        jobs["plain, GPU"] = replace(cnn, device="cuda")
    out["MNIST halves, SplitNN with CNN bottoms"] = table(images, jobs)
    write("overhead-quick" if quick else "overhead", out)


if __name__ == "__main__":
    main()

"""Small parties and jobs for tests."""

from __future__ import annotations

import numpy as np
from keys import ready_keys

from securevfl.data import Parties, PartyTable, hold_out, limited_overlap
from securevfl.jobs import Job
from securevfl.jobs.simulation import Aligned, align_parties

__all__ = ["aligned", "parties", "ready_keys", "scarce"]


def parties(passive: int = 2, rows: int = 120, seed: int = 0, classes: int = 2, width: int = 3) -> Parties:
    """An active party and some passive ones over mostly the same people; labels depend on all their columns."""
    rng = np.random.default_rng(seed)
    people = [f"p{i:04d}" for i in range(rows)]
    features = rng.normal(size=(passive + 1, rows, width))
    score = features.sum(axis=(0, 2)) + rng.normal(scale=0.3, size=rows)
    label = np.digitize(score, np.quantile(score, np.arange(1, classes) / classes)).astype(np.int64)
    tables = []
    for number in range(passive + 1):
        own = rng.permutation(rows)[: round(rows * 0.95)]
        active = number == 0
        tables.append(
            PartyTable(
                name="bank" if active else f"shop{number}",
                ids=[people[i] for i in own],
                columns={f"f{j}": features[number, own, j] for j in range(width)},
                label=label[own] if active else None,
                classes=tuple(range(classes)) if active else (),
            )
        )
    return Parties.of(*tables)


def aligned(people: Parties, job: Job) -> Aligned:
    """The parties' alignment by the real protocol."""
    return align_parties(people, job)


def scarce(
    passive: int = 1,
    rows: int = 400,
    *,
    overlap: float = 0.25,
    classes: int = 2,
    width: int = 4,
    labels: str = "all",
    noise: float = 1.2,
    seed: int = 0,
) -> Parties:
    """Few aligned rows, the others at one party each; every party's columns tell the class, and all together best."""
    rng = np.random.default_rng(seed)
    label = rng.integers(classes, size=rows)
    names = ["bank", *(f"shop{number + 1}" for number in range(passive))]
    columns, features = {}, {}
    for name in names:
        centres = rng.normal(size=(classes, width))
        values = centres[label] + noise * rng.normal(size=(rows, width))
        columns[name] = [f"{name}{j}" for j in range(width)]
        features |= {column: values[:, j] for j, column in enumerate(columns[name])}
    table = PartyTable(
        name="bank",
        ids=[f"p{i:05d}" for i in range(rows)],
        columns=features,
        label=label.astype(np.int64),
        classes=tuple(range(classes)),
    )
    fold = hold_out(rows, valid=0.15, test=0.25, seed=seed)
    return limited_overlap(table, columns, fold, overlap=overlap, seed=seed, labels=labels)

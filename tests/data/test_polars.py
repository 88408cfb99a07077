"""Parties from polars frames: each kind of column, gaps, and what is refused with the cure."""

from __future__ import annotations

import warnings
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

import securevfl as sv

ROWS = 60


def bank() -> pl.DataFrame:
    """One column of each kind, with gaps where the kind has some."""
    generator = np.random.default_rng(0)
    amounts = generator.normal(size=ROWS)
    return pl.DataFrame(
        {
            "id": [f"p{i}" for i in range(ROWS)],
            "amount": amounts,
            "single": pl.Series(amounts.astype(np.float32)),
            "small": pl.Series(generator.integers(-5, 5, ROWS).astype(np.int8)),
            "unsigned": pl.Series(generator.integers(0, 5, ROWS).astype(np.uint64)),
            "counted": [None if i % 7 == 0 else i for i in range(ROWS)],
            "gaps": [float("nan") if i % 9 == 0 else None if i % 4 == 0 else float(i) for i in range(ROWS)],
            "kind": pl.Series(generator.choice(["x", "y", "z"], ROWS)).cast(pl.Categorical),
            "level": pl.Series(generator.choice(["lo", "hi"], ROWS)).cast(pl.Enum(["lo", "hi"])),
            "town": [None if i % 5 == 0 else f"t{i % 3}" for i in range(ROWS)],
            "flag": [None if i % 11 == 0 else bool(i % 2) for i in range(ROWS)],
            "born": [None if i % 13 == 0 else date(2020, 1, 1) + timedelta(days=i) for i in range(ROWS)],
            "seen": [datetime(2020, 1, 1, 3) + timedelta(hours=i) for i in range(ROWS)],
            "price": pl.Series([f"{i}.50" for i in range(ROWS)]).cast(pl.Decimal(10, 2)),
            "good": np.where(amounts > 0, "yes", "no"),
        }
    )


def shop() -> pl.DataFrame:
    return pl.DataFrame({"id": [f"p{i}" for i in range(ROWS)], "spent": np.random.default_rng(1).normal(size=ROWS)})


def of(table: Any, **options: Any) -> sv.Parties:
    return sv.Parties.from_polars({"bank": table, "shop": shop()}, id="id", label="good", **options)


def test_columns_are_those_of_the_other_frames() -> None:
    """polars, Arrow and pandas give the same values, column by column; missing ones stay missing."""
    own = of(bank()).active
    arrow = {"bank": bank().to_arrow(), "shop": shop().to_arrow()}
    pandas = {"bank": bank().to_pandas(), "shop": shop().to_pandas()}
    for other in (
        sv.Parties.from_arrow(arrow, id="id", label="good").active,
        sv.Parties.from_pandas(pandas, id="id", label="good").active,
    ):
        assert own.ids == other.ids
        assert np.array_equal(own.label, other.label)
        assert own.feature_names == other.feature_names == tuple(bank().columns[1:-1])
        for name, values in own.columns.items():
            theirs = np.asarray(other.columns[name])
            assert np.array_equal(np.asarray(values), theirs, equal_nan=theirs.dtype.kind in "fM"), name
    assert np.isnan(np.asarray(own.columns["counted"])).sum() == len(range(0, ROWS, 7))
    assert np.isnat(np.asarray(own.columns["born"])).sum() == len(range(0, ROWS, 13))
    assert own.columns["price"][1] == 1.5
    assert set(np.unique(np.asarray(own.columns["level"]))) == {"lo", "hi"}


def test_a_job_trains_on_them() -> None:
    run = sv.simulate(sv.Job(protection="plain", epochs=2, batch_size=16, scale="auto"), of(bank())).run("plain")
    assert run.rows_trained == 42
    lines = {line.column: line for line in run.prepared["bank"]}
    held = {"kind": "categories", "level": "categories", "born": "dates", "seen": "dates", "price": "numbers"}
    assert {name: lines[name].holds for name in held} == held
    assert lines["gaps"].missing > lines["counted"].missing > 0 == lines["amount"].missing


@pytest.mark.parametrize(
    ("label", "classes"),
    [
        (pl.col("good") == "yes", (False, True)),
        (pl.col("good").cast(pl.Categorical), ("no", "yes")),
        (pl.when(pl.col("good") == "yes").then(3).otherwise(2), (2, 3)),
    ],
)
def test_labels_of_other_kinds(label: pl.Expr, classes: tuple[object, ...]) -> None:
    assert of(bank().with_columns(good=label)).active.classes == classes


def test_what_cannot_be_used_is_refused_with_the_cure() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing of a lazy frame is asked for
        with pytest.raises(sv.InputError, match=r"LazyFrame, which has not run yet: give frame\.collect\(\)"):
            of(bank().lazy())
    assert of(bank().lazy().filter(pl.col("small") > 0).collect()).active.rows < ROWS
    with pytest.raises(sv.InputError, match=r"is a pandas DataFrame; a polars .*: use sv\.Parties\.from_pandas"):
        of(bank().to_pandas())
    with pytest.raises(sv.InputError, match=r"is a polars DataFrame; a pandas .*: use sv\.Parties\.from_polars"):
        sv.Parties.from_pandas({"bank": bank()}, id="id", label="good")
    with pytest.raises(sv.InputError, match="is a polars Series"):
        of(bank()["good"])
    with pytest.raises(sv.InputError, match="has no rows"):
        of(bank().head(0))
    with pytest.raises(sv.InputError, match=r"'id' is null or empty in 1 rows \(rows 4\)"):
        of(bank().with_columns(id=pl.when(pl.col("id") == "p3").then(None).otherwise(pl.col("id"))))
    with pytest.raises(sv.InputError, match="label in row 4 is null"):
        of(bank().with_columns(good=pl.when(pl.col("id") == "p3").then(None).otherwise(pl.col("good"))))
    with pytest.raises(sv.InputError, match=r"'pair' holds struct"):
        of(bank().with_columns(pair=pl.struct(["amount", "single"])))
    with pytest.raises(sv.InputError, match=r"column 'counted' is null.*give prepare='auto'"):
        of(bank().select("id", "counted", "good"), prepare=None)

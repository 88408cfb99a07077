"""Tables that are larger than they look: refused before memory is taken, with the name of the limit."""

from __future__ import annotations

import gzip
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from securevfl.data import TableLimits, from_arrow, read_csv, read_parquet
from securevfl.errors import InputError
from securevfl.jobfile.job_file import PartySection

USE: dict[str, Any] = {"name": "a", "id": "id"}


def _parquet(path: Path, columns: dict[str, Any], **more: Any) -> Path:
    pa_parquet.write_table(pa.table(columns), path, **more)
    return path


def test_a_small_parquet_file_that_unpacks_to_gigabytes(tmp_path: Path) -> None:
    """150 kB that took 2.3 GB: refused from the metadata, and within 16 MB."""
    rows = 20_000_000
    ids = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["a"]))
    path = _parquet(tmp_path / "t.parquet", {"id": ids, "x": np.zeros(rows)}, compression="zstd")
    assert path.stat().st_size < 1_000_000
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    tracemalloc.start()
    with pytest.raises(InputError, match="has 20,000,000 rows or more; at most 16,777,216 are read: raise max_rows"):
        read_parquet(path, **USE)
    with pytest.raises(InputError, match=r"times as many; at most 1,000 times are read.*raise max_ratio"):
        read_parquet(path, limits=TableLimits(max_rows=rows), **USE)
    with pytest.raises(InputError, match="takes 2,080,000,000 bytes of memory or more; at most 1,000,000,000"):
        read_parquet(path, limits=TableLimits(max_rows=rows, max_bytes=10**9), **USE)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    assert pool.bytes_allocated() - before < 16 << 20


def test_one_long_text_repeated_many_times(tmp_path: Path) -> None:
    """A hundred kilobytes once, and a number for each row: known before it is unpacked, batch by batch."""
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int32)), pa.array(["x" * 100_000]))
    table = {"id": [f"i{i}" for i in range(100_000)], "c": texts}
    path = _parquet(tmp_path / "t.parquet", table, compression="zstd")
    pool = pa.default_memory_pool()
    with pytest.raises(InputError, match=r"of memory or more"):
        read_parquet(path, categorical=["c"], **USE)
    assert pool.bytes_allocated() < 64 << 20
    with pytest.raises(InputError, match="unknown column"):
        read_parquet(path, features=["d"], **USE)


def test_one_long_category_makes_all_of_them_long() -> None:
    """Arrays of texts give each as much room as the longest takes."""
    words = ["a"] * 50_000
    words[7] = "b" * 100_000
    table = pa.table({"id": [f"i{i}" for i in range(50_000)], "c": words})
    with pytest.raises(InputError, match="whose longest category has 100,000 letters, takes 20,000,000,000 bytes"):
        from_arrow(table, categorical=["c"], **USE)


def test_csv_is_counted_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,x\n" + "".join(f"i{i},{i}\n" for i in range(1000)), encoding="utf-8")
    assert read_csv(path, limits=TableLimits(max_rows=1000), **USE).rows == 1000
    for limits, words in (
        (TableLimits(max_rows=999), "has 1,000 rows or more; at most 999 are read: raise max_rows"),
        (TableLimits(max_columns=1), "has 2 columns or more; at most 1 are read: raise max_columns"),
        (TableLimits(max_bytes=100_000), "takes 104,104 bytes of memory or more; at most 100,000 are read: name fewer"),
    ):
        with pytest.raises(InputError, match=words):
            read_csv(path, limits=limits, **USE)


def test_packed_csv_that_unpacks_to_much(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(b"id,x\n")
        for _ in range(70):
            stream.write(b"a,1\n" * (1 << 18))
    assert path.stat().st_size < 1_000_000
    with pytest.raises(InputError, match=r"raise max_rows|raise max_ratio"):
        read_csv(path, **USE)
    path.write_bytes(gzip.compress(b"id,x\na,1\nb,2\n"))
    assert read_csv(path, **USE).ids == ("a", "b")
    path.write_bytes(gzip.compress(b"id,x\na,1\nb,2\n")[:-12])
    with pytest.raises(InputError, match="is not a CSV table"):
        read_csv(path, **USE)


def test_a_header_of_very_many_columns_is_refused_quickly(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"id" + b",x" * 400_000 + b"\n")
    with pytest.raises(InputError, match="raise max_columns"):
        read_csv(path, **USE)


def test_only_the_columns_that_are_used_are_read(tmp_path: Path) -> None:
    wide = {"id": ["a", "b"], "x": [1.0, 2.0], "l": [[1], [2]], "n.m": [3, 4]}
    path = _parquet(tmp_path / "t.parquet", wide)
    assert read_parquet(path, features=["x"], **USE).feature_names == ("x",)
    assert read_parquet(path, features=["n.m", "x"], **USE).columns["n.m"].tolist() == [3, 4]
    with pytest.raises(InputError, match=r"column 'l' contains list<element: int64>; columns contain numbers or texts"):
        read_parquet(path, **USE)


def test_limits_from_a_job_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,x\na,1\nb,2\n", encoding="utf-8")
    assert PartySection(name="a", file="t.csv", id="id").load_table(tmp_path).rows == 2
    with pytest.raises(InputError, match="raise max_rows"):
        PartySection(name="a", file="t.csv", id="id", max_rows=1).load_table(tmp_path)
    with pytest.raises(InputError, match="max_rows is 0"):
        TableLimits(max_rows=0)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (
            np.linspace(0, 1, 5000),
            "5,000 different values in 5,000 rows, 4,998 of them with a fraction: it is",
        ),
        (
            np.arange(5000),
            "5,000 different values in 5,000 rows; at most 1,000 classes are supported: to learn the number",
        ),
        ([f"t{i}" for i in range(5000)], "at most 1,000 classes are supported"),
        ([float("inf"), 1.0] * 2500, "the label in row 1 is infinite"),
        ([b"\xff", b"a"] * 2500, "label column 'y' holds binary"),
    ],
)
def test_labels_that_are_no_classes(labels: Any, words: str) -> None:
    table = pa.table({"id": [f"i{i}" for i in range(5000)], "x": np.arange(5000), "y": labels})
    with pytest.raises(InputError, match=words):
        from_arrow(table, label="y", **USE)


def test_labels_with_a_fraction_that_are_classes() -> None:
    huge = pa.array([Decimal(10**60), Decimal(1)] * 3, pa.decimal256(76, 0))
    assert len(from_arrow(pa.table({"id": list("abcdef"), "x": range(6), "y": huge}), label="y", **USE).classes) == 2
    table = pa.table({"id": [f"i{i}" for i in range(60)], "x": np.arange(60), "y": [0.5, 1.5, 2.5] * 20})
    assert from_arrow(table, label="y", **USE).classes == (0.5, 1.5, 2.5)
    many = pa.table({"id": [f"i{i}" for i in range(60)], "x": np.arange(60), "y": np.arange(60) / 7})
    classes = tuple((np.arange(60) / 7).tolist())
    assert from_arrow(many, label="y", classes=classes, **USE).classes == classes


@pytest.mark.parametrize("text", ["NULL", "NA", "nan", "#N/A", ""])
def test_texts_that_stand_for_no_identifier(text: str, tmp_path: Path) -> None:
    """In CSV they are null; a Parquet file with the same text means the same."""
    (tmp_path / "t.csv").write_text(f"id,x\na,1\n{text},2\n", encoding="utf-8")
    _parquet(tmp_path / "t.parquet", {"id": ["a", text], "x": [1, 2]})
    for read, name in ((read_csv, "t.csv"), (read_parquet, "t.parquet")):
        with pytest.raises(InputError, match=r"id column 'id' is null or empty in 1 rows \(rows 2\)"):
            read(tmp_path / name, **USE)


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_()]
)
def test_numbers_are_those_that_the_column_holds(kind: pa.DataType) -> None:
    """Whole columns at once, and number by number, are the same."""
    rng = np.random.default_rng(3)
    values: list[Any] = rng.integers(0, 2, 400).tolist()
    if not pa.types.is_boolean(kind):
        values += [2**62 + 1, 2**53 + 1] if kind.bit_width == 64 and not pa.types.is_floating(kind) else [3, 100]
        values += [2**64 - 1] if kind == pa.uint64() else []
    array = pa.chunked_array([pa.array(values[:100]).cast(kind), pa.array(values[100:], pa.uint64()).cast(kind)])
    table = pa.table({"id": [f"i{i}" for i in range(len(values))], "x": array})
    found = from_arrow(table, **USE).columns["x"]
    assert found.dtype == np.float32  # all of these are exact in it, or become the nearest float64 either way
    assert found.tolist() == [float(value) for value in array.to_pylist()]

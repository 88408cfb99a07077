"""Sources of rows: whatever a table is read from, and wherever its columns are, it is the same table."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as pa_feather
import pyarrow.fs as pa_fs
import pyarrow.parquet as pa_parquet
import pytest

from securevfl.data import Categories, PartyTable, Storage, TableLimits, csv_rows, from_arrow, read_csv, read_table
from securevfl.data.names import Names
from securevfl.errors import InputError, UnknownNameError
from securevfl.jobfile.job_file import PartySection
from securevfl.run.digests import data_digests

ROWS = 5_000
USE: dict[str, Any] = {"name": "bank", "id": "id", "label": "late", "categorical": ["town"]}
MAPPED = Storage(above=0)


def _table(rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "id": [f"c{i:05d}" for i in rng.permutation(rows)],
            "x": rng.normal(size=rows),
            "n": rng.integers(0, 1 << 40, rows),
            "town": rng.choice(["Oslo", "Rome", "Århus"], rows),
            "late": rng.integers(0, 2, rows),
        }
    )


def _write(folder: Path, table: pa.Table) -> dict[str, Path]:
    (folder / "parts" / "later").mkdir(parents=True)
    pa_csv.write_csv(table, folder / "t.csv")
    with pa.CompressedOutputStream(str(folder / "t.csv.gz"), "gzip") as stream:
        pa_csv.write_csv(table, stream)
    pa_parquet.write_table(table, folder / "t.parquet", row_group_size=700)
    pa_parquet.write_table(table.slice(0, 999), folder / "parts" / "a.parquet")
    pa_parquet.write_table(table.slice(999, 2001), folder / "parts" / "b.pq", row_group_size=300)
    pa_parquet.write_table(table.slice(3000), folder / "parts" / "later" / "c.parquet")
    (folder / "parts" / "_SUCCESS").write_text("", encoding="utf-8")
    pa_feather.write_feather(table, folder / "t.arrow", compression="zstd", chunksize=512)
    with pa.ipc.new_stream(str(folder / "t.ipc"), table.schema) as writer:
        writer.write_table(table, max_chunksize=512)
    return {name: folder / name for name in ("t.csv", "t.csv.gz", "t.parquet", "parts", "t.arrow", "t.ipc")}


def _same(one: PartyTable, two: PartyTable) -> None:
    assert one.ids == two.ids
    assert (one.classes, one.categorical, one.feature_names) == (two.classes, two.categorical, two.feature_names)
    assert one.label is not None
    assert two.label is not None
    np.testing.assert_array_equal(one.label, two.label)
    for name, values in one.columns.items():
        assert values.dtype == two.columns[name].dtype
        np.testing.assert_array_equal(np.asarray(values), np.asarray(two.columns[name]))
    assert data_digests(one, {}) == data_digests(two, {})


@pytest.mark.parametrize("storage", [Storage(), MAPPED], ids=["in memory", "mapped"])
def test_one_table_from_every_source_in_memory_and_mapped(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_rows, "_BLOCK", 1 << 14)
    table = _table()
    expected = from_arrow(table, **USE)
    assert expected.ids == tuple(table["id"].to_pylist())
    assert isinstance(expected.columns["town"], Categories)
    assert expected.columns["town"].tolist() == table["town"].to_pylist()
    np.testing.assert_array_equal(expected.columns["x"], table["x"].to_numpy().astype(np.float32))
    for path in _write(tmp_path, table).values():
        _same(read_table(path, storage=storage, **USE), expected)


def test_object_stores(tmp_path: Path) -> None:
    """A file system that Arrow was given, in memory (no address needed), and a local one by its address."""
    table = _table(300)
    expected = from_arrow(table, **USE)
    store = pa_fs._MockFileSystem()
    store.create_dir("bucket/clients")
    with store.open_output_stream("bucket/clients/one.parquet") as stream:
        pa_parquet.write_table(table, stream)
    for path in ("bucket/clients", "bucket/clients/one.parquet"):
        _same(read_table(path, filesystem=store, **USE), expected)
    local = _write(tmp_path, table)["parts"]
    _same(read_table(f"file://{local}", **USE), expected)
    section = PartySection(file=f"file://{local}", **{k: v for k, v in USE.items() if k != "categorical"})
    assert section.replace(categorical=("town",)).load_table(Path("/nowhere")).rows == 300


@pytest.mark.parametrize(
    "address",
    [
        "s3://AKIA:hush@bucket/t.parquet",
        "s3://AKIA@bucket/t.parquet",
        "s3://bucket/t.parquet?secret_key=hush",
        "abfs://:hush@container/t.parquet",
        "abfs://container@store/t.parquet?account_key=hush",
    ],
)
def test_an_address_with_credentials_is_refused_and_not_repeated(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(InputError, match="do not belong in a job file") as caught:
        read_table(address, **USE)
    told = f"{caught.value}{caught.value.__context__}{caught.value.__cause__}{caplog.text}"
    assert "hush" not in told
    assert "AKIA" not in told


def test_settings_in_an_address_are_not_in_what_a_table_tells() -> None:
    with pytest.raises(InputError) as caught:
        read_table("file:///nowhere/t.parquet?region=moon", **USE)
    assert "moon" not in str(caught.value)


def test_folders_whose_names_tell_a_column(tmp_path: Path) -> None:
    for town in ("Oslo", "Rome"):
        (tmp_path / f"town={town}").mkdir()
        part = {"id": [f"{town}{i}" for i in range(4)], "x": range(4), "late": [0, 1, 0, 1]}
        pa_parquet.write_table(pa.table(part), tmp_path / f"town={town}" / "p.parquet")
    found = read_table(tmp_path, **USE)
    assert found.columns["town"].tolist() == ["Oslo"] * 4 + ["Rome"] * 4
    assert found.columns["x"].tolist() == [0, 1, 2, 3] * 2


def test_a_folder_whose_files_differ_says_which(tmp_path: Path) -> None:
    pa_parquet.write_table(pa.table({"id": ["a"], "x": [1], "y": [1]}), tmp_path / "a.parquet")
    pa_parquet.write_table(pa.table({"id": ["b"], "x": [2]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b\.parquet has no column 'y', which other files"):
        read_table(tmp_path, name="a", id="id")
    assert read_table(tmp_path, name="a", id="id", features=["x"]).columns["x"].tolist() == [1, 2]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="nor a folder of Parquet files"):
        read_table(tmp_path / "empty", name="a", id="id")
    with pytest.raises(UnknownNameError, match="did you mean 'x'"):
        read_table(tmp_path, name="a", id="id", features=["xx"])


def test_limits_hold_over_all_files_and_batch_by_batch(tmp_path: Path) -> None:
    """The metadata of a folder are added up; what they do not tell is counted while it is read."""
    for i in range(3):
        texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(10_000, np.int32)), pa.array(["x" * 20_000]))
        part = pa.table({"id": [f"{i}-{k}" for k in range(10_000)], "x": np.zeros(10_000), "c": texts})
        pa_parquet.write_table(part, tmp_path / f"{i}.parquet")
    with pytest.raises(InputError, match="has 30,000 rows or more; at most 25,000"):
        read_table(tmp_path, name="a", id="id", limits=TableLimits(max_rows=25_000))
    before = pa.default_memory_pool().bytes_allocated()
    with pytest.raises(InputError, match="of memory or more; at most 100,000,000"):
        read_table(tmp_path, name="a", id="id", categorical=["c"], limits=TableLimits(max_bytes=10**8))
    assert pa.default_memory_pool().bytes_allocated() - before < 32 << 20
    listed = pa.table({"id": ["a"], "x": pa.array([[1]])})
    pa_feather.write_feather(listed, tmp_path / "l.arrow")
    with pytest.raises(InputError, match="column 'x' contains list"):
        read_table(tmp_path / "l.arrow", name="a", id="id")
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], "i4")), pa.py_buffer(b"\xff")])
    pa_feather.write_feather(pa.table({"id": bad, "x": [1]}), tmp_path / "u.arrow")
    with pytest.raises(InputError, match="not UTF-8"):
        read_table(tmp_path / "u.arrow", name="a", id="id")


def test_a_text_far_down_among_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_rows, "_BLOCK", 1 << 10)
    lines = [f"i{i},{i}" for i in range(5_000)]
    (tmp_path / "t.csv").write_text("\n".join(["id,x", *lines, "late,old"]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"column 'x' contains 'old' below row [0-9,]+ and double above"):
        read_csv(tmp_path / "t.csv", name="a", id="id")
    (tmp_path / "t.csv").write_text("\n".join(["id,x", *lines, "half,0.5"]) + "\n", encoding="utf-8")
    assert read_csv(tmp_path / "t.csv", name="a", id="id").columns["x"][-1] == 0.5
    (tmp_path / "t.csv").write_text("\n".join(["id,x", *lines, "no,"]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"column 'x' is null or NaN in 1 of 5001 rows \(rows 5001\)"):
        read_csv(tmp_path / "t.csv", name="a", id="id")


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        (np.linspace(-3, 9, 999), np.float32),
        (1.7e9 + np.arange(999.0), np.float64),  # seconds since 1970, over a quarter of an hour
        (np.full(999, 0.1), np.float64),
        (np.full(999, 0.5), np.float32),
        (1e-35 * np.arange(1.0, 1000), np.float64),
        (1e300 * np.linspace(-1, 1, 999), np.float64),
        (np.arange(999) + (1 << 53), np.float64),
        (np.arange(999), np.float32),
    ],
)
@pytest.mark.parametrize("storage", [Storage(), MAPPED], ids=["in memory", "mapped"])
def test_float32_loses_nothing_that_training_sees(values: np.ndarray, kept: type, storage: Storage) -> None:
    table = pa.table({"id": [f"i{i}" for i in range(999)], "x": values})
    found = from_arrow(table, name="a", id="id", storage=storage).columns["x"]
    assert isinstance(found, np.ndarray)
    assert found.dtype == kept
    exact, near = values.astype(np.float64), found.astype(np.float64)
    size = np.abs(exact).max()
    if np.ptp(exact) > 0:
        assert np.abs(near / size - exact / size).max() / (exact / size).std() < 2.3e-6
    else:
        assert (near == exact).all()


def test_names_read_like_a_tuple() -> None:
    texts = ("a", "", "Århus", "x" * 100, "a ")
    names = Names.from_texts(texts)
    assert (names, len(names), names[2], names[-1], list(names)) == (texts, 5, "Århus", "a ", list(texts))
    assert names[1:3] == ("", "Århus")
    assert names[::-2] == texts[::-2]
    assert names.take(np.array([4, 0, 0])) == ("a ", "a", "a")
    assert "Århus" in names
    assert "b" not in names
    assert names != texts[:4]
    assert hash(names) == hash(texts)
    assert (names.first_blank(), Names.from_texts(("a", "\x1f\u2003")).first_blank(), names[2:].first_blank()) == (
        1,
        1,
        None,
    )
    assert names.all_differ()
    assert not names.take(np.array([0, 0])).all_differ()
    data, starts, lengths = names[2:].buffers()
    assert [data[s : s + n].tobytes().decode() for s, n in zip(starts, lengths, strict=True)] == list(texts[2:])

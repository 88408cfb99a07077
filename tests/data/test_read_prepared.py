"""Tables as companies have them are read without an edit, and told what is wrong with them all at once."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from securevfl.agreement.cards import TableSchema
from securevfl.data import Categories, FeatureEncoder, PartyTable, Preparation, Storage, read_table
from securevfl.data.columns import ColumnUse
from securevfl.data.loaders import from_arrow, from_pandas
from securevfl.data.sample import table_mistakes
from securevfl.errors import InputError, UnknownNameError
from securevfl.run.digests import data_digests

ROWS = 240
RNG = np.random.default_rng(3)


def _lines() -> list[list[str]]:
    found = []
    for i in range(ROWS):
        day = dt.date(2020, 1, 1) + dt.timedelta(days=int(RNG.integers(900)))
        amount, since = f'"{RNG.integers(900)},{i % 90:02d}"', day.isoformat()
        line = ["", "NA", ""] if i % 5 == 0 else [str(RNG.integers(18, 90)), amount, since]
        line += [f"{day:%d.%m.%Y}", "ja" if i % 3 else "nein", "true" if i % 2 else "false"]
        found.append([f"C{i:04d}", *line, f"branch {RNG.integers(5000)}", "", "7", f"{RNG.integers(10, 99):05d}"])
    return found


HEADER = ["id", "age", "amount", "since", "born", "member", "open", "branch", "empty", "always", "zip"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("read") / "shop.csv"
    path.write_text("\n".join(",".join(line) for line in [HEADER, *_lines()]) + "\n", encoding="utf-8")
    return path


def _holds(table: Any) -> dict[str, str]:
    return {line.column: line.holds for line in FeatureEncoder.fit(table, np.arange(table.rows)).lines if line.width}


def test_a_csv_file_with_gaps_dates_commas_and_many_levels_is_read_as_it_is(file: Path) -> None:
    prepare = {"columns": {"zip": {"kind": "category"}, "branch": {"categorical": "hash"}}}
    table = read_table(file, name="shop", id="id", prepare=prepare)
    assert _holds(table) == {
        **{"age": "numbers", "amount": "numbers", "since": "dates", "born": "dates", "member": "truth values"},
        **{"open": "numbers", "branch": "categories", "zip": "categories"},
    }
    assert np.isnan(np.asarray(table.columns["age"])[::5]).all()
    assert table.columns["since"].dtype.kind == "M"
    zips = table.columns["zip"]
    assert isinstance(zips, Categories)
    assert all(len(word) == 5 for word in zips.words)  # leading zeros stay
    assert table.categorical == {"zip"}
    schema = TableSchema.of_table(table)
    assert set(schema.categories) == {"amount", "born", "member", "branch", "zip"}  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"fill or drop them, or give prepare='auto'"):
        read_table(file, name="shop", id="id", features=["age"])


def test_numbers_above_and_a_text_below_are_read_as_one_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl.data.csv_rows._BLOCK", 1 << 12)
    rows = [f"i{i:05d},{i % 7},{i},{'true' if i % 2 else 'false'}" for i in range(2_000)]
    rows[1_500], rows[1_700] = "i01500,?,1.500,yes", "i01700,3,17 €,yes"
    (tmp_path / "a.csv").write_text("\n".join(["id,a,b,c", *rows]), encoding="utf-8")
    table = read_table(tmp_path / "a.csv", name="a", id="id", prepare="auto")
    a, b = (FeatureEncoder.fit(table, np.arange(2_000)).columns[name] for name in "ab")
    assert a.how.reader.kind == b.how.reader.kind == "number"  # type: ignore[union-attr]
    assert isinstance(table.columns["a"], Categories)
    with pytest.raises(InputError, match="below row"):
        read_table(tmp_path / "a.csv", name="a", id="id")


def test_arrow_types_become_what_they_mean(tmp_path: Path) -> None:
    at = dt.datetime(2024, 2, 29, 13, tzinfo=dt.UTC)
    columns = {
        "id": pa.array([f"i{i}" for i in range(4)]),
        "whole": pa.array([1, None, 3, 4]),
        "large": pa.array([1_700_000_000.0, None, 1_700_000_001.0, 1_700_000_002.0]),
        "exact": pa.array([1, 2, None, 4], pa.decimal128(9, 2)),
        "truth": pa.array([True, None, False, True]),
        "zoned": pa.array([at, None, at, at], pa.timestamp("ns", tz="+02:00")),
        "day": pa.array([at.date(), None, at.date(), at.date()], pa.date32()),
        "time": pa.array([dt.time(1), None, dt.time(2), dt.time(3)], pa.time64("us")),
        "packed": pa.array(["a", None, "b", " "]).dictionary_encode(),
        "none": pa.nulls(4),
    }
    table = from_arrow(pa.table(columns), name="a", id="id", prepare="auto")
    read = {name: np.asarray(values) for name, values in table.columns.items()}
    assert read["whole"].dtype == np.float32
    assert np.isnan(read["whole"][1])
    assert read["large"].dtype == np.float64  # float32 would lose it, gaps or not
    assert (read["large"][2] - read["large"][0], np.isnan(read["large"][1])) == (1.0, True)
    assert read["truth"].tolist()[:1] == [1.0]
    assert read["zoned"][0] == np.datetime64("2024-02-29T13:00:00")
    assert read["day"][0] == np.datetime64("2024-02-29")
    assert np.isnat(read["day"][1])
    assert read["time"][0] == 3_600_000_000
    assert read["packed"].tolist() == ["a", "", "b", ""]
    assert np.isnan(read["none"]).all()
    whole = from_pandas(pa.table(columns).to_pandas(), name="a", id="id", features=["whole", "packed"], prepare="auto")
    np.testing.assert_array_equal(np.asarray(whole.columns["whole"]), read["whole"])


def test_a_folder_whose_first_file_has_no_values_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a", "b"], "x": pa.nulls(2), "y": [1.0, 2.0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"id": ["c"], "x": ["word"], "y": [3.0]}), tmp_path / "2.parquet")
    table = read_table(tmp_path, name="a", id="id", prepare="auto")
    assert list(table.columns["x"]) == ["", "", "word"]
    pq.write_table(pa.table({"id": ["d"], "x": [1.5], "y": [3.0]}), tmp_path / "3.parquet")
    with pytest.raises(InputError, match="column 'x' contains texts above and numbers below"):
        read_table(tmp_path, name="a", id="id", prepare="auto")


def test_a_check_lists_all_that_preparation_would_stop_at(tmp_path: Path) -> None:
    lines = [f'i{i},"{i},5",{i % 12 + 1}/{i % 11 + 1}/2020,{i}' for i in range(40)]
    lines[7] = "i7,seven,1/1/2020,inf"
    (tmp_path / "a.csv").write_text("\n".join(["id,a,b,c", *lines]), encoding="utf-8")
    use = ColumnUse.from_arguments(id="id", label=None, features=None, categorical=(), classes=None, prepare="auto")
    found = "\n".join(table_mistakes(tmp_path / "a.csv", use))
    assert "column 'a' contains numbers with a decimal comma, and 'seven'" in found
    assert "column 'b' contains dates" in found
    assert "column 'c' is infinite in 1 of 40 rows (rows 8)" in found
    with pytest.raises(UnknownNameError, match=r"named in prepare.*did you mean 'a'"):
        read_table(tmp_path / "a.csv", name="a", id="id", prepare={"columns": {"aa": {"scale": "none"}}})
    with pytest.raises(InputError, match=r"prepare\.missing is 'drop'; known"):
        read_table(tmp_path / "a.csv", name="a", id="id", prepare={"missing": "drop"})
    with pytest.raises(InputError, match="is 'all'"):
        read_table(tmp_path / "a.csv", name="a", id="id", prepare="all")


def test_checkpoints_belong_to_a_preparation_too(file: Path) -> None:
    one, same, other = (
        read_table(file, name="shop", id="id", prepare=prepare)
        for prepare in ("auto", Preparation(), Preparation(scale="robust"))
    )
    assert data_digests(one, {}) == data_digests(same, {}) != data_digests(other, {})


def test_mistakes_of_several_columns_are_told_together(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,a,b,c\ni1,1,,x\ni2,,2,y\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_table(tmp_path / "a.csv", name="a", id="id", categorical=["c"])
    assert "column 'a' is null or NaN in 1 of 2 rows (rows 2)" in str(caught.value)
    assert "column 'b' is null or NaN in 1 of 2 rows (rows 1)" in str(caught.value)
    columns = {f"c{i}": np.array([np.inf, 1.0]) for i in range(30)}
    with pytest.raises(InputError, match="and 10 more columns like these"):
        PartyTable(name="a", ids=["x", "y"], columns=columns, preparation=Preparation())


def test_a_mapped_table_is_prepared_as_one_in_memory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl.data.features._ROWS", 50)
    monkeypatch.setattr("securevfl.data.prepare.fitting._ROWS", 70)
    rows = np.random.default_rng(0).permutation(ROWS)[:160]
    tables = [
        read_table(file, name="shop", id="id", prepare="auto", storage=Storage(above=above)) for above in (1 << 30, 0)
    ]
    one, two = (FeatureEncoder.fit(table, rows) for table in tables)
    assert one.lines == two.lines
    np.testing.assert_array_equal(one.transform(tables[0], rows), two.transform(tables[1], rows))


def test_more_rows_than_are_looked_at_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    values = rng.lognormal(0, 2, 20_000)
    texts = np.array([f"{v:.6f} €" for v in values])
    table = PartyTable(
        name="a",
        ids=[f"i{i}" for i in range(20_000)],
        columns={"x": values, "text": texts},
        preparation=Preparation(scale="quantile"),
    )
    exact = FeatureEncoder.fit(table, np.arange(20_000)).transform(table)
    monkeypatch.setattr("securevfl.data.prepare.fitting.SAMPLED", 4_000)
    sampled = FeatureEncoder.fit(table, np.arange(20_000)).transform(table)
    assert (sampled != exact).any()
    assert np.quantile(np.abs(sampled - exact), 0.99) < 0.2  # scores, in deviations

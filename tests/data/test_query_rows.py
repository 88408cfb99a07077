"""Tables that are queries, or Delta and Iceberg tables. PostgreSQL and MySQL servers are not started here."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import securevfl as sv
from securevfl.data import TableLimits
from securevfl.data.databases.query_rows import _convert_numerics, _convert_rows

ROWS = [(f"p{i}", i * 0.5, None if i == 3 else i % 4, i % 2) for i in range(8)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "bank.sqlite")) as connection:
        connection.execute("create table clients (who text, income real, cards integer, late integer)")
        connection.executemany("insert into clients values (?, ?, ?, ?)", ROWS)
        connection.commit()
    return tmp_path


def write(folder: Path, head: str, query: str) -> Path:
    file = folder / "clients.sql"
    file.write_text(f"-- database: {head}\n{query}\n")
    return file


QUERY = "select who, income, cards, late from clients where income < 3.5 order by who desc"


def check_table(file: Path) -> None:
    table = sv.read_table(file, name="bank", id="who", label="late", prepare="auto")
    kept = [row for row in reversed(ROWS) if row[1] < 3.5]
    assert list(table.ids) == [row[0] for row in kept]
    assert table.label is not None
    assert table.label.tolist() == [row[3] for row in kept]
    np.testing.assert_allclose(np.asarray(table.columns["income"]), [row[1] for row in kept])
    cards = [np.nan if row[2] is None else row[2] for row in kept]
    np.testing.assert_allclose(np.asarray(table.columns["cards"]), cards)


def test_a_query_of_sqlite_is_a_table_and_nothing_is_written(folder: Path) -> None:
    before = (folder / "bank.sqlite").read_bytes()
    check_table(write(folder, "sqlite:bank.sqlite", QUERY))
    with pytest.raises(sv.InputError, match="readonly database"):
        sv.read_table(write(folder, "sqlite:bank.sqlite", "delete from clients returning who"), name="a", id="who")
    assert (folder / "bank.sqlite").read_bytes() == before


def test_a_query_of_duckdb_is_a_table_also_over_files_beside_it(folder: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    names = ("who", "income", "cards", "late")
    columns = dict(zip(names, map(list, zip(*ROWS, strict=True)), strict=True))
    pq.write_table(pa.table(columns), folder / "clients.parquet")
    check_table(write(folder, "duckdb:", QUERY.replace("clients", "'clients.parquet'")))
    with closing(duckdb.connect(str(folder / "bank.duckdb"))) as connection:
        connection.read_parquet(str(folder / "clients.parquet")).create("clients")
    check_table(write(folder, "duckdb:bank.duckdb", QUERY))
    with pytest.raises(sv.InputError, match=r"duckdb says: .*read-only"):
        sv.read_table(write(folder, "duckdb:bank.duckdb", "delete from clients returning who"), name="a", id="who")


MISTAKES: Mapping[str, tuple[str, str, str]] = {
    "no database": ("", QUERY, "names no database: its first line"),
    "kind": ("oracle://db/credit", QUERY, "'oracle' is no database that is read here; duckdb, postgresql"),
    "password": ("postgresql://me:hidden@db/credit", QUERY, "contains a password: leave it out; use PGPASSWORD"),
    "password, other place": ("mysql://db/credit?password=hidden", QUERY, r"contains a password.*\.my\.cnf"),
    "no file": ("sqlite:banc.sqlite", QUERY, "banc.sqlite does not exist beside the query"),
    "no query": ("sqlite:bank.sqlite", "  ", "has no query below"),
    "wrong query": ("sqlite:bank.sqlite", "selec who", 'sqlite says: near "selec"'),
    "no rows": ("sqlite:bank.sqlite", "create temp table t (who)", "returns no rows: begin it with select"),
    "changes": ("sqlite:bank.sqlite", "select who, 'x' as income from clients", ""),
}


@pytest.mark.parametrize("which", MISTAKES)
def test_mistakes_are_told_and_no_password_is(which: str, folder: Path) -> None:
    head, query, words = MISTAKES[which]
    file = write(folder, head, query)
    if not words:
        assert sv.read_table(file, name="bank", id="who", prepare="auto").rows == len(ROWS)
        return
    with pytest.raises(sv.InputError, match=words) as told:
        sv.read_table(file, name="bank", id="who", prepare="auto")
    assert "hidden" not in str(told.value)


def test_a_result_beyond_the_limits_is_refused(folder: Path) -> None:
    endless = "with recursive n(who) as (select 1 union all select who + 1 from n) select who, who as x from n"
    with pytest.raises(sv.InputError, match="rows"):
        sv.read_table(
            write(folder, "sqlite:bank.sqlite", endless), name="a", id="who", limits=TableLimits(max_rows=100_000)
        )


def test_an_empty_result_and_a_first_batch_without_values_are_told_apart(folder: Path) -> None:
    with pytest.raises(sv.InputError, match="has no rows"):
        sv.read_table(write(folder, "sqlite:bank.sqlite", QUERY.replace("3.5", "-1")), name="a", id="who")

    class Cursor:
        description = (("who",), ("x",))
        rows = iter([[("a", None)], [("b", 2.5)], []])

        def fetchmany(self, size: int) -> object:
            return next(self.rows)

    parts = [pa.Table.from_batches([one]) for one in _convert_rows(Cursor(), "it")]
    assert pa.concat_tables(parts, promote_options="permissive")["x"].to_pylist() == [None, 2.5]


def test_numerics_of_postgresql_are_numbers() -> None:
    kind = pa.opaque(pa.string(), type_name="numeric", vendor_name="PostgreSQL")
    amounts = pa.ExtensionArray.from_storage(kind, pa.array(["1.25", None, "-3"]))
    found = _convert_numerics(pa.RecordBatch.from_arrays([amounts, pa.array(["a", "b", "c"])], names=["n", "who"]))
    assert found["n"].to_pylist() == [1.25, None, -3.0]
    assert found["who"].to_pylist() == ["a", "b", "c"]


def test_a_delta_table_is_its_newest_version_and_not_its_files(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    where = tmp_path / "visits"
    deltalake.write_deltalake(str(where), pa.table({"who": ["a", "b"], "n": [1.0, 2.0]}))
    deltalake.write_deltalake(str(where), pa.table({"who": ["b", "c"], "n": [3.0, 4.0]}), mode="overwrite")
    assert len(list(where.glob("*.parquet"))) == 2
    table = sv.read_table(where, name="shop", id="who")
    assert sorted(zip(table.ids, table.columns["n"].tolist(), strict=True)) == [("b", 3.0), ("c", 4.0)]


def test_an_iceberg_table_is_its_newest_version_and_not_its_files(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("own", uri=f"sqlite:///{tmp_path}/own.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("shop")
    first = pa.table({"who": ["a", "b"], "n": [1.0, 2.0]})
    made = catalog.create_table("shop.visits", schema=first.schema)
    made.append(first)
    made.overwrite(pa.table({"who": ["b", "c"], "n": [3.0, 4.0]}))
    where = Path(made.location().removeprefix("file://"))
    table = sv.read_table(where, name="shop", id="who")
    assert sorted(zip(table.ids, table.columns["n"].tolist(), strict=True)) == [("b", 3.0), ("c", 4.0)]


@pytest.mark.parametrize(("made", "package"), [("_delta_log", "deltalake"), ("metadata", "pyiceberg")])
def test_without_the_library_such_a_folder_is_refused_and_never_read_as_files(
    made: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"who": ["a"], "n": [1.0]}), tmp_path / "deleted.parquet")
    (tmp_path / made).mkdir()
    (tmp_path / made / "v1.metadata.json").write_text("{}")
    monkeypatch.setitem(__import__("sys").modules, package, None)
    monkeypatch.setitem(__import__("sys").modules, f"{package}.table", None)
    with pytest.raises(sv.InputError, match=f"the package {package} reads it: pip install"):
        sv.read_table(tmp_path, name="shop", id="who")

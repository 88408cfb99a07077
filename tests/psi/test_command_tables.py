"""Tables as people have them: packed, in Parquet, with an identifier of several columns, with missing ones, and with
characters that nobody sees."""

from __future__ import annotations

import csv
import gzip
import json
import os
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from securevfl_psi import IdentifierError, IdRules, identifiers, normalise, normalise_column
from securevfl_psi.errors import InputError, SetSizeError
from securevfl_psi_cli import table_rows
from securevfl_psi_cli.spelling_hints import case_hint
from securevfl_psi_cli.table import Table
from support.commands import BANK, SHOP, run


def _compare(capsys: pytest.CaptureFixture[str], *command: str) -> dict[str, object]:
    capsys.readouterr()
    assert run("compare", *command, "--json") == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_packed_tables_and_parquet_are_read(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tables / "bank.csv.gz").write_bytes(gzip.compress(BANK.encode()))
    rows = list(csv.DictReader(SHOP.splitlines()))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    pa_parquet.write_table(pa.table(columns | {"n": [1, None, 3]}), tables / "shop.parquet")
    numbers = pa.table({"n": [7, 8], "d": pa.array(["x", "x"]).dictionary_encode()})
    pa_parquet.write_table(numbers, tables / "numbers.parquet")
    (tables / "numbers.csv").write_text("n\n8\n9\n")
    assert _compare(capsys, "bank.csv.gz", "shop.parquet", "--id", "customer", "--id-b", "client")["common"] == 2
    assert _compare(capsys, "numbers.parquet", "numbers.csv", "--id", "n")["common"] == 1
    table = Table.read(Path("shop.parquet"), "client")
    import numpy as np

    table.write_atomic(Path("out.csv"), np.array([2, 0]))
    assert Path("out.csv").read_text() == "spend,client,n\n9,ann,3\n3, eve,1\n"


def test_parquet_without_its_library(
    tables: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tables / "t.parquet").write_bytes(b"PAR1")
    assert run("compare", "t.parquet", "shop.csv", "--id", "id") == 2
    assert "pip install 'securevfl-psi[parquet]'" in capsys.readouterr().err


def test_two_columns_make_an_identifier(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is normalised alone, and no two different rows are joined alike."""
    (tables / "a.csv").write_text("name,born,x\nann,2001,1\nann,2002,2\nan,n2001,3\neve,1999,4\n")
    (tables / "b.csv").write_text("year,who\n2001, ann \n2002,Ann\n1999 ,eve\n01,ann20\n")
    command = ["a.csv", "b.csv", "--id", "name", "--id", "born", "--id-b", "who", "--id-b", "year", "--out", "o.csv"]
    assert _compare(capsys, *command)["common"] == 2
    assert (tables / "o.csv").read_text() == "row_a,row_b,name,born\n0,0,ann,2001\n3,2,eve,1999\n"
    assert _compare(capsys, *command, "--casefold")["common"] == 3
    assert run("compare", *command, "--id-b", "year") == 2
    assert "--id is given 2 times and --id-b 3" in capsys.readouterr().err
    assert run("compare", "a.csv", "b.csv", "--id", "name", "--id", "name") == 2
    assert "--id names a column twice" in capsys.readouterr().err
    (tables / "a.csv").write_text("name,born\nann,2001\nann,\nbob,1\nbob , 1\n")
    assert run("compare", *command) == 2
    assert "the identifier is empty in line 3;" in capsys.readouterr().err
    (tables / "a.csv").write_text("name,born\nann,2001\nbob,1\nbob , 1\n")
    assert run("compare", *command) == 2
    assert "1 identifier is doubled: ('bob', '1') in lines 3 and 4" in capsys.readouterr().err


def test_identifiers_of_several_columns_in_the_library() -> None:
    rules = IdRules(columns=2)
    assert normalise([("ann", "é"), ("an", "né")], rules) == ["3:ann2:é", "2:an3:né"]
    assert list(normalise_column([(" ann", "1")], rules)) == ["3:ann1:1"]
    assert rules.tag() != IdRules().tag() != IdRules(columns=3).tag()
    for ids, words in (
        ([("a", "b"), "ab"], "row 1 is a str; expected a tuple of 2"),
        ([("a",)], "row 0 is 1 values"),
        ([("a", "")], "row 0 is empty"),
        ([("a", "b"), ("a ", "b")], "occur more than once after normalisation"),
        ([("a" * 600, "b" * 600)], "has 1208 bytes"),
    ):
        with pytest.raises(IdentifierError, match=words):
            normalise(ids, rules)
    with pytest.raises(IdentifierError, match="columns=0"):
        IdRules(columns=0)


@pytest.mark.parametrize("text", ["NULL", "NA", "nan", "None", " N/A ", "NU\u200bLL"])
def test_missing_identifiers_do_not_match(text: str, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tables / "a.csv").write_text(f"id\nann\n{text}\neve\n", encoding="utf-8")
    (tables / "b.csv").write_text(f"id\n{text}\neve\nzoe\n", encoding="utf-8")
    assert run("compare", "a.csv", "b.csv", "--id", "id") == 2
    said = capsys.readouterr().err
    assert "the identifier is missing ('" in said
    assert "in line 3; correct or drop these rows, or use --missing drop" in said
    found = _compare(capsys, "a.csv", "b.csv", "--id", "id", "--missing", "drop", "--out", "o.csv")
    assert (found["common"], found["rows_a"], found["dropped_a"], found["dropped_b"]) == (1, 2, 1, 1)
    assert (tables / "o.csv").read_text() == "row_a,row_b,id\n2,1,eve\n"
    assert _compare(capsys, "a.csv", "b.csv", "--id", "id", "--missing", "keep")["common"] == 2


def test_empty_identifiers_can_be_left_out(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tables / "a.csv").write_text("id,x\nann,1\n,2\n  ,3\n")
    assert run("compare", "a.csv", "a.csv", "--id", "id", "--missing", "drop") == 0
    assert "without an identifier: 2 rows of A, 2 of B" in capsys.readouterr().out
    (tables / "a.csv").write_text("id,x\n,2\n")
    assert run("compare", "a.csv", "a.csv", "--id", "id", "--missing", "drop") == 2
    assert "no rows with an identifier" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_characters_that_nobody_sees_do_not_cost_a_row(form: str) -> None:
    rules = IdRules(form=form)  # type: ignore[arg-type]
    seen = ["\u200bann", "b\u00adob", "\ufeffeve", "m\u2060ia\ufe0f", "e\u200d\u0301", "\u202exy\u202c", "z\U000e0041"]
    assert normalise(seen, rules) == ["ann", "bob", "eve", "mia", "é", "xy", "z"]
    assert list(normalise_column(seen, rules)) == normalise(seen, rules)
    assert rules.tag().startswith("v2/")
    with pytest.raises(IdentifierError, match="row 0 is empty"):
        normalise(["\u200b\u3164"], rules)
    with pytest.raises(IdentifierError, match="occur more than once"):
        normalise(["ann", "a\u200bnn"], rules)


def test_all_code_points_that_are_dropped_are_ignorable_and_none_of_the_rest() -> None:
    """The ranges of Default_Ignorable_Code_Point in DerivedCoreProperties.txt of Unicode 15.1: 4,174 code points."""
    every = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    assert len(identifiers._INVISIBLE.findall(every)) == 4174


# limits


def test_tables_above_a_limit(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    big = tables / "big.csv.gz"
    big.write_bytes(gzip.compress(b"id\n" + b"a" * (1 << 25)))
    with pytest.raises(InputError, match="a row has 16,777,216 bytes or more"):
        Table.read(big, "id")
    big.write_bytes(gzip.compress(b"id,x\n" + b"a,\n" * (1 << 20)))
    with pytest.raises(InputError, match="more than 1,000,000 bytes, unpacked: raise --max-bytes"):
        Table.read(big, "id", max_bytes=1_000_000)
    with pytest.raises(SetSizeError, match="more than 10 rows: raise --max-set-size"):
        Table.read(big, "id", max_rows=10)
    big.write_bytes(gzip.compress(b"id\nann\n")[:-9])
    with pytest.raises(InputError, match="cannot be read"):
        Table.read(big, "id")
    (tables / "wide.csv").write_bytes(b"id" + b",x" * 20_000 + b"\n")
    with pytest.raises(InputError, match="20,001 columns; at most 16,384"):
        Table.read(tables / "wide.csv", "id")
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), pa.array(["x" * 100_000]))
    pa_parquet.write_table(pa.table({"id": texts, "l": [[1]] * 5000}), tables / "t.parquet")
    with pytest.raises(InputError, match="more than 100,000,000 bytes in its columns"):
        Table.read(tables / "t.parquet", "id", max_bytes=10**8)
    monkeypatch.setattr(table_rows, "_TEXT", 1000)
    with pytest.raises(InputError, match="a text from row 0 on has 100,000 bytes; at most 1,000"):
        Table.read(tables / "t.parquet", "id")
    with pytest.raises(InputError, match="column 'l' has the nested type list<element: int64>"):
        Table.read(tables / "t.parquet", "l")


def test_rows_that_are_written_otherwise_alone_are_said(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tables / "a.csv").write_text("id\nAnn\nbob\n007\neve  x\nJoe\n")
    (tables / "b.csv").write_text("id\nann\nBOB\n7\neve x\nJoe\n")
    found = _compare(capsys, "a.csv", "b.csv", "--id", "id")
    assert found["common"] == 1
    assert found["hints"] == [
        "--casefold would find 2 more common rows",
        "--squeeze would find 1 more common row",
        "--numeric would find 1 more common row",
    ]
    every = ["--casefold", "--squeeze", "--numeric"]
    found = _compare(capsys, "a.csv", "b.csv", "--id", "id", *every)
    assert (found["common"], found["hints"]) == (5, [])
    assert run("compare", "a.csv", "b.csv", "--id", "id") == 0
    assert "hint" in capsys.readouterr().out
    (tables / "a.csv").write_text("id\n007\n008\n")
    (tables / "b.csv").write_text("id\n7\n8\n")
    assert run("compare", "a.csv", "b.csv", "--id", "id") == 4
    assert "the same way? --numeric would find 2 more common rows" in capsys.readouterr().err.replace("\n", " ")


def test_a_pipe_is_read_once(tables: Path) -> None:
    pipe = tables / "pipe.csv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("id\nann\nbob\n",))
    writer.start()
    table = Table.read(pipe, "id")
    writer.join()
    assert [table.row_fields(row) for row in range(2)] == [("ann",), ("bob",)]


def test_a_party_hears_of_cases_in_its_own_table(tables: Path) -> None:
    for text, said in (
        ("Ann,bob,eve", True),
        ("Ann,Bob", False),
        ("ann,bob", False),
        ("ANN,BOB", False),
        ("1,2", False),
    ):
        (tables / "a.csv").write_text("id\n" + text.replace(",", "\n") + "\n")
        table = Table.read(tables / "a.csv", "id")
        assert bool(case_hint(table, IdRules())) is said, text
        assert not case_hint(table, IdRules(casefold=True))
    (tables / "a.csv").write_text("id\nAnn\nbob\n")
    hint = case_hint(Table.read(tables / "a.csv", "id"), IdRules())
    assert "1 of 2 identifiers here have capital letters and 2 small ones" in hint
    assert "Ann" not in hint

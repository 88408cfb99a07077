"""`securevfl check` says what each table holds, and until when a party's certificates are valid."""

from __future__ import annotations

import io
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from rich.console import Console
from securevfl_net.identity.certificate import utc_now
from securevfl_net.identity.folder import new_party

import securevfl as sv
from securevfl import cli
from securevfl.checks import check_file
from securevfl.checks.party_check import check_party_file
from securevfl.data.columns import ColumnUse
from securevfl.data.overview import TableOverview, table_overview
from securevfl.data.sample import table_mistakes
from securevfl.report import overview_table

ROWS = 1500
JOB = """
protection = "plain"
[[party]]
name = "bank"
file = "bank.csv"
id = ["ref", "born"]
label = "late"
prepare = "auto"
[[party]]
name = "shop"
file = "shop.parquet"
id = ["first", "born"]
features = ["spent", "kind"]
categorical = ["kind"]
"""
PARTY = """
party = "bank"
[data]
file = "bank.csv"
id = ["ref", "born"]
label = "late"
prepare = "auto"
[keys]
signing = "bank.signing.key"
certificate = "certs/bank.crt"
key = "certs/bank.key"
[peer.shop]
dial = "127.0.0.1:7443"
"""


def _bank() -> str:
    lines = ["ref;born;income;paid;since;member;town;currency;remark;late"]
    for i in range(ROWS):
        income = "" if i % 4 == 0 else f"{i % 97},5"
        row = [
            f"F{i % 60}",
            f"B{i // 60}",
            income,
            f"1.{i % 9}00,50 €",
            f"{1 + i % 28:02d}.03.2020",
            "ja" if i % 3 else "nein",
        ]
        lines.append(";".join([*row, f"town {i % 6}", "EUR", f"note of {i}", str(i % 2)]))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    (folder / "bank.csv").write_text(_bank(), encoding="cp1252")
    shop = {"first": [f"F{i % 60}" for i in range(ROWS)], "born": [f"B{i // 60}" for i in range(ROWS)]}
    shop |= {"spent": np.arange(ROWS) / 7, "kind": [f"k{i % 3}" for i in range(ROWS)], "more": list(range(ROWS))}
    pa_parquet.write_table(pa.table(shop), folder / "shop.parquet", row_group_size=100)
    (folder / "job.toml").write_text(JOB, encoding="utf-8")
    (folder / "bank.toml").write_text(PARTY, encoding="utf-8")
    new_party("bank", folder / "certs", days=30)
    _signing_key(folder)
    return folder


def _signing_key(folder: Path) -> None:
    with pytest.raises(SystemExit):
        cli.main(["keys", "bank", "--out", str(folder)])
    (folder / "bank.key").rename(folder / "bank.signing.key")


def shown(tables: tuple[TableOverview, ...]) -> list[str]:
    console = Console(width=80, file=io.StringIO(), no_color=True, record=True)
    console.print(overview_table(tables))
    return [line.rstrip() for line in console.export_text(styles=False).splitlines()]


def test_what_each_table_holds_is_told(folder: Path) -> None:
    found = check_file(folder / "job.toml")
    assert found.mistakes == ()
    bank, shop = found.tables
    assert (bank.party, bank.rows, bank.columns, bank.ids, bank.roles) == (
        "bank",
        ROWS,
        10,
        ("ref", "born"),
        {"label": "late"},
    )
    assert bank.kind_counts == {"numbers": 2, "categories": 3, "dates": 1, "truth values": 1}
    assert bank.numeric_text_count == 1  # paid: money with thousands and a sign
    assert bank.constant_columns == ["currency"]
    assert bank.scattered_columns == ["remark"]
    assert bank.most_missing is not None
    assert (bank.most_missing.column, bank.most_missing.missing) == ("income", 0.25)
    assert bank.missing_share == pytest.approx(0.25 / 7)
    assert bank.written == "semicolons between fields, cp1252, decimal comma"
    assert (shop.rows, shop.columns, shop.ids, shop.unused) == (ROWS, 5, ("first", "born"), ("more",))
    assert shop.kind_counts == {"numbers": 1, "categories": 1}
    assert (shop.written, shop.missing_share, shop.most_missing) == ("", 0.0, None)


def test_the_lines_fit_80_columns_whatever_names_are(folder: Path) -> None:
    lines = shown(check_file(folder / "job.toml").tables)
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for words in (
        "identifier ref + born; label late",
        "2 numbers (1 in texts)",
        "dropped as constant: currency",
        "not used: more",
    ):
        assert words in text
    assert "from the first 1,000 rows" in text
    use = ColumnUse.from_arguments(id="i" * 90, label=None, features=None, categorical=(), classes=None, prepare="auto")
    table = pa.table({"i" * 90: [str(i) for i in range(9)]} | {f"{'c' * 70}{i}": [1] * 9 for i in range(5)})
    pa_parquet.write_table(table, folder / "long.parquet")
    long = table_overview("p" * 60, folder / "long.parquet", use)
    assert long is not None
    lines = shown((long,))
    assert max(map(len, lines)) <= 80
    assert "and 2 more" in "\n".join(lines)
    assert "told by the first" not in "\n".join(lines)  # all rows were looked at


def test_names_of_columns_do_not_steer_the_terminal(tmp_path: Path) -> None:
    table = pa.table({"i\x1b[2J": ["a", "b"], "x\r\n\tsecond line" + "\x00" * 9: [1, 1], "\x9b31m": [1, None]})
    pa_parquet.write_table(table, tmp_path / "t.parquet")
    use = ColumnUse.from_arguments(
        id="i\x1b[2J", label=None, features=None, categorical=(), classes=None, prepare="auto"
    )
    found = table_overview("bank", tmp_path / "t.parquet", use)
    assert found is not None
    lines = shown((found,))
    assert max(map(len, lines)) <= 80
    assert all(line.isprintable() for line in lines)
    assert any("i\ufffd[2J" in line for line in lines)


def test_no_value_of_a_table_is_printed(folder: Path) -> None:
    text = "\n".join(shown(check_file(folder / "job.toml").tables)) + repr(check_file(folder / "job.toml").tables)
    for value in ("EUR", "town 1", "note of", "96,5", "nein", "B12"):
        assert value not in text


def test_tables_with_mistakes_say_what_they_can(folder: Path, tmp_path: Path) -> None:
    text = JOB.replace('"bank.csv"', '"none.csv"').replace('"shop.parquet"', f'"{folder / "shop.parquet"}"')
    (tmp_path / "job.toml").write_text(text.replace('"spent", ', '"spend", '), encoding="utf-8")
    found = check_file(tmp_path / "job.toml")
    assert any("none.csv" in one for one in found.mistakes)
    assert any("'spend'" in one for one in found.mistakes)
    (shop,) = found.tables
    assert shop.kind_counts == {"categories": 1}


def test_identifiers_of_other_numbers_of_columns_are_told(folder: Path) -> None:
    text = JOB.replace('["first", "born"]', '"more"')
    (folder / "other.toml").write_text(text, encoding="utf-8")
    (line,) = check_file(folder / "other.toml").mistakes
    assert "so no rows would match: 'bank' of ref, born; 'shop' of more" in line


def test_the_command_prints_tables_before_what_it_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.app(["check", str(folder / "job.toml")], standalone_mode=False)
    said = capsys.readouterr().out
    assert said.index("What the tables contain") < said.index("nothing to correct")


def test_a_party_file_tells_of_its_own_table_and_certificate(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    found = check_file(folder / "bank.toml")
    assert found.mistakes == ()
    assert [one.party for one in found.tables] == ["bank"]
    (own,) = found.certificates
    assert (own.whose, own.file.name, own.ends_soon) == ("bank", "bank.crt", False)
    cli.app(["check", str(folder / "bank.toml")], standalone_mode=False)
    said = capsys.readouterr().out
    assert "certificate of bank, bank.crt: valid until" in said
    assert "30 days left" in said
    assert "certs rotate" not in said
    assert "nothing to correct. The file of bank; peers shop" in said


@pytest.mark.parametrize(("days", "soon", "words"), [(15, False, "15 days left"), (17, True, "13 days left")])
def test_an_end_within_14_days_is_warned_of(folder: Path, days: int, soon: bool, words: str) -> None:
    later = utc_now() + timedelta(days=days)
    (own,) = check_party_file(folder / "bank.toml", now=lambda: later).certificates
    assert own.ends_soon is soon
    assert words in str(own)
    assert ("securevfl certs rotate bank" in str(own)) is soon


def test_what_is_wrong_with_keys_is_told_with_what_is_wrong_with_the_table(folder: Path) -> None:
    over = utc_now() + timedelta(days=40)
    found = check_party_file(folder / "bank.toml", now=lambda: over)
    assert "bank.crt is valid from" in found.mistakes[0]
    text = PARTY.replace('"bank.signing.key"', '"none.key"').replace('"ref"', '"reff"')
    text = text.replace('party = "bank"', 'party = "shop"').replace("peer.shop", "peer.bank")
    (folder / "wrong.toml").write_text(text, encoding="utf-8")
    checked = check_file(folder / "wrong.toml")
    assert checked.exit_code == sv.InputError.exit_code
    told = "\n".join(checked.mistakes)
    assert "none.key" in told
    assert "is a certificate of 'bank', and this is the file of 'shop': name its own" in told
    assert "'reff'" in told
    (folder / "wrong.toml").write_text(text.replace("[data]", "[dat]"), encoding="utf-8")
    assert "dat" in check_file(folder / "wrong.toml").mistakes[0]


def test_columns_that_are_half_numbers_and_tables_without_a_difference_are_told(tmp_path: Path) -> None:
    rows = [f"i{i},{'<0.5' if i % 2 else i / 7},{i % 3},CH\n" for i in range(60)]
    (tmp_path / "t.csv").write_text("id,lab,late,land\n" + "".join(rows))
    use = ColumnUse.from_arguments(id="id", label="late", features=None, categorical=(), classes=None, prepare="auto")
    found = table_overview("lab", tmp_path / "t.csv", use)
    assert found is not None
    assert (found.partly, found.classes, found.unused) == (("lab",), 3, ())
    text = "\n".join(shown((found,)))
    assert "label late (3 classes)" in text
    assert "taken as categories, though many values" in text
    only = ColumnUse.from_arguments(
        id="id", label=None, features=["land"], categorical=(), classes=None, prepare="auto"
    )
    assert table_mistakes(tmp_path / "t.csv", use) == []
    (line,) = table_mistakes(tmp_path / "t.csv", only)
    assert "no column is left after preparation (dropped: land)" in line
    assert table_mistakes(tmp_path / "t.csv", only, rows=60) == []  # there may be others below


def test_more_classes_than_an_algorithm_tells_apart_are_told(tmp_path: Path) -> None:
    rows = [f"i{i},{i % 7},{i % 3}\n" for i in range(60)]
    (tmp_path / "a.csv").write_text("id,x,late\n" + "".join(rows))
    (tmp_path / "b.csv").write_text("id,y\n" + "".join(f"i{i},{i % 5}\n" for i in range(60)))
    job = JOB.replace("bank.csv", "a.csv").replace("shop.parquet", "b.csv").replace('["ref", "born"]', '"id"')
    job = job.replace('["first", "born"]', '"id"').replace('features = ["spent", "kind"]\ncategorical = ["kind"]\n', "")
    (tmp_path / "job.toml").write_text('algorithm = "scorecard"\n' + job)
    (line,) = check_file(tmp_path / "job.toml").mistakes
    assert line.startswith("scorecard is for 2 classes; the label of 'bank' has 3")
    (tmp_path / "job.toml").write_text('algorithm = "splitnn"\n' + job)
    assert check_file(tmp_path / "job.toml").mistakes == ()


@pytest.mark.parametrize("classes", [64, 65])
def test_more_classes_than_shares_tell_apart_are_told(tmp_path: Path, classes: int) -> None:
    rows = [f"i{i},{i % 7},k{i % classes}\n" for i in range(300)]
    (tmp_path / "bank.csv").write_text("id,x,late\n" + "".join(rows))
    (tmp_path / "shop.csv").write_text("id,y\n" + "".join(f"i{i},{i % 5}\n" for i in range(300)))
    parties = "".join(
        f'[[party]]\nname = "{name}"\nfile = "{name}.csv"\nid = "id"\n{label}\n'
        for name, label in (("bank", 'label = "late"'), ("shop", ""))
    )
    job = '[job]\n[algorithm]\nname = "logistic_regression"\n[protection]\nname = '
    shares = '"shares"\ncomputing = ["bank", "shop", "helper"]\n'
    (tmp_path / "job.toml").write_text(job + shares + parties)
    found = check_file(tmp_path / "job.toml").mistakes
    if classes == 64:
        assert found == ()
    else:
        (line,) = found
        assert line.startswith("protection 'shares' is for 64 classes at most; the label of 'bank' has 65: put some")
        assert "use a protection of the cut ('auto', 'bfv'" in line
        (tmp_path / "job.toml").write_text(job + '"bfv"\n' + parties)
        assert check_file(tmp_path / "job.toml").mistakes == ()

"""`securevfl init`: a job file drafted from tables, checked and run without an edit."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import securevfl as sv
from securevfl import cli
from securevfl.checks import check_file
from securevfl.jobfile.drafting import draft_job

ROWS = 260
Said = pytest.CaptureFixture[str]


def command(said: Said, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a command in this process."""
    said.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    found = said.readouterr()
    return int(ended.value.code or 0), found.out + found.err


def messy(folder: Path, rows: int = ROWS) -> list[Path]:
    """Two tables as companies have them: gaps, dates, decimal commas, semicolons, a category of many levels."""
    draw = np.random.default_rng(0)
    ids = [f"C-{i:05d}" for i in range(rows)]
    income, spent = draw.normal(3000, 900, rows), draw.normal(200, 50, rows)
    late = (income / 900 - spent / 50 + draw.normal(0, 0.3, rows) < 3000 / 900 - 4).astype(int)
    bank, shop = ["client_no;income;since;branch;name;late"], ["customer;spent;product;rating"]
    for i in range(rows):
        amount = "" if i % 5 == 0 else f"{income[i]:.2f}".replace(".", ",")
        since = f"{1 + i % 28:02d}.{1 + i % 12:02d}.{2000 + i % 20}"
        bank.append(f"{ids[i]};{amount};{since};{['Nord', 'Süd'][i % 2]};Name {i};{'ja' if late[i] else 'nein'}")
    for i in draw.permutation(rows)[: rows - 20]:
        paid = f"{spent[i]:.2f}".replace(".", ",")
        shop.append(f"{ids[i]};{paid};product {int(draw.integers(100))};{'' if i % 5 == 1 else i % 5}")
    paths = [folder / "Bank 2026.csv", folder / "shop.csv"]
    paths[0].write_text("\n".join(bank) + "\n", encoding="cp1252")
    paths[1].write_text("\n".join(shop) + "\n", encoding="utf-8")
    return paths


def test_three_commands_take_messy_tables_to_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    bank, shop = messy(tmp_path)
    code, output = command(capsys, "init", str(bank), str(shop))
    assert code == 0, output
    assert "semicolons between fields, cp1252, decimal comma" in output
    content = tomllib.loads((tmp_path / "job.toml").read_text(encoding="utf-8"))
    parties = {one["name"]: one for one in content["party"]}
    assert parties["bank_2026"]["id"] == "client_no"
    assert parties["bank_2026"]["label"] == "late"
    assert parties["bank_2026"]["features"] == ["income", "since", "branch"]  # names are left out
    assert parties["shop"]["id"] == "customer"
    code, output = command(capsys, "check", "job.toml")
    assert code == 0, output
    text = re.sub(r"(?m)^(epochs|patience) = \d+", r"\1 = 2", (tmp_path / "job.toml").read_text(encoding="utf-8"))
    (tmp_path / "job.toml").write_text(text, encoding="utf-8")
    code, output = command(capsys, "run", "job.toml", "--out", "out")
    assert code == 0, output
    assert (tmp_path / "out" / "report.html").exists()


def test_a_file_that_is_there_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [str(path) for path in messy(tmp_path, 40)]
    (tmp_path / "job.toml").write_text("mine", encoding="utf-8")
    code, output = command(capsys, "init", *paths)
    assert code == sv.InputError.exit_code
    assert "--overwrite" in output
    assert (tmp_path / "job.toml").read_text(encoding="utf-8") == "mine"
    assert command(capsys, "init", *paths, "--overwrite")[0] == 0


def test_what_cannot_be_guessed_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y2\n1,2\n1,3\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("z,w\n1,2\n1,3\n", encoding="utf-8")
    draft = draft_job([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path)
    assert len(draft.missing) == 3
    assert draft.text.count("FILL IN") == 3
    tomllib.loads(draft.text)


def test_a_label_of_many_numbers_is_a_regression(tmp_path: Path) -> None:
    for name, column in (("a", "target"), ("b", "other")):
        lines = [f"id,{column}", *(f"p{i},{i * 1.5}" for i in range(50))]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    content = tomllib.loads(draft_job([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path).text)
    assert content["job"]["task"] == "regression"


@pytest.mark.parametrize(
    ("options", "words"),
    [({"id": "nobody"}, "nobody"), ({"label": "nothing"}, "nothing"), ({"label": "both"}, "all have a column")],
)
def test_columns_that_are_named_have_to_be_there(options: dict[str, str], words: str, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("id,both\np1,1\np2,2\n", encoding="utf-8")
    with pytest.raises(sv.InputError, match=words):
        draft_job([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path, **options)
    with pytest.raises(sv.InputError, match="two or more"):
        draft_job([tmp_path / "a.csv"], tmp_path)


PEOPLE = 60


def _people(folder: Path, *, other: tuple[str, str, str] = ("first", "last", "born")) -> list[Path]:
    """Two tables whose rows are named by first name, last name and day of birth together, and by no two of them."""
    people = [(f"F{i % 4}", f"L{i // 4 % 4}", f"19{50 + i // 16}-01-0{1 + i % 2}") for i in range(PEOPLE)]
    draw = np.random.default_rng(1)
    mine = [f"{a},{b},{c},{int(draw.integers(5))},{draw.normal():.3f},{i % 2}" for i, (a, b, c) in enumerate(people)]
    theirs = [f"{draw.normal():.3f},{c},{a},{b},{int(draw.integers(5))}" for a, b, c in people[10:]]
    first, last, born = other
    (folder / "bank.csv").write_text("\n".join(["first,last,born,kind,income,late", *mine]) + "\n", encoding="utf-8")
    header = f"paid,{born},{first},{last},kind"
    (folder / "shop.csv").write_text("\n".join([header, *theirs]) + "\n", encoding="utf-8")
    return [folder / "bank.csv", folder / "shop.csv"]


@pytest.mark.parametrize("other", [("first", "last", "born"), ("given", "family", "day")])
def test_columns_that_name_rows_together_are_an_identifier(tmp_path: Path, other: tuple[str, str, str]) -> None:
    paths = _people(tmp_path, other=other)
    draft = draft_job(paths, tmp_path)
    bank, shop = tomllib.loads(draft.text)["party"]
    assert not draft.missing
    assert sorted(bank["id"]) == ["born", "first", "last"]
    assert [dict(zip(("first", "last", "born"), other, strict=True))[one] for one in bank["id"]] == shop["id"]
    assert bank["label"] == "late"
    assert " + ".join(map(repr, bank["id"])) in draft.found[0]
    (tmp_path / "job.toml").write_text(draft.text, encoding="utf-8")
    found = check_file(tmp_path / "job.toml")
    assert not found.mistakes, found.mistakes


def test_columns_that_name_rows_of_strangers_join_nothing(tmp_path: Path) -> None:
    """Values are the same, and no row is."""
    paths = _people(tmp_path)
    lines = paths[1].read_text(encoding="utf-8").splitlines()
    moved = [line.replace("-01-0", "-02-0") for line in lines[1:]]
    paths[1].write_text("\n".join([lines[0], *moved]) + "\n", encoding="utf-8")
    draft = draft_job(paths, tmp_path)
    assert len(draft.missing) == 2
    assert draft.text.count("FILL IN") == 2


def test_one_column_that_names_rows_comes_first(tmp_path: Path) -> None:
    paths = _people(tmp_path)
    for path, start in zip(paths, (0, 10), strict=True):
        lines = path.read_text(encoding="utf-8").splitlines()
        numbered = [f"{lines[0]},number", *(f"{line},N{start + i}" for i, line in enumerate(lines[1:]))]
        path.write_text("\n".join(numbered) + "\n", encoding="utf-8")
    assert [one["id"] for one in tomllib.loads(draft_job(paths, tmp_path).text)["party"]] == ["number", "number"]
    several = draft_job(paths, tmp_path, id=["first", "last", "born"])
    assert [one["id"] for one in tomllib.loads(several.text)["party"]] == [["first", "last", "born"]] * 2


def test_numbers_of_the_lines_are_no_features(tmp_path: Path) -> None:
    """As pandas writes a table with its index."""
    for name, index in (("a", ""), ("b", "Unnamed: 0")):
        lines = [f"{index},id,late_{name},x", *(f"{i},p{i},{i % 2},{i * 7 % 5}" for i in range(40))]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    draft = draft_job([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path, label="late_a")
    parties = tomllib.loads(draft.text)["party"]
    assert [one["features"] for one in parties] == [["x"], ["late_b", "x"]]


@pytest.mark.parametrize("odd", ["", "unknown"])
def test_an_amount_in_texts_is_a_number_to_learn(odd: str, tmp_path: Path) -> None:
    amounts = [*(f"{i}.50 €" for i in range(60)), odd or "7"]
    (tmp_path / "a.csv").write_text("id,claim\n" + "".join(f"p{i},{one}\n" for i, one in enumerate(amounts)))
    (tmp_path / "b.csv").write_text("id,x\n" + "".join(f"p{i},{i % 7}\n" for i in range(61)))
    draft = draft_job([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path)
    assert tomllib.loads(draft.text)["job"]["task"] == "regression"


@pytest.mark.parametrize(
    ("rows", "values", "tables", "named", "drafted"),
    [
        (4_000, 2, 2, "", ("scorecard", "shares", 2)),
        (3_999, 2, 2, "", ("splitnn", "bfv", None)),
        (4_000, 3, 2, "", ("splitnn", "bfv", None)),
        (4_000, 50, 2, "", ("splitnn", "bfv", None)),
        (4_000, 2, 3, "", ("splitnn", "shares", None)),
        (4_000, 2, 2, "splitnn", ("splitnn", "bfv", None)),
    ],
)
def test_two_tables_of_many_rows_and_two_classes_get_a_scorecard_on_shares(
    rows: int, values: int, tables: int, named: str, drafted: tuple[str, str, int | None], tmp_path: Path
) -> None:
    names = ["bank", "shop", "tele"][:tables]
    for name in names:
        label = [f",{i % values}" if name == "bank" else "" for i in range(rows)]
        lines = [f"k{i:05d},{i % 7}.5{one}" for i, one in enumerate(label)]
        head = f"id,{name}" + ",late" * (name == "bank")
        (tmp_path / f"{name}.csv").write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    text = draft_job([tmp_path / f"{name}.csv" for name in names], tmp_path, label="late", algorithm=named).text
    content = tomllib.loads(text)
    protection = content["protection"]
    assert (content["algorithm"]["name"], protection["name"], protection.get("computing")) == drafted
    assert ("hides labels" in text) is (protection["name"] == "bfv")
    guessed = tables == 2 and values == 2 and not named
    assert ("On secret shares of the two no message" in text) is (guessed and rows == 4_000)
    assert ("# Fewer than 4,000 rows" in text) is (guessed and rows == 3_999)

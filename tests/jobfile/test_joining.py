"""Which columns `securevfl init` takes for identifiers, one or several, whole numbers among them, and what it says
where it finds none."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import securevfl as sv
from securevfl.jobfile.drafting import Draft, draft_job

ROWS = 240
Columns = dict[str, Any]


def people(rows: int = ROWS) -> Columns:
    """First names, last names and days of birth: any two columns are doubled somewhere, all three never."""
    grid = itertools.product(["Ann", "Bo", "Cy", "Di", "Ed", "Flo"], ["Ash", "Birch", "Elm", "Fir"], range(40))
    rows_of = [(first, last, f"19{50 + day % 40}-03-0{1 + day % 9}") for first, last, day in grid]
    picked = [rows_of[i] for i in np.random.default_rng(3).permutation(len(rows_of))[:rows]]
    return dict(zip(("first", "last", "born"), map(list, zip(*picked, strict=True)), strict=True))


def mixed(columns: Columns, seed: int, share: float = 1.0) -> Columns:
    """Rows in another order, some left out."""
    rows = len(next(iter(columns.values())))
    order = np.random.default_rng(seed).permutation(rows)[: int(share * rows)]
    return {name: [values[i] for i in order] for name, values in columns.items()}


def written(folder: Path, *tables: Columns, kind: str = "csv") -> list[Path]:
    paths = []
    for number, columns in enumerate(tables):
        path = folder / f"{'abc'[number]}.{kind}"
        table = pa.table(columns)
        pa.csv.write_csv(table, path) if kind == "csv" else pa.parquet.write_table(table, path)
        paths.append(path)
    return paths


def ids(draft: Draft) -> list[Any]:
    return [party["id"] for party in tomllib.loads(draft.text)["party"]]


def told(draft: Draft) -> str:
    return "; ".join(draft.missing)


def drafted(folder: Path, *tables: Columns, kind: str = "csv", **options: Any) -> Draft:
    return draft_job(written(folder, *tables, kind=kind), folder, **options)


def amounts(seed: int, rows: int = ROWS) -> list[float]:
    return [float(one) for one in np.random.default_rng(seed).normal(size=rows).round(4)]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_names_and_birth_are_proposed_where_no_column_alone_names_a_row(kind: str, tmp_path: Path) -> None:
    first, second = people() | {"late": [i % 2 for i in range(ROWS)]}, people() | {"spent": amounts(1)}
    draft = drafted(tmp_path, first, mixed(second, 4, 0.9), kind=kind)
    assert [sorted(one) for one in ids(draft)] == [["born", "first", "last"]] * 2
    assert not draft.missing
    assert sv.checks.check_file(_kept(tmp_path, draft)).mistakes == ()


def _kept(folder: Path, draft: Draft) -> Path:
    file = folder / "job.toml"
    file.write_text(draft.text, encoding="utf-8")
    return file


def test_two_columns_are_enough_where_two_name_rows_and_three_tables_name_them_in_one_order(tmp_path: Path) -> None:
    grid = [(shop, week) for shop in range(1, 13) for week in range(1, 21)]
    panel = {"week": [week for _, week in grid], "shop": [shop for shop, _ in grid]}
    other = {"shop": panel["shop"], "week": panel["week"], "sold": amounts(2)}
    third = {"Shop": panel["shop"], "x": amounts(3), "Week": panel["week"]}
    draft = drafted(tmp_path, panel | {"late": [0, 1] * 120}, mixed(other, 5), mixed(third, 6, 0.8))
    assert ids(draft) == [["week", "shop"], ["week", "shop"], ["Week", "Shop"]]


@pytest.mark.parametrize("start", ["1000", "0001"])
def test_whole_numbers_of_csv_files_are_identifiers(start: str, tmp_path: Path) -> None:
    lines = [f"{int(start) + i:04d}" for i in range(60)]
    for name, order in (("a", lines), ("b", lines[::-1])):
        rows = "".join(f"{one},{i / 7:.3f}\n" for i, one in enumerate(order))
        (tmp_path / f"{name}.csv").write_text(f"client_id,{name}x\n{rows}", encoding="utf-8")
    draft = draft_job([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path)
    assert ids(draft) == ["client_id", "client_id"]
    assert "counts rows" not in draft.text


def test_long_numbers_that_differ_in_their_last_digit_are_identifiers(tmp_path: Path) -> None:
    cards = {"card_no": [4_000_000_000_000_000_000 + i for i in range(ROWS)], "x": amounts(1)}
    assert ids(drafted(tmp_path, cards, mixed(cards, 3))) == ["card_no", "card_no"]


def test_numbers_of_rows_join_nothing_unless_their_name_says_so(tmp_path: Path) -> None:
    first, second = people(), mixed(people(), 4)
    line = {"row": list(range(ROWS))}
    draft = drafted(tmp_path, line | first, line | second)
    assert [sorted(one) for one in ids(draft)] == [["born", "first", "last"]] * 2
    alone = drafted(tmp_path, line | {"x": amounts(1)}, line | {"z": amounts(2)})
    assert ids(alone) == ["FILL IN"] * 2
    assert "no column without gaps is common" in told(alone)
    named = drafted(
        tmp_path, {"id": list(range(1, 61)), "x": amounts(1, 60)}, {"id": list(range(1, 61))} | {"y": amounts(2, 60)}
    )
    assert ids(named) == ["id", "id"]


def test_label_like_columns_and_fractions_are_left_where_better_ones_are_there(tmp_path: Path) -> None:
    grid = [(shop, week, grade) for shop in range(1, 13) for week in range(1, 11) for grade in range(2)]
    shop, week, grade = map(list, zip(*grid, strict=True))
    table = {"class": grade, "shop": shop, "week": week, "rate": amounts(3), "hour": grade}
    draft = drafted(tmp_path, table | {"u": amounts(1)}, mixed(table | {"w": amounts(2)}, 4), label=())
    assert [sorted(one) for one in ids(draft)] == [["hour", "shop", "week"]] * 2


@pytest.mark.parametrize("seed", range(5))
def test_columns_that_are_called_alike_and_mean_other_people_join_nothing(seed: int, tmp_path: Path) -> None:
    def draws(seed: int) -> Columns:
        draw = np.random.default_rng(seed)
        levels = {"age": 60, "income": 5000, "score": 900, "children": 5}
        return {name: [int(one) for one in draw.integers(0, most, ROWS)] for name, most in levels.items()}

    draft = drafted(tmp_path, draws(seed), draws(100 + seed))
    assert ids(draft) == ["FILL IN"] * 2
    assert "hardly a row of one table is in another" in told(draft)


def test_the_cure_says_what_is_in_the_way(tmp_path: Path) -> None:
    names = people()
    doubled = {name: [*values[:-1], values[0]] for name, values in names.items()}
    draft = drafted(tmp_path, doubled | {"x": amounts(1)}, mixed(names | {"y": amounts(2)}, 4))
    assert "leave 1 of 240 rows of 'a' like another: drop duplicate rows" in told(draft)
    german = names | {"born": [".".join(one.split("-")[::-1]) for one in names["born"]], "y": amounts(2)}
    draft = drafted(tmp_path, names | {"x": amounts(1)}, mixed(german, 4))
    assert "'born' has no value in common between the tables: write it alike in all of them (dates" in " ".join(
        draft.missing
    )
    gaps = names | {name: [None, *values[1:]] for name, values in names.items()}
    draft = drafted(tmp_path, gaps, names)
    assert "no column without gaps is common to all tables: give them one, or name the columns with --id" in " ".join(
        draft.missing
    )
    four = [one for one in itertools.product(range(4), repeat=4) if sum(one) % 2 or one[0] == one[1]]
    table = dict(zip("pqrs", map(list, zip(*four, strict=True)), strict=True))
    draft = drafted(tmp_path, table, mixed(table, 4))
    assert "no three columns name the rows" in told(draft)
    assert all(f"'{name}'" in told(draft) for name in "pqrs")


def test_several_columns_can_be_told(tmp_path: Path) -> None:
    names = people()
    assert (
        ids(drafted(tmp_path, names, mixed(names, 4), id=["born", "last", "first"])) == [["born", "last", "first"]] * 2
    )
    with pytest.raises(sv.InputError, match=r"'frist'.*'first'"):
        drafted(tmp_path, names, names, id=["frist", "last"])
    with pytest.raises(sv.InputError, match="'last' is named twice"):
        drafted(tmp_path, names, names, id=["last", "last"])
    with pytest.raises(sv.InputError, match="'last' is named twice"):
        drafted(tmp_path, names, names, id=["first", "last"], label="last")


def test_wide_tables_give_the_same_few_columns_each_time(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    wide = {f"flag{i}": [int(one) for one in draw.integers(0, 3, ROWS)] for i in range(300)} | people()
    paths = written(tmp_path, wide | {"late": [i % 2 for i in range(ROWS)]}, mixed(wide, 4))
    drafts = [draft_job(paths, tmp_path) for _ in range(2)]
    assert drafts[0] == drafts[1]
    assert [sorted(one) for one in ids(drafts[0])] == [["born", "first", "last"]] * 2

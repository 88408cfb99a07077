"""`check` finds columns that are nearly the label, by their values, and raises no false alarms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

import securevfl as sv
from securevfl.checks import check_file
from securevfl.checks.label_leaks import CheckedTable, find_leaks, rate_column
from securevfl.data import datasets
from securevfl.data.categories import Categories, Column
from securevfl.data.columns import ColumnUse

LEAST = 0.995
ROWS = 600
DRAW = np.random.default_rng(5)
LABEL = (DRAW.random(ROWS) < 0.2).astype(float)
OTHER = DRAW.normal(size=ROWS)


def _texts(values: list[str]) -> Categories:
    words, codes = np.unique(values, return_inverse=True)
    return Categories(codes.astype(np.int32), tuple(map(str, words)))


LEAKS: dict[str, Column] = {
    "copy": LABEL,
    "inverted": 1 - LABEL,
    "renamed": _texts(["closed" if one else "open" for one in LABEL]),
    "scaled, with noise": 100 + 5 * LABEL + DRAW.normal(0, 0.4, ROWS),
    "codes in no order": np.where(LABEL == 1, DRAW.choice([1, 4, 6], ROWS), DRAW.choice([2, 3, 5], ROWS)).astype(float),
    "gaps": np.where(LABEL == 1, OTHER, np.nan),
    "gaps in texts": _texts(["2024-01-02" if one else "" for one in LABEL]),
    "decimal commas": _texts([f"{int(one)},5" for one in LABEL]),
}
HARMLESS: dict[str, Column] = {
    "strong": LABEL + DRAW.normal(0, 0.5, ROWS),
    "names of rows": _texts([f"u{i}" for i in range(ROWS)]),
    "many codes": DRAW.integers(0, 300, ROWS).astype(float),
    "a constant": np.ones(ROWS),
    "empty": np.full(ROWS, np.nan),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_column_that_tells_the_label_is_found(name: str) -> None:
    found = rate_column(LEAKS[name], LABEL, number=False)
    assert found is not None
    assert found.value >= LEAST
    assert found.by_gaps == name.startswith("gaps")


@pytest.mark.parametrize("name", HARMLESS)
def test_other_columns_are_not(name: str) -> None:
    found = rate_column(HARMLESS[name], LABEL, number=False)
    assert found is None or found.value < LEAST


def test_few_rows_of_a_class_say_nothing() -> None:
    rare = np.arange(ROWS) % 100 == 0
    assert rate_column(np.where(rare, np.nan, OTHER), rare.astype(float), number=False) is None


def test_levels_are_not_rated_on_their_own_rows() -> None:
    """Eight rows of a class in twenty thousand: over the rows themselves, a thousand random levels have AUC 0.996."""
    rare = (np.arange(20_000) % 2_500 == 0).astype(float)
    found = rate_column(np.random.default_rng(1).permutation(20_000) % 1_000 * 1.0, rare, number=False)
    assert found is not None
    assert found.value < 0.9


def test_many_classes_and_numbers() -> None:
    classes = DRAW.integers(0, 5, ROWS).astype(float)
    moved = np.array([3.0, 1, 4, 0, 2])[classes.astype(int)]
    copied = rate_column(moved, classes, number=False)
    assert copied is not None
    assert (copied.measure, copied.value) == ("rows", 1.0)
    wrong = rate_column(np.where(DRAW.random(ROWS) < 0.1, 0, classes), classes, number=False)
    assert wrong is not None
    assert wrong.value < LEAST
    curved = rate_column(np.exp(OTHER), OTHER, number=True)
    assert curved is not None
    assert (curved.measure, round(curved.value, 6)) == ("ranks", 1.0)


def test_random_columns_of_few_rows_raise_no_alarm() -> None:
    alarms = 0
    for seed in range(15):
        draw = np.random.default_rng(seed)
        rows = int(draw.integers(30, 200))
        label = (draw.random(rows) < draw.uniform(0.1, 0.5)).astype(float)
        for _ in range(5):
            gaps = np.where(draw.random(rows) < 0.9, np.nan, 1)
            columns = (draw.normal(size=rows), draw.integers(0, 4, rows) * 1.0, gaps)
            found = [rate_column(values, label, number=False) for values in columns]
            alarms += sum(one is not None and one.value >= LEAST for one in found)
    assert alarms == 0


def test_tables_of_the_repository_raise_no_alarm() -> None:
    credit = datasets.load("default_credit")
    owner = next(table for table in credit.values() if table.label is not None)
    label = np.asarray(owner.label, dtype=float)[:5000]
    rated = [rate_column(values[:5000], label, number=False) for values in owner.columns.values()]
    for load in (load_breast_cancer, load_iris, load_wine):
        columns, target = load(return_X_y=True)
        rated += [rate_column(column.astype(float), target.astype(float), number=False) for column in columns.T]
    top = max(one.value for one in rated if one is not None)
    assert 0.97 < top < 0.98  # a strong column of the breast tumours


def _use(**given: object) -> ColumnUse:
    usual = {"id": "id", "label": None, "features": None, "categorical": (), "classes": None, "prepare": "auto"}
    return ColumnUse.from_arguments(**(usual | given))  # type: ignore[arg-type]


def test_columns_of_all_parties_are_compared_on_their_common_rows(tmp_path: Path) -> None:
    order = DRAW.permutation(ROWS)[: ROWS - 50]
    bank = ["id,late,after", *(f"K{i},{int(one)},{int(one) if i % 9 else 7}" for i, one in enumerate(LABEL))]
    shop = ["id,closed,spent", *(f"K{i},{'yes' if LABEL[i] else 'no'},{OTHER[i]:.3f}" for i in order)]
    for name, lines in (("bank", bank), ("shop", shop)):
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    tables = [
        CheckedTable(party="bank", path=tmp_path / "bank.csv", use=_use(label="late")),
        CheckedTable(party="shop", path=tmp_path / "shop.csv", use=_use()),
    ]
    (leak,) = find_leaks(tables)
    assert (leak.party, leak.column, leak.label, leak.owner, leak.rows) == ("shop", "closed", "late", "bank", ROWS - 50)
    assert str(leak).startswith(
        "column 'closed' of 'shop' is nearly the label 'late' of 'bank': alone it predicts with"
    )
    assert 'drop = ["closed"]' in str(leak)
    assert find_leaks(tables[:1]) == []
    job = '[job]\nepochs = 1\n[protection]\nname = "bfv"\n'
    for name, label in (("bank", 'label = "late"\n'), ("shop", "")):
        job += f'[[party]]\nname = "{name}"\nfile = "{name}.csv"\nid = "id"\nprepare = "auto"\n{label}'
    (tmp_path / "job.toml").write_text(job, encoding="utf-8")
    found = check_file(tmp_path / "job.toml")
    assert found.exit_code == 0
    assert [hint for hint in found.hints if "nearly the label" in hint] == [str(leak)]
    (tmp_path / "job.toml").write_text(job + 'drop = ["closed"]\n', encoding="utf-8")
    found = check_file(tmp_path / "job.toml")
    assert not any("nearly the label" in hint for hint in found.hints)


def test_columns_to_drop_are_no_features(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,a,b,late\nP1,1,2,0\nP2,3,5,1\n", encoding="utf-8")
    table = sv.read_csv(tmp_path / "t.csv", name="bank", id="id", label="late", drop=["b"])
    assert list(table.columns) == ["a"]
    for drop, words in ((["c"], "column to drop of"), (["late"], "also has a use"), (["id"], "also has a use")):
        with pytest.raises(sv.InputError, match=words):
            sv.read_csv(tmp_path / "t.csv", name="bank", id="id", label="late", drop=drop)
    with pytest.raises(sv.InputError, match="leave one of the two out"):
        sv.read_csv(tmp_path / "t.csv", name="bank", id="id", label="late", features=["a"], drop=["b"])

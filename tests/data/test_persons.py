"""The column that names the person of a row, and the warning where identifiers change with each snapshot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.helpers import make_parties

import securevfl as sv
from securevfl.checks import check_file
from securevfl.data.columns import ColumnUse
from securevfl.data.sample import table_mistakes
from securevfl.data.snapshots import find_ending, snapshot_hint
from securevfl.errors import InputError
from securevfl.experiments.table_store import load_tables, store_tables
from securevfl.jobfile.drafting import draft_job
from securevfl.jobfile.job_file import TableSection
from securevfl.run.digests import data_digests

ROWS = "ref,customer,income\nA1_2026-10,007,1\nB2_2026-10,008,2\nA1_2026-11,007,3\n"


def _use(**roles: object) -> ColumnUse:
    return ColumnUse.from_arguments(
        **{"id": "ref", "label": None, "features": None, "categorical": (), "classes": None} | roles  # type: ignore[arg-type]
    )


def _written(folder: Path, text: str = ROWS, name: str = "shop.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def _snapshot(ending: str, rows: int = 12) -> str:
    lines = [f"A{row}{ending},c{row},{row % 3},{row % 2}" for row in range(rows)]
    return "\n".join(["ref,customer,income,late", *lines]) + "\n"


def test_the_persons_column_names_persons_and_is_no_feature(tmp_path: Path) -> None:
    table = TableSection.from_values({"file": str(_written(tmp_path)), "id": "ref", "person": "customer"}).read_table(
        tmp_path, "shop"
    )
    assert table.feature_names == ("income",)
    assert list(table.persons) == ["007", "008", "007"]
    assert list(table.persons_of(np.array([2, 1]))) == ["007", "008"]
    some = table.take([2, 0])
    assert (list(some.ids), list(some.persons)) == (["A1_2026-11", "A1_2026-10"], ["007", "007"])
    assert list(replace(some, persons=()).persons_of(np.array([1]))) == ["A1_2026-10"]


def test_a_part_of_the_identifier_may_name_the_person(tmp_path: Path) -> None:
    table = sv.read_table(_written(tmp_path), name="shop", id=["ref", "customer"], person="customer")
    assert table.feature_names == ("income",)
    assert list(table.persons) == ["007", "008", "007"]


@pytest.mark.parametrize(
    ("text", "person", "told"),
    [
        (ROWS, "custmer", "did you mean 'customer'"),
        (ROWS.replace("008", ""), "customer", "person column 'customer' is null or empty in 1 rows"),
        (ROWS, "income", "has no feature columns"),
    ],
)
def test_a_persons_column_that_is_wrong_is_named_by_check_and_by_the_reader(
    tmp_path: Path, text: str, person: str, told: str
) -> None:
    file = _written(tmp_path, text)
    features = None if person != "income" else ()
    use = _use(person=person, features=features)
    assert any(told in mistake for mistake in table_mistakes(file, use))
    with pytest.raises(InputError, match=told):
        sv.read_table(file, name="shop", id="ref", person=person, features=features)


def test_a_column_has_one_use(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the person 'income' also has another use"):
        sv.read_table(_written(tmp_path), name="shop", id="ref", person="income", features=["income"])


def test_persons_belong_to_the_table_and_go_where_it_goes(tmp_path: Path) -> None:
    people = make_parties(rows=20)
    table = replace(people["shop1"], persons=[f"c{row // 2}" for row in range(people["shop1"].rows)])
    assert data_digests(table, {}) != data_digests(people["shop1"], {})
    with pytest.raises(InputError, match="names the persons of 3 rows; it has 19 rows"):
        replace(table, persons=("a", "b", "c"))
    whole = sv.Parties.of(people["bank"], table)
    store_tables(whole, tmp_path / "tables")
    assert list(load_tables(tmp_path / "tables")["shop1"].persons) == list(table.persons)


@pytest.mark.parametrize("ending", ["_2026-10", "202610", "_0926", "-2026.10.31", ":20261031", "_09-26"])
def test_identifiers_that_end_in_dates_are_found(ending: str) -> None:
    assert find_ending([f"A{row}{ending}" for row in range(20)]) == ending.lstrip("_-:")


@pytest.mark.parametrize(
    "ids",
    [
        [f"p{row:04d}" for row in range(1400)],
        [f"C_{row:04d}" for row in range(1000)],
        [str(number) for number in np.random.default_rng(1).integers(10**9, 10**10, 1000)],
        [f"{row}_2026-{1 + row % 12:02d}-{1 + row % 28:02d}" for row in range(100)],  # birthdays
        ["A1_2026-10"] * 4,
        [],
    ],
    ids=["sequence", "marked", "random", "many dates", "few", "none"],
)
def test_other_identifiers_are_not(ids: list[str]) -> None:
    assert find_ending(ids) == ""


def test_the_warning_proposes_the_column_that_stands_before_the_date(tmp_path: Path) -> None:
    file = _written(tmp_path, _snapshot("_2026-10").replace(",c", ",A").replace(",Austomer", ",customer"))
    (hint,) = snapshot_hint(file, _use())
    assert "such as '2026-10'" in hint
    assert hint.endswith('person = "customer"')
    (blind,) = snapshot_hint(_written(tmp_path, _snapshot("_2026-10")), _use())
    assert blind.endswith('person = "COLUMN"')
    (compound,) = snapshot_hint(file, _use(id=["customer", "ref"]))
    assert compound.endswith('person = "customer"')
    assert not snapshot_hint(file, _use(person="customer"))
    assert not snapshot_hint(tmp_path / "none.csv", _use())


JOB = """
[job]
epochs = 2
[protection]
name = "plain"
[[party]]
name = "bank"
file = "bank.csv"
id = "ref"
label = "late"
[[party]]
name = "shop"
file = "shop.csv"
id = "ref"
"""


def test_check_and_init_warn_of_snapshots(tmp_path: Path) -> None:
    bank = _written(tmp_path, _snapshot("_2026-10"), "bank.csv")
    shop = _written(tmp_path, _snapshot("_2026-10").replace(",late", ",more"))
    (tmp_path / "job.toml").write_text(JOB)
    found = check_file(tmp_path / "job.toml", accept_leak=True)
    assert sum("end in dates" in hint for hint in found.hints) == 2
    text = draft_job([bank, shop], tmp_path, id="ref", label="late").text
    assert text.count("# identifiers of") == 2
    named = JOB.replace('id = "ref"\n', 'id = "ref"\nperson = "customer"\n')
    (tmp_path / "job.toml").write_text(named)
    assert not check_file(tmp_path / "job.toml", accept_leak=True).hints

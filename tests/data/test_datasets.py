"""Named data sets and how they are split among parties."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from securevfl.data import Parties, PartyTable, datasets, independent_rows, shared_rows, shipped
from securevfl.errors import InputError, UnknownNameError


def _shared_data() -> Path:
    folder = Path(os.environ.get("SECUREVFL_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
    if not (folder / "uci_default_credit.csv.gz").exists():
        pytest.skip(f"the original table is not at {folder}; set SECUREVFL_DATA to compare with it")
    return folder


def test_the_credit_table_is_whole() -> None:
    parties = datasets.default_credit(overlap=1.0)
    assert [(t.name, t.role, t.rows, len(t.columns)) for t in parties.values()] == [
        ("bank", "active", 30_000, 5),
        ("network", "passive", 30_000, 6),
        ("retailer", "passive", 30_000, 12),
    ]
    assert parties.active.label is not None
    assert parties.active.label.sum() == 6_636


def test_the_shipped_table_equals_the_source() -> None:
    with gzip.open(_shared_data() / "uci_default_credit.csv.gz", "rt") as file:
        header, *rows = csv.reader(file)
    source = np.array(rows, dtype=np.float64)
    parties = datasets.default_credit(overlap=1.0)
    number = {datasets._customer_reference(int(row[0])): i for i, row in enumerate(source)}
    for table in parties.values():
        at = [number[ref] for ref in table.ids]
        for name, values in table.columns.items():
            np.testing.assert_array_equal(values.astype(np.float64), source[at, header.index(name)])
    at = [number[ref] for ref in parties.active.ids]
    np.testing.assert_array_equal(parties.active.label, source[at, -1].astype(np.int64))


def test_each_party_holds_its_own_share_in_its_own_order() -> None:
    parties = datasets.default_credit(overlap=0.85, seed=3, rows=2_000)
    ids = [set(table.ids) for table in parties.values()]
    assert [len(own) for own in ids] == [1_700] * 3
    common = set.intersection(*ids)
    assert 0.55 < len(common) / 2_000 < 0.68  # 0.85³ = 0.614
    orders = [[ref for ref in table.ids if ref in common] for table in parties.values()]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_the_same_seed_gives_the_same_split_and_another_another() -> None:
    one, two, other = (datasets.default_credit(seed=seed, rows=500) for seed in (1, 1, 2))
    assert all(one[name].ids == two[name].ids for name in one)
    assert set(one["bank"].ids) != set(other["bank"].ids)


def test_references_are_unique_and_no_row_numbers() -> None:
    references = [datasets._customer_reference(i) for i in range(1, 30_001)]
    assert len(set(references)) == 30_000
    assert references != sorted(references)


def test_shared_rows_overlap_exactly_and_nowhere_else() -> None:
    parts = [set(rows.tolist()) for rows in shared_rows(1_000, 3, overlap=0.05, seed=0)]
    common = set.intersection(*parts)
    assert len(common) == 50
    assert set.union(*parts) == set(range(1_000))
    assert parts[0] & parts[1] == common


def test_independent_rows_are_distinct_rows() -> None:
    for rows in independent_rows(100, 4, overlap=0.3, seed=0):
        assert len(set(rows.tolist())) == 30


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: datasets.load("defalt_credit"), "did you mean 'default_credit'"),
        (lambda: datasets.load("default_credit", overlp=1), "did you mean 'overlap'"),
        (lambda: datasets.load("default_credit", overlap="most"), "a number was expected"),
        (lambda: datasets.load("default_credit", seed=-1), "from 0"),
        (lambda: datasets.default_credit(overlap=0), "more than 0 and at most 1"),
        (lambda: datasets.default_credit(overlap=1.5), "more than 0 and at most 1"),
        (lambda: datasets.default_credit(rows=3), "from 20 to 30000"),
        (lambda: datasets.default_credit(rows=10**6), "from 20 to 30000"),
        (lambda: datasets.default_credit(seed=-1), "seed is -1; a whole number from 0"),
        (lambda: datasets.default_credit(overlap="most"), "'most'; give a share"),  # type: ignore[arg-type]
        (lambda: datasets.load("mnsit"), "did you mean 'mnist'"),
    ],
)
def test_wrong_names_and_options(call: object, match: str) -> None:
    with pytest.raises(InputError, match=match):
        call()  # type: ignore[operator]


def test_the_shipped_cancer_table_is_scikit_learn_s() -> None:
    from sklearn.datasets import load_breast_cancer

    source, parties = load_breast_cancer(), datasets.breast_cancer(overlap=1.0)
    names = [str(name).replace(" ", "_") for name in source.feature_names]
    assert [*parties["clinic"].columns, *parties["lab"].columns] == names
    clinic = parties["clinic"]
    rows = [int(clinic.ids[row][1:]) for row in range(clinic.rows)]
    for name, values in clinic.columns.items():
        np.testing.assert_array_equal(values, source.data[rows, names.index(name)])
    assert clinic.label is not None
    np.testing.assert_array_equal(clinic.label, source.target[rows])


def test_a_damaged_file_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shipped._SHA256, "default_credit.csv.xz", "00")
    with pytest.raises(InputError, match="install securevfl again"):
        datasets.default_credit()


def test_one_party_is_active_and_several_may_own_labels() -> None:
    plain = PartyTable(name="a", ids=["x"], columns={"c": np.zeros(1)})
    labelled = [
        PartyTable(name=n, ids=["x", "y"], columns={"c": np.zeros(2)}, label=np.array([0, 1]), classes=(0, 1))
        for n in "bc"
    ]
    with pytest.raises(InputError, match="none of 1 parties owns labels"):
        Parties.of(plain)
    with pytest.raises(InputError, match="b, c own labels, but exactly one may"):
        _ = Parties.of(plain, *labelled).active
    with pytest.raises(InputError, match="two parties are named 'b'"):
        Parties.of(labelled[0], labelled[0])
    parties = Parties.of(plain, labelled[0])
    assert (parties.active.name, [t.name for t in parties.passive]) == ("b", ["a"])
    with pytest.raises(UnknownNameError, match="unknown party 'z'"):
        parties["z"]
    assert "passive" in repr(parties)

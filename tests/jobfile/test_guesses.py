"""What `securevfl init` takes for the label and for identifiers, what it only offers, and what it asks for."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import securevfl as sv
from securevfl.data.headers import describe_missing_header, explain_one_column
from securevfl.jobfile.column_words import has_id_name, names_other_things, split_words
from securevfl.jobfile.drafting import draft_job
from securevfl.jobfile.fill_in import refuse_unfilled
from securevfl.jobfile.joining import doubt_single_ids, find_single_ids
from securevfl.jobfile.label_guess import ColumnTable, offered_labels, rank_labels, sure_label
from securevfl.jobfile.named_columns import assign_columns

ROWS = 120
DRAW = np.random.default_rng(3)
TWO = (DRAW.random(ROWS) < 0.3).astype(int)
AMOUNTS = DRAW.normal(100, 30, ROWS).round(2)
USUAL = (
    "default.payment.next.month target y class churn Exited diagnosis Survived label Outcome is_fraud isFraud fraud "
    "defaulted default loan_status Attrition HeartDisease stroke fraud_reported churned late bad response converted "
    "readmitted subscribed Revenue income y_true loan_default TARGET Class Churn"
)
AMOUNT_NAMES = "SalePrice medv target y label MedHouseVal median_house_value claim_amount cnt Rings lgd mpg"
NO_LABELS = {
    "response_time": AMOUNTS,
    "good_standing": TWO,
    "price": AMOUNTS,
    "price_class": TWO,
    "target_group": TWO,
    "label_printed": TWO,
    "late_fee": AMOUNTS,
    "late_fees": TWO,
    "newsletter": TWO,
    "status": DRAW.choice(["a", "b", "c"], ROWS),
    "active": TWO,
    "score": AMOUNTS,
    "previous_purchase": TWO,
    "previous_default": TWO,
    "income": AMOUNTS,
    "fraud_score": AMOUNTS,
    "left_handed": TWO,
}


def _features() -> dict[str, object]:
    return {
        "age": DRAW.integers(18, 90, ROWS),
        "region": DRAW.choice(["N", "S", "E"], ROWS),
        "member": DRAW.choice(["yes", "no"], ROWS),
        "months": DRAW.integers(1, 60, ROWS),
    }


def _guessed(columns: dict[str, object], other: dict[str, object] | None = None) -> str | None:
    tables = [ColumnTable(party="bank", table=pa.table(columns))]
    tables += [ColumnTable(party="shop", table=pa.table(other))] if other else []
    found = sure_label(rank_labels(tables))
    return None if found is None else found.column


@pytest.mark.parametrize(("names", "values"), [(USUAL, TWO), (AMOUNT_NAMES, AMOUNTS)])
def test_usual_names_of_labels_are_guessed_and_never_another_column(names: str, values: np.ndarray) -> None:
    every = names.split()
    last = [_guessed({**_features(), name: values}) for name in every]
    first = [_guessed({name: values, **_features()}) for name in every]
    assert last == every
    assert all(found in (None, name) for found, name in zip(first, every, strict=True))
    assert sum(found is None for found in first) <= 4


@pytest.mark.parametrize("name", NO_LABELS)
def test_a_feature_with_a_suspicious_name_is_offered_at_most(name: str) -> None:
    for columns in ({**_features(), name: NO_LABELS[name]}, {name: NO_LABELS[name], **_features()}):
        assert _guessed(columns) is None


def test_a_label_in_sight_of_another_candidate_is_offered_with_its_option() -> None:
    tables = [
        ColumnTable(party="bank", table=pa.table({**_features(), "stroke": TWO})),
        ColumnTable(party="shop", table=pa.table({"diabetes": TWO, "spent": AMOUNTS})),
    ]
    ranked = rank_labels(tables)
    assert sure_label(ranked) is None
    assert [one.option for one in offered_labels(ranked)][:2] == ["--label bank.stroke", "--label shop.diabetes"]
    assert "two values, the last column" in ranked[0].why


def test_values_that_cannot_be_a_label_are_not_guessed() -> None:
    texts = [f"text {i}" for i in range(ROWS)]
    gaps = [None if i % 3 else int(one) for i, one in enumerate(TWO)]
    assert _guessed({**_features(), "target": texts}) is None
    assert _guessed({**_features(), "late": gaps}) is None
    assert _guessed({**_features(), "churn": AMOUNTS}) is None
    assert _guessed({**_features(), "target": TWO}, {"target": TWO}) is None  # two parties have it
    assert _guessed({"x": AMOUNTS, "y": AMOUNTS + 1}) is None  # a point in a plane


def test_names_are_split_into_words() -> None:
    assert split_words("default.payment.next.month") == ("default", "payment", "next", "month")
    assert [split_words(name) for name in ("SalePrice", "sale_price", "SALE PRICE")] == [("sale", "price")] * 3
    ids = ("customerID", "CustomerId", "SK_ID_CURR", "e-mail", "customerid", "Phone Number", "SSN", "client_no")
    assert all(map(has_id_name, ids))
    assert not any(map(has_id_name, ("paid", "identity", "note", "Idaho", "country")))
    assert names_other_things("customer_id", "order_no")
    assert not names_other_things("id", "customer_id")


COUNT = np.arange(ROWS) + 1


@pytest.mark.parametrize(
    ("mine", "theirs", "doubt"),
    [
        ({"id": COUNT}, {"id": COUNT[:90]}, "count each table's own rows (120 and 90"),
        ({"id": COUNT}, {"id": COUNT}, ""),
        ({"customer_id": DRAW.permutation(COUNT)}, {"order_id": DRAW.permutation(COUNT)}, "different things"),
        ({"customer_id": COUNT * 7919}, {"order_id": DRAW.permutation(COUNT) * 7919}, ""),
    ],
)
def test_numbers_that_coincide_by_chance_are_doubted(
    mine: dict[str, object], theirs: dict[str, object], doubt: str
) -> None:
    tables = [pa.table(mine), pa.table(theirs)]
    ids = find_single_ids(tables)
    assert ids == [*mine, *theirs]
    found = doubt_single_ids(tables, ids)
    assert doubt in found
    assert bool(doubt) == bool(found)


def _written(folder: Path, **tables: Sequence[str]) -> list[Path]:
    for name, lines in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [folder / f"{name}.csv" for name in tables]


def test_what_is_doubted_is_left_to_fill_in_and_another_column_is_preferred(tmp_path: Path) -> None:
    bank = ["id,mail,default", *(f"{i},u{i}@x.org,{i % 3 % 2}" for i in range(1, 60))]
    shop = ["id,mail,spent", *(f"{i},u{59 - i}@x.org,{i % 7}" for i in range(1, 50))]
    draft = draft_job(_written(tmp_path, bank=bank, shop=shop), tmp_path)
    assert [one["id"] for one in tomllib.loads(draft.text)["party"]] == ["mail", "mail"]
    paths = _written(tmp_path, bank=[one.replace(".org", f".{i}") for i, one in enumerate(bank)], shop=shop)
    draft = draft_job(paths, tmp_path)
    assert [one["id"] for one in tomllib.loads(draft.text)["party"]] == ["FILL IN", "FILL IN"]
    assert "--id bank.id --id shop.id" in draft.missing[1]
    draft = draft_job(paths, tmp_path, id=["bank.id", "shop.id"], label="bank.default")
    assert not draft.missing
    assert tomllib.loads(draft.text)["party"][0]["label"] == "default"


def test_columns_are_named_with_or_without_their_party() -> None:
    columns = {"bank": ["ref", "default.payment", "late"], "shop": ["customer", "late"]}
    found = assign_columns(["default.payment", "shop.late"], columns, "--label", everywhere=False)
    assert found == {"bank": ("default.payment",), "shop": ("late",)}
    assert assign_columns(["bank.ref", "shop.customer"], columns, "--id", everywhere=True) == {
        "bank": ("ref",),
        "shop": ("customer",),
    }
    with pytest.raises(sv.InputError, match="1 of 'bank', 0 of 'shop'"):
        assign_columns(["bank.ref"], columns, "--id", everywhere=True)
    with pytest.raises(sv.InputError, match=r"column of 'shop': 'lat'; did you mean 'late'"):
        assign_columns(["shop.lat"], columns, "--label", everywhere=False)


def test_places_to_fill_in_are_named_with_their_lines() -> None:
    text = '# FILL IN\n[[party]]\nname = "bank"\nid = "FILL IN"   # why\n[protection]\nname = "FILL IN"\n'
    with pytest.raises(sv.InputError) as caught:
        refuse_unfilled(Path("job.toml"), text)
    lines = str(caught.value).splitlines()
    assert lines[0] == "job.toml has 2 places to fill in:"
    assert "line 4: id of 'bank'" in lines[1]
    assert "--id COLUMN" in lines[1]
    assert "line 6: name is" in lines[2]
    refuse_unfilled(Path("job.toml"), text.replace('"FILL IN"', '"ref"'))


@pytest.mark.parametrize(
    ("columns", "is_header"),
    [
        ({"id": ["a", "b"], "age": [1.0, 2.0], "x": [3.0, 4.0]}, True),
        ({"0": [1.0, 2.0], "1": [1.0, 2.0], "2": [3.0, 4.0]}, True),
        ({"id": ["a", "b"], "2023": [1.0, 2.0], "2024": [1.0, 2.0]}, True),
        ({"P7": ["P8", "P9"], "41": [1.0, 2.0], "3.5": [3.0, 4.0]}, False),
        ({"yes": ["yes", "no"], "N": ["S", "N"], "9": [1.0, 2.0]}, False),
        ({"yes": ["yes", "no"], "age": [1.0, 2.0], "income": [1.0, 2.0]}, True),
    ],
)
def test_a_first_row_of_values_is_no_header(columns: dict[str, object], is_header: bool) -> None:
    found = describe_missing_header(pa.table(columns), "t.csv", ";")
    assert bool(found) is not is_header
    assert is_header or "id;x1;x2" in found


def test_one_column_with_a_delimiter_in_its_name_is_explained() -> None:
    assert "set delimiter = ';'" in explain_one_column(["a;b"], "t.csv", ",")
    assert not explain_one_column(["a;b", "c"], "t.csv", ",")
    assert not explain_one_column(["a"], "t.csv", ",")

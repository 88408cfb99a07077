"""Everything that can be wrong with a party's table is said before anything is sent: what, where, and the cure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from securevfl.data import PartyTable, from_arrow, from_pandas, read_csv, read_parquet
from securevfl.errors import InputError, UnknownNameError

GOOD = "ref,age,city,late\n007,31,Rome,0\n008,42,Oslo,1\n009,53,Rome,0\n"


def _csv(folder: Path, text: str) -> Path:
    path = folder / "t.csv"
    path.write_text(text, encoding="utf-8")
    return path


def _read(folder: Path, text: str, **changes: object) -> PartyTable:
    options: dict[str, object] = {"name": "bank", "id": "ref", "label": "late", "categorical": ["city"]} | changes
    return read_csv(_csv(folder, text), **options)  # type: ignore[arg-type]


def test_a_good_table_is_what_the_file_says(tmp_path: Path) -> None:
    table = _read(tmp_path, GOOD)
    assert table.ids == ("007", "008", "009")
    assert table.columns["age"].tolist() == [31, 42, 53]
    assert table.columns["city"].tolist() == ["Rome", "Oslo", "Rome"]
    assert table.label is not None
    assert table.label.tolist() == [0, 1, 0]
    assert (table.classes, table.role, table.feature_names) == ((0, 1), "active", ("age", "city"))


@pytest.mark.parametrize(
    ("text", "changes", "match"),
    [
        (GOOD, {"id": "reff"}, "unknown id column .* 'reff'; did you mean 'ref'"),
        (GOOD, {"label": "lat"}, "unknown label column .* did you mean 'late'"),
        (GOOD, {"features": ["aeg"]}, "unknown column .* did you mean 'age'"),
        (GOOD, {"categorical": ["cty"]}, "unknown column .* did you mean 'city'"),
        (GOOD.replace("008", "007"), {}, "repeated identifiers: '007' in rows 1 and 2"),
        (GOOD.replace("008", ""), {}, r"id column 'ref' is null or empty in 1 rows \(rows 2\)"),
        (GOOD.replace("42", ""), {}, r"column 'age' is null or NaN in 1 of 3 rows \(rows 2\); fill or drop"),
        (GOOD.replace("42", "nan"), {}, "column 'age' is null or NaN in 1 of 3"),
        (GOOD.replace("42", "inf"), {}, "column 'age' is infinite in 1 of 3 rows"),
        (GOOD.replace("42", "old"), {}, "column 'age' holds text, 'old' in row 2; list it in categorical"),
        (GOOD, {"categorical": []}, "column 'city' holds text, 'Rome' in row 1"),
        (GOOD.replace("Oslo", ""), {}, "column 'city' is null in 1 rows"),
        (GOOD.replace("Oslo,1", "Oslo,"), {}, "label in row 2 is null"),
        (GOOD, {"classes": [0, 2]}, r"label in row 2 is 1; the classes are \[0, 2\]"),
        (GOOD.replace("Oslo,1", "Oslo,0"), {}, "all labels are 0; there is nothing to learn"),
        (GOOD, {"classes": [0, 0, 1]}, "names a class twice"),
        ("ref,age,late\n", {"categorical": []}, "has no rows"),
        ("ref,late\n1,0\n2,1\n", {"categorical": []}, "no feature columns.*labels only passes features"),
        (GOOD, {"label": None, "features": [], "categorical": []}, "no feature columns; name at least one"),
        ("ref,age,age,late\n1,2,3,0\n2,3,4,1\n", {"categorical": []}, "column 'age' twice"),
        (GOOD, {"features": ["age", "late"], "categorical": []}, "also listed as a feature"),
        (GOOD, {"name": "The Bank"}, "names are lower-case words"),
        ("ref,age,late\n1,2\n", {}, "is not a CSV table"),
    ],
)
def test_unusable_tables_are_refused(tmp_path: Path, text: str, changes: dict[str, object], match: str) -> None:
    with pytest.raises(InputError, match=match):
        _read(tmp_path, text, **changes)


def test_an_owner_of_labels_alone_has_no_features(tmp_path: Path) -> None:
    table = _read(tmp_path, GOOD, features=[], categorical=[])
    assert (table.role, table.feature_names, table.rows) == ("active", (), 3)


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_csv(tmp_path / "none.csv", name="bank", id="ref")
    with pytest.raises(InputError, match="is not a Parquet table"):
        read_parquet(_csv(tmp_path, GOOD), name="bank", id="ref")


def test_csv_parquet_and_pandas_agree(tmp_path: Path) -> None:

    frame = pd.read_csv(_csv(tmp_path, GOOD), dtype={"ref": str})
    pa.parquet.write_table(pa.Table.from_pandas(frame), tmp_path / "t.parquet")
    options = {"name": "bank", "id": "ref", "label": "late", "categorical": ["city"]}
    tables = [
        read_csv(tmp_path / "t.csv", **options),  # type: ignore[arg-type]
        read_parquet(tmp_path / "t.parquet", **options),  # type: ignore[arg-type]
        from_pandas(frame, **options),  # type: ignore[arg-type]
    ]
    for table in tables[1:]:
        assert table.ids == tables[0].ids
        assert table.label is not None
        assert tables[0].label is not None
        assert table.label.tolist() == tables[0].label.tolist()
        for name, values in tables[0].columns.items():
            assert table.columns[name].tolist() == values.tolist()


def test_identifiers_may_be_whole_numbers_but_not_fractions() -> None:
    whole = from_arrow(pa.table({"k": [7, 8], "x": [1.0, 2.0]}), name="shop", id="k")
    assert whole.ids == ("7", "8")
    with pytest.raises(InputError, match="identifiers are texts or whole numbers"):
        from_arrow(pa.table({"k": [7.5, 8.0], "x": [1.0, 2.0]}), name="shop", id="k")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.array([1j, 2]), "contains a column of an unsupported type.*give numbers, texts, dates"),
        (pd.arrays.SparseArray([0.0, 1.0]), "contains a column of an unsupported type.*Sparse"),
        (pd.period_range("2020-01", periods=2, freq="M"), "column 'x' contains extension.*period.*its first day"),
    ],
)
def test_columns_that_arrow_cannot_hold_are_refused(values: object, words: str) -> None:
    frame = pd.DataFrame({"k": ["a", "b"], "x": values, "y": [1.0, 2.0]})
    for prepare in (None, "auto"):
        with pytest.raises(InputError, match=words):
            from_pandas(frame, name="shop", id="k", prepare=prepare)
    with pytest.raises(InputError, match=r"id column 'y' contains double.*if some are missing.*astype\('int64'\)"):
        from_pandas(frame.drop(columns="x").assign(z=1), name="shop", id="y")


def test_dates_are_no_numbers() -> None:
    import datetime

    table = pa.table({"k": ["a", "b"], "d": [datetime.date(2020, 1, 1)] * 2, "x": [1, 2]})
    with pytest.raises(InputError, match="column 'd' holds date32"):
        from_arrow(table, name="shop", id="k")
    assert from_arrow(table, name="shop", id="k", features=["x"]).feature_names == ("x",)


def test_mixed_pandas_columns_and_doubled_names_are_refused() -> None:
    with pytest.raises(InputError, match="mixed types"):
        from_pandas(pd.DataFrame({"k": ["a", "b"], "x": [1, "two"]}), name="shop", id="k")
    doubled = pd.DataFrame([["a", 1, 2]], columns=["k", "x", "x"])
    with pytest.raises(InputError, match="twice"):
        from_pandas(doubled, name="shop", id="k")


def test_columns_of_the_table_keep_their_lengths_and_kinds() -> None:
    with pytest.raises(InputError, match="2 values for 3 rows"):
        PartyTable(name="a", ids=["x", "y", "z"], columns={"c": np.zeros(2)})
    with pytest.raises(InputError, match="not numbers"):
        PartyTable(name="a", ids=["x"], columns={"c": np.array(["t"])})
    with pytest.raises(InputError, match="int64"):
        PartyTable(name="a", ids=["x", "y"], columns={"c": np.zeros(2)}, label=np.zeros(2), classes=(0, 1))
    with pytest.raises(UnknownNameError, match="column of 'a'"):
        PartyTable(name="a", ids=["x"], columns={"col": np.zeros(1)}).select(["cal"])


def test_taking_rows_keeps_ids_columns_and_labels_together(tmp_path: Path) -> None:
    taken = _read(tmp_path, GOOD).take([2, 0])
    assert taken.ids == ("009", "007")
    assert taken.columns["age"].tolist() == [53, 31]
    assert taken.label is not None
    assert taken.label.tolist() == [0, 0]


def _labelled(folder: Path, labels: list[str], **changes: object) -> PartyTable:
    rows = "".join(f'i{i},{i},"{label}"\n' for i, label in enumerate(labels))
    return _read(folder, "ref,age,late\n" + rows, **{"categorical": [], **changes})


def test_labels_that_differ_by_spaces_or_capitals_are_not_taken_for_classes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"only by spaces or capitals: 'yes' and 'yes '. As written, .* 3 classes"):
        _labelled(tmp_path, ["yes", "no", "yes "])
    with pytest.raises(InputError, match=r"'NO' and 'no'; 'Yes' and 'yes'. .* 4 classes instead of 2"):
        _labelled(tmp_path, ["yes", "no", "Yes", "NO"])
    listed = _labelled(tmp_path, ["m", "M", "m"], classes=["m", "M"])
    assert listed.classes == ("m", "M")


def test_missing_labels_are_counted_and_blank_ones_are_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"null or blank in 3 of 5 rows \(rows 1, 3, 5\); drop them"):
        _labelled(tmp_path, ["", "a", " ", "b", "NA"])


def test_amounts_in_texts_are_no_classes(tmp_path: Path) -> None:
    amounts = [f"{i + 0.5:.2f}" for i in range(40)]
    with pytest.raises(
        InputError, match=r"41 different values in 41 rows, 40 of them numbers \(others, such as 'unknown'"
    ):
        _labelled(tmp_path, [*amounts, "unknown"])
    with pytest.raises(InputError, match=r"40 of them numbers written as texts: .*target='number'"):
        _labelled(tmp_path, [f"{one} €".replace(".", ",") for one in amounts])
    codes = _labelled(tmp_path, [f"K{i % 30}" for i in range(60)])
    assert len(codes.classes) == 30


def test_a_target_in_texts_is_read_as_the_numbers_it_stands_for(tmp_path: Path) -> None:
    table = _labelled(tmp_path, ["1.234,50 €", "0,75 €", "-3 €"], target="number")
    assert table.label is not None
    assert table.label.tolist() == [1234.5, 0.75, -3.0]
    with pytest.raises(InputError, match="'late' contains 'unknown' in row 3, and 1 other texts that are not numbers"):
        _labelled(tmp_path, ["1.5", "2.5", "unknown", "?", "unknown"], target="number")
    with pytest.raises(InputError, match="texts such as '1,234' with an ambiguous decimal mark"):
        _labelled(tmp_path, ["1,234", "2,345"], target="number")
    with pytest.raises(InputError, match=r"beyond 1e\+100, .* in 1 of 3 rows \(rows 2\)"):
        _labelled(tmp_path, ["1.5", "-1e101", "1e100"], target="number")
    with pytest.raises(InputError, match="null or not finite in 1 of 3"):
        _labelled(tmp_path, ["1.5 €", "", "2 €"], target="number")

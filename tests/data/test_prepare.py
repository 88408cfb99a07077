"""Prepared columns: what is found out of them, what they become, and that only training rows have a say in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer, RobustScaler, StandardScaler

from securevfl.data import Categories, ColumnPreparation, FeatureEncoder, PartyTable, Preparation
from securevfl.data.prepare.dates import date_parts, parse_dates
from securevfl.data.prepare.numbers import decimal_marks, parse_numbers
from securevfl.errors import InputError, UnknownNameError
from securevfl.run.store import read_tree, write_tree

ROWS = 400
TRAIN = np.arange(300)
RNG = np.random.default_rng(5)


def table(preparation: Preparation | None = None, **columns: Any) -> PartyTable:
    rows = len(next(iter(columns.values())))
    return PartyTable(
        name="shop",
        ids=[f"i{i}" for i in range(rows)],
        columns=columns,
        preparation=Preparation() if preparation is None else preparation,
    )


def fit(columns: dict[str, Any], /, **rules: Any) -> tuple[FeatureEncoder, np.ndarray]:
    """The encoder fitted on the training rows, and what it makes of all rows."""
    whole = table(Preparation(**rules), **columns)
    encoder = FeatureEncoder.fit(whole, TRAIN, salt=b"salt")
    return encoder, encoder.transform(whole)


@pytest.fixture(scope="module")
def messy() -> dict[str, Any]:
    """One column of each kind, with gaps."""
    gaps = RNG.random(ROWS) < 0.2
    days = np.datetime64("2019-03-01") + RNG.integers(0, 1200, ROWS).astype("timedelta64[D]")
    written = np.array([f"{int(d[8:]):02d}.{d[5:7]}.{d[:4]}" for d in np.datetime_as_string(days)])
    amounts = [f"{v:,.2f} €".translate(str.maketrans(".,", ",.")) for v in RNG.lognormal(8, 1, ROWS)]
    return {
        "age": np.where(gaps, np.nan, RNG.normal(40, 9, ROWS)),
        "spent": RNG.lognormal(3, 1, ROWS),
        "amount": np.where(gaps, "", amounts),
        "member": np.where(gaps, "n/a", np.where(RNG.random(ROWS) < 0.4, "ja", "nein")),
        "since": np.where(gaps, np.datetime64("NaT"), days),
        "born": np.where(gaps, "", written),
        "town": np.array([f"t{int(v)}" for v in RNG.exponential(2.5, ROWS)]),
        "street": np.array([f"s{int(v)}" for v in RNG.exponential(80, ROWS)]),
        "always": np.full(ROWS, 3.5),
        "never": np.full(ROWS, np.nan),
    }


def test_every_kind_is_found_and_becomes_finite_numbers(messy: dict[str, Any]) -> None:
    encoder, x = fit(messy)
    assert {line.column: line.holds for line in encoder.lines if line.width} == {
        "age": "numbers",
        "spent": "numbers",
        "amount": "numbers",
        "member": "truth values",
        "since": "dates",
        "born": "dates",
        "town": "categories",
        "street": "categories",
    }
    assert [line.column for line in encoder.lines if not line.width] == ["always", "never"]
    assert x.shape == (ROWS, len(encoder.column_names)) == (ROWS, sum(line.width for line in encoder.lines))
    assert np.isfinite(x).all()
    assert encoder.column_names[:3] == ["age", "age missing", "spent"]
    np.testing.assert_array_equal(x[:, 1], np.isnan(messy["age"]))
    assert [name for name in encoder.column_names if name.startswith("born")] == [
        *("born days", "born year", "born month sin", "born month cos", "born weekday sin", "born weekday cos"),
        "born missing",
    ]
    text = " ".join(line.how for line in encoder.lines)
    assert not any(value in text for value in ("2019", "t0", "ja", "€"))  # no value of the table in the report


def test_dates_and_numbers_in_texts_become_what_proper_ones_become(messy: dict[str, Any]) -> None:
    days = np.array([f"{d[6:]}-{d[3:5]}-{d[:2]}" if d else "NaT" for d in messy["born"]], dtype="datetime64[D]")
    numbers = [float(v[:-2].replace(".", "").replace(",", ".")) if v else np.nan for v in messy["amount"]]
    _, texts = fit({"born": messy["born"], "amount": messy["amount"]})
    _, proper = fit({"born": days, "amount": np.array(numbers)})
    np.testing.assert_array_equal(texts, proper)


def test_rows_outside_training_change_nothing(messy: dict[str, Any]) -> None:
    changed = {}
    for name, values in messy.items():
        changed[name] = np.array(values)
        changed[name][300:] = np.array(values)[RNG.permutation(300)[:100]]
    changed["age"][300:], changed["spent"][300:] = 1e6, np.nan
    changed["town"][300:], changed["always"][300:] = "new", 9.0
    one, two = fit(messy), fit(changed)
    np.testing.assert_array_equal(one[1][:300], two[1][:300])
    assert one[0].lines == two[0].lines


def test_the_stored_form_makes_the_same_numbers(messy: dict[str, Any], tmp_path: Path) -> None:
    columns = messy | {"hashed": messy["street"]}
    rules = {"hashed": ColumnPreparation(categorical="hash"), "spent": ColumnPreparation(scale="robust")}
    encoder, x = fit(columns, columns=rules)
    write_tree(tmp_path / "part", encoder.state())
    again = FeatureEncoder.from_state(read_tree(tmp_path / "part"))  # type: ignore[arg-type]
    np.testing.assert_array_equal(again.transform(table(**columns)), x)
    shop = table(**{name: values for name, values in columns.items() if name not in ("always", "never")})
    np.testing.assert_array_equal(again.transform(shop, np.array([7, 3])), x[[7, 3]])  # dropped columns may be missing


def test_scales_are_those_of_scikit_learn() -> None:
    values = RNG.lognormal(0, 1.2, ROWS)
    train, column = values[TRAIN].reshape(-1, 1), values.reshape(-1, 1)
    for scale, theirs in (("standard", StandardScaler()), ("robust", RobustScaler(unit_variance=True))):
        _, x = fit({"x": values}, scale=scale)
        np.testing.assert_allclose(x, np.clip(theirs.fit(train).transform(column), -5, 5), atol=1e-6)
    _, x = fit({"x": values}, scale="quantile")
    theirs = QuantileTransformer(n_quantiles=300, output_distribution="normal").fit(train).transform(column)
    inner = np.abs(theirs) < 1.5  # the outermost ranks have scores of their own convention
    assert np.abs(x - theirs)[inner].max() < 0.05
    _, x = fit({"x": values}, scale="none", columns={})
    np.testing.assert_allclose(x[:, 0], np.clip(values, -5, 5), rtol=1e-6)
    filled = np.where(RNG.random(ROWS) < 0.3, np.nan, values)
    for how in ("median", "mean", "most_frequent"):
        encoder, x = fit({"x": filled}, scale="none", impute=how, missing="impute")
        theirs = SimpleImputer(strategy=how).fit(filled[TRAIN].reshape(-1, 1)).transform(filled.reshape(-1, 1))
        np.testing.assert_allclose(x, np.clip(theirs, -5, 5), rtol=1e-6)
        assert encoder.column_names == ["x"]


def test_auto_ranks_skewed_and_heavy_tailed_columns_alone() -> None:
    shapes = {
        "normal": RNG.normal(size=ROWS),
        "even": RNG.random(ROWS),
        "amounts": RNG.lognormal(0, 1.5, ROWS),
        "tails": RNG.standard_t(1, ROWS),
        "rare flag": (RNG.random(ROWS) < 0.02).astype(np.float64),
    }
    encoder, _ = fit(shapes)
    assert [line.column for line in encoder.lines if "quantile" in line.how] == ["amounts", "tails"]


def test_rare_and_new_levels_are_one_column_as_in_scikit_learn() -> None:
    town = np.array([f"t{int(v)}" for v in RNG.exponential(2.5, ROWS)])
    town[350:] = "never seen"
    encoder, x = fit({"town": town}, rare=9)
    theirs = OneHotEncoder(min_frequency=9, handle_unknown="infrequent_if_exist", sparse_output=False)
    theirs.fit(town[TRAIN].reshape(-1, 1))
    np.testing.assert_array_equal(x, theirs.transform(town.reshape(-1, 1)))
    assert encoder.column_names[-1] == "town=(other)"
    assert (x[350:, -1] == 1).all()


def test_many_levels_become_few_numbers_and_frequencies_rise_with_counts() -> None:
    street = np.array([f"s{int(v)}" for v in RNG.exponential(80, ROWS)])
    encoder, x = fit({"street": street}, categorical="frequency")
    assert encoder.column_names == ["street frequency"]
    counts = np.array([(street[TRAIN] == name).sum() for name in street])
    order = np.argsort(counts, kind="stable")
    assert (np.diff(x[order, 0]) >= 0).all()
    assert (x[counts == 0] < x[counts == 1].min()).all()  # unknown is rarer than seen once
    assert len(fit({"street": street}, levels=8)[0].column_names) == 9  # 7 levels, the others, the frequency
    rare, x = fit({"street": street}, rare=50)  # no level is frequent: their frequency is left
    assert rare.column_names == ["street frequency"]
    identifiers, _ = fit({"name": np.array([f"n{i}" for i in range(ROWS)]), "x": np.arange(ROWS) * 1.0})
    assert identifiers.column_names == ["x"]
    assert "an identifier, or free text" in identifiers.lines[0].how
    hashed, x = fit({"street": street}, categorical="hash", buckets=16)
    assert (x.sum(axis=1) == 1).all()
    whole = table(Preparation(categorical="hash", buckets=16), street=street)
    other = FeatureEncoder.fit(whole, TRAIN, salt=b"another party's").transform(whole)
    assert (other != x).any()  # who lacks the salt does not know which levels share a bucket
    assert "b'salt'" not in repr(hashed)


def test_a_missing_category_is_a_level_or_the_most_frequent_one() -> None:
    kind = np.array(["a", "a", "b", "", None] * 80, dtype=object)
    encoder, x = fit({"kind": kind})
    assert encoder.column_names == ["kind=(missing)", "kind=a", "kind=b"]
    assert x[3].tolist() == x[4].tolist() == [1, 0, 0]
    assert fit({"kind": kind}, missing="impute")[0].column_names == ["kind=a", "kind=b"]


def test_all_problems_of_a_table_are_told_at_once() -> None:
    numbers = np.array([f"{v},5" for v in range(ROWS)], dtype="<U20")
    numbers[17] = "12 apples"
    columns = {
        "numbers": numbers,
        "dates": np.array([f"{i % 12 + 1:02d}/{i % 11 + 1:02d}/2020" for i in range(ROWS)]),
        "gaps": np.where(np.arange(ROWS) % 5, 1.0 * np.arange(ROWS), np.nan),
        "fine": np.arange(ROWS) * 1.0,
    }
    with pytest.raises(InputError) as caught:
        fit(columns, columns={"gaps": ColumnPreparation(missing="refuse")})
    text = str(caught.value)
    assert "column 'numbers' contains numbers with a decimal comma, and '12 apples'" in text
    assert "column 'dates' contains dates such as" in text
    assert "dates='dmy'" in text
    assert "column 'gaps' lacks 20.0% of its values" in text
    assert "fine" not in text
    with pytest.raises(UnknownNameError, match="did you mean 'fine'"):
        fit(columns, columns={"fin": ColumnPreparation(scale="none")})
    with pytest.raises(InputError, match="no column is left"):
        fit({"x": np.full(ROWS, 1.0)})


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (
            ["01.03.2020", "2020-03-02", "04.03.21"],
            r"dates that are written in several ways \('01.03.2020', '2020-03-02'\)",
        ),
        (["1,5", "2.5", "1.234,5"], r"numbers with a decimal point and others with a decimal comma \('1,5', '2.5'\)"),
    ],
)
def test_a_column_written_in_several_ways_is_not_taken_for_a_category(texts: list[str], words: str) -> None:
    column = np.array([texts[i % len(texts)] for i in range(ROWS)])
    with pytest.raises(InputError, match=words + ": write all in one way"):
        fit({"x": column})
    assert fit({"x": column}, columns={"x": ColumnPreparation(kind="category")})[1].shape[1] == len(texts)
    part = np.array([["<0.5", *texts][i % (1 + len(texts))] for i in range(ROWS)])
    assert fit({"x": part})[1].shape[1] == 1 + len(texts)  # a quarter is neither


def test_what_cannot_be_read_when_predicting_is_told_of_all_columns() -> None:
    encoder, _ = fit({"a": np.array(["1,5", "2,5"] * 200), "b": np.array(["yes", "no"] * 200)})
    with pytest.raises(InputError) as caught:
        encoder.transform(table(a=np.array(["1,5", "x"]), b=np.array(["perhaps", "no"])))
    assert "column 'a' contained numbers when the model was trained, but now contains 'x'" in str(caught.value)
    assert "column 'b' contained truth values" in str(caught.value)
    x = encoder.transform(table(a=np.array([1.5, np.nan]), b=np.array([0.0, 1.0])))  # numbers where texts were
    assert np.isfinite(x).all()


@pytest.mark.parametrize(
    ("texts", "marks", "numbers"),
    [
        (["1.234,56", "12"], {","}, [1234.56, 12]),
        (["1,234.56", "-3"], {"."}, [1234.56, -3]),
        (["1'234.5", "(7)"], {"."}, [1234.5, -7]),
        (["1 234,5", "3 %"], {","}, [1234.5, 0.03]),
        (["€ 0,234", "−2 CHF"], {","}, [0.234, -2]),
        (["$1,234,567", "1e3"], {"."}, [1234567, 1000]),
        ([".5", "5 kr"], {"."}, [0.5, 5]),
    ],
)
def test_numbers_of_several_locales(texts: list[str], marks: set[str], numbers: list[float]) -> None:
    assert decimal_marks(texts) == marks
    np.testing.assert_allclose(parse_numbers(texts, next(iter(marks))), numbers)


def test_a_mark_that_could_be_either_is_that_of_the_other_columns() -> None:
    assert decimal_marks(["1,234"]) == decimal_marks(["1.234"]) == set()
    assert np.isnan(parse_numbers(["1,23,4", "1.2.3", "--1", "(1", "x", "1 apples", "1,5"], ".")).all()
    either = np.array(["1.234", "7.500"] * 200)
    alone, _ = fit({"x": either}, columns={"x": ColumnPreparation(scale="none", kind="number")})
    beside, _ = fit({"x": either, "y": np.array(["1,5", "2,5"] * 200)}, scale="none")
    assert [e.columns["x"].how.reader.form for e in (alone, beside)] == [".", ","]  # type: ignore[union-attr]


def test_dates_of_several_forms() -> None:
    days = parse_dates(["1970-01-02", "1970-01-02T12:00:00+02:00", "1970-02-30", "x", "2024-2-29 06:00"], "iso")
    np.testing.assert_allclose(days, [1, 1 + 10 / 24, np.nan, np.nan, 19782.25])
    assert parse_dates(["02.01.70", "2. 1. 1970"], "dotted").tolist() == [1, 1]
    assert parse_dates(["1/2/1970"], "dmy").tolist() == [31]
    assert parse_dates(["1/2/1970"], "mdy").tolist() == [1]
    found = date_parts(np.array([19782.25, -1.0, np.nan]))
    assert [found[name][0] for name in ("year", "month", "weekday", "hour")] == [2024, 2, 3, 6]
    assert [found[name][1] for name in ("year", "month", "weekday", "hour")] == [1969, 12, 2, 0]


def test_a_stored_column_of_somebody_else_is_checked(messy: dict[str, Any]) -> None:
    state = fit(messy, columns={"town": ColumnPreparation(categorical="hash")})[0].state()
    changes: list[tuple[str, dict[str, Any]]] = [
        ("age", {"kind": "prepared 2"}),
        ("age", {"fill": float("nan")}),
        ("age", {"indicator": 1}),
        ("age", {"scaling": {"kind": "standard", "centre": 0.0, "spread": -1.0}}),
        ("age", {"scaling": {"kind": "exec", "centre": 0.0, "spread": 1.0}}),
        ("age", {"form": "__import__"}),
        ("age", {"holds": ["number"]}),
        ("spent", {"scaling": {"kind": "quantile", "values": np.zeros(3), "scores": np.arange(3.0)}}),
        ("spent", {"scaling": {"kind": "quantile", "values": np.arange(3.0), "scores": np.array(["a", "b", "c"])}}),
        ("spent", {"scaling": {"kind": "quantile", "values": np.arange(1e4), "scores": np.arange(1e4)}}),
        ("born", {"cycles": ["weekday", "month"]}),
        ("born", {"fill": 1e12}),
        ("town", {"buckets": 1 << 40}),
        ("town", {"salt": "00" * 65}),
        ("town", {"salt": 3}),
        ("street", {"frequency": np.zeros(1)}),
        ("street", {"onehot": ["a", "a"]}),
        ("street", {"counted": "abc"}),
        ("street", {"unknown": None}),
    ]
    for name, change in changes:
        columns = dict(state["columns"])  # type: ignore[call-overload]
        columns[name] = columns[name] | change
        with pytest.raises(InputError, match="a stored encoder is damaged"):
            FeatureEncoder.from_state({"clip": 5.0, "columns": columns})
    FeatureEncoder.from_state(state)


def test_trees_get_numbers_as_they_are_and_codes(messy: dict[str, Any], tmp_path: Path) -> None:
    whole = table(**messy)
    encoder = FeatureEncoder.fit(whole, TRAIN, view="coded")
    x = encoder.transform(whole)
    assert x.dtype == np.float64
    at = {name: i for i, name in enumerate(encoder.column_names)}
    assert list(at) == [
        *("age", "spent", "amount", "member", "since days", "since year", "since month", "since weekday"),
        *("born days", "born year", "born month", "born weekday", "town", "street"),
    ]
    for name in ("age", "spent"):
        np.testing.assert_array_equal(x[:, at[name]], messy[name])  # not scaled, not clipped, NaN where it is missing
    np.testing.assert_array_equal(x[:, at["member"]] == 1, messy["member"] == "ja")
    np.testing.assert_array_equal(np.isnan(x[:, at["member"]]), messy["member"] == "n/a")
    years = np.array([d[6:] for d in messy["born"]])
    assert all(str(int(y)) == d for y, d in zip(x[:, at["born year"]], years, strict=True) if d)
    counts = [int((messy["town"][TRAIN] == town).sum()) for town in messy["town"][TRAIN]]
    order = np.argsort(x[TRAIN, at["town"]], kind="stable")
    assert (np.diff(np.array(counts)[order][:200]) <= 0).all()  # the most frequent level has code 0
    codes = dict(zip(encoder.column_names, encoder.code_counts, strict=True))
    assert [codes[name] for name in ("age", "born year")] == [0, 0]
    for name in ("town", "street"):
        assert 0 <= x[:, at[name]].min() <= x[:, at[name]].max() < codes[name] <= 255
    write_tree(tmp_path / "part", encoder.state())
    again = FeatureEncoder.from_state(read_tree(tmp_path / "part"))  # type: ignore[arg-type]
    np.testing.assert_array_equal(again.transform(whole), x)
    assert again.code_counts == encoder.code_counts
    new = table(**(messy | {"town": np.full(ROWS, "never seen"), "street": np.full(ROWS, "")}))
    assert (again.transform(new)[:, at["town"]] == codes["town"] - 1).all()
    assert np.isnan(again.transform(new)[:, at["street"]]).all()
    for change in ({"levels": [""]}, {"levels": [f"l{i}" for i in range(256)]}, {"levels": []}):
        broken = dict(encoder.state()["columns"])  # type: ignore[call-overload]
        broken["town"] = broken["town"] | change
        with pytest.raises(InputError, match="damaged"):
            FeatureEncoder.from_state({"clip": 5.0, "columns": broken, "view": "coded"})
    with pytest.raises(InputError, match="damaged"):
        FeatureEncoder.from_state(encoder.state() | {"view": "shown"})


def test_trees_get_tables_without_a_preparation_too() -> None:
    images = RNG.integers(0, 255, (ROWS, 2, 3)).astype(np.uint8)
    whole = PartyTable(
        name="shop",
        ids=[f"i{i}" for i in range(ROWS)],
        columns={"image": images, "kind": np.array(["a", "b", "c", "a"] * 100), "x": RNG.normal(size=ROWS) * 1e9},
        categorical=frozenset(["kind"]),
    )
    encoder = FeatureEncoder.fit(whole, TRAIN, view="coded")
    x = encoder.transform(whole, np.array([5, 2]))
    np.testing.assert_array_equal(x[:, :6], images.reshape(ROWS, 6)[[5, 2]])
    assert x[:, 6].tolist() == [1, 2]
    np.testing.assert_array_equal(x[:, 7], np.asarray(whole.columns["x"])[[5, 2]])
    assert encoder.code_counts == [0] * 6 + [4, 0]


def test_a_model_without_preparation_takes_no_gaps() -> None:
    plain = PartyTable(name="shop", ids=[f"i{i}" for i in range(9)], columns={"x": np.arange(9.0)})
    encoder = FeatureEncoder.fit(plain, np.arange(9))
    with pytest.raises(InputError, match="trained without prepare"):
        encoder.transform(table(x=np.array([1.0, np.nan])))


def test_blocks_stay_blocks_and_categories_may_be_numbers() -> None:
    block = RNG.normal(size=(ROWS, 3))
    codes = Categories(RNG.integers(0, 3, ROWS).astype(np.int32), ("", "1", "2"))
    whole = PartyTable(
        name="shop",
        ids=[f"i{i}" for i in range(ROWS)],
        columns={"block": block, "code": codes, "number": RNG.integers(0, 3, ROWS) * 1.0},
        categorical=frozenset(["number"]),
        preparation=Preparation(),
    )
    encoder = FeatureEncoder.fit(whole, TRAIN)
    assert encoder.column_names == [
        *(f"block[{i}]" for i in range(3)),
        "code",
        "code missing",
        *(f"number={i}" for i in "012"),
    ]
    x = encoder.transform(whole)
    plain = PartyTable(name="shop", ids=whole.ids, columns={"block": block})
    np.testing.assert_array_equal(x[:, :3], FeatureEncoder.fit(plain, TRAIN).transform(plain))
    with pytest.raises(InputError, match="infinite"):
        table(x=np.array([1.0, np.inf]))

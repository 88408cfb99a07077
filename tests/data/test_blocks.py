"""Blocks of numbers and images in a table and in the encoder, which rows validate and test, and the label book."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from securevfl.data import FeatureEncoder, LabelBook, PartyTable, partition, shared_rows
from securevfl.data.table import TEST, VALID
from securevfl.errors import InputError


def _table(columns: dict[str, np.ndarray], **options: Any) -> PartyTable:
    rows = len(next(iter(columns.values())))
    return PartyTable(name="a", ids=[f"i{i}" for i in range(rows)], columns=columns, **options)


def _slow(values: np.ndarray, train: np.ndarray, clip: float) -> np.ndarray:
    """Standardised values, one column of numbers after the other; images are one column of pixels."""
    rows = [row.reshape(-1).tolist() for row in values.astype(np.float64)]
    width = len(rows[0])
    out = np.zeros((len(rows), width))
    for column in range(width):
        group = [column] if values.ndim == 2 else range(width)
        seen = [rows[row][i] for row in train.tolist() for i in group]
        if len(set(seen)) == 1:
            continue
        mean = sum(seen) / len(seen)
        deviation = (sum((value - mean) ** 2 for value in seen) / len(seen)) ** 0.5
        for row, numbers in enumerate(rows):
            out[row, column] = max(-clip, min(clip, (numbers[column] - mean) / deviation)) if deviation else 0
    return out


blocks = hnp.arrays(
    dtype=st.sampled_from([np.uint8, np.int32, np.float32, np.float64, np.bool_]),
    shape=st.one_of(
        st.tuples(st.just(9), st.integers(1, 5)),
        st.tuples(st.just(9), st.integers(1, 3), st.integers(1, 3)),
        st.tuples(st.just(9), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    ),
    elements=st.integers(0, 1),
    fill=st.nothing(),
)


@given(blocks, st.integers(1, 200), st.integers(0, 50), st.floats(0.5, 5))
def test_blocks_are_encoded_as_column_by_column(values: np.ndarray, scale: int, shift: int, clip: float) -> None:
    if values.dtype != np.bool_:
        values = (values * np.arange(values.size).reshape(values.shape) % scale + shift).astype(values.dtype)
    table, train = _table({"block": values}), np.arange(6)
    encoder = FeatureEncoder.fit(table, train, clip=clip)
    encoded = encoder.transform(table)
    assert encoded.dtype == np.float32
    expected = (9, *values.shape[1:]) if values.ndim != 3 else (9, 1, *values.shape[1:])
    assert encoded.shape == expected
    np.testing.assert_allclose(encoded.reshape(9, -1), _slow(values, train, clip), atol=1e-5)
    assert len(encoder.column_names) == int(np.prod(values.shape[1:]))
    some = np.array([8, 2, 2])
    np.testing.assert_array_equal(encoder.transform(table, some), encoded[some])


@given(hnp.arrays(np.float64, (12, 3), elements=st.integers(-(10**6), 10**6)))
def test_a_block_is_encoded_like_its_columns_one_by_one(values: np.ndarray) -> None:
    block, columns = _table({"b": values}), _table({f"c{i}": values[:, i] for i in range(3)})
    train = np.arange(8)
    one, two = (FeatureEncoder.fit(table, train).transform(table) for table in (block, columns))
    np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tiny_and_far_away_columns_are_not_lost(dtype: type) -> None:
    """Parkinson's wavelet energies vary by 1e-21, and other columns lie thousands of deviations away from 0."""
    wave = np.tile([-1.0, 1.0, 1.0], 33)
    columns = {"tiny": 1e-20 * wave, "far": 1e7 + wave, "constant": np.full(99, 0.1), "huge": np.full(99, 1e7 / 3)}
    values = np.stack(list(columns.values()), axis=1).astype(dtype)
    table = _table({"block": values})
    encoded = FeatureEncoder.fit(table, np.arange(99)).transform(table)
    np.testing.assert_allclose(encoded, _slow(values, np.arange(99), 5.0), atol=1e-5)
    assert (np.abs(encoded[:, :2]) > 0.5).all()
    assert (encoded[:, 2:] == 0).all()


def test_large_sets_of_images_are_encoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).integers(0, 256, (37, 3, 4, 5), dtype=np.uint8)
    table = _table({"image": values})
    whole = FeatureEncoder.fit(table, np.arange(30)).transform(table)
    monkeypatch.setattr("securevfl.data.encodings._PART", 200)
    parts = FeatureEncoder.fit(table, np.arange(30)).transform(table)
    np.testing.assert_allclose(whole, parts, atol=1e-6)
    assert parts.shape == (37, 3, 4, 5)


@given(st.integers(0, 255))
def test_images_outside_training_do_not_change_the_encoding(other: int) -> None:
    values = np.random.default_rng(0).integers(0, 256, (10, 4, 4), dtype=np.uint8)
    changed = values.copy()
    changed[8:] = other
    one, two = (
        FeatureEncoder.fit(table, np.arange(8)).transform(table, np.arange(8))
        for table in (_table({"image": values}), _table({"image": changed}))
    )
    np.testing.assert_array_equal(one, two)


def test_an_image_beside_other_columns_is_flattened() -> None:
    values = np.arange(5 * 2 * 3, dtype=np.uint8).reshape(5, 2, 3)
    kinds = np.array(["u", "v", "u", "u", "v"])
    table = _table({"image": values, "kind": kinds, "x": np.arange(5.0)}, categorical=frozenset({"kind"}))
    for scale in ("standard", "quantile"):
        encoder = FeatureEncoder.fit(table, np.arange(5), scale=scale)
        encoded = encoder.transform(table)
        assert encoder.column_names == [*(f"image[{i}]" for i in range(6)), "kind=u", "kind=v", "x"]
        np.testing.assert_allclose(encoded[:, :6], _slow(values, np.arange(5), 5.0), atol=1e-6)
        assert encoded[:, 6].tolist() == [1, 0, 1, 1, 0]


def test_a_party_without_columns_has_no_features() -> None:
    table = PartyTable(name="a", ids=["x", "y"], columns={}, label=np.array([0, 1]), classes=(0, 1))
    encoder = FeatureEncoder.fit(table, np.arange(2))
    assert (encoder.column_names, encoder.transform(table).shape) == ([], (2, 0))
    assert encoder.transform(table, np.array([1])).shape == (1, 0)
    assert "0 columns" in repr(table)


def test_columns_keep_the_shape_that_they_were_fitted_on() -> None:
    block, column = _table({"c": np.zeros((3, 2))}), _table({"c": np.zeros(3)})
    with pytest.raises(InputError, match=r"values of shape \(\); the encoder was fitted on \(2,\)"):
        FeatureEncoder.fit(block, np.arange(3)).transform(column)
    with pytest.raises(InputError, match=r"values of shape \(2,\); the encoder was fitted on \(\)"):
        FeatureEncoder.fit(column, np.arange(3)).transform(block)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        (np.zeros((4, 2)), "has 4 values for 3 rows"),
        (np.zeros(()), "has no values for 3 rows"),
        (np.zeros((3, 0)), r"has shape \(3, 0\); \(rows,\), \(rows, width\)"),
        (np.zeros((3, 1, 1, 1, 1)), r"has shape \(3, 1, 1, 1, 1\)"),
        (np.zeros((3, 2), dtype=complex), "contains complex128, not numbers"),
        (np.array([["a"], ["b"], ["c"]]), "contains <U1, not numbers"),
        (np.array([[0, 0], [0, np.nan], [0, 0]]), r"is NaN in 1 of 3 rows \(rows 2\); fill or drop"),
        (np.array([[[1.0]], [[np.inf]], [[-np.inf]]]), r"is infinite in 2 of 3 rows \(rows 2, 3\)"),
    ],
)
def test_blocks_that_are_none_are_refused(values: np.ndarray, match: str) -> None:
    with pytest.raises(InputError, match=match):
        PartyTable(name="a", ids=["x", "y", "z"], columns={"c": values})


def test_a_block_holds_no_categories() -> None:
    with pytest.raises(InputError, match=r"'c' is a block, \(3, 2\), and categorical"):
        _table({"c": np.zeros((3, 2))}, categorical=frozenset({"c"}))


LABELS: dict[str, Any] = {"label": np.array([0, 1, 0]), "classes": (0, 1)}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"fold": np.zeros(3, dtype=np.int8)}, "has a fold and no labels"),
        (LABELS | {"fold": np.zeros(2, dtype=np.int8)}, r"fold has shape \(2,\); give one value for each of 3 rows"),
        (
            LABELS | {"fold": np.array([0, 1, 3])},
            r"fold contains int64 3; expected 0 \(trains\), 1 \(validates\) or 2",
        ),
        (LABELS | {"fold": np.array([0.0, 1.0, 2.0])}, "fold contains float64"),
        ({"book": LabelBook(("q",), np.array([0]))}, "a book of labels and no labels of its own"),
        (LABELS | {"book": LabelBook((), np.array([], dtype=np.int64))}, "label book of 'a' is empty; leave it out"),
        (LABELS | {"book": LabelBook(("q", "q"), np.array([0, 1]))}, "label book of 'a': repeated identifiers: 'q'"),
        (LABELS | {"book": LabelBook(("q", ""), np.array([0, 1]))}, "identifier in row 2 is null or empty"),
        (LABELS | {"book": LabelBook(("q", "r"), np.array([0]))}, r"labels are int64 \(1,\); int64 \(2,\)"),
        (LABELS | {"book": LabelBook(("q", "r"), np.array([0, 2]))}, "run from 0 to 2; there are 2 classes, 0 to 1"),
        (LABELS | {"book": LabelBook(("q", "r"), np.array([0, -1]))}, "run from -1 to 0"),
        (LABELS | {"book": LabelBook(("q", "i1"), np.array([0, 1]))}, "1 rows are in the label book and in the table"),
    ],
)
def test_folds_and_books_that_do_not_fit_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        _table({"c": np.zeros(3)}, **options)


def test_taking_and_selecting_keeps_blocks_fold_and_book() -> None:
    image = np.arange(3 * 4, dtype=np.uint8).reshape(3, 2, 2)
    book = LabelBook(("q",), np.array([1]))
    table = _table({"image": image, "x": np.arange(3.0)}, fold=np.array([VALID, 0, TEST], np.int8), book=book, **LABELS)
    taken = table.take([2, 0]).select(["image"])
    assert taken.feature_names == ("image",)
    np.testing.assert_array_equal(taken.columns["image"], image[[2, 0]])
    assert taken.fold is not None
    assert taken.fold.tolist() == [TEST, VALID]
    assert taken.book is book


def test_a_partition_leaves_fold_and_book_with_the_active_party() -> None:
    fold = np.tile(np.array([0, 0, VALID, TEST], dtype=np.int8), 10)
    table = _table(
        {"x": np.arange(40.0), "image": np.zeros((40, 2, 2))},
        label=np.arange(40) % 2,
        classes=(0, 1),
        fold=fold,
        book=LabelBook(("q",), np.array([1])),
    )
    found = partition(table, {"a": ["x"], "b": ["image"]}, shared_rows(40, 2, overlap=0.5, seed=0))
    active, passive = found["a"], found["b"]
    assert active.fold is not None
    np.testing.assert_array_equal(active.fold, fold[active.columns["x"].astype(int)])
    assert active.book is table.book
    assert (passive.label, passive.fold, passive.book, passive.classes) == (None, None, None, ())

"""The encoder sees training rows only, and its numbers are what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from securevfl.data import FeatureEncoder, PartyTable
from securevfl.errors import InputError, UnknownNameError

numbers = hnp.arrays(np.float64, 12, elements=st.floats(-1e6, 1e6))


def _table(values: np.ndarray, kind: list[str] | None = None) -> PartyTable:
    columns: dict[str, np.ndarray] = {"x": values}
    if kind:
        columns["kind"] = np.array(kind)
    return PartyTable(
        name="a",
        ids=[f"i{i}" for i in range(len(values))],
        columns=columns,
        categorical=frozenset(["kind"] if kind else []),
    )


@pytest.mark.parametrize("scale", ["standard", "quantile"])
@given(numbers, st.floats(-1e6, 1e6))
def test_rows_outside_training_do_not_change_the_encoding(scale: str, values: np.ndarray, other: float) -> None:
    train = np.arange(8)
    changed = values.copy()
    changed[8:] = other
    one = FeatureEncoder.fit(_table(values), train, scale=scale).transform(_table(values), train)
    two = FeatureEncoder.fit(_table(changed), train, scale=scale).transform(_table(changed), train)
    np.testing.assert_array_equal(one, two)


@given(numbers)
def test_standardised_numbers_have_mean_zero_and_deviation_one_and_stay_within_the_clip(values: np.ndarray) -> None:
    table = _table(values)
    encoded = FeatureEncoder.fit(table, np.arange(12), clip=5.0).transform(table)
    assert encoded.dtype == np.float32
    assert np.abs(encoded).max() <= 5.0
    if values.std() > 1e-3 * max(np.abs(values).max(), 1):
        assert encoded.mean() == pytest.approx(0, abs=1e-4)
        assert encoded.std() == pytest.approx(1, abs=1e-3)


@given(numbers)
def test_quantile_scores_rise_with_the_value(values: np.ndarray) -> None:
    table = _table(values)
    encoded = FeatureEncoder.fit(table, np.arange(12), scale="quantile").transform(table)[:, 0]
    order = np.argsort(values, kind="stable")
    assert (np.diff(encoded[order]) >= -1e-6).all()


def test_constant_columns_become_zeros() -> None:
    table = _table(np.full(5, 0.1))
    assert (FeatureEncoder.fit(table, np.arange(5)).transform(table) == 0).all()


def test_one_hot_knows_the_training_rows_categories_only() -> None:
    table = _table(np.arange(4.0), ["b", "a", "b", "new"])
    encoder = FeatureEncoder.fit(table, np.array([0, 1, 2]))
    assert encoder.column_names == ["x", "kind=a", "kind=b"]
    assert encoder.transform(table)[:, 1:].tolist() == [[0, 1], [1, 0], [0, 1], [0, 0]]


def test_limits_and_names_are_checked() -> None:
    many = _table(np.arange(70.0), [f"k{i}" for i in range(70)])
    with pytest.raises(InputError, match="70 categories; at most 64"):
        FeatureEncoder.fit(many, np.arange(70))
    with pytest.raises(UnknownNameError, match="did you mean 'quantile'"):
        FeatureEncoder.fit(_table(np.arange(3.0)), np.arange(3), scale="quantil")
    with pytest.raises(InputError, match="no training rows"):
        FeatureEncoder.fit(_table(np.arange(3.0)), np.arange(0))
    encoder = FeatureEncoder.fit(_table(np.arange(3.0)), np.arange(3))
    with pytest.raises(UnknownNameError):
        encoder.transform(PartyTable(name="b", ids=["i"], columns={"y": np.zeros(1)}))

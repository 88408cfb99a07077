"""Noise: its distribution, its source, clipping; and the values that carry it, which nobody else can make."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from securevfl.privacy import Noised, NoiseShare, clip_rows, draw_gaussian
from securevfl.privacy.noise import RememberedRows, add_noise, noise_share


def test_the_noise_is_normal_with_the_stated_deviation() -> None:
    noise = draw_gaussian((200, 500), 2.5).numpy().ravel()
    assert noise.std() == pytest.approx(2.5, rel=0.02)
    assert stats.kstest(noise / 2.5, "norm").pvalue > 1e-6
    assert np.abs(noise / 2.5).max() < 8.5  # the bound that the fixed-point range at the cut relies on


def test_the_noise_is_new_each_time_and_comes_from_the_given_source() -> None:
    assert not torch.equal(draw_gaussian((4, 4), 1.0), draw_gaussian((4, 4), 1.0))
    assert torch.equal(draw_gaussian((4,), 1.0, lambda n: b"\x07" * n), draw_gaussian((4,), 1.0, lambda n: b"\x07" * n))
    extreme = draw_gaussian((2,), 1.0, lambda n: b"\xff" * (n // 2) + b"\x00" * (n - n // 2))
    assert torch.isfinite(extreme).all()
    assert extreme.abs().max() < 8.5


@given(st.integers(1, 6), st.integers(1, 6), st.floats(0.1, 10))
def test_clipping_bounds_the_norm_and_leaves_short_rows(rows: int, columns: int, bound: float) -> None:
    values = torch.linspace(-3, 4, rows * columns, dtype=torch.float64).reshape(rows, columns)
    clipped = clip_rows(values, bound)
    assert (torch.linalg.vector_norm(clipped, dim=1) <= bound * (1 + 1e-9)).all()
    short = torch.linalg.vector_norm(values, dim=1) <= bound
    assert torch.allclose(clipped[short], values[short])


def test_nobody_makes_a_noised_value_but_a_mechanism() -> None:
    for call in (
        lambda: Noised(torch.zeros(3), 1.0, 1.0),
        lambda: Noised(torch.zeros(3), 1.0, 1.0, token=object()),
        lambda: NoiseShare(torch.zeros(3), 1.0, 1.0),
    ):
        with pytest.raises(TypeError, match="Releases"):
            call()
    with pytest.raises(TypeError):  # no subclass that forgets to check

        class Mine(Noised[torch.Tensor]):  # type: ignore[misc]
            pass

    value = add_noise(torch.zeros(3), 2.0, 0.5)
    for name in ("multiplier", "sensitivity", "value"):
        with pytest.raises(AttributeError):
            setattr(value, name, 0.0)


def test_what_is_computed_from_a_noised_value_keeps_its_noise() -> None:
    value = add_noise(torch.zeros(3, 2), 2.0, 0.5)
    packed = value.map(lambda v: v.numpy().tobytes()).map(lambda b: np.frombuffer(b, dtype=np.uint8))
    assert (packed.multiplier, packed.sensitivity) == (2.0, 0.5)
    assert packed.value.dtype == np.uint8
    assert torch.equal(torch.from_numpy(np.frombuffer(packed.value.tobytes()).reshape(3, 2).copy()), value.value)
    assert repr(value) == "Noised(σ = 2, Δ = 0.5)"  # and not the value


def test_shares_of_noise_end_in_a_noised_sum() -> None:
    share = noise_share((500, 4), 2.0, 0.5, 4)
    assert share.noise.std() == pytest.approx(2.0 * 0.5 / math.sqrt(4), rel=0.1)
    part = torch.ones(500, 4)
    sent = share.add_to(lambda noise: part + noise)
    assert torch.equal(sent.value, part + share.noise)
    assert (sent.multiplier, sent.sensitivity) == (2.0, 0.5)


def test_remembered_rows_are_those_that_were_noised() -> None:
    rows = RememberedRows(2.0, 0.5)
    rows.keep_rows(np.array([7, 3]), add_noise(torch.zeros(2, 3), 2.0, 0.5))
    again = RememberedRows(2.0, 0.5)
    again.load_state(rows.get_state())
    first, back = rows.recall_rows(np.array([3, 7, 3])), again.recall_rows(np.array([3, 7, 3]))
    assert torch.equal(first.value, back.value)
    assert (back.multiplier, back.sensitivity) == (2.0, 0.5)
    assert 7 in rows
    assert 4 not in rows
    assert sorted(rows.row_numbers()) == [3, 7]
    with pytest.raises(ValueError, match="cannot be stored with"):
        rows.keep_rows(np.array([1]), add_noise(torch.zeros(1, 3), 1.0, 0.5))
    with pytest.raises(TypeError, match="state"):
        rows.load_state(None)

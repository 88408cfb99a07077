"""The rate of a step: what each party divides its columns by, and rates that whole numbers do not hold."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from securevfl_crypto.two.correlations import LinearTask
from securevfl_crypto.two.dealing import MemoryHelper
from securevfl_crypto.two.dealt import DealtCorrelations
from securevfl_crypto.two.online import TwoLinear
from securevfl_crypto.two.wire import MemoryWires, TwoWire

from securevfl.errors import InputError
from securevfl.shares.network_ranges import NetworkShape, OptimiserConstants
from securevfl.shares.two.network import TwoNetwork, find_scale, step_rule


def _largest(values: np.ndarray) -> float:
    """The largest eigenvalue of the mean of x xᵀ."""
    return float(np.linalg.eigvalsh(values.T @ values / len(values))[-1])


def _words(values: np.ndarray) -> np.ndarray:
    return np.rint(values * 1024).astype(np.int64)


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.sampled_from([0.25, 2.0, 20.0]))
def test_scaled_columns_are_steady(seed: int, columns: int, rate: float) -> None:
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(200, 1)) + 0.2 * generator.normal(size=(200, columns))
    values *= generator.choice([-1.0, 1.0], columns)
    scale = find_scale(_words(values), rate)
    assert scale >= 1
    assert rate * _largest(values / scale) <= 3.01
    if scale > 1:  # and no slower than that asks for
        assert rate * _largest(values / scale) > 2.2


def test_two_columns_of_one_category_are_no_exception() -> None:
    """One column for yes and one for no cancel: a sum of all columns is nothing, whatever their size."""
    yes = np.where(np.random.default_rng(0).random(500) < 0.5, 1.0, -1.0)
    values = np.stack([yes, -yes], axis=1)
    assert find_scale(_words(values), 3.0) == pytest.approx(np.sqrt(3.0 * 2 * 1.1 / 3), rel=0.01)


@pytest.mark.parametrize("classes", [1, 2, 4])
def test_the_rate_is_that_of_errors_whose_slope_is_a_quarter(classes: int) -> None:
    shape, rule = NetworkShape((2, 2), (), (), classes), OptimiserConstants(0.2, 0.9, 0.0)
    party: Any = SimpleNamespace(wire=SimpleNamespace(me=0), source=None)
    network = TwoNetwork(party, shape, step_rule(shape, rule, 64), 64)
    assert network.rate == pytest.approx(2.0)
    slope = 0.25 * (network.rule.rate * 64 / network.rate if classes > 1 else 1.0)
    assert slope == pytest.approx(0.25)


@pytest.mark.parametrize("lr", [1e-6, 1e-5])
def test_a_rate_too_small_for_whole_numbers_is_refused_with_what_helps(lr: float) -> None:
    shape = NetworkShape((2, 2), (), (), 2)
    with pytest.raises(InputError, match=r"change lr = .* or batch_size = 256"):
        step_rule(shape, OptimiserConstants(lr, 0.0, 0.0), 256)


def test_numbers_of_columns_that_say_the_same_do_not_swing() -> None:
    """Eight copies of one column at each party have an eigenvalue near 16 together: steps of this rate swing unless
    both divide by what they find."""
    generator = np.random.default_rng(0)
    score = generator.normal(size=64)
    values = [score[:, None] + 0.01 * generator.normal(size=(64, 8)) for _ in range(2)]
    shape = NetworkShape((7, 8), (), (), 1)
    rule, wires, helper, epochs = OptimiserConstants(0.2, 0.9, 0.0), MemoryWires(), MemoryHelper(), 12
    step = step_rule(shape, rule, 64)

    async def train(wire: TwoWire) -> tuple[np.ndarray, TwoLinear]:
        party: Any = SimpleNamespace(wire=wire, source=None)
        scale = find_scale(_words(values[wire.me]), TwoNetwork(party, shape, step, 64).rate)
        rows = np.rint(_words(values[wire.me]) / scale).astype(np.int64)
        source = DealtCorrelations(wire, helper.dealer.seeds[wire.me], helper.ask_as(wire.me))
        linear = TwoLinear(wire, source, (8, 8), 1)
        (uses,) = await linear.prepare([LinearTask(0, rows, 8, 1, backward=True)], epochs)
        for use in uses:
            await linear.begin_epoch([use])
            await linear.train_batch(rows, None if wire.me else score[:, None], step)
        return rows, linear

    one, other = wires.pair()
    (mine, first), (theirs, second) = wires.run(train(one), train(other))
    weights = [first.own + second.other, second.own + first.other]
    found = sum(rows @ (part.view(np.int64) * 2.0**-55) for rows, part in zip((mine, theirs), weights, strict=True))
    assert np.abs(found[:, 0] - score).mean() < 0.1

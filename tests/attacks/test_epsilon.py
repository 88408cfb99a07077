"""Audits of ε: bounds hold at their confidence, find what is too little noise, and are not fooled by choosing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from securevfl.attacks.epsilon import bound_epsilon, epsilon_of_guesses, epsilon_of_rates
from securevfl.privacy import RandomisedResponse
from securevfl.privacy.severity import mu_of

DELTA = 1e-5


def _answers(epsilon: float, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    bits = draw.integers(0, 2, rows)
    keep = draw.random(rows) < 1 / (1 + math.exp(-epsilon))
    return bits, np.where(keep, bits, 1 - bits) + draw.normal(size=rows) * 1e-3


def test_a_bound_is_close_to_the_truth_and_below_it() -> None:
    for epsilon in (0.5, 1.0, 2.0):
        found = bound_epsilon(*_answers(epsilon, 6000, 1), delta=DELTA).lower
        assert 0.7 * epsilon < found < epsilon


def test_bounds_are_too_high_no_more_often_than_they_say() -> None:
    """50 runs at ε = 1 and confidence 0.9: about 5 may be too high; paying for several tests makes it fewer."""
    runs = [_answers(1.0, 300, seed) for seed in range(50)]
    high = sum(bound_epsilon(*run, delta=DELTA, confidence=0.9, shares=(1.0, 0.3)).lower > 1.0 for run in runs)
    assert high <= 9


def test_choosing_the_best_of_many_tests_is_paid_for() -> None:
    shares, found = tuple(np.linspace(0.1, 1, 10)), 0
    for seed in range(40):
        draw = np.random.default_rng(seed)
        bits, score = draw.integers(0, 2, 200), draw.normal(size=200)
        found += bound_epsilon(bits, score, delta=DELTA, either_way=True, shares=shares).lower > 0
    assert found <= 5  # at confidence 0.95, two of 40


def test_gaussian_noise_of_half_the_size_is_caught() -> None:
    draw, n, mu = np.random.default_rng(0), 6000, mu_of(1.0, DELTA)
    bits = draw.integers(0, 2, n)
    honest, weak = (bits * size + draw.normal(size=n) for size in (mu, 8 * mu))
    assert bound_epsilon(bits, honest, delta=DELTA).lower < 1.0
    assert bound_epsilon(bits, weak, delta=DELTA).lower > 1.0


def test_the_binomial_tail_is_that_of_the_theorem() -> None:
    """With δ = 0 the bound is where a binomial tail passes the level."""
    bound = epsilon_of_guesses(80, 100, 100, delta=0.0, level=0.05)
    assert stats.binom.sf(79, 100, 1 / (1 + math.exp(-bound))) == pytest.approx(0.05, abs=1e-6)
    assert epsilon_of_guesses(80, 100, 100, delta=1e-5, level=0.05) < bound
    assert epsilon_of_guesses(50, 100, 100, delta=0.0, level=0.05) == 0.0


def test_rates_bound_it_too() -> None:
    bits, told = _answers(2.0, 20_000, 3)
    one = told > 0.5
    hits, false = int((one & (bits == 1)).sum()), int((one & (bits == 0)).sum())
    ones = int(bits.sum())
    bound = epsilon_of_rates(hits, ones, false, len(bits) - ones, delta=0.0, level=0.05)
    assert 1.8 < bound < RandomisedResponse(epsilon=2.0).epsilon
    assert epsilon_of_rates(0, 10, 0, 10, delta=DELTA, level=0.05) == 0.0

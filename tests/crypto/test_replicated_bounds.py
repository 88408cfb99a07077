"""The stated errors of softmax, log-sum-exp and quotient hold, on inputs that come near them and on any others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.replicated import Clear, Share, fits
from securevfl_crypto.ring import decode_words, encode_words

UNIT = 2.0**-16
MOST_OF_SUM = 1.006
"""What `securevfl.shares.dp_steps` assumes of the sum of a softmax."""


def _stated(count: int) -> float:
    """The error that `softmax` and `log_sum_exp` state for so many values."""
    return 0.001 + 0.002 * count if count <= 12 else 0.013 + 0.0012 * count


def _computed(program: Callable[..., Awaitable[Share]], *values: np.ndarray, fraction: int = 16) -> np.ndarray:
    """What the reference in the clear computes; `test_replicated` compares it with three parties, bit by bit."""
    engine = Clear(fraction=fraction)
    try:
        program(engine, *(engine.constant(encode_words(x, fraction)) for x in values)).__await__().send(None)
    except StopIteration as end:
        return decode_words(end.value.mine, fraction)
    raise AssertionError("the reference waits")


def _errors(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest error of each row's softmax, and that of its log-sum-exp."""
    x = decode_words(encode_words(x))
    top = x.max(axis=1, keepdims=True)
    e = np.exp(x - top)
    total = e.sum(axis=1, keepdims=True)
    p = _computed(Clear.softmax, x)
    assert p.min() >= 0
    assert p.sum(axis=1).max() <= MOST_OF_SUM
    log = _computed(Clear.log_sum_exp, x)
    return np.abs(p - e / total).max(axis=1), np.abs(log - top - np.log(total))[:, 0]


def _hard_rows(count: int) -> np.ndarray:
    """One value or several on top and all others at one depth, where the exponentials' errors have the same sign; the
    worst known are at depths 3.3, 4.4, 5.6 and 5.8."""
    rng = np.random.default_rng(count)
    depths = np.r_[np.linspace(0, 7.2, 361), 3.3, 4.4, 5.47, 5.6, 5.65, 5.79, 0.168]
    rows = [np.r_[np.zeros(j), np.full(count - j, -d)] for d in depths for j in {1, 2, count // 2} if 0 < j < count]
    rows += [np.r_[0, rng.normal(-d, 0.02, count - 1)] for d in rng.uniform(0, 7.2, 50)]
    rows += [rng.normal(0, scale, count) for scale in (0.1, 1, 3, 10) for _ in range(20)]
    rows += [np.full(count, 1000.0), np.full(count, -(2.0**20)), np.r_[2.0**20, np.zeros(count - 1)]]
    return np.array(rows)


@pytest.mark.parametrize("count", [2, 3, 4, 6, 8, 12, 13, 24, 32, 48, 64])
def test_a_softmax_and_a_log_sum_exp_are_as_near_as_they_say(count: int) -> None:
    """And come near the stated error, so that it is no empty one."""
    worst = [found.max() for found in _errors(_hard_rows(count))]
    assert max(worst) <= _stated(count)
    assert max(worst) > 0.75 * _stated(count)


@pytest.mark.parametrize("count", [2, 3, 8, 12, 13, 64])
def test_what_is_stated_bounds_the_fits_themselves(count: int) -> None:
    """Apart from the protocol: errors of the exponentials may lie anywhere in the hull of (eˣ, error), so all rows with
    the largest value on its own are covered, not only those of `_hard_rows`."""
    y = -np.arange(0, 8 << 16, 16)
    e = np.exp(y / 2.0**16)
    error = fits.exponential_curve(16)(y) / 2.0 ** (16 + fits.SLOPE_BITS) - e
    bits = 16 + fits.SLOPE_BITS
    means = np.linspace(0, 1, 4001)
    total = 1 + (count - 1) * means
    for sign in (1, -1):
        found = 1 + (count - 1) * (means + sign * _envelope(e, sign * error, means))
        words = np.rint(found * 2.0**bits).astype(np.int64)
        inverse = fits.reciprocal_curve(bits, count)(words) / 2.0 ** (bits + fits.INVERSE_BITS)
        logarithm = fits.logarithm_curve(bits, count)(words) / 2.0 ** (bits + fits.SLOPE_BITS)
        assert np.abs(inverse - 1 / total).max() + 3 * UNIT < _stated(count)
        assert np.abs(logarithm - np.log(total)).max() + 3 * UNIT < _stated(count)


def _envelope(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The least concave function that is not below the points (x, y) and (0, 0)."""
    hull = [(0.0, 0.0)]
    for point in sorted(zip(x.tolist(), y.tolist(), strict=True)):
        while len(hull) > 1 and _turns_left(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return np.interp(at, *zip(*hull, strict=True))


def _turns_left(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[0] - a[0]) * (c[1] - a[1]) >= (b[1] - a[1]) * (c[0] - a[0])


LOGIT = st.one_of(st.floats(-8, 8), st.floats(-1000, 1000), st.sampled_from([0.0, -3.3, -4.4, -5.6, -5.8, -7.0]))


@settings(deadline=None, max_examples=60)
@given(st.lists(LOGIT, min_size=2, max_size=64))
def test_any_softmax_and_log_sum_exp_are_as_near_as_they_say(logits: list[float]) -> None:
    softmax, log = _errors(np.array([logits]))
    assert max(softmax[0], log[0]) <= _stated(len(logits))


# Quotients


def _misses(a: np.ndarray, b: np.ndarray, fraction: int, least: float, most: float) -> np.ndarray:
    """Errors of quotients, each over what is stated for it."""
    a, b = (decode_words(encode_words(x, fraction), fraction) for x in (a, b))
    found = _computed(lambda engine, x, y: engine.divide(x, y, least=least, most=most), a, b, fraction=fraction)
    stated = (1.2e-5 + 5 * 2.0**-fraction) * np.abs(a / b) + 3 * 2.0**-fraction
    return np.asarray(np.abs(found - a / b) / stated)


@pytest.mark.parametrize(("fraction", "least", "most"), [(16, 1, 1024), (12, 0.125, 4096), (20, 1, 64), (10, 1, 2)])
def test_quotients_are_as_near_as_they_say(fraction: int, least: float, most: float) -> None:
    """Large quotients by divisors of all sizes, beside powers of two, and the worst one known; no empty bound."""
    rng = np.random.default_rng(fraction)
    powers = 2.0 ** np.arange(np.log2(least), np.log2(most) + 1)
    beside = np.clip(np.concatenate([powers, powers - 2.0**-fraction, powers + 2.0**-fraction]), least, most)
    b = np.concatenate([np.exp(rng.uniform(np.log(least), np.log(most), 40_000)), beside, [min(1.44168, most)]])
    a = np.where(rng.random(b.shape) < 0.5, most, rng.uniform(-most, most, b.shape))
    a[-1] = min(933.415, most)
    misses = _misses(a, b, fraction, least, most)
    assert misses.max() <= 1
    assert misses.max() > 0.3


@settings(deadline=None, max_examples=100)
@given(a=st.floats(-1024, 1024), b=st.floats(1, 1024), fraction=st.integers(10, 20))
def test_any_quotient_is_as_near_as_it_says(a: float, b: float, fraction: int) -> None:
    assert _misses(np.array([a]), np.array([b]), fraction, 1, 1024)[0] <= 1

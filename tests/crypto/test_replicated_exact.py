"""Truncation, comparison and products against exact integer arithmetic, and the refusals of the local operations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.errors import MalformedError, ReusedError
from securevfl_crypto.replicated import (
    Clear,
    Computing,
    Curve,
    Dealt,
    Product,
    Share,
    Task,
    deal_shares,
    fits,
    run_three,
)
from securevfl_crypto.replicated.keys import fixed_streams
from securevfl_crypto.replicated.share import words_of

EVERY = {"x": 100}


def opened(program, *values: np.ndarray, seed: bytes | None = None) -> list[np.ndarray]:
    """What party 1 opens of the shares that a program returns, as signed integers."""
    dealt = [deal_shares(words.view(np.uint64)) for words in values]

    async def one(party: Computing) -> list[np.ndarray]:
        found = await program(party, *(party.read_dealt(parts[party.index]) for parts in dealt))
        return [await party.open("x", share, (1,)) for share in found]

    return [words.view(np.int64) for words in run_three(one, openings=EVERY, seed=seed).results[1]]


AWKWARD = [0, 1, -1, 2**16, -(2**16), 2**16 - 1, 1 - 2**16, 2**62 - 1, -(2**62), 1 - 2**62, 2**40, -(2**40)]


@pytest.mark.parametrize("shift", [1, 16, 40, 61])
def test_truncation_is_the_floor_or_one_more_over_the_whole_range(shift: int) -> None:
    rng = np.random.default_rng(shift)
    z = np.concatenate([np.tile(AWKWARD, 60), rng.integers(-(2**62), 2**62, 2000), rng.integers(-(2**40), 2**40, 2000)])

    async def program(party, x):
        one = party.constant(np.ones(1, np.uint64))
        return [(await party.compute_products([Product(x, one, "times", shift)]))[0]]

    (y,) = opened(program, z)
    assert set(np.unique(y - (z >> shift))) <= {0, 1}
    exact = z % (1 << shift) == 0
    assert (y[exact] == z[exact] >> shift).all()


def test_the_last_bit_has_no_bias() -> None:
    z = np.repeat([1, 3 << 13, 1 << 15, (1 << 16) - 1, -5, -(1 << 15)], 4000)

    async def program(party, x):
        return [await party.truncate(x, 16)]

    (y,) = opened(program, z, seed=b"bias")
    up = (y - (z >> 16)).reshape(6, -1).mean(axis=1)
    share = (z.reshape(6, -1)[:, 0] % 65536) / 65536
    assert np.abs(up - share).max() < 4 * 0.5 / 4000**0.5
    assert 0.45 < up[2] < 0.55


def test_comparison_is_exact_over_the_whole_range() -> None:
    rng = np.random.default_rng(7)
    z = np.concatenate([np.tile(AWKWARD, 40), rng.integers(-(2**62), 2**62, 2000), rng.integers(-4, 5, 500)])
    small = rng.integers(-(2**61), 2**61, 3000)

    async def program(party, x, y):
        (relu, gate), *_ = await party.compute_products(
            [Product(x, party.constant(np.ones(1, np.uint64)), "times", 16, then="relu")]
        )
        return [gate, await party.compare(y, (0, -1.5, 2**40 / 3)), relu, await party.truncate(x, 16)]

    gate, bits, relu, _ = opened(program, z, small)
    np.testing.assert_array_equal(gate, z >= 0)
    np.testing.assert_array_equal(bits, [small >= round(t * 65536) for t in (0, -1.5, 2**40 / 3)])
    assert set(np.unique(relu - np.where(z >= 0, z >> 16, 0))) <= {0, 1}


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 30),
    st.sampled_from([None, "relu", "relu6"]),
    st.integers(0, 2**32),
)
def test_products_against_exact_integers(m: int, k: int, n: int, shift: int, then, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, w = rng.integers(-(2**28), 2**28, (m, k)), rng.integers(-(2**28), 2**28, (k, n))
    s = rng.integers(-(2**50), 2**50, (m, n))
    exact = x.astype(object) @ w.astype(object) + s
    gates = rng.integers(0, 2, (m, n))

    async def program(party, x, w, s, gates):
        plain, gated, last = await party.compute_products(
            [Product(x, w, add=s), Product(x, w, shift=shift, gate=gates, add=s), Product(x, w, "matmul", shift, then)]
        )
        return [plain, gated, *((last,) if isinstance(last, Share) else last)]

    plain, gated, value, *rest = opened(program, x, w, s, gates)
    np.testing.assert_array_equal(plain, exact.astype(np.int64))
    floor = (exact >> shift).astype(np.int64)
    assert set(np.unique(gated - floor * gates)) <= {0, 1}
    assert (gated[gates == 0] == 0).all()
    z = x.astype(object) @ w.astype(object)
    low = np.array(z >> shift, dtype=object).astype(np.int64)
    six = 6 << 16
    if then == "relu6":
        bit = np.array((z >= 0) & (z < six << shift)).astype(np.int64)
        low = np.where(np.array(z >= 0).astype(bool), np.minimum(low, six), 0)
    elif then == "relu":
        bit = np.array(z >= 0).astype(np.int64)
        low = np.where(bit == 1, low, 0)
    assert set(np.unique(value - low)) <= {0, 1}
    if then:
        np.testing.assert_array_equal(rest[0], bit)


def test_values_without_elements_pass() -> None:
    async def program(party, x):
        (relu, gate), plain = await party.compute_products(
            [Product(x, x, "times", 16, then="relu"), Product(x, x, "times")]
        )
        return [relu, gate, plain, *await party.refresh(x)]

    assert [words.shape for words in opened(program, np.zeros((0, 3), np.int64))] == [(0, 3)] * 4


def test_local_operations_are_linear() -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.integers(-(2**40), 2**40, (4, 3)) for _ in range(2))

    async def program(party, a, b):
        return [
            a + b, a - b, -a, a * 3, -2 * b, a * np.arange(3), a[1:, ::2], a.T, a.reshape(2, 6), a.sum(0), a.sum(),
            a[:1].broadcast_to((4, 3)), party.constant(np.full((4, 3), 7, np.uint64)) + a,
        ]  # fmt: skip

    expected = [
        x + y, x - y, -x, x * 3, -2 * y, x * np.arange(3), x[1:, ::2], x.T, x.reshape(2, 6), x.sum(0), x.sum(),
        np.broadcast_to(x[:1], (4, 3)), x + 7,
    ]  # fmt: skip
    for found, true in zip(opened(program, x, y), expected, strict=True):
        np.testing.assert_array_equal(found, true)


def test_shares_of_other_types_and_shapes_are_refused() -> None:
    words = np.zeros((2, 2), np.uint64)
    with pytest.raises(MalformedError, match="int64"):
        Share(words.view(np.int64), words)
    with pytest.raises(MalformedError, match="one shape"):
        Share(words, words[:1])
    with pytest.raises(MalformedError, match="encode"):
        words_of(0.5)  # type: ignore[arg-type]
    with pytest.raises(MalformedError, match="encode"):
        deal_shares(np.zeros(2))
    x = Share(words, words)
    for job in (
        lambda: Product(x, x[:1]),
        lambda: Product(x, Share(np.zeros((3, 3), np.uint64), np.zeros((3, 3), np.uint64)), "times"),
        lambda: Product(x, x, shift=62),
        lambda: Product(x, x, then="tanh"),  # type: ignore[arg-type]
        lambda: Product(x, x, "convolve"),  # type: ignore[arg-type]
        lambda: Product(x, x, gate=x[:1]),
        lambda: Product(x, x, add=x[:1]),
        lambda: Product(x, x, then="relu", gate=x),
        lambda: Curve(()),
        lambda: Curve((0, 1), (1,)),
        lambda: Clear(fraction=30),
    ):
        with pytest.raises(MalformedError):
            job()


@pytest.mark.parametrize(
    "parts",
    [
        (np.zeros(32, np.uint8), np.zeros(5, np.uint64)),  # shortened words
        (np.zeros(31, np.uint8), np.zeros(6, np.uint64)),  # a short seed
        (np.zeros(6, np.int64), np.zeros(6, np.uint64)),
        (np.zeros(6, np.uint32), np.zeros(6, np.uint64)),  # another ring
        (np.zeros((2, 3), np.uint64), np.zeros(6, np.uint64)),
    ],
)
def test_malformed_dealings_are_refused(parts: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.raises(MalformedError, match="dealt part"):
        Dealt.from_arrays(parts, (6,))
    with pytest.raises(MalformedError, match="expected two"):
        Dealt.from_arrays(parts[:1], (6,))


def test_a_dealing_travels_as_arrays() -> None:
    words = np.arange(6, dtype=np.uint64)
    zero, one, two = (Dealt.from_arrays(part.arrays(), (6,)).share() for part in deal_shares(words))
    np.testing.assert_array_equal(zero.mine + zero.next + one.next, words)
    np.testing.assert_array_equal(one.next, two.mine)
    np.testing.assert_array_equal(two.next, zero.mine)
    assert [part.nbytes for part in deal_shares(words)] == [64, 80, 80]


def test_the_exact_bounds_of_functions_are_told() -> None:
    x = Share(np.zeros((1, 65), np.uint64), np.zeros((1, 65), np.uint64))
    with pytest.raises(MalformedError, match="64 at most"):
        Clear().softmax(x).send(None)
    with pytest.raises(MalformedError, match="16 at most"):
        Clear(fraction=17).softmax(x[:, :3]).send(None)
    for least, most in ((0, 2), (2, 1), (0.1, 0.5), (1, 2.0**50), (2.0**-20, 2)):
        with pytest.raises(MalformedError, match="divisor"):
            Clear().divide(x, x, least=least, most=most).send(None)


def test_a_task_may_have_any_thresholds() -> None:
    y = np.array([-70000, -1, 0, 5, 70000])
    curve = Curve((-3, 0, 7), (2, -5, 1), (1, 10, 100), start=-4)

    async def program(party, x):
        return (await party.run_masked([Task(party.additive_summand(x), curve=curve)]))[0]

    value, gate = opened(program, y)
    np.testing.assert_array_equal(value, curve(y))
    np.testing.assert_array_equal(gate, (y >= -3) + 10 * (y >= 0) + 100 * (y >= 7))


def test_keys_serve_once() -> None:
    streams = fixed_streams(b"once")[0]
    first = streams.draw_words(0, (4,))
    assert (streams.draw_words(0, (4,)) != first).all()
    streams._drawn[0] = 0
    with pytest.raises(ReusedError):
        streams.draw_words(0, (4,))
    with pytest.raises(MalformedError, match="does not have key 2"):
        streams.draw_words(2, (1,))


@pytest.mark.parametrize("fraction", [12, 16, 24, 28])
def test_the_fits_are_as_near_as_they_say(fraction: int) -> None:
    line, upto16, upto64 = np.linspace(-20, 20, 40001), np.geomspace(1, 16, 9001), np.geomspace(1, 64, 9001)
    below = line[line <= 0]

    def error(curve: Curve, x: np.ndarray, true: np.ndarray, bits: int = fits.SLOPE_BITS) -> np.ndarray:
        return np.abs(curve(np.rint(x * 2.0**fraction).astype(np.int64)) / 2.0 ** (fraction + bits) - true)

    slack = 2.0 ** (2 - fraction)
    logistic = 1 / (1 + np.exp(-line))
    assert error(fits.sigmoid_curve(fraction), line, logistic).max() < 0.0027 + slack
    assert error(fits.sigmoid_curve(fraction), np.zeros(1), np.array(0.5)).max() < 1e-6 + slack
    assert error(fits.softplus_curve(fraction), line, np.logaddexp(0, line)).max() < 0.0009 + slack
    assert error(fits.exponential_curve(fraction), below, np.exp(below)).max() < 0.0024 + slack
    inverse = fits.reciprocal_curve(fraction, 64)
    assert (error(inverse, upto16, 1 / upto16, fits.INVERSE_BITS) * upto16).max() < 0.0031 + slack
    assert (error(inverse, upto64, 1 / upto64, fits.INVERSE_BITS) * upto64).max() < 0.0065 + 64 * slack
    assert error(fits.logarithm_curve(fraction, 64), upto64, np.log(upto64)).max() < 0.0011 + slack
    few = fits.reciprocal_curve(fraction, 3)
    assert len(few.thresholds) < 12
    near = upto16[upto16 <= 3]
    assert (error(few, near, 1 / near, fits.INVERSE_BITS) * near).max() < 0.0031 + slack
    for largest in (0, 65):
        with pytest.raises(MalformedError, match="1 to 64"):
            fits.logarithm_curve(fraction, largest)

"""Fixed point and products modulo 2^64 against Python's integers, and the errors of bad input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto import MalformedError
from securevfl_crypto.ring import FRACTION, check_words, decode_words, encode_words, matmul
from securevfl_crypto.ring.limbs import INNER, limb_product, word_product
from support.ring_paths import NAMES, built

WORDS = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**22 - 1, 2**44, 2**53, 2**63, 2**64 - 1]))
PRODUCTS = {"matmul": matmul, "limbs": limb_product, "words": word_product} | {
    f"{name} path": built(name).product for name in NAMES
}


def _matrices(draw: st.DrawFn, *shapes: tuple[int, int]) -> list[np.ndarray]:
    return [
        np.array(draw(st.lists(WORDS, min_size=m * n, max_size=m * n)), dtype=np.uint64).reshape(m, n)
        for m, n in shapes
    ]


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    m, k, n = (draw(st.integers(1, 6)) for _ in range(3))
    a, b = _matrices(draw, (m, k), (k, n))
    return a, b


@pytest.mark.parametrize("name", PRODUCTS)
@settings(deadline=None, max_examples=40)
@given(pair=_pairs())
def test_products_are_those_of_integers(name: str, pair: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = pair
    right = [[sum(int(x) * int(y) for x, y in zip(row, column, strict=True)) % 2**64 for column in b.T] for row in a]
    assert PRODUCTS[name](a, b).tolist() == right


@pytest.mark.parametrize("k", [1, 3, INNER - 1, INNER, INNER + 1, 2 * INNER + 5])
def test_the_worst_case_is_exact(k: int) -> None:
    """All limbs are all ones: a sum of 512 products fills 53 bits, and one more would not fit."""
    a = np.full((5, k), 2**64 - 1, dtype=np.uint64)
    b = np.full((k, 7), 2**64 - 1, dtype=np.uint64)
    for product in PRODUCTS.values():
        assert (product(a, b) == k).all()  # (−1)(−1) k
    ones = np.uint64(2**22 - 1)
    assert (limb_product(a & ones, b & ones) == (k * (2**22 - 1) ** 2) % 2**64).all()


def test_the_bound_of_the_limbs_is_tight() -> None:
    """One word more than `INNER` in one float64 sum goes wrong, so the test above would notice a larger piece."""
    assert INNER * (2**22 - 1) ** 2 < 2**53 < 4 * INNER * (2**22 - 1) ** 2
    a = np.full((1, 4 * INNER + 1), 2.0**22 - 1)
    assert int((a @ a.T)[0, 0]) != (4 * INNER + 1) * (2**22 - 1) ** 2


@pytest.mark.parametrize("shape", [(256, 32, 16), (33, 700, 9), (1, 4, 1), (4, 0, 3), (0, 5, 3), (3, 5, 0)])
def test_all_products_agree(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng(m)
    a, b = (rng.integers(0, 2**64, s, dtype=np.uint64) for s in ((m, k), (k, n)))
    right = word_product(a, b)
    assert right.shape == (m, n)
    assert (matmul(a, b) == right).all()
    assert (limb_product(a, b) == right).all()
    turned = np.ascontiguousarray(a.T).T  # another order in memory
    assert (matmul(turned, b[::1]) == right).all()


def test_stacks_are_products_one_by_one() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, 2**64, s, dtype=np.uint64) for s in ((3, 4, 5), (3, 5, 2)))
    assert (matmul(a, b) == a @ b).all()
    assert (matmul(a, b[0]) == a @ b[0]).all()
    assert (matmul(a[0], b) == a[0] @ b).all()
    assert matmul(a[:0], b[0]).shape == (0, 4, 2)


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (np.zeros((2, 3)), np.zeros((3, 2), np.uint64), "float64"),
        (np.zeros((2, 3), np.uint64), np.zeros((3, 2), np.int64), "int64"),
        ([[1]], np.zeros((1, 2), np.uint64), "list"),
        (np.zeros(3, np.uint64), np.zeros((3, 2), np.uint64), "a matrix"),
        (np.zeros((2, 3), np.uint64), np.zeros((2, 3), np.uint64), "do not match"),
        (np.zeros((2, 2, 3), np.uint64), np.zeros((3, 3, 2), np.uint64), "do not match"),
    ],
)
def test_bad_factors_are_refused(a: np.ndarray, b: np.ndarray, said: str) -> None:
    with pytest.raises(MalformedError, match=said):
        matmul(a, b)


@settings(deadline=None)
@given(st.lists(st.floats(-1e9, 1e9), max_size=8), st.integers(0, 30))
def test_numbers_come_back_within_half_a_unit(values: list[float], bits: int) -> None:
    array = np.array(values)
    words = encode_words(array, bits)
    assert words.dtype == np.uint64
    assert [int(w) for w in words] == [round(v * 2**bits) % 2**64 for v in values]  # Python rounds ties to even, too
    assert (np.abs(decode_words(words, bits) - array) <= 2.0 ** -(bits + 1) + 1e-7).all()


def test_sums_and_shapes() -> None:
    x, y = np.array([[1.5], [-2.25]]), np.array([[-3.0], [0.125]])
    assert (decode_words(encode_words(x) + encode_words(y)) == x + y).all()
    assert (decode_words(matmul(encode_words(x), encode_words(y[:1])), 2 * FRACTION) == x @ y[:1]).all()
    assert encode_words(np.array(1.0)).shape == ()
    assert encode_words(np.array([True]).astype(int)).tolist() == [1 << FRACTION]
    assert encode_words(x.T).flags.c_contiguous
    assert encode_words(np.empty((0, 3))).shape == (0, 3)


def test_integers_stay_exact() -> None:
    values = np.array([2**61 + 1, -(2**61) - 1, 2**53 + 1, 0])
    assert encode_words(values, 0).view(np.int64).tolist() == values.tolist()
    assert encode_words(np.array([3, -4], dtype=np.int8)).view(np.int64).tolist() == [3 << 16, -4 << 16]
    assert encode_words(np.array([7], dtype=np.uint64), 2).tolist() == [28]
    for value in (2**62, 2**63 + 5):
        with pytest.raises(MalformedError, match=f"a value is {value}"):
            encode_words(np.array([value], dtype=np.uint64), 0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 2.0**46, -(2.0**46)])
def test_values_out_of_range_are_named(value: float) -> None:
    with pytest.raises(MalformedError, match=f"a value is {value}"):
        encode_words(np.array([0.0, value]))


def test_bad_encodings_are_refused() -> None:
    with pytest.raises(MalformedError, match=r"a value is 3\.0.*from -2 to 2"):
        encode_words(np.array([3.0]), bound=2.0)
    assert encode_words(np.array([2.0, -2.0]), bound=2.0).tolist() == [2 << FRACTION, 2**64 - (2 << FRACTION)]
    for bound in (0.0, -1.0, 2.0**47, float("nan")):
        with pytest.raises(MalformedError, match="a bound of"):
            encode_words(np.array([0.0]), bound=bound)
    for bits in (-1, 63, True, 1.5):
        with pytest.raises(MalformedError, match="fractional bits"):
            encode_words(np.array([0.0]), bits)  # type: ignore[arg-type]
    for array in (np.array(["a"]), np.array([1j]), np.array([object()])):
        with pytest.raises(MalformedError, match="real numbers"):
            encode_words(array)
    with pytest.raises(MalformedError, match="float64"):
        decode_words(np.zeros(3))
    with pytest.raises(MalformedError, match=r"\(3,\); \(4,\) was expected"):
        check_words(np.zeros(3, np.uint64), shape=(4,))

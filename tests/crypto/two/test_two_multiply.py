"""Products of shared bits and words between two parties, against Python's integers, with their counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.two import multiply as module
from securevfl_crypto.two.multiply import bits_to_words, product, select, signed, times_private

from tests.crypto.two.parties import Pair, share_bits, share_words

ANY = st.integers(0, 2**64 - 1)
SIGNED = st.integers(-(2**31), 2**31 - 1)
CASES = settings(max_examples=25, deadline=None)
U64 = np.uint64


def words(values: list[int]) -> np.ndarray:
    return np.array([value % 2**64 for value in values], dtype=U64)


def opened(found: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    assert found[0].dtype == found[1].dtype == U64
    return np.asarray(found[0] + found[1])


def check_counts(pair: Pair, from_zero: int, from_one: int, depth: int) -> None:
    """Transfers that each party gives, and the depth of messages."""
    zero, one = pair.transfers
    assert (zero.given, one.chosen) == (from_zero,) * 2
    assert (one.given, zero.chosen) == (from_one,) * 2
    assert pair.wires.depth == depth
    assert set(pair.wires.messages) <= {"transfers: choices", "multiply: corrections"}


@given(st.lists(st.integers(0, 1), min_size=1, max_size=40))
@CASES
def test_bits_become_words(bits: list[int]) -> None:
    pair = Pair(200)
    first, second = share_bits(np.array(bits, dtype=np.uint8))
    assert opened(pair.run(bits_to_words, (first,), (second,))).tolist() == bits
    check_counts(pair, len(bits), 0, 2)
    assert pair.wires.octets["multiply: corrections"] == 8 * len(bits)


@given(st.lists(st.tuples(st.integers(0, 1), ANY, ANY), min_size=1, max_size=30))
@CASES
def test_bits_times_factors_of_party_0(cases: list[tuple[int, int, int]]) -> None:
    pair = Pair(200)
    first, second = share_bits(np.array([case[0] for case in cases], dtype=np.uint8))
    factors = np.stack([words([case[1] for case in cases]), words([case[2] for case in cases])], axis=1)

    async def both(wire: Any, transfers: Any, bits: np.ndarray) -> np.ndarray:
        if wire.me == 0:
            return await bits_to_words(wire, transfers, bits, factors)
        return await bits_to_words(wire, transfers, bits, width=2)

    found = opened(pair.run(both, (first,), (second,)))
    assert found.tolist() == [[bit * f, bit * g] for bit, f, g in cases]
    check_counts(pair, len(cases), 0, 2)


@given(st.lists(st.tuples(ANY, st.sampled_from([-1, 1])), min_size=1, max_size=40))
@CASES
def test_signs_of_party_0(cases: list[tuple[int, int]]) -> None:
    pair = Pair(200)
    first, second = share_words(words([value for value, _ in cases]))
    signs = np.array([sign for _, sign in cases], dtype=np.int8)
    found = opened(pair.run(signed, (first, signs), (second, None)))
    assert found.tolist() == [value * sign % 2**64 for value, sign in cases]
    check_counts(pair, 0, len(cases), 2)
    assert pair.wires.octets["multiply: corrections"] == 8 * len(cases)


@given(st.lists(st.tuples(st.integers(0, 1), ANY), min_size=1, max_size=40))
@CASES
def test_bits_select_words(cases: list[tuple[int, int]]) -> None:
    pair = Pair(200)
    bits = share_bits(np.array([bit for bit, _ in cases], dtype=np.uint8))
    values = share_words(words([value for _, value in cases]))
    found = opened(pair.run(select, (bits[0], values[0]), (bits[1], values[1])))
    assert found.tolist() == [bit * value for bit, value in cases]
    check_counts(pair, len(cases), len(cases), 2)
    assert pair.wires.octets["multiply: corrections"] == 16 * len(cases)


@given(st.data(), st.integers(1, 64))
@CASES
def test_factors_of_party_0(data: Any, bits: int) -> None:
    factor = st.one_of(st.sampled_from([0, 1, 2**bits - 1]), st.integers(0, 2**bits - 1))
    cases = data.draw(st.lists(st.tuples(factor, ANY, ANY), min_size=1, max_size=12))
    pair = Pair(12 * 64)
    values = np.stack([words([case[1] for case in cases]), words([case[2] for case in cases])], axis=1)
    first, second = share_words(values)
    factors = words([case[0] for case in cases])
    found = opened(pair.run(times_private, (first, factors, bits), (second, None, bits)))
    assert found.tolist() == [[f * v % 2**64, f * w % 2**64] for f, v, w in cases]
    check_counts(pair, 0, bits * len(cases), 2)


def test_factors_of_a_vector() -> None:
    pair = Pair(200)
    first, second = share_words(np.array([5, -6, 7]))
    factors = words([3, 2, 1])
    found = opened(pair.run(times_private, (first, factors, 2), (second, None, 2)))
    assert found.view(np.int64).tolist() == [15, -12, 7]


@given(st.lists(st.tuples(SIGNED, SIGNED), min_size=1, max_size=6))
@CASES
def test_products_of_shared_numbers(cases: list[tuple[int, int]]) -> None:
    pair = Pair(64 * 6)
    a, b = (share_words(np.array([case[which] for case in cases], dtype=np.int64)) for which in (0, 1))
    found = opened(pair.run(product, (a[0], b[0], 32), (a[1], b[1], 32)))
    assert found.view(np.int64).tolist() == [x * y for x, y in cases]
    check_counts(pair, 64 * len(cases), 64 * len(cases), 2)


@given(st.tuples(ANY, ANY))
@CASES
def test_products_are_exact_modulo_2_to_64(case: tuple[int, int]) -> None:
    pair = Pair(64)
    a, b = share_words(words([case[0]])), share_words(words([case[1]]))
    found = opened(pair.run(product, (a[0], b[0]), (a[1], b[1])))
    assert found.tolist() == [case[0] * case[1] % 2**64]


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    values = np.asarray(rng.integers(-(2**40), 2**40, shape))
    bits = np.asarray(rng.integers(0, 2, shape)).astype(np.uint8)
    signs = np.asarray(1 - 2 * bits.astype(np.int64))
    pair = Pair(64 * 6 + 100)
    v, b = share_words(values), share_bits(bits)
    assert np.array_equal(opened(pair.run(bits_to_words, (b[0],), (b[1],))), bits.astype(U64))
    assert np.array_equal(opened(pair.run(select, (b[0], v[0]), (b[1], v[1]))).view(np.int64), values * bits)
    assert np.array_equal(opened(pair.run(signed, (v[0], signs), (v[1], None))).view(np.int64), values * signs)
    squares = opened(pair.run(product, (v[0], v[0], 32), (v[1], v[1], 32)))
    assert np.array_equal(squares, values.view(U64) * values.view(U64))


def test_many_values_go_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PIECE", 130)
    values = np.arange(-5, 6)
    pair = Pair(64 * 11 * 2)
    first, second = share_words(values)
    found = pair.run(product, (first, first), (second, second))
    assert opened(found).view(np.int64).tolist() == (values * values).tolist()
    assert len(pair.messages("multiply: corrections", 0)) == 6
    factors = np.arange(11, dtype=U64)
    found = pair.run(times_private, (first, factors, 60), (second, None, 60))
    assert opened(found).view(np.int64).tolist() == (values * np.arange(11)).tolist()


_WORDS, _BITS, _SIGNS = np.zeros(3, U64), np.zeros(3, np.uint8), np.ones(3, np.int8)


@pytest.mark.parametrize(
    ("function", "arguments", "match"),
    [
        (bits_to_words, (_WORDS,), "uint8"),
        (bits_to_words, (_BITS + np.uint8(2),), "contain 2"),
        (bits_to_words, (_BITS, np.zeros((2, 1), U64)), r"\(3, f\)"),
        (bits_to_words, (_BITS, np.zeros(3, U64)), r"\(3, f\)"),
        (bits_to_words, (_BITS, np.zeros((3, 0), U64)), "at least 1"),
        (bits_to_words, (_BITS, np.zeros((3, 1), np.int64)), "uint64"),
        (bits_to_words, (_BITS[None], np.zeros((1, 3), U64)), r"\(n,\)"),
        (signed, (_WORDS.view(np.int64), _SIGNS), "uint64"),
        (signed, (_WORDS, None), "signs"),
        (signed, (_WORDS, _SIGNS * 2), "neither"),
        (signed, (_WORDS, _SIGNS - 1), "neither"),
        (signed, (_WORDS, _SIGNS[:2]), "signs"),
        (signed, (_WORDS, _SIGNS.astype(float)), "signs"),
        (select, (_BITS, np.zeros(4, U64)), r"\(4,\); \(3,\)"),
        (select, (_WORDS, _WORDS), "uint8"),
        (times_private, (_WORDS, None, 8), "factors"),
        (times_private, (_WORDS, _WORDS + U64(256), 8), "more than 8 bits"),
        (times_private, (_WORDS, _WORDS[:2], 8), r"\(2,\)"),
        (times_private, (_WORDS, _WORDS, 0), "1 to 64"),
        (times_private, (_WORDS, _WORDS, 65), "1 to 64"),
        (times_private, (_WORDS.reshape(1, 1, 3), _WORDS[:1], 8), r"\(n, f\)"),
        (product, (_WORDS, _WORDS[:2]), "second values"),
        (product, (_WORDS, _WORDS, 65), "1 to 64"),
        (product, (_BITS, _BITS), "uint64"),
    ],
)
def test_other_arguments_are_refused(function: Any, arguments: tuple[Any, ...], match: str) -> None:
    pair = Pair(10)
    with pytest.raises(MalformedError, match=match):
        function(pair.ends[0], pair.transfers[0], *arguments).send(None)
    assert not pair.wires.messages


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (bits_to_words, (_BITS, np.zeros((3, 1), U64))),
        (signed, (_WORDS, _SIGNS)),
        (times_private, (_WORDS, _WORDS, 8)),
    ],
)
def test_what_party_0_alone_knows_is_refused_at_party_1(function: Any, arguments: tuple[Any, ...]) -> None:
    pair = Pair(10)
    with pytest.raises(MalformedError, match="party 1"):
        function(pair.ends[1], pair.transfers[1], *arguments).send(None)


def test_an_error_does_not_show_the_factor() -> None:
    pair = Pair(10)
    with pytest.raises(MalformedError) as caught:
        times_private(pair.ends[0], pair.transfers[0], _WORDS, _WORDS + U64(98765), 8).send(None)
    assert "98765" not in str(caught.value)


def test_corrections_of_another_shape_are_refused() -> None:
    pair = Pair(200)
    real = pair.ends[0].send

    async def changed(name: str, arrays: list[np.ndarray]) -> None:
        await real(name, [array[1:] for array in arrays] if name == "multiply: corrections" else arrays)

    pair.ends[0].send = changed  # type: ignore[method-assign, assignment]
    first, second = share_bits(np.ones(5, np.uint8))
    with pytest.raises(MalformedError, match="expected"):
        pair.run(bits_to_words, (first,), (second,))

"""Conjunctions and comparisons between two parties, against Python's integers, with their counts of everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.two import bits as module
from securevfl_crypto.two.bits import and_bits, compare, find_above

from tests.crypto.two.parties import Pair, share_bits, share_words

EXTENDED: dict[str, Pair] = {}


def extended() -> Pair:
    """One pair over extended transfers for all tests: its set-up takes a tenth of a second."""
    pair = EXTENDED.setdefault("pair", Pair(None))
    pair.clear()
    return pair


def opened(found: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    assert found[0].dtype == found[1].dtype == np.uint8
    assert max(found[0].max(initial=0), found[1].max(initial=0)) <= 1
    return np.asarray(found[0] ^ found[1])


def masked(values: list[int], bits: int) -> np.ndarray:
    """The values as words modulo 2^bits, with garbage above that the protocol may not look at."""
    junk = [(value % (1 << bits)) | (0x5DEECE66D1234567 << bits) % (1 << 64) for value in values]
    return np.array(junk, dtype=np.uint64)


@given(st.data(), st.integers(8, 64))
@settings(max_examples=60, deadline=None)
def test_comparisons_are_those_of_pythons_integers(data: Any, bits: int) -> None:
    half = 1 << bits - 1
    edge = st.sampled_from([-half, -half + 1, -2, -1, 0, 1, 2, half - 2, half - 1])
    values = data.draw(st.lists(st.one_of(edge, st.integers(-half, half - 1)), min_size=0, max_size=40))
    first, second = share_words(masked(values, bits))
    shares = data.draw(st.sampled_from(["random", "zero", "one", "top"]))
    if shares != "random":  # summands at the edges: no carry, a carry through all bits
        first = np.full(len(values), {"zero": 0, "one": 1, "top": half - 1}[shares], dtype=np.uint64)
        second = masked(values, bits) - first
    found = extended().run(compare, (first, bits), (second, bits))
    assert opened(found).tolist() == [int(value >= 0) for value in values]


@given(st.data(), st.integers(8, 64))
@settings(max_examples=40, deadline=None)
def test_edges_are_those_of_pythons_integers(data: Any, bits: int) -> None:
    quarter = 1 << bits - 2  # value − edge − 1 has to fit
    number = st.integers(-quarter, quarter - 1)
    values = data.draw(st.lists(number, min_size=1, max_size=30))
    edges = data.draw(st.lists(st.one_of(st.sampled_from(values), number), min_size=0, max_size=6))
    first, second = share_words(masked(values, bits))
    found = extended().run(find_above, (first, edges, bits), (second, edges, bits))
    assert opened(found).tolist() == [[int(value > edge) for value in values] for edge in edges]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=50))
@settings(max_examples=25, deadline=None)
def test_conjunctions(pairs: list[tuple[int, int]]) -> None:
    x, y = (np.array([pair[which] for pair in pairs], dtype=np.uint8) for which in (0, 1))
    (x0, x1), (y0, y1) = share_bits(x), share_bits(y)
    pair = extended()
    assert np.array_equal(opened(pair.run(and_bits, (x0, y0), (x1, y1))), x & y)
    for transfers in pair.transfers:
        assert (transfers.given, transfers.chosen) == (len(pairs), len(pairs))
    assert pair.wires.depth == (2 if pairs else 0)
    assert sum(pair.wires.messages.values()) == (4 if pairs else 0)


@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (2, 0, 3)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).integers(-100, 100, shape, dtype=np.int64)
    values = np.asarray(values)
    pair = Pair()
    first, second = share_words(values)
    assert np.array_equal(opened(pair.run(compare, (first, 9), (second, 9))), values >= 0)
    edges = [-7, 3]
    found = opened(pair.run(find_above, (first, edges, 9), (second, edges, 9)))
    assert np.array_equal(found, np.stack([values > edge for edge in edges]))
    left, right = share_bits(values >= 0), share_bits(values < 50)
    both = opened(pair.run(and_bits, (left[0], right[0]), (left[1], right[1])))
    assert np.array_equal(both, (values >= 0) & (values < 50))


@pytest.mark.parametrize(
    ("bits", "low", "digits", "depth", "octets"),
    [(8, 7, 2, 3, 6), (11, 10, 2, 3, 16), (17, 16, 4, 4, 16), (24, 23, 5, 5, 32), (64, 63, 13, 6, 96)],
)
def test_counts_of_a_comparison(bits: int, low: int, digits: int, depth: int, octets: int) -> None:
    """Transfers, depth, messages, and bytes of tables: two bits for each value of a digit."""
    count = 16
    first, second = share_words(np.arange(-8, 8))
    pair = Pair()
    pair.run(compare, (first, bits), (second, bits))
    zero, one = pair.transfers
    assert (zero.chosen, one.given) == ((digits - 1) * count,) * 2
    assert (zero.given, one.chosen) == ((low + digits - 1) * count,) * 2
    assert pair.wires.depth == depth == 2 + (digits - 1).bit_length()
    assert pair.wires.messages == {"transfers: choices": 2, "bits: tables": 1, "bits: openings": 2 * (depth - 2)}
    assert pair.wires.octets["bits: tables"] == count * octets


def test_digits_have_three_to_five_bits() -> None:
    for low in range(7, 64):
        widths = module._cut_digits(low)
        assert sum(widths) == low
        assert set(widths) <= {3, 4, 5}
        assert len(widths) == -(-low // 5)


def test_edges_share_the_transfers_of_the_digits() -> None:
    count, edges = 40, [-5, 0, 5, 6]
    first, second = share_words(np.arange(-20, 20))
    pair = Pair()
    pair.run(find_above, (first, edges, 17), (second, edges, 17))
    zero, one = pair.transfers
    assert zero.given == one.chosen == count * (16 + 3 * len(edges))
    assert zero.chosen == one.given == count * 3 * len(edges)
    assert pair.wires.depth == 4


def test_many_values_go_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PIECE", 16)
    values = np.arange(-25, 25)
    first, second = share_words(values)
    pair = Pair()
    found = pair.run(find_above, (first, [-3, 3, 9], 8), (second, [-3, 3, 9], 8))
    assert np.array_equal(opened(found), np.stack([values > edge for edge in (-3, 3, 9)]))
    assert len(pair.messages("bits: tables")) == 10


def test_the_callers_arrays_stay_as_they_are() -> None:
    pair = Pair()
    first, second = share_words(np.arange(-8, 8))
    before = first.copy(), second.copy()
    pair.run(compare, (first, 8), (second, 8))
    assert np.array_equal(first, before[0])
    assert np.array_equal(second, before[1])


def _words(kind: Any = np.uint64) -> np.ndarray:
    return np.zeros(3, dtype=kind)


@pytest.mark.parametrize(
    ("function", "arguments", "match"),
    [
        (compare, (_words(np.int64), 9), "uint64 was expected"),
        (compare, ([1], 9), "uint64 was expected"),
        (compare, (_words(), 7), "8 to 64"),
        (compare, (_words(), 65), "8 to 64"),
        (compare, (_words(), True), "8 to 64"),
        (compare, (_words(), 9.0), "8 to 64"),
        (find_above, (_words(), [255 + 1], 9), "edges lie within"),
        (find_above, (_words(), [-258], 9), "edges lie within"),
        (and_bits, (_words(), _words()), "zeros and ones, uint8"),
        (and_bits, (_words(bool), _words(bool)), "zeros and ones, uint8"),
        (and_bits, (np.full(3, 2, np.uint8), _words(np.uint8)), "contain 2"),
        (and_bits, (_words(np.uint8), np.full(3, 255, np.uint8)), "contain 255"),
        (and_bits, (_words(np.uint8), np.zeros(4, np.uint8)), r"\(4,\); \(3,\)"),
    ],
)
def test_other_arguments_are_refused(function: Any, arguments: tuple[Any, ...], match: str) -> None:
    pair = Pair(10)
    with pytest.raises(MalformedError, match=match):
        pair.run(function, arguments, arguments)
    assert not pair.wires.messages


def test_parties_that_compare_other_numbers_of_values_are_told() -> None:
    pair = Pair()
    with pytest.raises(MalformedError, match="expected"):
        pair.run(compare, (np.zeros(30, np.uint64), 9), (np.zeros(40, np.uint64), 9))


@pytest.mark.parametrize("label", ["bits: tables", "bits: openings"])
def test_messages_of_other_types_are_refused(label: str) -> None:
    pair = Pair()
    real = pair.ends[0].send

    async def changed(name: str, arrays: list[np.ndarray]) -> None:
        await real(name, [array[..., 1:] for array in arrays] if name == label else arrays)

    pair.ends[0].send = changed  # type: ignore[method-assign, assignment]
    first, second = share_words(np.arange(-8, 8))
    with pytest.raises(MalformedError, match="expected"):
        pair.run(compare, (first, 17), (second, 17))

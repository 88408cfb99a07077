"""Transfers between two parties from both sources: pads, counts of messages and bytes, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.errors import CryptoError, MalformedError, ReusedError
from securevfl_crypto.two import transfers as module
from securevfl_crypto.two.transfers import (
    DealtTransfers,
    ExtendedTransfers,
    Transfers,
    choose_and_give,
    deal_transfers,
    random_bits,
)
from securevfl_crypto.two.wire import MemoryWires, TwoWire

from tests.crypto.two.parties import Pair, bit_mean

SOURCES = pytest.mark.parametrize("dealt", [None, 20_000], ids=["extended", "dealt"])


async def _one_way(wire: TwoWire, transfers: Transfers, chooser: int, choices: np.ndarray, words: int) -> Any:
    if wire.me == chooser:
        return (await transfers.choose(choices, words),)
    return await transfers.give(len(choices), words)


async def _both_ways(
    wire: TwoWire, transfers: Transfers, choices: np.ndarray, count: int, words: int
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    return await choose_and_give(transfers, choices, count, words)


def check(choices: np.ndarray, chosen: np.ndarray, zeros: np.ndarray, ones: np.ndarray) -> None:
    assert np.array_equal(chosen, np.where(choices[:, None] == 1, ones, zeros))
    assert chosen.dtype == zeros.dtype == ones.dtype == np.uint64
    assert (zeros != ones).all()


@SOURCES
@pytest.mark.parametrize("chooser", [0, 1])
@pytest.mark.parametrize("words", [1, 2, 3, 6])
def test_choosers_get_the_pads_of_their_choices(dealt: int | None, chooser: int, words: int) -> None:
    pair = Pair(dealt)
    seen = set()
    for count in (1, 8, 9, 300):
        choices = random_bits(count)
        found: Any = pair.run(_one_way, (chooser, choices, words), (chooser, choices, words))
        (chosen,), (zeros, ones) = found[chooser], found[1 - chooser]
        assert chosen.shape == zeros.shape == (count, words)
        check(choices, chosen, zeros, ones)
        seen |= {*zeros.ravel().tolist(), *ones.ravel().tolist()}
    assert len(seen) == 2 * 318 * words  # also over calls: no pad serves twice


@SOURCES
def test_both_directions_take_one_exchange(dealt: int | None) -> None:
    pair = Pair(dealt)
    choices = random_bits(500), random_bits(700)
    found = pair.run(_both_ways, (choices[0], 700, 2), (choices[1], 500, 2))
    for me in (0, 1):
        check(choices[me], found[me][0], *found[1 - me][1])
    assert pair.wires.depth == 1
    assert sum(pair.wires.messages.values()) == 2
    if dealt is None:
        assert sum(pair.wires.octets.values()) == sum(16 * size + 129 * 16 for size in (512 + 128, 768 + 128))
    else:
        assert sum(pair.wires.octets.values()) == 63 + 88


@SOURCES
def test_no_transfers_take_no_message(dealt: int | None) -> None:
    pair = Pair(dealt)
    found = pair.run(_both_ways, (random_bits(0), 0, 3), (random_bits(0), 0, 3))
    assert found[0][0].shape == found[0][1][0].shape == (0, 3)
    assert not pair.wires.messages


def test_more_than_a_batch_goes_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(None)
    monkeypatch.setattr(module, "MOST", 256)
    choices = random_bits(600)
    found: Any = pair.run(_one_way, (0, choices, 2), (0, choices, 2))
    (chosen,), (zeros, ones) = found
    check(choices, chosen, zeros, ones)
    assert sum(pair.wires.messages.values()) == 1
    assert len(pair.messages("transfers: columns")[0]) == 6


def test_set_up_takes_two_exchanges() -> None:
    wires = MemoryWires()
    ends = [ExtendedTransfers(end) for end in wires.pair()]
    wires.run(ends[0].setup(), ends[1].setup())
    assert wires.depth == 2
    assert wires.octets == {"transfers: set-up": 2 * (32 + 4096)}
    with pytest.raises(ReusedError, match="set up"):
        wires.run(ends[0].setup(), ends[1].setup())


def test_a_peer_that_sends_everything_back_gets_nothing() -> None:
    """The base transfers of both directions differ by a tag."""
    wires = MemoryWires()
    zero, one = wires.pair()
    honest = ExtendedTransfers(zero)

    async def mirror() -> None:
        for size in (32, 4096):
            arrays = await one.receive("transfers: set-up", [(np.uint8, (size,))])
            await one.send("transfers: set-up", arrays)

    wires.run(honest.setup(), mirror())

    async def program() -> None:
        await honest.choose(random_bits(10))
        await honest.give(10)

    async def reflect() -> None:
        arrays = await one.receive("transfers: columns", [(np.uint8, (128, 32)), (np.uint8, (129, 16))])
        await one.send("transfers: columns", arrays)

    with pytest.raises(MalformedError, match="differ between columns"):
        wires.run(program(), reflect())


def test_a_deviating_chooser_ends_the_run() -> None:
    pair = Pair(None)
    real = pair.ends[0].send

    async def changed(label: str, arrays: list[np.ndarray]) -> None:
        arrays[0][:, 3] ^= np.arange(128, dtype=np.uint8)
        await real(label, arrays)

    pair.ends[0].send = changed  # type: ignore[method-assign, assignment]
    choices = random_bits(100)
    with pytest.raises(MalformedError, match="differ between columns"):
        pair.run(_one_way, (0, choices, 1), (0, choices, 1))


def test_transfers_wait_for_their_set_up() -> None:
    zero, _ = MemoryWires().pair()
    ends = ExtendedTransfers(zero)
    for call in (ends.give(3), ends.choose(random_bits(3))):
        with pytest.raises(ReusedError, match="not set up"):
            call.send(None)


# Dealt ones


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 4)), max_size=6))
def test_dealt_transfers_are_used_in_order_and_wiped(calls: list[tuple[int, int]]) -> None:
    wires = MemoryWires()
    ends = [DealtTransfers(end) for end in wires.pair()]
    for size in (150, 250):  # in two lots
        given_pads, chosen_pads = deal_transfers(size)
        ends[0].add_given(*given_pads)
        ends[1].add_chosen(*chosen_pads)
    left = 400
    for count, words in calls:
        choices = random_bits(count)
        (zeros, ones), chosen = wires.run(ends[0].give(count, words), ends[1].choose(choices, words))
        check(choices, chosen, zeros, ones)
        left -= count
        assert ends[0].left == (left, 0)
        assert ends[1].left == (0, left)
    for array in (*ends[0]._given._arrays, *ends[1]._chosen._arrays, *ends[1]._random._arrays):
        assert not array[: 400 - left].any()
    with pytest.raises(CryptoError, match="have more dealt"):
        wires.run(ends[0].give(left + 1), ends[1].choose(random_bits(left + 1)))


def test_what_a_chooser_of_dealt_transfers_sends_is_uniform() -> None:
    """Also if all choices are equal."""
    for choice in (0, 1):
        pair = Pair(20_000)
        choices = np.full(20_000, choice, np.uint8)
        pair.run(_one_way, (0, choices, 1), (0, choices, 1))
        ((packed,),) = pair.messages("transfers: choices")
        assert bit_mean(packed, 20_000) < 6


def test_dealt_pads_are_what_the_dealer_said_and_both_parties_have_their_part() -> None:
    (zeros, ones), (choices, chosen) = deal_transfers(4000, 1)
    check(choices, chosen, zeros, ones)
    assert bit_mean(np.packbits(choices, bitorder="little"), 4000) < 6
    assert len(np.unique(np.concatenate([zeros, ones]))) == 8000


def test_expanded_pads_depend_on_the_number_of_the_transfer() -> None:
    """Also over calls and lots: equal keys would have equal pads otherwise."""
    wires = MemoryWires()
    ends = [DealtTransfers(end) for end in wires.pair()]
    equal = np.full((10, 2), 7, dtype=np.uint64)
    seen: set[int] = set()
    for count in (4, 6, 10):
        if not ends[0].left[0]:
            ends[0].add_given(equal, equal + np.uint64(1))
            ends[1].add_chosen(np.zeros(10, np.uint8), equal)
        (zeros, ones), chosen = wires.run(ends[0].give(count, 3), ends[1].choose(np.zeros(count, np.uint8), 3))
        assert np.array_equal(chosen, zeros)
        seen |= {*zeros.ravel().tolist(), *ones.ravel().tolist()}
    assert len(seen) == 2 * 20 * 3


@pytest.mark.parametrize(
    ("zeros", "ones"),
    [
        (np.zeros((3, 2), np.uint64), np.zeros((4, 2), np.uint64)),
        (np.zeros((3, 1), np.uint64), np.zeros((3, 1), np.uint64)),
        (np.zeros((3, 2), np.int64), np.zeros((3, 2), np.int64)),
        (np.zeros(3, np.uint64), np.zeros(3, np.uint64)),
        ([1], [2]),
    ],
)
def test_dealt_arrays_of_other_shapes_are_refused(zeros: np.ndarray, ones: np.ndarray) -> None:
    end = DealtTransfers(MemoryWires().pair()[0])
    with pytest.raises(MalformedError, match="dealt pads"):
        end.add_given(zeros, ones)
    assert end.left == (0, 0)


def test_dealt_choices_of_other_kinds_are_refused() -> None:
    end = DealtTransfers(MemoryWires().pair()[0])
    pads = np.zeros((3, 2), np.uint64)
    for choices in (np.zeros(2, np.uint8), np.full(3, 2, np.uint8), np.zeros(3, np.int64)):
        with pytest.raises(MalformedError):
            end.add_chosen(choices, pads)
    with pytest.raises(MalformedError, match="dealt pads"):
        end.add_chosen(np.zeros(3, np.uint8), pads[:, :1])
    assert end.left == (0, 0)


def test_pads_of_one_word_are_not_expanded() -> None:
    pair = Pair(10, words=1)
    with pytest.raises(MalformedError, match="at least 2 words"):
        pair.run(_one_way, (0, random_bits(3), 2), (0, random_bits(3), 2))


@SOURCES
def test_ends_cannot_be_copied(dealt: int | None) -> None:
    for end in Pair(dealt).transfers:
        for copied in (copy.copy, copy.deepcopy):
            with pytest.raises(ReusedError, match="cannot be copied"):
                copied(end.source)


def test_dealt_transfers_refuse_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    end = DealtTransfers(MemoryWires().pair()[0])
    given_pads, chosen_pads = deal_transfers(5)
    end.add_given(*given_pads)
    end.add_chosen(*chosen_pads)
    monkeypatch.setattr("securevfl_crypto.transfer.unique._forks", 1)
    for call in (end.give(3), end.choose(random_bits(3))):
        with pytest.raises(ReusedError, match="copied by a fork"):
            call.send(None)


@SOURCES
@pytest.mark.parametrize("choices", [np.full(3, 2, np.uint8), np.zeros((2, 2), np.uint8), np.zeros(3, bool)])
def test_choices_that_are_none(dealt: int | None, choices: np.ndarray) -> None:
    pair = Pair(dealt)
    with pytest.raises(MalformedError, match="choice"):
        pair.transfers[0].source.choose(choices).send(None)

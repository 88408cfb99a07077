"""Every message between two parties is uniform for its receiver, also once it removes what it knows of the masks.

Shares are constant here, so nothing but the protocols' own randomness can hide them. Each place is counted by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from securevfl_crypto.two.bits import and_bits, compare, find_above
from securevfl_crypto.two.multiply import bits_to_words, product, select, signed, times_private

from tests.crypto.two.parties import Pair, bit_mean, deviation

N = 3000
LIMIT = 6.0  # standard deviations, of some hundreds of counts in all
U64 = np.uint64
WORDS = {"zero": 0, "one": 1, "minus one": 2**64 - 1, "large": 2**62 + 12345}
PAIRS = pytest.mark.parametrize("secret", WORDS, ids=str)


def words(value: int, shape: tuple[int, ...] = (N,)) -> np.ndarray:
    return np.full(shape, value, dtype=U64)


def check_bits_of(planes: np.ndarray) -> None:
    """Each row of zeros and ones has as many of both."""
    for plane in np.atleast_2d(planes):
        assert bit_mean(np.packbits(plane, bitorder="little"), plane.size) < LIMIT


def check_unrelated(planes: list[np.ndarray]) -> None:
    """Each is uniform, and so is the difference of any two: no mask serves twice."""
    for number, plane in enumerate(planes):
        check_bits_of(plane)
        for other in planes[:number]:
            check_bits_of(plane ^ other)


def check_octets(view: np.ndarray) -> None:
    """Each octet of the words is uniform over the rows."""
    for place in np.ascontiguousarray(view).view(np.uint8).reshape(len(view), -1).T:
        assert deviation(place) < LIMIT + 2  # χ² has a longer tail


def unpack(packed: np.ndarray, count: int) -> np.ndarray:
    return np.unpackbits(packed, count=count, bitorder="little")


# Bits


@pytest.mark.parametrize("x", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("y", [(0, 0), (1, 0), (1, 1)])
def test_conjunctions(x: tuple[int, int], y: tuple[int, int]) -> None:
    pair = Pair(N)
    mine = [(np.full(N, x[me], np.uint8), np.full(N, y[me], np.uint8)) for me in (0, 1)]
    found = pair.run(and_bits, mine[0], mine[1])
    for receiver in (0, 1):
        ((packed,),) = pair.messages("transfers: choices", 1 - receiver)
        check_bits_of(unpack(packed, N))
        ((packed,),) = pair.messages("bits: conjunctions", 1 - receiver)
        sent = unpack(packed, N)
        ((_, pads),) = pair.transfers[receiver].last_chosen
        check_bits_of(np.stack([sent, sent ^ (pads[:, 0] & U64(1)).astype(np.uint8)]))
        check_bits_of(found[receiver])


@PAIRS
@pytest.mark.parametrize("bits", [11, 17, 24])
def test_comparisons(secret: str, bits: int) -> None:
    """The tables, with and without the receiver's pads, and its entry of each; the openings, and their sums."""
    pair = Pair(N * 32)
    found = pair.run(compare, (words(WORDS[secret]), bits), (words(5), bits))
    low = bits - 1
    digits = -(-low // 5)
    for receiver in (0, 1):
        check_bits_of(found[receiver])
    choices, pads = pair.transfers[1].last_chosen[0]
    bits_of_digit = [low // digits + (number < low % digits) for number in range(digits)]
    ((*tables,),) = pair.messages("bits: tables")
    at = 0
    places = dict.fromkeys(set(bits_of_digit), 0)
    order = sorted(set(bits_of_digit))
    entries_of_receiver: list[np.ndarray] = []
    for width in bits_of_digit:
        table = tables[order.index(width)][0, places[width]]
        places[width] += 1
        rows = slice(at * N, (at + width) * N)
        known = np.bitwise_xor.reduce(pads[rows, 0].reshape(width, N), axis=0)
        value = (choices[rows].reshape(width, N).astype(int) << np.arange(width)[:, None]).sum(axis=0)
        entries = 2 << width
        bits_of_table = _planes(table.astype(U64), entries)
        check_bits_of(bits_of_table)
        check_unrelated([*bits_of_table[:8]])
        check_bits_of(bits_of_table ^ _planes(known, entries))
        own = (table.astype(U64) ^ known) >> (2 * value).astype(U64)
        entries_of_receiver += [*_planes(own, 2)]
        at += width
    check_unrelated(entries_of_receiver)
    _check_openings(pair, digits)


def _planes(values: np.ndarray, count: int) -> np.ndarray:
    return ((values >> np.arange(count, dtype=U64)[:, None]) & U64(1)).astype(np.uint8)


def _check_openings(pair: Pair, digits: int) -> None:
    messages = pair.messages("bits: openings", 0), pair.messages("bits: openings", 1)
    coins = [pair.transfers[me].last_chosen[0][0][-(digits - 1) * N :].reshape(-1, N) for me in (0, 1)]
    pads = [pair.transfers[me].last_chosen[0][1][-(digits - 1) * N :, 0].reshape(-1, N) for me in (0, 1)]
    left, at = digits, 0
    sums: list[np.ndarray] = []
    for (zero,), (one,) in zip(*messages, strict=True):
        pairs = left // 2
        planes = [unpack(packed, (3 * pairs - 1) * N).reshape(-1, N) for packed in (zero, one)]
        part = slice(at, at + pairs)
        for receiver in (0, 1):
            theirs, mine = planes[1 - receiver], planes[receiver]
            check_bits_of(theirs)
            check_bits_of((theirs ^ mine)[:pairs] ^ coins[receiver][part])  # under the peer's summand alone
            known = (pads[receiver][part] & U64(1)).astype(np.uint8)
            check_bits_of(theirs[pairs : 2 * pairs] ^ known)
            known = (pads[receiver][part] >> U64(1) & U64(1)).astype(np.uint8)[1:]
            if len(known):
                check_bits_of(theirs[2 * pairs :] ^ known)
        sums += [*(planes[0] ^ planes[1])]
        at += pairs
        left -= pairs
    assert left == 1
    check_unrelated(sums)  # what both learn: the secrets under both summands of the masks


def test_tables_of_several_edges_are_under_pads_of_their_own() -> None:
    """Tables of two edges differ by random bits, though the transfers of their digits are the same."""
    pair = Pair(N * 40)
    edges = [3, 4]
    pair.run(find_above, (words(9), edges, 11), (words(5), edges, 11))
    ((table,),) = pair.messages("bits: tables")
    assert table.shape == (2, 2, N)
    for place in (0, 1):
        # Masks of a table are the same for all entries: under one pad, differences of differences would be constant.
        check_unrelated([*_planes(table[0, place].astype(U64) ^ table[1, place].astype(U64), 16)])


# Products


def _check_corrections(pair: Pair, receiver: int) -> None:
    """As they arrive; and with the pad that the receiver chose removed in the way in which it enters."""
    ((corrections,),) = pair.messages("multiply: corrections", 1 - receiver)
    ((choices, pads),) = pair.transfers[receiver].last_chosen
    check_octets(corrections)
    for choice in (0, 1):
        rows = choices == choice
        if rows.any():
            removed = corrections[rows] - pads[rows] if choice == 0 else corrections[rows] + pads[rows]
            check_octets(removed)


@PAIRS
@pytest.mark.parametrize("bits", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_bits_times_words(secret: str, bits: tuple[int, int]) -> None:
    mine = [np.full(N, bit, np.uint8) for bit in bits]

    async def scaled(wire: Any, transfers: Any, own: np.ndarray) -> np.ndarray:
        if wire.me == 0:
            return await bits_to_words(wire, transfers, own, words(WORDS[secret], (N, 2)))
        return await bits_to_words(wire, transfers, own, width=2)

    for function in (bits_to_words, scaled):
        pair = Pair(N)
        found = pair.run(function, (mine[0],), (mine[1],))
        _check_corrections(pair, 1)
        for share in found:
            check_octets(share)
    pair = Pair(N)
    found = pair.run(select, (mine[0], words(WORDS[secret])), (mine[1], words(7)))
    for receiver in (0, 1):
        _check_corrections(pair, receiver)
        check_octets(found[receiver])


@PAIRS
@pytest.mark.parametrize("sign", [-1, 1])
def test_signs(secret: str, sign: int) -> None:
    pair = Pair(N)
    found = pair.run(signed, (words(3), np.full(N, sign)), (words(WORDS[secret]), None))
    _check_corrections(pair, 0)
    for share in found:
        check_octets(share)


@PAIRS
@pytest.mark.parametrize("factor", [0, 1, 5])
def test_private_factors(secret: str, factor: int) -> None:
    pair = Pair(3 * N)
    found = pair.run(times_private, (words(3), words(factor), 3), (words(WORDS[secret]), None, 3))
    _check_corrections(pair, 0)
    for share in found:
        check_octets(share)


@PAIRS
def test_products(secret: str) -> None:
    count = 300
    pair = Pair(64 * count)
    shape = (count,)
    found = pair.run(product, (words(WORDS[secret], shape), words(6, shape)), (words(7, shape), words(0, shape)))
    for receiver in (0, 1):
        _check_corrections(pair, receiver)
        check_octets(found[receiver])


def test_the_checks_see_what_is_not_hidden() -> None:
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 2**64, N, dtype=U64)
    check_octets(noise)
    for leaking in (words(5), noise & ~U64(1), noise >> U64(1), np.where(rng.random(N) < 0.7, noise, U64(9))):
        with pytest.raises(AssertionError):
            check_octets(leaking)
    with pytest.raises(AssertionError):
        check_bits_of((rng.random(N) < 0.6).astype(np.uint8))

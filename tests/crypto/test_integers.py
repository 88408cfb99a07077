"""Packing, big integers on the wire, masks and products of powers, each against ten obvious lines."""

from __future__ import annotations

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from securevfl_crypto import (
    CryptoError,
    MalformedError,
    OverflowRefused,
    PairwiseMasks,
    ZeroShares,
    bigints_from_bytes,
    bigints_to_bytes,
    many_bases,
    pack,
    shared_tables,
    uniform_masks,
    unpack,
)

SLOT = 20
slots = st.lists(st.integers(-(2 ** (SLOT - 1)) + 1, 2 ** (SLOT - 1) - 1), min_size=1, max_size=12)


@given(slots)
def test_packed_slots_come_back(values: list[int]) -> None:
    assert unpack(pack(values, SLOT), SLOT, len(values)) == values


@given(slots, slots, st.integers(-7, 7))
def test_packing_is_linear(a: list[int], b: list[int], k: int) -> None:
    size = min(len(a), len(b))
    small = [(x // 16, y // 16) for x, y in zip(a[:size], b[:size], strict=True)]
    total = pack([x for x, _ in small], SLOT) + k * pack([y for _, y in small], SLOT)
    assert unpack(total, SLOT, size) == [x + k * y for x, y in small]


@given(slots, st.integers(1, 2**30), st.sampled_from([-1, 1]))
def test_what_is_left_beyond_the_last_slot_is_refused(values: list[int], more: int, sign: int) -> None:
    packed = pack(values, SLOT) + (sign * more << (len(values) * SLOT))
    with pytest.raises(OverflowRefused, match="left its range"):
        unpack(packed, SLOT, len(values))


@given(st.lists(st.integers(-(2**95), 2**95 - 1), min_size=1, max_size=9))
def test_big_integers_come_back_from_bytes(values: list[int]) -> None:
    array = np.array(values, dtype=object)
    raw = bigints_to_bytes(array, 12)
    assert raw.shape == (len(values), 12)
    assert list(bigints_from_bytes(raw, array.shape, 12)) == values


def test_big_integers_are_checked() -> None:
    with pytest.raises(OverflowRefused, match="97 bits; 95 fit"):
        bigints_to_bytes(np.array([2**96], dtype=object), 12)
    for bad in (np.zeros((2, 11), np.uint8), np.zeros((2, 12), np.int8), np.zeros((3, 12), np.uint8)):
        with pytest.raises(MalformedError):
            bigints_from_bytes(bad, (2,), 12)


@pytest.mark.parametrize("bits", [5, 63, 83, 130])
def test_masks_are_uniform_over_their_whole_range(bits: int) -> None:
    masks = uniform_masks((60, 50), bits)
    scaled = [(int(m) + (1 << bits)) / (1 << (bits + 1)) for m in masks.flat]
    assert 0 <= min(scaled) < 0.05
    assert 0.95 < max(scaled) < 1
    if bits > 20:
        assert stats.kstest(scaled, "uniform").pvalue > 1e-6


def _zero_shares(parties: int) -> list[ZeroShares]:
    pairs: dict[int, list[PairwiseMasks]] = {i: [] for i in range(parties)}
    for i in range(parties):
        for j in range(i + 1, parties):
            seed = bytes([i, j] * 16)
            pairs[i].append(PairwiseMasks(seed, positive=True))
            pairs[j].append(PairwiseMasks(seed, positive=False))
    return [ZeroShares(pairs[i]) for i in range(parties)]


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_masks_cancel_over_the_parties_and_are_new_each_time(parties: int) -> None:
    modulus = mpz(2) ** 200 + 235
    shares = _zero_shares(parties)
    seen = set()
    for count in (4, 1, 7):
        blocks = [share.next(count, modulus) for share in shares]
        for column in zip(*blocks, strict=True):
            assert sum(column) % modulus == 0
        seen.update(value for block in blocks for value in block)
    assert len(seen) == parties * 12


def test_masks_span_the_modulus_evenly() -> None:
    modulus = mpz(3) ** 120
    masks = PairwiseMasks(bytes(32), positive=True).masks(1, 3000, modulus)
    assert stats.kstest([float(m / modulus) for m in masks], "uniform").pvalue > 1e-6


def test_a_mask_counter_is_never_used_twice() -> None:
    pair = PairwiseMasks(bytes(32), positive=True)
    pair.masks(3, 2, mpz(101))
    for counter in (3, 2):
        with pytest.raises(CryptoError, match="never used twice"):
            pair.masks(counter, 2, mpz(101))
    with pytest.raises(CryptoError, match="32 are needed"):
        PairwiseMasks(b"short", positive=True)


MODULUS = mpz(2) ** 127 - 1


def _slow(bases: list[mpz], exponents: np.ndarray) -> list[mpz]:
    out = []
    for row in exponents:
        value = mpz(1)
        for base, exponent in zip(bases, row, strict=True):
            value = value * gmpy2.powmod(base, int(exponent), MODULUS) % MODULUS
        out.append(value)
    return out


bases_lists = st.lists(st.integers(2, 2**120), min_size=1, max_size=7).map(lambda xs: [mpz(x) for x in xs])


@settings(max_examples=60, deadline=None)
@given(bases_lists, st.integers(1, 5), st.sampled_from([1, 4, 15, 40, 90]), st.data())
def test_shared_tables_equal_the_definition(bases: list[mpz], rows: int, bits: int, data: st.DataObject) -> None:
    exponent = st.integers(-(2**bits), 2**bits)
    matrix = np.array([[data.draw(exponent) for _ in bases] for _ in range(rows)], dtype=object).reshape(
        rows, len(bases)
    )
    assert shared_tables(bases, matrix, MODULUS) == _slow(bases, matrix)


@settings(max_examples=60, deadline=None)
@given(bases_lists, st.integers(1, 4), st.sampled_from([1, 2, 15, 16, 39]), st.data())
def test_many_bases_equals_the_definition(bases: list[mpz], rows: int, bits: int, data: st.DataObject) -> None:
    exponent = st.integers(-(2**bits) + 1, 2**bits - 1)
    matrix = np.array([[data.draw(exponent) for _ in bases] for _ in range(rows)], dtype=np.int64)
    assert many_bases(bases, matrix, MODULUS) == _slow(bases, matrix)


def test_products_of_nothing_are_one() -> None:
    zeros = np.zeros((2, 3), dtype=np.int64)
    bases = [mpz(5), mpz(7), mpz(11)]
    assert many_bases(bases, zeros, MODULUS) == shared_tables(bases, zeros, MODULUS) == [1, 1]

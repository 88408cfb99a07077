"""Slots in plaintexts: what is packed comes back, linearly, from arrays of int64 and of big integers alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.paillier.packing import Packing


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_matrix_comes_back(data: st.DataObject) -> None:
    slot_bits, columns = data.draw(st.integers(2, 130)), data.draw(st.integers(1, 9))
    room, planned = data.draw(st.integers(140, 900)), data.draw(st.integers(1, 12))
    packing = Packing.plan(slot_bits, columns, room, "it", rows=planned, width=data.draw(st.integers(1, 40)))
    assert 8 * packing.slot >= slot_bits
    assert 8 * packing.slot * (packing.per * packing.group - 1) + slot_bits <= room
    assert 1 <= packing.per <= planned
    assert packing.per == 1 or packing.groups == 1
    rows, half = data.draw(st.integers(1, 12)), 1 << (8 * packing.slot - 1)
    numbers = st.one_of(st.sampled_from([-half, half - 1, 0, -1]), st.integers(-half, half - 1))
    values = data.draw(st.lists(numbers, min_size=rows * columns, max_size=rows * columns))
    table = np.array(values, dtype=object).reshape(rows, columns)
    packed = packing.pack(table)
    assert len(packed) == packing.plaintext_count(rows)
    found = packing.unpack(packed, rows)
    assert found.dtype == (np.int64 if packing.slot <= 8 else object)
    assert (found == table).all()
    # the definition, one by one
    shift = 8 * packing.slot
    for i, row in enumerate(table):
        block, place = divmod(i, packing.per)
        for k, value in enumerate(row):
            group, inside = divmod(k, packing.group)
            packed[block * packing.groups + group] -= int(value) << (shift * inside + packing.shift_bits(place))
    assert not any(packed)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 20), st.integers(1, 7), st.randoms(use_true_random=False))
def test_int64_and_big_integers_pack_alike(slot: int, columns: int, rows: int, random: object) -> None:
    rng = np.random.default_rng(columns * 31 + rows)
    packing = Packing.plan(8 * slot, columns, 640, "it", rows=rows, width=3)
    half = 1 << (min(8 * slot, 64) - 1)
    values = rng.integers(-half, half, size=(rows, columns), dtype=np.int64)
    assert packing.pack(values) == packing.pack(values.astype(object))
    assert (packing.unpack(packing.pack(values), rows) == values).all()


def test_packed_matrices_add_and_what_is_wider_than_its_slot_comes_back_with_its_counterpart() -> None:
    packing = Packing.plan(20, 5, 2046, "it", rows=6, width=1)
    small = np.arange(30).reshape(6, 5) - 15
    wide = np.array([(-7) ** (i * 9) for i in range(30)], dtype=object).reshape(6, 5)
    total = [a + b for a, b in zip(packing.pack(wide), packing.pack(small - wide), strict=True)]
    assert (packing.unpack(total, 6) == small).all()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(OverflowRefused, match="it needs 17 bits"):
        Packing.plan(17, 3, 16, "it")
    packing = Packing.plan(16, 3, 100, "it", rows=2, width=1)
    assert (packing.per, packing.group, packing.groups) == (2, 3, 1)
    for value in (2**15, -(2**15) - 1, 2**62):
        with pytest.raises(OverflowRefused, match="beyond"):
            packing.pack(np.array([[0, value, 0]]))
    good = packing.pack(np.full((2, 3), -(2**15)))
    for bad in (good[0] - 1, -good[0] * 2, good[0] + (1 << 96), 1 << 95):
        with pytest.raises(OverflowRefused, match="do not cancel"):
            packing.unpack([bad], 2)
    with pytest.raises(OverflowRefused, match="in an unused slot"):
        packing.unpack(good, 1)
    with pytest.raises(MalformedError, match="2 rows take 1"):
        packing.unpack([*good, good[0]], 2)
    narrow = Packing.plan(16, 3, 33, "it")  # two columns in one plaintext, the third and nothing in another
    plain = narrow.pack(np.array([[1, 2, 3]]))
    assert narrow.unpack(plain, 1).tolist() == [[1, 2, 3]]
    with pytest.raises(OverflowRefused, match="in an unused slot"):
        narrow.unpack([plain[0], plain[1] + (1 << 16)], 1)


@pytest.mark.parametrize(("columns", "width", "rows"), [(16, 32, 256), (1, 32, 256), (1, 1, 256), (1, 1000, 64)])
def test_rows_in_a_plaintext_keep_encryptions_and_decryptions_in_balance(columns: int, width: int, rows: int) -> None:
    packing = Packing.plan(56, columns, 2046, "it", rows=rows, width=width)
    most = 36 // columns

    def cost(per: int) -> int:
        return per * width + 8 * -(-rows // per)

    assert 1 <= packing.per <= most
    assert all(cost(packing.per) <= cost(per) for per in range(1, most + 1))

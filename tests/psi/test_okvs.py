"""The oblivious key-value store: every value comes back, failures are as rare as computed, and slots look random."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_psi import MalformedError, PSIError, SetSizeError, okvs


def _random(count: int, width: int) -> np.ndarray:
    return np.frombuffer(secrets.token_bytes(count * width), dtype=np.uint8).reshape(count, width)


@pytest.mark.parametrize("width", [8, 16, 64])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 50, 51, 300, 5000, 40_000])
def test_every_key_decodes_to_its_value(count: int, width: int) -> None:
    keys, values = _random(count, 16), _random(count, width)
    table = okvs.encode_table(keys, values)
    assert table.slots.shape == (okvs.slots_for(count), width)
    assert table.slots.dtype == np.uint8
    assert (okvs.decode_table(table, keys) == values).all()
    strangers = okvs.decode_table(table, _random(500, 16))
    assert len(np.unique(strangers, axis=0)) == 500
    assert len(np.unique(np.concatenate([strangers, values]), axis=0)) == 500 + count


@settings(max_examples=60)
@given(st.sets(st.integers(0, 2**128 - 1), max_size=40), st.integers(0, 2**64 - 1))
def test_keys_need_not_look_random(numbers: set[int], value: int) -> None:
    """Small numbers, neighbours, zero: positions come from AES under a seed that is drawn afterwards."""
    ordered = sorted(numbers | {0, 1, 2})
    keys = np.array([list(number.to_bytes(16, "little")) for number in ordered], dtype=np.uint8)
    values = np.tile(np.frombuffer(value.to_bytes(8, "little"), dtype=np.uint8), (len(keys), 1))
    assert (okvs.decode_table(okvs.encode_table(keys, values), keys) == values).all()


def test_decoding_is_the_xor_that_the_paper_defines() -> None:
    """Against ten obvious lines: three slots by the row's positions, and the dense columns bit by bit."""
    keys, values = _random(30, 16), _random(30, 16)
    table = okvs.encode_table(keys, values)
    segment = (len(table.slots) - okvs.DENSE) // 3
    first, second = okvs.prf(table.seed[:16], keys), okvs.prf(table.seed[16:], keys)
    for i in range(30):
        words = [int.from_bytes(x.tobytes(), "little") for x in (first[i, :8], first[i, 8:], second[i, :8])]
        out = np.zeros(16, dtype=np.uint8)
        for j, word in enumerate(words):
            out ^= table.slots[j * segment + ((word >> 24) * segment >> 40)]
        bits = int.from_bytes(second[i, 8 : 8 + okvs.DENSE // 8].tobytes(), "little")
        for j in range(okvs.DENSE):
            if bits >> j & 1:
                out ^= table.slots[3 * segment + j]
        assert (out == values[i]).all()


def test_slots_are_uniform_and_another_table_each_time() -> None:
    """Each of 64 bits of a slot: within six standard deviations of one half; free slots are random, not zero."""
    keys, values = _random(4000, 16), _random(4000, 8)
    tables = [okvs.encode_table(keys, values) for _ in range(4)]
    slots = np.concatenate([table.slots for table in tables])
    ones = np.unpackbits(slots, axis=1).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 6 * 0.5 / len(slots) ** 0.5
    assert len(np.unique(slots, axis=0)) == len(slots)
    few = okvs.encode_table(keys[:1], values[:1]).slots
    assert len(np.unique(few, axis=0)) == len(few)


def test_the_bound_is_below_two_to_the_minus_forty_at_every_size() -> None:
    sizes = [*range(2, 400), *(int(1.3**i) for i in range(24, 53)), 1 << 16, 1 << 20]
    assert max(okvs.failure_exponent(size) for size in sizes) < -40.6
    assert okvs.failure_exponent(1 << 20) < -53
    assert okvs.failure_exponent(1) == -np.inf


def test_the_bound_is_that_of_pairs_for_two_keys() -> None:
    """Two keys fail if all three positions and the dense bits agree: w^-3 2^-40. The saddle point adds e^3."""
    segment = (okvs.slots_for(2) - okvs.DENSE) // 3
    exact = -3 * np.log2(segment) - okvs.DENSE
    assert exact <= okvs.failure_exponent(2) <= exact + 3 * np.log2(np.e) + 0.01


def test_failures_are_as_rare_as_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """53 keys, the worst size: without the dense bits failures can be counted, and eight bits make them 2^8 rarer."""
    trials, count = 3000, 53
    keys, values = _random(count, 16), _random(count, 8).view(np.uint64)
    monkeypatch.setattr(okvs, "DENSE", 8)
    bound = 2 ** okvs.failure_exponent(count)
    failed = sum(okvs._solve_slots(keys, values, secrets.token_bytes(32)) is None for _ in range(trials))
    assert failed <= bound * trials + 6 * (bound * trials) ** 0.5
    rows = okvs._hash_rows
    monkeypatch.setattr(okvs, "_hash_rows", lambda *args: (rows(*args)[0], np.zeros((len(args[0]), 1), np.uint8)))
    rate = sum(okvs._solve_slots(keys, values, secrets.token_bytes(32)) is None for _ in range(trials)) / trials
    pairs = count * (count - 1) / 2 / okvs._segment_length(count) ** 3
    assert 0.5 * pairs < rate < bound * 2**8, f"{rate:.4f} fail; pairs alone {pairs:.4f}, bound {bound * 2**8:.4f}"


def test_a_seed_that_fails_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, values = _random(20, 16), _random(20, 8)
    seeds = [bytes(32), b"x" * 32]
    solve = okvs._solve_slots
    monkeypatch.setattr(okvs.secrets, "token_bytes", lambda n: seeds.pop(0) if n == 32 else bytes(n))
    monkeypatch.setattr(okvs, "_solve_slots", lambda k, v, seed: None if seed == bytes(32) else solve(k, v, seed))
    table = okvs.encode_table(keys, values)
    assert table.seed == b"x" * 32
    assert (okvs.decode_table(table, keys) == values).all()


def test_a_core_too_large_counts_as_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(okvs, "MAX_CORE", -1)
    with pytest.raises(PSIError, match="randomness is broken"):
        okvs.encode_table(_random(5, 16), _random(5, 8))


def test_the_same_key_twice_is_an_error_that_says_so() -> None:
    keys = _random(100, 16).copy()
    keys[70] = keys[3]
    with pytest.raises(PSIError, match="two keys are equal"):
        okvs.encode_table(keys, _random(100, 8))


@pytest.mark.parametrize(
    ("keys", "values", "error"),
    [
        (np.zeros((2, 15), np.uint8), np.zeros((2, 8), np.uint8), MalformedError),
        (np.zeros((2, 16), np.int8), np.zeros((2, 8), np.uint8), MalformedError),
        ([bytes(16)], np.zeros((1, 8), np.uint8), MalformedError),
        (np.zeros((2, 16), np.uint8), np.zeros((2, 7), np.uint8), MalformedError),
        (np.zeros((2, 16), np.uint8), np.zeros((2, 0), np.uint8), MalformedError),
        (np.zeros((2, 16), np.uint8), np.zeros((2, 72), np.uint8), MalformedError),
        (np.zeros((2, 16), np.uint8), np.zeros(16, np.uint8), MalformedError),
        (np.zeros((2, 16), np.uint8), np.zeros((3, 8), np.uint8), SetSizeError),
    ],
)
def test_wrong_arrays_are_refused(keys: np.ndarray, values: np.ndarray, error: type[Exception]) -> None:
    with pytest.raises(error):
        okvs.encode_table(keys, values)


@pytest.mark.parametrize(
    ("seed", "rows"), [(bytes(31), 88), ("x" * 32, 88), (bytes(32), 87), (bytes(32), 85), (bytes(32), 0)]
)
def test_a_table_of_another_form_is_refused(seed: bytes, rows: int) -> None:
    with pytest.raises(MalformedError):
        okvs.SlotTable(seed, np.zeros((rows, 8), np.uint8))
    with pytest.raises(MalformedError, match="list"):
        okvs.SlotTable(bytes(32), [])  # type: ignore[arg-type]

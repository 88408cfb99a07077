"""Golomb-coded sets: what goes in comes out, strangers pass as rarely as stated, and hostile bytes are errors."""

from __future__ import annotations

import secrets
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from securevfl_psi import MalformedError, PSIError, SetSizeError, gcs


def _hashes(count: int) -> np.ndarray:
    return np.frombuffer(secrets.token_bytes(16 * count), dtype=np.uint8).reshape(count, 16)


@pytest.mark.parametrize("bits", [1, 7, 8, 13, 40, 48])
@pytest.mark.parametrize("count", [0, 1, 2, 9, 1000, 40_000])
def test_every_item_is_found(count: int, bits: int) -> None:
    hashes = _hashes(count)
    data = gcs.encode_golomb(hashes, bits)
    decoded = gcs.decode_golomb(data)
    assert decoded.bits == bits
    assert len(decoded.values) == count
    assert (np.diff(decoded.values.astype(object)) >= 0).all()
    assert decoded.contains(hashes).all()
    assert len(data) <= 22 + count * (bits + 2) / 8 + 2


def test_an_item_takes_the_stated_bits() -> None:
    """1 / (e − 1) + 1 = 1.582 bits for the quotient of a difference that is geometric with mean 2^bits."""
    data = gcs.encode_golomb(_hashes(60_000), 40)
    assert 8 * len(data) / 60_000 == pytest.approx(41.582, abs=0.03)


def test_strangers_pass_as_rarely_as_stated() -> None:
    decoded = gcs.decode_golomb(gcs.encode_golomb(_hashes(5000), 6))
    rate = decoded.contains(_hashes(100_000)).mean()
    expected = 1 - (1 - 1 / (5000 * 64)) ** 5000
    assert rate == pytest.approx(expected, abs=6 * (expected / 100_000) ** 0.5)
    assert expected <= 2**-6
    assert not gcs.decode_golomb(gcs.encode_golomb(_hashes(5000), 40)).contains(_hashes(100_000)).any()


@settings(max_examples=60)
@given(st.lists(st.binary(min_size=16, max_size=16), max_size=20), st.integers(1, 56))
def test_values_are_those_of_whole_numbers(items: list[bytes], bits: int) -> None:
    """Against Python's integers; equal hashes, the largest and the smallest are among them."""
    items = [*items, bytes(16), b"\xff" * 16, b"\xff" * 16]
    n = len(items)
    decoded = gcs.decode_golomb(gcs.encode_golomb(np.frombuffer(b"".join(items), np.uint8).reshape(-1, 16), bits))
    words = [(int.from_bytes(item[:8], "little"), int.from_bytes(item[8:], "little")) for item in items]
    expected = sorted((a // 2**24 * n // 2**40) * 2**bits + b % 2**bits for a, b in words)
    assert decoded.values.tolist() == expected


def test_the_whole_range_of_64_bits() -> None:
    hashes = _hashes(256).copy()
    hashes[0], hashes[1] = 255, 0
    decoded = gcs.decode_golomb(gcs.encode_golomb(hashes, 56))
    assert decoded.values[0] == 0
    assert decoded.values[-1] == 2**64 - 1
    assert decoded.contains(hashes).all()


@settings(max_examples=300)
@given(st.binary(max_size=80))
@example(gcs.encode_golomb(np.zeros((0, 16), np.uint8)))
def test_any_bytes_are_a_set_or_an_error(tail: bytes) -> None:
    for data in (tail, b"GCS\x01" + tail):
        try:
            decoded = gcs.decode_golomb(data)
        except MalformedError:
            continue
        assert len(decoded.values) <= 8 * len(data)


def _hashes_of(values: list[int], bits: int) -> np.ndarray:
    """Hashes whose bucket and remainder are those of the values."""
    words = [(-(-((v >> bits) << 40) // len(values)) << 24, v % 2**bits) for v in values]
    return np.frombuffer(b"".join(struct.pack("<QQ", *pair) for pair in words), np.uint8).reshape(-1, 16)


@settings(max_examples=400)
@given(st.integers(1, 13), st.integers(1, 12), st.randoms(), st.sets(st.integers(0, 400), min_size=1, max_size=3))
def test_a_set_has_one_encoding(bits: int, count: int, random: object, flips: set[int]) -> None:
    """Bits of an encoding are flipped: what still decodes is what encode writes for the values that come out."""
    values = [random.randrange(count << bits) for _ in range(count)]  # type: ignore[attr-defined]
    data = bytearray(gcs.encode_golomb(_hashes_of(values, bits), bits))
    assert gcs.decode_golomb(bytes(data)).values.tolist() == sorted(values)
    for flip in flips:
        place = flip % (8 * (len(data) - 21))
        data[21 + place // 8] ^= 1 << place % 8
    try:
        read = gcs.decode_golomb(bytes(data)).values.tolist()
    except MalformedError:
        return
    assert gcs.encode_golomb(_hashes_of(read, bits), bits) == data


def test_filling_is_zero_and_values_stay_in_range() -> None:
    data = gcs.encode_golomb(_hashes_of([3, 9], 3), 3)
    assert data[21:] == bytes([0b11000000, 0b01111000]), "quotients 0 and 0; remainders 3 and 6, in 3 bits, then zeros"
    for body, reason in ((b"\xc0\x79", "filled with zeros"), (b"\xa0\x78", "a value of"), (b"\xb0\x78", "3 quotients")):
        with pytest.raises(MalformedError, match=reason):
            gcs.decode_golomb(data[:21] + body)


def test_each_damaged_byte_is_noticed_or_gives_another_set() -> None:
    data = gcs.encode_golomb(_hashes(30), 9)
    for i in range(len(data)):
        damaged = data[:i] + bytes([data[i] ^ 0x10]) + data[i + 1 :]
        try:
            other = gcs.decode_golomb(damaged)
        except MalformedError:
            continue
        assert len(other.values) == 30
        assert i >= 21
    for size in range(len(data)):
        with pytest.raises(MalformedError):
            gcs.decode_golomb(data[:size])
    with pytest.raises(MalformedError):
        gcs.decode_golomb(data + b"\0")


def _peak(data: bytes) -> int:
    """Most memory that refusing these bytes takes."""
    tracemalloc.start()
    try:
        with pytest.raises(MalformedError):
            gcs.decode_golomb(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [2**24, 2**40, 2**64 - 1])
def test_an_announced_size_allocates_nothing(count: int) -> None:
    for size in (0, 2**21, 2**63):
        assert _peak(struct.pack(">4sBQQ", b"GCS\x01", 1, count, size) + bytes(1000)) < 1 << 16
    # One item with a megabyte of quotients, which would be eight once unpacked.
    assert _peak(struct.pack(">4sBQQ", b"GCS\x01", 8, 1, 1 << 20) + bytes((1 << 20) + 1)) < 1 << 16


def test_limits() -> None:
    data = gcs.encode_golomb(_hashes(10), 8)
    with pytest.raises(SetSizeError, match="at most 9"):
        gcs.decode_golomb(data, max_items=9)
    for bits in (0, 57, 64):
        with pytest.raises(PSIError):
            gcs.encode_golomb(_hashes(1), bits)
    with pytest.raises(PSIError, match="2\\^64"):
        gcs.encode_golomb(_hashes(257), 56)
    with pytest.raises(MalformedError):
        gcs.encode_golomb(np.zeros((3, 15), np.uint8))
    with pytest.raises(MalformedError):
        gcs.decode_golomb(data).contains(np.zeros((3, 16), np.int64))

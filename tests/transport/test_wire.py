"""The wire codec: round trips, sizes, limits, and any bytes at all."""

from __future__ import annotations

import contextlib
import hashlib
import struct

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from securevfl.errors import WireError
from securevfl.transport import (
    Guard,
    Kind,
    Message,
    MessageLimits,
    decode_message,
    encode_message,
    encode_parts,
    encoded_size,
    measure_message,
)

DTYPES = ("bool", "uint8", "int32", "int64", "uint32", "uint64", "float16", "float32", "float64")
arrays = st.sampled_from(DTYPES).flatmap(
    lambda name: hnp.arrays(np.dtype(name), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
)
scalars = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=20))
messages = st.builds(
    Message,
    st.sampled_from(Kind),
    st.text(max_size=30),
    st.dictionaries(st.text(max_size=8), arrays, max_size=4),
    st.dictionaries(st.text(max_size=8), scalars, max_size=4),
    st.builds(Guard, st.sampled_from(["none", "paillier"]), st.integers(0, 9000), st.text(max_size=8), st.floats(0, 9)),
)


@given(messages)
def test_what_is_decoded_is_what_was_encoded(message: Message) -> None:
    data = encode_message(message)
    back = decode_message(data)
    assert (back.kind, back.what, dict(back.meta), back.guard) == (
        message.kind,
        message.what,
        dict(message.meta),
        message.guard,
    )
    assert list(back.arrays) == list(message.arrays)
    for name, array in message.arrays.items():
        assert back.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(back.arrays[name], array)


@given(messages)
def test_size_is_the_length_of_the_bytes(message: Message) -> None:
    assert encoded_size(message) == len(encode_message(message))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.float16])
@pytest.mark.parametrize("shape", [(0, 3), (5,), (7, 3), ()])
def test_tensors_are_counted_and_written_like_arrays(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape).to(dtype)
    message = Message(Kind.ACTIVATION, "z", {"z": tensor})
    assert encoded_size(message) == len(encode_message(message))
    np.testing.assert_array_equal(decode_message(encode_message(message)).arrays["z"], tensor.numpy())


def test_slices_and_big_endian_arrays_arrive_in_order() -> None:
    strided = np.arange(24).reshape(4, 6)[::2, ::3]
    big = np.arange(5, dtype=">i4")
    back = decode_message(encode_message(Message(Kind.STATISTIC, "x", {"a": strided, "b": big}))).arrays
    np.testing.assert_array_equal(back["a"], strided)
    np.testing.assert_array_equal(back["b"], big)


@settings(max_examples=300)
@given(messages, st.data())
def test_truncated_or_extended_bytes_are_refused(message: Message, data: st.DataObject) -> None:
    raw = encode_message(message)
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(WireError):
        decode_message(raw[:cut])
    with pytest.raises(WireError):
        decode_message(raw + b"\0")


@settings(max_examples=300)
@given(messages, st.data())
def test_hostile_bytes_raise_wire_errors_only(message: Message, data: st.DataObject) -> None:
    raw = bytearray(encode_message(message))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(WireError):
        decode_message(bytes(raw))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(WireError):
        decode_message(raw)


def test_other_versions_are_named() -> None:
    raw = bytearray(encode_message(Message(Kind.CONTROL, "hello")))
    raw[4] = 9
    with pytest.raises(WireError, match="version 9, this party speaks 1"):
        decode_message(bytes(raw))


def test_limits_hold_before_anything_is_allocated() -> None:
    message = Message(Kind.CONTROL, "x", {"a": np.zeros((4, 4)), "b": np.zeros(3)})
    raw = encode_message(message)
    for limits in (
        MessageLimits(message_bytes=64),
        MessageLimits(header_bytes=8),
        MessageLimits(arrays=1),
        MessageLimits(dimensions=1),
    ):
        with pytest.raises(WireError):
            decode_message(raw, limits)


def test_a_shape_that_promises_more_than_there_is_takes_no_memory() -> None:
    raw = encode_message(Message(Kind.CONTROL, "x", {"a": np.zeros((1, 1), dtype=np.uint8)}))
    at = raw.index(b"|u1") + 3
    assert raw[at : at + 3] == b"\x92\x01\x01"
    with pytest.raises(WireError, match="cut off"):
        decode_message(raw[: at + 1] + b"\x7f\x7f" + raw[at + 3 :])


def test_element_types_off_the_list_cannot_be_sent() -> None:
    for array in (np.zeros(2, dtype=object), np.zeros(2, dtype=complex), torch.zeros(2, dtype=torch.bfloat16)):
        with pytest.raises(WireError, match="element type"):
            encode_message(Message(Kind.CONTROL, "x", {"a": array}))


def _claiming(shape: tuple[int, ...], guard: tuple[str, int, str, float] = ("none", 0, "", 0.0)) -> bytes:
    """A message without a body, whose header claims an array of this shape."""
    header = msgspec.msgpack.encode(("control", "x", {}, guard, [("a", "|u1", shape)] if shape else []))
    return struct.pack("<4sHHII", b"SVFL", 1, 0, len(header), 0) + header + bytes(-len(header) % 8)


@pytest.mark.parametrize("shape", [(0, 2**63), (2**64 - 1, 0), (2**63, 2**63, 0), (2**62, 0), (2**31, 2**31, 0)])
def test_an_empty_array_with_a_side_that_numpy_cannot_count_is_refused(shape: tuple[int, ...]) -> None:
    """No byte is missing, since another side is zero: numpy itself would raise its own error."""
    with pytest.raises(WireError, match=r"multiply to 2\^62 bytes or more"):
        decode_message(_claiming(shape))


def test_empty_arrays_of_sides_that_are_possible_arrive() -> None:
    assert decode_message(_claiming((2**20, 0, 7))).arrays["a"].shape == (2**20, 0, 7)
    with pytest.raises(WireError, match="the limit of a message"):  # also beside a side of 0
        decode_message(_claiming((2**31, 0, 7)))


@pytest.mark.parametrize(
    "guard",
    [("bfv", -5, "", 0.0), ("paillier", 2**63 - 1, "k", 0.0), ("none", 0, "", float("nan")), ("none", 0, "", -1.0)],
)
def test_guards_that_no_message_has_are_refused(guard: tuple[str, int, str, float]) -> None:
    """A length of 2^63 bits would rate as the strongest key there is, and noise that is no number as noise."""
    with pytest.raises(WireError, match="noise is finite"):
        decode_message(_claiming((), guard))


@pytest.mark.parametrize("size", [0, 1, 3, 8, 1000, 4090, 4096, 5000, 1 << 18])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.bool_])
def test_the_digest_is_of_the_bytes_that_leave(size: int, dtype: type) -> None:
    message = Message(Kind.STATISTIC, "s", {"a": np.arange(size).astype(dtype), "b": torch.ones(size)}, {"n": size})
    plain = encode_message(message)
    found = measure_message(message)
    assert found == (len(plain), hashlib.sha256(plain).hexdigest())
    assert b"".join(encode_parts(message)) == plain
    assert encoded_size(message) == len(plain)


def test_a_small_message_that_was_measured_leaves_as_it_was_hashed() -> None:
    """In one buffer, whatever becomes of its arrays; a large one is not copied."""
    small, large = np.zeros(100), np.zeros(1 << 16)
    for array in (small, large):
        message = Message(Kind.STATISTIC, "s", {"a": array})
        _, digest = measure_message(message)
        array[:] = 1.0
        parts = encode_parts(message)
        assert (hashlib.sha256(b"".join(parts)).hexdigest() == digest) == (array is small)
        assert (len(parts) == 1) == (array is small)

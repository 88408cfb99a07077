"""Messages in parts: no copy on one side, one buffer on the other, and nothing that a peer announces is believed."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transport.test_wire import messages

from securevfl.errors import InputError, WireError
from securevfl.transport import (
    Assembler,
    Kind,
    Message,
    MessageLimits,
    decode_message,
    encode_message,
    encode_parts,
    in_parts,
)


@settings(max_examples=40)
@given(messages)
def test_the_parts_of_a_message_are_its_bytes(message: Message) -> None:
    buffers = encode_parts(message)
    assert b"".join(buffers) == encode_message(message)
    assert all(len(buffer) for buffer in buffers)
    assert all(buffer.format == "B" for buffer in buffers)


@settings(max_examples=40)
@given(messages, st.integers(1, 300))
def test_a_message_arrives_in_parts_of_any_size(message: Message, size: int) -> None:
    raw = encode_message(message)
    assembler = Assembler()
    parts = list(in_parts(encode_parts(message), size))
    assert all(sum(map(len, part)) == size for part in parts[:-1])
    for at, part in enumerate(parts):
        found = assembler.decode_part(memoryview(b"".join(part)), None if at else len(raw))
        assert (found is None) == (at < len(parts) - 1)
    assert found is not None
    back, length = found
    assert length == len(raw)
    assert encode_message(back) == raw
    assert not assembler.missing_bytes


def test_arrays_are_not_copied() -> None:
    array, tensor = np.arange(1000.0), torch.ones(50, 4)
    buffers = encode_parts(Message(Kind.ACTIVATION, "z", {"a": array, "t": tensor, "e": np.zeros((0, 3))}))
    homes = [np.frombuffer(buffer, np.uint8).__array_interface__["data"][0] for buffer in buffers]
    assert array.__array_interface__["data"][0] in homes
    assert tensor.data_ptr() in homes
    assert len(buffers) == 3, "the header and two arrays"


def test_a_message_in_many_parts_lies_in_one_buffer() -> None:
    array = np.arange(300_000.0)
    message = Message(Kind.ACTIVATION, "z", {"a": array, "b": array})
    parts = [memoryview(b"".join(part)) for part in in_parts(encode_parts(message))]
    assembler = Assembler()
    total = sum(map(len, parts))
    tracemalloc.start()
    for at, part in enumerate(parts):
        found = assembler.decode_part(part, None if at else total)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found is not None
    for name in ("a", "b"):
        got = found[0].arrays[name]
        assert isinstance(got, np.ndarray)
        assert got.flags.aligned
        np.testing.assert_array_equal(got, array)
    assert peak < total + 100_000


def test_a_message_of_one_part_is_not_copied() -> None:
    raw = encode_message(Message(Kind.ACTIVATION, "z", {"a": np.arange(10.0)}))
    whole = Assembler().add_part(memoryview(raw), len(raw))
    assert whole is not None
    assert whole.obj is raw


def test_parts_are_received_in_place() -> None:
    raw = encode_message(Message(Kind.ACTIVATION, "z", {"a": np.arange(10.0)}))
    assembler = Assembler()
    assembler.begin_message(len(raw))
    at = 0
    while assembler.missing_bytes:
        room = assembler.free_memory()[:7]
        room[:] = raw[at : at + len(room)]
        at += len(room)
        whole = assembler.count_filled(len(room))
    assert whole is not None
    assert decode_message(whole).what == "z"


def test_what_is_announced_is_checked_before_memory_is_taken() -> None:
    assembler = Assembler(MessageLimits(message_bytes=1 << 20))
    part = memoryview(bytes(16))
    tracemalloc.start()
    for total, bound in (((1 << 20) + 1, None), (1 << 62, None), (100, 99), (0, None), (-1, None), (15, None)):
        with pytest.raises(WireError):
            assembler.add_part(part, total, bound)
        assembler.drop_message()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_parts_that_fit_no_message_are_refused() -> None:
    assembler = Assembler()
    part = memoryview(bytes(16))
    with pytest.raises(WireError, match="before the first part"):
        assembler.add_part(part, None)
    assert assembler.add_part(part, 30) is None
    assert assembler.missing_bytes == 14
    with pytest.raises(WireError, match="14 of the message are missing"):
        assembler.add_part(part, None)
    with pytest.raises(WireError, match="14 bytes of the one before are missing"):
        assembler.add_part(part, 16)
    with pytest.raises(WireError, match="14 of the message are missing"):
        assembler.count_filled(15)
    assembler.drop_message()
    assert assembler.add_part(part, 16) is part
    with pytest.raises(InputError, match="at least 1"):
        next(in_parts([part], 0))

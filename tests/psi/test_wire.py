"""Frames: whole, in pieces, and hostile."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_psi.errors import MalformedError, PSIError
from securevfl_psi.wire import _MOST, HEADER_BYTES, Frame, FrameReader, FrameWriter, Kind

TAG = b"12345678"


def _ends() -> tuple[FrameWriter, FrameReader]:
    writer, reader = FrameWriter(), FrameReader()
    writer.tag = reader.tag = TAG
    return writer, reader


@given(st.lists(st.tuples(st.sampled_from(list(Kind)), st.binary(max_size=64)), max_size=8), st.integers(1, 40))
def test_frames_arrive_whole_however_they_are_cut(messages: list[tuple[Kind, bytes]], step: int) -> None:
    writer, reader = _ends()
    messages = [(kind, payload[: min(_MOST[kind], 64)]) for kind, payload in messages]
    stream = b"".join(writer.write(kind, payload) for kind, payload in messages)
    got: list[Frame] = []
    for start in range(0, len(stream), step):
        got += reader.feed(stream[start : start + step])
    assert [(frame.kind, frame.payload) for frame in got] == messages
    reader.close()


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_an_error(data: bytes) -> None:
    reader = FrameReader()
    try:
        frames = list(reader.feed(data))
        reader.close()
    except MalformedError:
        return
    assert sum(HEADER_BYTES + len(frame.payload) for frame in frames) == len(data)


@given(st.integers(0, HEADER_BYTES - 1), st.integers(1, 255))
def test_every_change_of_a_header_is_found(place: int, change: int) -> None:
    writer, reader = _ends()
    frame = bytearray(writer.write(Kind.TOKENS, bytes(32)))
    frame[place] ^= change
    length_changed = 12 <= place < 16
    try:
        frames = list(reader.feed(bytes(frame)))
    except MalformedError:
        return
    assert length_changed or place == 5  # a kind that may be as long, of the same session and number
    assert length_changed or frames[0].kind != Kind.TOKENS


@pytest.mark.parametrize(
    ("header", "match"),
    [
        (b"HTTP/1.1 400 Bad Request", "does not speak"),
        (b"SPSI\x01\x01" + bytes(18), "version 1, not 4"),
        (b"SPSI\x04\x63" + bytes(18), "kind 99"),
        (b"SPSI\x04\x02\0\0" + bytes(4) + b"\xff\xff\xff\xff" + TAG, "4294967295 bytes is announced; at most 1048576"),
        (b"SPSI\x04\x02\0\0" + b"\0\0\0\x01" + bytes(4) + TAG, "frame 1 came where 0 is due"),
        (b"SPSI\x04\x02\0\0" + bytes(8) + b"abcdefgh", "another session"),
    ],
)
def test_hostile_headers(header: bytes, match: str) -> None:
    _, reader = _ends()
    with pytest.raises(MalformedError, match=match):
        list(reader.feed(header))


def test_a_frame_that_comes_twice_or_back_is_refused() -> None:
    writer, reader = _ends()
    frame = writer.write(Kind.TOKENS, bytes(16))
    assert len(list(reader.feed(frame))) == 1
    with pytest.raises(MalformedError, match="frame 0 came where 1 is due"):
        list(reader.feed(frame))
    back = FrameReader()
    back.tag = b"87654321"
    with pytest.raises(MalformedError, match="another session or direction"):
        list(back.feed(frame))


def test_a_stream_that_ends_early_is_an_error() -> None:
    writer, reader = _ends()
    assert not list(reader.feed(writer.write(Kind.TOKENS, bytes(16))[:-1]))
    with pytest.raises(MalformedError, match="in the middle of a frame"):
        reader.close()


def test_payloads_that_fit_into_no_frame_are_refused() -> None:
    writer, _ = _ends()
    with pytest.raises(PSIError, match="at most 64"):
        writer.write(Kind.CONFIRMATION, bytes(65))

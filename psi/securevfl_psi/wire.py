"""Frames: encode a protocol's messages for the wire and refuse malformed bytes.

A frame is a header of 24 bytes and a payload: magic ``SPSI``, version (1 byte), kind (1), two zero bytes, sequence
number (4, big-endian), length of the payload (4), tag (8). The tag names the session and the direction, so the reader
refuses a frame of another session and a reflected one. Sequence numbers count from 0, so it also refuses repeated and
missing frames. These checks find accidents and mixed-up sessions; TLS protects against an attacker on the wire.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from securevfl_psi.errors import MalformedError
from securevfl_psi.group import CHUNK, POINT_BYTES, TOKEN_BYTES
from securevfl_psi.proofs import PROOF_BYTES, RECEIPT_BYTES

__all__ = ["HEADER_BYTES", "MAGIC", "TAG_BYTES", "VERSION", "Frame", "FrameReader", "FrameWriter", "Kind"]

VERSION = 4
HEADER_BYTES = 24
TAG_BYTES = 8
MAGIC = b"SPSI"
"""First bytes of every frame."""
_HEADER = struct.Struct(">4sBBHII8s")
_NO_TAG = bytes(TAG_BYTES)


class Kind(IntEnum):
    """Kinds of frames. `KEY` to `CONFIRMATION` are for more than two parties (`SEED` also for transfers), `TRANSFERS`
    to `SUMS` for oblivious transfers, `OFFER` and later ones for unbalanced intersections."""

    HELLO = 1
    POINTS = 2
    TOKENS = 3
    ANSWERS = 4
    COUNT = 5
    PROOFS = 6
    RECEIPT = 7
    FINISHED = 8
    REFUSED = 9
    KEY = 10
    SEED = 11
    SLOTS = 12
    SHARE = 13
    CONFIRMATION = 14
    TRANSFERS = 15
    ROWS = 16
    SUMS = 17
    OFFER = 18
    WANTED = 19
    FILTER = 20


_MOST = {
    Kind.HELLO: 4096,
    Kind.POINTS: CHUNK * POINT_BYTES,
    Kind.TOKENS: CHUNK * TOKEN_BYTES,
    Kind.ANSWERS: CHUNK * POINT_BYTES,
    Kind.COUNT: 16,
    Kind.PROOFS: CHUNK * PROOF_BYTES,
    Kind.RECEIPT: RECEIPT_BYTES,
    Kind.FINISHED: 0,
    Kind.REFUSED: 64,
    Kind.KEY: 32,
    Kind.SEED: 32,
    Kind.SLOTS: CHUNK * 8,
    Kind.SHARE: 32,
    Kind.CONFIRMATION: 64,
    Kind.TRANSFERS: 512 * POINT_BYTES,
    Kind.ROWS: CHUNK * 64,
    Kind.SUMS: 40 * 74,
    Kind.OFFER: 56,
    Kind.WANTED: 1,
    Kind.FILTER: CHUNK * TOKEN_BYTES,
}
"""Bytes of the longest payload of each kind."""


@dataclass(frozen=True)
class Frame:
    """One message.

    Attributes:
        kind: the payload's kind.
        payload: at most as long as its kind allows.
    """

    kind: Kind
    payload: bytes = field(repr=False)


class FrameWriter:
    """Numbers frames and tags them."""

    def __init__(self) -> None:
        self._next = 0
        self.tag = _NO_TAG

    def write(self, kind: Kind, payload: bytes = b"") -> bytes:
        """Encode a frame with the next number.

        Raises:
            MalformedError: the payload is longer than its kind allows.
        """
        if len(payload) > _MOST[kind]:
            raise MalformedError(f"a {kind.name} of {len(payload)} bytes; at most {_MOST[kind]} fit into a frame")
        # A hello comes before the session; a refusal may be sent when there is none.
        tag = self.tag if kind not in (Kind.HELLO, Kind.REFUSED) else _NO_TAG
        header = _HEADER.pack(MAGIC, VERSION, kind, 0, self._next, len(payload), tag)
        self._next += 1
        return header + payload


class FrameReader:
    """Splits arriving bytes into complete frames.

    Buffers at most one incomplete frame, whose length it has checked.

    Attributes:
        tag: the tag that frames must have once the parties agreed on a session.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._next = 0
        self.tag = _NO_TAG

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that `data` completes. Consume all of them before the next call.

        Raises:
            MalformedError: a magic, version, kind, sequence number, tag or length that the protocol does not allow.
        """
        self._buffer += data
        while len(self._buffer) >= HEADER_BYTES:
            kind, length = self._parse_header(bytes(self._buffer[:HEADER_BYTES]))
            if len(self._buffer) < HEADER_BYTES + length:
                return
            payload = bytes(self._buffer[HEADER_BYTES : HEADER_BYTES + length])
            del self._buffer[: HEADER_BYTES + length]
            self._next += 1
            yield Frame(kind, payload)

    @property
    def missing_bytes(self) -> int:
        """Bytes that the next frame lacks: first of its header, then of its payload."""
        if len(self._buffer) < HEADER_BYTES:
            return HEADER_BYTES - len(self._buffer)
        return HEADER_BYTES + self._parse_header(bytes(self._buffer[:HEADER_BYTES]))[1] - len(self._buffer)

    def _parse_header(self, header: bytes) -> tuple[Kind, int]:
        magic, version, number, reserved, sequence, length, tag = _HEADER.unpack(header)
        if magic != MAGIC or reserved:
            raise MalformedError("the peer does not speak this protocol: its bytes are not a frame")
        if version != VERSION:
            raise MalformedError(f"the peer speaks version {version}, not {VERSION}: use the same release")
        if number not in list(Kind):
            raise MalformedError(f"a frame of kind {number}; expected {min(Kind)} to {max(Kind)}")
        kind = Kind(number)
        # Before the payload is buffered, so that a peer cannot make this party allocate what it announces.
        if length > _MOST[kind]:
            raise MalformedError(f"a {kind.name} of {length} bytes is announced; at most {_MOST[kind]} are accepted")
        if sequence != self._next:
            raise MalformedError(f"frame {sequence} came where {self._next} is due: repeated, lost or out of order")
        if tag != (self.tag if kind not in (Kind.HELLO, Kind.REFUSED) else _NO_TAG):
            raise MalformedError(f"a {kind.name} of another session or direction")
        return kind, length

    def close(self) -> None:
        """Report that the peer sends nothing more.

        Raises:
            MalformedError: the last frame is incomplete.
        """
        if self._buffer:
            raise MalformedError(f"the peer ended in the middle of a frame, after {len(self._buffer)} bytes of it")

"""Frames over one connection, for two sides that take turns: one sends, then the other."""

from __future__ import annotations

import json
import math
import socket
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from securevfl_psi.chunks import require_chunk
from securevfl_psi.conversations.scripts import rows_of
from securevfl_psi.errors import DisagreementError, MalformedError, PeerRefused
from securevfl_psi.wire import Frame, FrameReader, FrameWriter, Kind

from securevfl_psi_cli.byte_stream import ByteStream, Traffic

__all__ = ["FrameStream"]

_PART = 1 << 17


class FrameStream(ByteStream):
    """One side of a connection that carries frames.

    Args:
        sock: connected; its TLS handshake is done.
        peer: the other side's name.
        timeout: seconds of silence after which the peer counts as lost.
        deadline: seconds for all turns together.
        reasons: code in a refusal → its text.
        traffic: counts the bytes.

    Attributes:
        inbox: frames that arrived and nobody has taken yet.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        *,
        timeout: float,
        deadline: float = math.inf,
        reasons: Mapping[str, str] | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        super().__init__(sock, peer, timeout=timeout, deadline=deadline, traffic=traffic)
        self._reasons = reasons or {}
        self._writer, self._reader = FrameWriter(), FrameReader()
        self.inbox: deque[Frame] = deque()

    def encode_frame(self, kind: Kind, payload: bytes = b"") -> bytes:
        """Return a frame's bytes. It counts as sent."""
        return self._writer.write(kind, payload)

    def decode_frames(self, data: bytes) -> None:
        """Add the frames that `data` completes to the inbox.

        Raises:
            MalformedError: the bytes are not frames.
        """
        self.inbox.extend(self._reader.feed(data))

    def send_frame(self, kind: Kind, payload: bytes = b"") -> None:
        """Send a frame.

        Raises:
            ConnectionLost: the peer is gone, or takes nothing for too long.
        """
        self.send(self.encode_frame(kind, payload))

    def send_fields(self, fields: Mapping[str, object]) -> None:
        """Send a greeting, as JSON."""
        self.send_frame(Kind.HELLO, json.dumps(fields, sort_keys=True).encode())

    def send_rows(self, kind: Kind, parts: Iterable[np.ndarray]) -> None:
        """Send chunks of rows."""
        for part in parts:
            self.send_frame(kind, np.ascontiguousarray(part).tobytes())

    def send_bytes(self, data: bytes) -> None:
        """Send bytes whose length the peer expects."""
        for start in range(0, len(data), _PART):
            self.send_frame(Kind.SLOTS, data[start : start + _PART])

    def next_frame(self, *, only: bool = False) -> Frame:
        """Wait for a frame of any kind.

        Args:
            only: leave what follows the frame unread, because it is not a frame.

        Raises:
            MalformedError: the bytes are not a frame.
            ConnectionLost: the peer is gone, or silent for too long.
        """
        while not self.inbox:
            self.decode_frames(self.receive(self._reader.missing_bytes) if only else self.receive())
        return self.inbox.popleft()

    def receive_frame(self, kind: Kind) -> bytes:
        """Wait for a frame of one kind and return its payload.

        Raises:
            PeerRefused: the peer ends the run.
            MalformedError: the frame has another kind, or the bytes are not a frame.
            ConnectionLost: the peer is gone, or silent for too long.
        """
        frame = self.next_frame()
        if frame.kind == Kind.REFUSED:
            code = frame.payload.decode("ascii", "replace")
            raise PeerRefused(f"{self.peer!r} ended the run: {self._reasons.get(code, 'it gave no known reason')}")
        if frame.kind != kind:
            raise MalformedError(f"{self.peer!r} sent {frame.kind.name} where {kind.name} is due")
        return frame.payload

    def receive_fields(self, expected: Mapping[str, object]) -> dict[str, Any]:
        """Wait for a greeting.

        Args:
            expected: fields that have to have these values.

        Raises:
            MalformedError: the frame is not a greeting.
            DisagreementError: a field has another value.
        """
        try:
            fields = json.loads(self.receive_frame(Kind.HELLO))
        except (ValueError, RecursionError):
            raise MalformedError(f"the greeting of {self.peer!r} is not JSON, or nested too deeply") from None
        if not isinstance(fields, dict):
            raise MalformedError(f"the greeting of {self.peer!r} is not a JSON object")
        for key, own in expected.items():
            if fields.get(key) != own:
                raise DisagreementError(
                    f"{key} is {str(fields.get(key))[:80]!r} at {self.peer!r} and {own!r} here: give both the same"
                )
        return fields

    def receive_rows(self, kind: Kind, width: int, count: int, what: str) -> Iterator[np.ndarray]:
        """Yield chunks of `count` rows in all, uint8 (k, width), as they arrive."""
        done = 0
        while done < count:
            rows = rows_of(Frame(kind, self.receive_frame(kind)), width)
            require_chunk(rows, width, done, count, what)
            done += len(rows)
            yield rows

    def receive_bytes(self, count: int) -> bytes:
        """Wait for `size` bytes. Memory grows as they arrive."""
        found = bytearray()
        while len(found) < count:
            part = self.receive_frame(Kind.SLOTS)
            if not part or len(found) + len(part) > count:
                raise MalformedError(
                    f"{self.peer!r} sent an empty part, or {len(found) + len(part)} bytes where {count} were announced"
                )
            found += part
        return bytes(found)

    def refuse(self, reason: str) -> None:
        """Send the peer the reason why this side ends, if it still listens."""
        self.send_last(self.encode_frame(Kind.REFUSED, reason.encode()))

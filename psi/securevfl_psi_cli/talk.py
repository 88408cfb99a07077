"""Frames over one connection in turns: one side speaks, then the other. For what is no interleaved protocol."""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from securevfl_psi.chunks import require_chunk
from securevfl_psi.conversations.scripts import rows_of
from securevfl_psi.errors import ConnectionLost, DisagreementError, MalformedError, PeerRefused
from securevfl_psi.wire import Frame, FrameReader, FrameWriter, Kind

__all__ = ["Talk"]

_READ = 1 << 18
_PART = 1 << 17


class Talk:
    """One side.

    Args:
        sock: connected; its TLS handshake is done.
        peer: the other side's name.
        timeout: seconds of silence after which it counts as lost.
        deadline: seconds for the whole talk.
        reasons: what a refusal's word means.
    """

    def __init__(
        self, sock: socket.socket, peer: str, *, timeout: float, deadline: float, reasons: Mapping[str, str]
    ) -> None:
        self.peer, self._sock, self._timeout, self._reasons = peer, sock, timeout, reasons
        self._until, self._deadline = time.monotonic() + deadline, deadline
        self._writer, self._reader = FrameWriter(), FrameReader()
        self._frames: list[Frame] = []
        self.sent = self.received = 0

    def say(self, kind: Kind, payload: bytes = b"") -> None:
        """Send a frame.

        Raises:
            ConnectionLost: the peer is gone, or takes nothing for too long.
        """
        data = self._writer.write(kind, payload)
        try:
            self._sock.settimeout(self._left())
            self._sock.sendall(data)
        except OSError as error:
            raise self._lost(error) from None
        self.sent += len(data)

    def say_fields(self, fields: Mapping[str, object]) -> None:
        """Send a greeting, JSON."""
        self.say(Kind.HELLO, json.dumps(fields, sort_keys=True).encode())

    def say_rows(self, kind: Kind, parts: Iterable[np.ndarray]) -> None:
        """Send chunks of rows."""
        for part in parts:
            self.say(kind, np.ascontiguousarray(part).tobytes())

    def say_bytes(self, data: bytes) -> None:
        """Send bytes whose number the peer knows."""
        for start in range(0, len(data), _PART):
            self.say(Kind.SLOTS, data[start : start + _PART])

    def hear(self, kind: Kind) -> bytes:
        """The next frame's payload, which must be of this kind.

        Raises:
            PeerRefused: the peer ends the talk.
            MalformedError: another kind, or bytes that are no frame.
            ConnectionLost: the peer is gone, or silent for too long.
        """
        while not self._frames:
            try:
                self._sock.settimeout(self._left())
                data = self._sock.recv(_READ)
            except OSError as error:
                raise self._lost(error) from None
            if not data:
                raise ConnectionLost(f"{self.peer!r} hung up in the middle of the run: look there")
            self.received += len(data)
            self._frames += list(self._reader.feed(data))
        frame = self._frames.pop(0)
        if frame.kind == Kind.REFUSED:
            word = frame.payload.decode("ascii", "replace")
            raise PeerRefused(f"{self.peer!r} ended the run: {self._reasons.get(word, 'it gave no known reason')}")
        if frame.kind != kind:
            raise MalformedError(f"{self.peer!r} sent {frame.kind.name} where {kind.name} is due")
        return frame.payload

    def hear_fields(self, expected: Mapping[str, object]) -> dict[str, Any]:
        """A greeting.

        Args:
            expected: fields that have to have these values.

        Raises:
            MalformedError: no greeting.
            DisagreementError: other values.
        """
        try:
            fields = json.loads(self.hear(Kind.HELLO))
        except (ValueError, RecursionError):
            raise MalformedError(f"the greeting of {self.peer!r} is not JSON, or nested too deeply") from None
        if not isinstance(fields, dict):
            raise MalformedError(f"the greeting of {self.peer!r} is not a JSON object")
        for key, mine in expected.items():
            if fields.get(key) != mine:
                raise DisagreementError(f"{self.peer!r} says {key} {str(fields.get(key))[:80]!r}; here it is {mine!r}")
        return fields

    def receive_rows(self, kind: Kind, width: int, count: int, what: str) -> Iterator[np.ndarray]:
        """Chunks of so many rows, uint8 (k, width), as they come."""
        done = 0
        while done < count:
            rows = rows_of(Frame(kind, self.hear(kind)), width)
            require_chunk(rows, width, done, count, what)
            done += len(rows)
            yield rows

    def hear_bytes(self, count: int) -> bytes:
        """So many bytes. Room is taken as they come."""
        found = bytearray()
        while len(found) < count:
            part = self.hear(Kind.SLOTS)
            if not part or len(found) + len(part) > count:
                raise MalformedError(f"{self.peer!r} sent {len(found) + len(part)} bytes, or none, of {count}")
            found += part
        return bytes(found)

    def refuse(self, reason: str) -> None:
        """Tell the peer why this side ends, as far as it still listens."""
        try:
            self._sock.settimeout(1.0)
            self._sock.sendall(self._writer.write(Kind.REFUSED, reason.encode()))
        except OSError:
            return

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise ConnectionLost(
                f"the run with {self.peer!r} was not done within {self._deadline:g} s, its overall deadline: raise "
                "--deadline, or look there"
            )
        return min(self._timeout, left) if math.isfinite(left) else self._timeout

    def _lost(self, error: OSError) -> ConnectionLost:
        if isinstance(error, TimeoutError):
            self._left()
            return ConnectionLost(f"{self.peer!r} was silent for {self._timeout:g} s: raise --timeout, or look there")
        return ConnectionLost(f"the connection with {self.peer!r} broke: {error.strerror or error}")

"""What the two parties of a run in shards tell each other beside the sessions: greeting, plan, who is done."""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

from securevfl_psi.errors import ConnectionLost, DisagreementError, MalformedError, PeerRefused
from securevfl_psi.wire import Frame, FrameReader, FrameWriter, Kind

__all__ = ["Link"]

_LENGTH = struct.Struct(">cI")
_SAID, _LISTS, _REFUSED = b"j", b"d", b"x"
_MOST = {_SAID: 1 << 12, _LISTS: 32 << 16, _REFUSED: 1 << 8}
_READ = 1 << 16


class Link:
    """The connection between the two processes that lead a run. One speaks, then the other: nobody has to buffer.

    Args:
        sock: connected, plain or TLS.
        first: whether this party speaks first.
        timeout: seconds for one message, unless it is told how long it may take.
    """

    def __init__(self, sock: socket.socket, *, first: bool, timeout: float) -> None:
        self._sock, self._first, self._timeout = sock, first, timeout
        self.sent = self.received = 0

    def hello(self, mine: bytes) -> bytes:
        """Exchange greetings, each in a frame as every run begins with.

        Raises:
            MalformedError: the peer's is none.
            ConnectionLost: it hung up, or is silent.
        """
        if self._first:
            self._send(FrameWriter().write(Kind.HELLO, mine))
        frame = self._frame()
        if frame.kind == Kind.REFUSED:
            raise PeerRefused("the peer ended the run before it began: does it run with --shards, too?")
        if frame.kind != Kind.HELLO:
            raise DisagreementError("the peer does not run in shards: give --shards at both")
        if not self._first:
            self._send(FrameWriter().write(Kind.HELLO, mine))
        return frame.payload

    def say(self, mine: dict[str, Any], *, within: float | None = None) -> dict[str, Any]:
        """Exchange a few facts.

        Args:
            mine: as JSON.
            within: seconds that the peer may take.

        Raises:
            PeerRefused: the peer ends the run.
            MalformedError: what it says is not what the run allows.
            ConnectionLost: it hung up, or is silent.
        """
        try:
            theirs = json.loads(self._both(_SAID, json.dumps(mine).encode(), within))
        except (ValueError, RecursionError):
            raise MalformedError("the peer does not say what a run in shards needs") from None
        if not isinstance(theirs, dict):
            raise MalformedError("the peer does not say what a run in shards needs")
        return theirs

    def lists(self, mine: bytes, *, within: float | None = None) -> bytes:
        """Exchange lists of digests, of one length.

        Raises:
            MalformedError: the peer's has another length.
            PeerRefused, ConnectionLost: as `say`.
        """
        theirs = self._both(_LISTS, mine, within)
        if len(theirs) != len(mine):
            raise MalformedError(f"the peer lists {len(theirs)} bytes of digests; {len(mine)} were expected")
        return theirs

    def refuse(self, why: str) -> None:
        """Tell the peer, as far as it still listens, in general terms why the run ends."""
        try:
            self._send(_LENGTH.pack(_REFUSED, len(why)) + why.encode())
        except ConnectionLost:
            return

    def _both(self, kind: bytes, mine: bytes, within: float | None) -> bytes:
        said = _LENGTH.pack(kind, len(mine)) + mine
        broken: ConnectionLost | None = None
        if self._first:
            try:
                self._send(said)
            except ConnectionLost as error:  # the peer may have said why before it left
                broken = error
        try:
            return self._heard(kind, said, within)
        except ConnectionLost:
            if broken is not None:
                raise broken from None
            raise

    def _heard(self, kind: bytes, said: bytes, within: float | None) -> bytes:
        found, size = _LENGTH.unpack(self._read(_LENGTH.size, within))
        if found not in _MOST or size > _MOST[found]:
            raise MalformedError("the peer does not say what a run in shards needs")
        theirs = self._read(size, within)
        if found == _REFUSED:
            raise PeerRefused(f"the peer ended the run: {theirs.decode('ascii', 'replace')}")
        if found != kind:
            raise MalformedError("the peer says something else than is due in a run in shards")
        if not self._first:
            self._send(said)
        return theirs

    def _send(self, data: bytes) -> None:
        self._sock.settimeout(self._timeout)
        try:
            self._sock.sendall(data)
        except OSError as error:
            raise ConnectionLost(f"the connection broke: {error.strerror or error}") from None
        self.sent += len(data)

    def _frame(self) -> Frame:
        reader = FrameReader()
        while True:
            for frame in reader.feed(self._some(1 << 12, self._timeout)):
                return frame

    def _read(self, size: int, within: float | None) -> bytes:
        end = time.monotonic() + (self._timeout if within is None else within)
        parts = b""
        while len(parts) < size:
            parts += self._some(min(_READ, size - len(parts)), end - time.monotonic())
        return parts

    def _some(self, most: int, within: float) -> bytes:
        self._sock.settimeout(max(0.01, within))
        try:
            data = self._sock.recv(most)
        except TimeoutError:
            raise ConnectionLost(
                "the peer was silent for too long: raise --timeout or --deadline, or look there"
            ) from None
        except OSError as error:
            raise ConnectionLost(f"the connection broke: {error.strerror or error}") from None
        if not data:
            raise ConnectionLost("the peer hung up before the end")
        self.received += len(data)
        return data

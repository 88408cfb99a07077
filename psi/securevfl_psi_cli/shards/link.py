"""The connection between the two processes that lead a run in shards: greeting, plan, digests of finished shards.

After the greeting, which is a frame as in every run, messages are records: a kind (1 byte), a length (4, big-endian),
a body. Lists of digests are longer than a frame may be.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

from securevfl_psi.errors import ConnectionLost, DisagreementError, MalformedError, PeerRefused
from securevfl_psi.wire import Kind

from securevfl_psi_cli.byte_stream import Traffic
from securevfl_psi_cli.frame_stream import FrameStream

__all__ = ["ControlLink"]

_HEAD = struct.Struct(">cI")
_FIELDS, _DIGESTS, _REFUSED = b"j", b"d", b"x"
_MOST = {_FIELDS: 1 << 12, _DIGESTS: 32 << 16, _REFUSED: 1 << 8}
"""Kind → most bytes of its body."""
_MALFORMED = "the peer sent a record that a run in shards does not allow"


class ControlLink:
    """One side. One party sends, then the other, so that nobody has to buffer.

    Args:
        sock: connected, plain or TLS.
        peer: the other party's name.
        first: whether this party sends first.
        timeout: seconds for one message, unless a call gives another bound.
    """

    def __init__(self, sock: socket.socket, peer: str, *, first: bool, timeout: float) -> None:
        self._stream, self._first = FrameStream(sock, peer, timeout=timeout), first

    @property
    def traffic(self) -> Traffic:
        """Bytes moved so far."""
        return self._stream.traffic

    def exchange_hello(self, own: bytes) -> bytes:
        """Exchange greetings, each in a frame.

        Raises:
            MalformedError: the peer's bytes are not a frame.
            DisagreementError, PeerRefused: the peer does not run in shards.
            ConnectionLost: it hung up, or is silent.
        """
        if self._first:
            self._stream.send_frame(Kind.HELLO, own)
        # A record may follow at once: a peer that refuses the greeting sends its reason right behind its own.
        frame = self._stream.next_frame(only=True)
        if frame.kind == Kind.REFUSED:
            raise PeerRefused("the peer ended the run before it began: does it run with --shards as well?")
        if frame.kind != Kind.HELLO:
            raise DisagreementError("the peer does not run in shards: give --shards at both")
        if not self._first:
            self._stream.send_frame(Kind.HELLO, own)
        return frame.payload

    def exchange_fields(self, own: dict[str, Any], *, within: float | None = None) -> dict[str, Any]:
        """Exchange a few values.

        Args:
            own: as JSON.
            within: seconds that the peer may take.

        Raises:
            PeerRefused: the peer ends the run.
            MalformedError: it sent something else.
            ConnectionLost: it hung up, or is silent.
        """
        try:
            theirs = json.loads(self._exchange_records(_FIELDS, json.dumps(own).encode(), within))
        except (ValueError, RecursionError):
            raise MalformedError(_MALFORMED) from None
        if not isinstance(theirs, dict):
            raise MalformedError(_MALFORMED)
        return theirs

    def exchange_digests(self, own: bytes, *, within: float | None = None) -> bytes:
        """Exchange lists of digests of one length.

        Raises:
            MalformedError: the peer's list has another length.
            PeerRefused, ConnectionLost: as `exchange_fields`.
        """
        theirs = self._exchange_records(_DIGESTS, own, within)
        if len(theirs) != len(own):
            raise MalformedError(f"the peer lists {len(theirs)} bytes of digests; {len(own)} were expected")
        return theirs

    def refuse(self, reason: str) -> None:
        """Send the peer a general reason why the run ends, if it still listens."""
        self._stream.send_last(_HEAD.pack(_REFUSED, len(reason)) + reason.encode())

    def _exchange_records(self, kind: bytes, own: bytes, within: float | None) -> bytes:
        record = _HEAD.pack(kind, len(own)) + own
        broken: ConnectionLost | None = None
        if self._first:
            try:
                self._stream.send(record)
            except ConnectionLost as error:  # the peer may have sent its reason before it left
                broken = error
        try:
            theirs = self._receive_record(kind, within)
        except ConnectionLost:
            if broken is not None:
                raise broken from None
            raise
        if not self._first:
            self._stream.send(record)
        return theirs

    def _receive_record(self, kind: bytes, within: float | None) -> bytes:
        found, size = _HEAD.unpack(self._stream.receive_exactly(_HEAD.size, within=within))
        if found not in _MOST or size > _MOST[found]:
            raise MalformedError(_MALFORMED)
        theirs = self._stream.receive_exactly(size, within=within)
        if found == _REFUSED:
            raise PeerRefused(f"the peer ended the run: {theirs.decode('ascii', 'replace')}")
        if found != kind:
            raise MalformedError(_MALFORMED)
        return theirs

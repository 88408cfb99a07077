"""Bytes over one connection, plain or TLS: the only module of `securevfl-psi` that exchanges bytes with a peer."""

from __future__ import annotations

import math
import socket
import ssl
import time
from collections.abc import Sequence

from securevfl_psi.errors import ConnectionLost

__all__ = ["ActivityTimer", "ByteStream", "Traffic"]

_READ = 1 << 18  # bytes that one call asks the socket for
_LEAST = 64
"""Bytes that must move within a timeout, so that a peer cannot keep a party waiting by sending a byte now and then."""
_SHORTEST = 0.01  # seconds; a socket's timeout of 0 would make it non-blocking
_LAST = 1.0  # seconds for which a party that ends tries to send its reason
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Traffic:
    """Counts the bytes sent and received so far.

    Attributes:
        sent, received: bytes of messages, without what TCP and TLS add.
    """

    def __init__(self) -> None:
        self.sent = self.received = 0

    @property
    def total(self) -> int:
        """Bytes in both directions."""
        return self.sent + self.received


class ByteStream:
    """A connection with a peer.

    `send` and `receive` block, for parties that take turns. `send_some` and `receive_some` never wait; they need a
    non-blocking socket.

    Args:
        sock: connected; its TLS handshake is done.
        peer: the peer's name, for messages.
        timeout: seconds of silence after which the peer counts as lost.
        deadline: seconds for the whole run.
        traffic: counts the bytes; several streams may share one.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        *,
        timeout: float,
        deadline: float = math.inf,
        traffic: Traffic | None = None,
    ) -> None:
        self.sock, self.peer, self.traffic = sock, peer, Traffic() if traffic is None else traffic
        self._timeout, self._deadline, self._until = timeout, deadline, time.monotonic() + deadline

    def send(self, data: bytes) -> None:
        """Send all of it.

        Raises:
            ConnectionLost: the peer is gone, or accepts nothing for too long.
        """
        seconds = self._seconds_left()
        try:
            self.sock.settimeout(seconds)
            self.sock.sendall(data)
        except OSError as error:
            raise self._explain_loss(error, seconds) from None
        self.traffic.sent += len(data)

    def send_last(self, data: bytes, *, within: float = _LAST) -> None:
        """Try to send why this side ends; ignore a peer that is gone already."""
        try:
            self.sock.settimeout(within)
            self.sock.sendall(data)
        except OSError:
            return

    def receive(self, most: int = _READ, *, within: float | None = None) -> bytes:
        """Wait for at least one byte, and return what has arrived.

        Args:
            most: the most bytes to return.
            within: seconds to wait, instead of the timeout.

        Raises:
            ConnectionLost: the peer hung up, or is silent for too long.
        """
        seconds = self._seconds_left() if within is None else max(_SHORTEST, within)
        try:
            self.sock.settimeout(seconds)
            data = self.sock.recv(most)
        except OSError as error:
            raise self._explain_loss(error, seconds) from None
        if not data:
            raise ConnectionLost(f"{self.peer!r} closed the connection during the run: check its output")
        self.traffic.received += len(data)
        return data

    def receive_exactly(self, size: int, *, within: float | None = None) -> bytes:
        """Wait for exactly `size` bytes. Memory grows as they arrive, so a large `size` alone costs nothing.

        Args:
            size: bytes to return.
            within: seconds for all of them, instead of the timeout.

        Raises:
            ConnectionLost: as `receive`.
        """
        end = time.monotonic() + (self._timeout if within is None else within)
        found = bytearray()
        while len(found) < size:
            found += self.receive(min(_READ, size - len(found)), within=end - time.monotonic())
        return bytes(found)

    def send_some(self, data: memoryview) -> int:
        """Send what the socket takes now, and return how many bytes that was.

        Raises:
            ConnectionLost: the connection broke.
        """
        if not data:
            return 0
        try:
            count = self.sock.send(data)
        except _WOULD_BLOCK:
            return 0
        except OSError as error:
            raise self._explain_loss(error) from None
        self.traffic.sent += count
        return count

    def receive_some(self) -> bytes | None:
        """Return what is there now: None for nothing yet, empty bytes after the peer's last.

        Raises:
            ConnectionLost: the connection broke.
        """
        parts: list[bytes] = []
        size = 0
        while size < _READ:  # one call returns no more than a TLS record, which is 16 kB
            try:
                data = self.sock.recv(_READ - size)
            except _WOULD_BLOCK:
                break
            except OSError as error:
                raise self._explain_loss(error) from None
            if not data:
                if not parts:
                    return b""
                break
            parts.append(data)
            size += len(data)
        self.traffic.received += size
        return b"".join(parts) if parts else None

    def _seconds_left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise _deadline_passed(repr(self.peer), self._deadline)
        return min(self._timeout, left)

    def _explain_loss(self, error: OSError, seconds: float = 0.0) -> ConnectionLost:
        if isinstance(error, TimeoutError):
            self._seconds_left()  # if the deadline is what ended the wait, raise its error instead
            return ConnectionLost(
                f"{self.peer!r} was silent for {seconds:.3g} s: raise --timeout or --deadline, or check that it still "
                "runs"
            )
        return ConnectionLost(f"the connection with {self.peer!r} broke: {error.strerror or error}")


class ActivityTimer:
    """Ends a run that takes too long, or in which too few bytes move.

    Args:
        timeout: if fewer than 64 bytes move in this many seconds, both directions together, the peers count as lost.
        deadline: seconds for the run, however much moves.
    """

    def __init__(self, timeout: float, deadline: float = math.inf) -> None:
        self._timeout, self._deadline = timeout, deadline
        self._begun = self._last = time.monotonic()
        self._counted = 0

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._begun

    def check_bounds(self, moved: int, peers: Sequence[str]) -> None:
        """Compare the clock with both bounds.

        Args:
            moved: bytes in both directions since the run began.
            peers: whom this party waits for.

        Raises:
            ConnectionLost: a bound is exceeded.
        """
        now = time.monotonic()
        if moved - self._counted >= _LEAST:
            self._last, self._counted = now, moved
        names = " and ".join(map(repr, peers))
        if now - self._begun > self._deadline:
            raise _deadline_passed(names, self._deadline)
        if now - self._last > self._timeout:
            raise ConnectionLost(
                f"{names} {'was' if len(peers) == 1 else 'were'} silent for {self._timeout:g} s (fewer than {_LEAST} "
                "bytes moved): raise --timeout, or check what the peer waits for"
            )


def _deadline_passed(names: str, deadline: float) -> ConnectionLost:
    return ConnectionLost(
        f"the run with {names} did not end within {deadline:g} s, its overall deadline: raise --deadline, or "
        "check what the peer waits for"
    )

"""Moves an endpoint's bytes over a connected socket, plain or TLS, in one thread that a peer at work never blocks."""

from __future__ import annotations

import math
import selectors
import socket
import ssl
import time
from collections.abc import Callable

from securevfl_psi.endpoint import Endpoint
from securevfl_psi.errors import ConnectionLost, PSIError

__all__ = ["Traffic", "converse"]

_READ = 1 << 18
_BUFFER = 1 << 22
_LEAST = 64
"""Bytes that must move within `timeout`: a peer that sends one now and then does not keep a party waiting for ever."""


class Traffic:
    """What was moved so far.

    Attributes:
        sent, received: bytes of frames, without what TCP and TLS add.
    """

    def __init__(self) -> None:
        self.sent = self.received = 0


def converse(
    endpoint: Endpoint,
    sock: socket.socket,
    *,
    timeout: float = 60.0,
    deadline: float | None = None,
    progress: Callable[[Traffic], None] | None = None,
) -> Traffic:
    """Runs an endpoint to its end. The socket stays open.

    Args:
        endpoint: this party's end.
        sock: connected, or an `ssl.SSLSocket` whose handshake is done; set to non-blocking.
        timeout: seconds with fewer than 64 bytes in both directions together after which the peer counts as lost.
        deadline: seconds for the whole run, however much moves; None for no end. A peer that moves little more than 64
            bytes each time keeps a party waiting until then. The peer's hello has to come within twice the timeout.
        progress: called whenever bytes moved.

    Raises:
        PSIError: what the endpoint raises, after the peer was told.
        ConnectionLost: the peer hung up, was silent for too long, or the deadline is over.
    """
    sock.setblocking(False)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
    traffic = Traffic()
    pending = memoryview(b"")
    begun = last = time.monotonic()
    since = 0
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        while not endpoint.done or pending:
            if not pending:
                pending = memoryview(endpoint.next_frame() or b"")
            written = _write(sock, pending)
            pending = pending[written:]
            data = _read(sock, endpoint)
            traffic.sent += written
            traffic.received += len(data)
            if data:
                try:
                    endpoint.feed(data)
                except PSIError:
                    _say(sock, bytes(pending) + (endpoint.next_frame() or b""), timeout)
                    raise
            if progress is not None and (written or data):
                progress(traffic)
            now = time.monotonic()
            if deadline is not None and now - begun > deadline:
                raise ConnectionLost(
                    f"the run with {endpoint.terms.peer!r} was not done within {deadline:g} s, its overall deadline: "
                    "raise deadline, or look there"
                )
            since += written + len(data)
            if since >= _LEAST:
                last, since = now, 0
            elif now - last > timeout:
                raise ConnectionLost(
                    f"{endpoint.terms.peer!r} was silent for {timeout:.0f} s, or all but: raise timeout, or look there"
                )
            if not endpoint.agreed and now - begun > 2 * timeout:
                raise ConnectionLost(
                    f"{endpoint.terms.peer!r} did not finish its hello within {2 * timeout:.0f} s: raise timeout, or "
                    "look there"
                )
            if not (written or data) and (pending or not endpoint.done):
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if pending else 0)
                selector.modify(sock, wanted)
                selector.select(min(1.0, timeout, math.inf if deadline is None else deadline))
    return traffic


def _write(sock: socket.socket, data: memoryview) -> int:
    if not data:
        return 0
    try:
        return sock.send(data)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return 0
    except OSError as error:
        raise ConnectionLost(f"the connection broke: {error.strerror or error}") from None


def _read(sock: socket.socket, endpoint: Endpoint) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size < _READ:  # TLS gives a record of 16 kB at a time
        try:
            data = sock.recv(_READ - size)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            break
        except OSError as error:
            raise ConnectionLost(f"the connection broke: {error.strerror or error}") from None
        if not data:
            if not parts and not endpoint.done:
                endpoint.close()
            break
        parts.append(data)
        size += len(data)
    return b"".join(parts)


def _say(sock: socket.socket, data: bytes, timeout: float) -> None:
    """The refusal, as far as the peer still listens."""
    try:
        sock.settimeout(min(5.0, timeout))
        sock.sendall(data)
    except OSError:
        return

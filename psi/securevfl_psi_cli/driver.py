"""Run an endpoint over a connected socket, in one thread that a busy peer never blocks."""

from __future__ import annotations

import math
import selectors
import socket
from collections.abc import Callable

from securevfl_psi.endpoint import Endpoint
from securevfl_psi.errors import ConnectionLost, PSIError

from securevfl_psi_cli.byte_stream import ActivityTimer, ByteStream, Traffic

__all__ = ["run_endpoint"]

_BUFFER = 1 << 22


def run_endpoint(
    endpoint: Endpoint,
    sock: socket.socket,
    *,
    timeout: float = 60.0,
    deadline: float | None = None,
    progress: Callable[[Traffic], None] | None = None,
) -> Traffic:
    """Run an endpoint to its end. The socket stays open.

    Args:
        endpoint: this party's end.
        sock: connected, or an `ssl.SSLSocket` whose handshake is done; becomes non-blocking.
        timeout: seconds with fewer than 64 bytes in both directions together after which the peer counts as lost.
        deadline: seconds for the whole run, however much moves; None for no end. A peer that moves little more than 64
            bytes each time keeps a party waiting until then. The peer's hello has to come within twice the timeout.
        progress: called whenever bytes moved.

    Raises:
        PSIError: what the endpoint raises; the peer receives the refusal first.
        ConnectionLost: the peer hung up or was silent for too long, or the deadline is over.
    """
    sock.setblocking(False)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
    peer = endpoint.terms.peer
    stream = ByteStream(sock, peer, timeout=timeout)
    traffic = stream.traffic
    pending = memoryview(b"")
    timer = ActivityTimer(timeout, math.inf if deadline is None else deadline)
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        while not endpoint.done or pending:
            if not pending:
                pending = memoryview(endpoint.next_frame() or b"")
            written = stream.send_some(pending)
            pending = pending[written:]
            data = stream.receive_some()
            if data:
                try:
                    endpoint.feed(data)
                except PSIError:
                    stream.send_last(bytes(pending) + (endpoint.next_frame() or b""), within=min(5.0, timeout))
                    raise
            elif data is not None and not endpoint.done:
                endpoint.close()
            if progress is not None and (written or data):
                progress(traffic)
            timer.check_bounds(traffic.total, [peer])
            if not endpoint.agreed and timer.seconds > 2 * timeout:
                raise ConnectionLost(
                    f"{peer!r} did not finish its hello within {2 * timeout:.0f} s: raise --timeout, or look there"
                )
            if not (written or data) and (pending or not endpoint.done):
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if pending else 0)
                selector.modify(sock, wanted)
                selector.select(min(1.0, timeout, math.inf if deadline is None else deadline))
    return traffic

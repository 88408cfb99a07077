"""HTTP/1.1 as the server reads it: h11, and before it what h11 lets pass that another program may read otherwise.

Two programs that disagree where a request ends can be played off against each other: a proxy in front of the server
lets through what it takes for the body of one request, and the server answers it as another one. So each head that can
be read in two ways is refused, and its connection closed. A body has exactly one length, its ``Content-Length``.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

import h11
from securevfl_net.networks import network_of
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["CERTIFICATE", "MOST_HEAD", "Connections", "StrictHttp", "find_head_fault"]

CERTIFICATE = "securevfl.client_certificate"
"""Key of an ASGI scope under which the server puts the client's certificate (DER)."""

MOST_HEAD = 16 << 10
"""Bytes of the request line and all headers."""

_MOST_LINE = 8 << 10
_MOST_LINES = 64
_ARRIVES = 30.0
"""Seconds in which a request has to be there as a whole."""
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")
_REQUEST = re.compile(rb"[A-Z]{1,20} /[\x21-\x7e]* HTTP/1\.[01]")
_LENGTH = re.compile(rb"[0-9]{1,9}")

Scope = MutableMapping[str, Any]
Fault = tuple[int, str]


def find_head_fault(data: bytes) -> Fault | None:
    """Why the head at the start of `data` is refused: an HTTP status and the reason; None if it is not, so far.

    Args:
        data: what has arrived of a request, its head perhaps in part.
    """
    end = data.find(b"\r\n\r\n")
    head = data if end < 0 else data[: end + 2]
    return _find_line_fault(head) or (None if end < 0 else _find_length_fault(head))


def _find_line_fault(head: bytes) -> Fault | None:
    """What is wrong with the lines of a head, of which perhaps a part has arrived."""
    if _BARE.search(head):
        return 400, "lines of a request end with CR LF"
    lines = head.split(b"\r\n")
    if len(head) > MOST_HEAD or len(lines) > _MOST_LINES or max(map(len, lines)) > _MOST_LINE:
        return 431, (
            f"a request line and its headers have at most {MOST_HEAD} bytes, {_MOST_LINES} lines and {_MOST_LINE} "
            "bytes a line"
        )
    if any(line[:1] in (b" ", b"\t") for line in lines[1:]):
        return 400, "no header goes on in the next line"
    return None


def _find_length_fault(head: bytes) -> Fault | None:
    """What is wrong with the first line of a whole head, or with the length of the body that it gives."""
    request, *lines = head.split(b"\r\n")
    if not _REQUEST.fullmatch(request):
        return 400, "the first line of a request is: method, path, HTTP/1.1"
    fields = [(name.strip().lower(), value.strip(b" \t")) for name, _, value in (one.partition(b":") for one in lines)]
    lengths = [value for name, value in fields if name == b"content-length"]
    if any(name == b"transfer-encoding" for name, _ in fields):
        if lengths:
            return 400, "a request has a Content-Length or a Transfer-Encoding, not both"
        return 411, "send the body with its Content-Length: no Transfer-Encoding is accepted"
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        return 400, "a request has one Content-Length, a decimal number of at most 9 digits"
    return None


class Connections:
    """Counts open connections, of each address and of all.

    Args:
        most: of all addresses together.
        each: of one address.
    """

    def __init__(self, *, most: int, each: int) -> None:
        self._most = most
        self._each = each
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    def open(self, address: str) -> Fault | None:
        """Count one more connection from an address; or the status and the reason for which it is refused. One customer
        has a whole /64 network of IPv6 addresses, which count as one.
        """
        address = network_of(address)
        if self._open[address] >= self._each:
            return 429, f"one address has at most {self._each} connections at once"
        if len(self) >= self._most:
            return 503, f"the server has at most {self._most} connections at once"
        self._open[address] += 1
        return None

    def close(self, address: str) -> None:
        """One connection from an address has ended."""
        address = network_of(address)
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]


class _Connection(h11.Connection):
    """Reads no head that `find_head_fault` refuses, behind a body either whose request was answered before it came.

    Attributes:
        is_unseen: whether another request may have begun whose head nobody looked at.
        fault: why a head was refused.
    """

    is_unseen = False
    fault: Fault | None = None

    def start_next_cycle(self) -> None:
        """See `h11.Connection`."""
        super().start_next_cycle()
        self.is_unseen = True

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """See `h11.Connection`."""
        if self.is_unseen and self.their_state is h11.IDLE:
            self.fault = find_head_fault(self.trailing_data[0])
            if self.fault is not None:
                raise h11.RemoteProtocolError(self.fault[1])
        return super().next_event()


class StrictHttp(H11Protocol):
    """One connection of a client.

    Args:
        connections: counts those that are open.
        given: see `H11Protocol`.

    It also puts the certificate that the client has shown into the scope of its requests.
    """

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self.conn: _Connection = _Connection(h11.SERVER, MOST_HEAD)
        self._connections = connections
        self._counted = ""
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        address = str((transport.get_extra_info("peername") or ("?",))[0])
        fault = self._connections.open(address)
        if fault is not None:
            self._refuse(*fault)
            return
        self._counted = address
        self._await_request()
        tls = transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        if certificate:
            self.app = _with_certificate(self.app, certificate)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        super().connection_lost(exc)
        self._stop_awaiting()
        if self._counted:
            self._connections.close(self._counted)
            self._counted = ""

    def handle_events(self) -> None:
        """Look at the head of each request before h11 reads it."""
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE:
            fault = find_head_fault(self.conn.trailing_data[0])
            if fault is not None:
                self._refuse(*fault)
                return
            self.conn.is_unseen = False
        super().handle_events()
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._await_request()
        else:
            self._stop_awaiting()

    def send_400_response(self, msg: str) -> None:
        """Refuse what h11 cannot read, or what was found behind a body."""
        self._refuse(*(self.conn.fault or (400, msg)))

    def _await_request(self) -> None:
        """Close the connection unless a whole request arrives in time."""
        if self._deadline is None:
            self._deadline = self.loop.call_later(_ARRIVES, self._refuse, 408, "the request took too long to arrive")

    def _stop_awaiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: int, reason: str) -> None:
        """Answer with a status, and close the connection. No byte after it is read."""
        if self.transport.is_closing():
            return
        body = json.dumps({"reason": reason, "party": "", "rule": "http"}).encode()
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "cache-control: no-store",
            "connection: close",
            *(["retry-after: 1"] if status in (429, 503) else []),
        ]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()


def _with_certificate(app: Any, certificate: bytes) -> Any:
    async def call_with_certificate(
        scope: Scope, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        scope[CERTIFICATE] = certificate
        await app(scope, receive, send)

    return call_with_certificate

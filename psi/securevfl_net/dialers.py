"""Ways to a connected TCP socket: dial, dial through a proxy, meet at a relay, or listen.

Who dials says nothing about who is TLS server: that was agreed, and the relay is told so that it pairs the right two.
All of them wait; the gate runs them in a thread of its own.
"""

from __future__ import annotations

import base64
import re
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from securevfl_net.errors import InputError
from securevfl_net.identity import Code, Refusal
from securevfl_net.identity.files import read_private
from securevfl_net.relay import ID, TOKEN, Side, introduce

__all__ = ["Address", "Dialer", "Direct", "Listen", "Proxy", "Relay"]

_HEADER = 8 << 10
"""Most bytes of a proxy's answer before the tunnel begins."""
_CREDENTIALS = 1024
_HOST = re.compile(r"[0-9A-Za-z._:%-]{1,253}")
_BACKLOG = 64


class Address(msgspec.Struct, frozen=True):
    """Where somebody listens.

    Attributes:
        host: a name, an IPv4 address, or an IPv6 address without brackets.
        port: 1 to 65535; 0 to listen at one that the system chooses.

    Raises:
        InputError: neither.
    """

    host: str
    port: int

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host):
            raise InputError(f"host {self.host[:80]!r}; a name or an IP address was expected")
        if not 0 <= self.port <= 65535:
            raise InputError(f"port {self.port}; 1 to 65535 are possible")

    @classmethod
    def parse(cls, text: str) -> Address:
        """From ``host:port`` or ``[IPv6]:port``.

        Raises:
            InputError: it is neither.
        """
        found = re.fullmatch(r"(?:\[([^\]]+)\]|([^:]+)):([0-9]{1,5})", text.strip())
        if not found:
            raise InputError(f"{text[:80]!r} is no address; host:port or [IPv6]:port was expected")
        return cls(found[1] or found[2], int(found[3]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Dialer(Protocol):
    """One way to a peer."""

    def dial(self, seconds: float) -> socket.socket:
        """A connected, blocking socket over which the peer can be spoken to, within `seconds`.

        Raises:
            Refusal: nobody answers (``no-answer``), or a proxy or relay on the way refuses.
        """


@dataclass(frozen=True)
class Direct:
    """The peer listens, and can be reached."""

    address: Address

    def dial(self, seconds: float) -> socket.socket:
        """See `Dialer`; tries each of the host's addresses, IPv6 and IPv4, in the system's order."""
        end = time.monotonic() + seconds
        try:
            targets = socket.getaddrinfo(self.address.host, self.address.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise Refusal(Code.NO_ANSWER, f"host {self.address.host!r} is unknown ({why}): check the address") from None
        why = "no time was left"
        for number, (family, kind, protocol, _, where) in enumerate(targets):
            left = (end - time.monotonic()) / (len(targets) - number)  # one that is silent leaves time for the others
            if left <= 0:
                break
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(left)
                sock.connect(where)
            except OSError as error:
                sock.close()
                why = error.strerror or str(error)
                continue
            return prepared(sock)
        raise Refusal(
            Code.NO_ANSWER,
            f"nobody answers at {self.address} within {seconds:g} s ({why}): does the peer listen there?",
        )


@dataclass(frozen=True)
class Proxy:
    """The way out leads through an HTTP proxy, which is asked for a tunnel (CONNECT, RFC 9110, section 9.3.6).

    Attributes:
        proxy: how the proxy is reached.
        target: where the tunnel leads.
        credentials: private file with ``user:password`` in one line, sent as Basic (RFC 7617); the way to the proxy is
            not encrypted.
    """

    proxy: Dialer
    target: Address
    credentials: Path | None = None

    def dial(self, seconds: float) -> socket.socket:
        """See `Dialer`."""
        end = time.monotonic() + seconds
        request = self._request()
        sock = self.proxy.dial(seconds)
        try:
            sock.settimeout(max(0.001, end - time.monotonic()))
            sock.sendall(request)
            self._check(_header(sock, end))
            sock.settimeout(None)
        except TimeoutError:
            sock.close()
            raise Refusal(Code.PROXY, f"the proxy opened no tunnel to {self.target} within {seconds:g} s") from None
        except OSError as error:
            sock.close()
            why = error.strerror or error
            raise Refusal(Code.PROXY, f"the proxy hung up ({why}): is one at this address?") from None
        except BaseException:
            sock.close()
            raise
        return sock

    def _request(self) -> bytes:
        lines = [f"CONNECT {self.target} HTTP/1.1", f"Host: {self.target}"]
        if self.credentials is not None:
            secret = read_private(self.credentials, _CREDENTIALS, "a proxy's user:password in one line").strip()
            if b":" not in secret or any(byte < 32 for byte in secret):
                raise InputError(f"{self.credentials} does not hold user:password in one line")
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(secret).decode()}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")

    def _check(self, header: bytes) -> None:
        found = re.match(rb"HTTP/1\.[01] ([0-9]{3})(?: ([^\r\n]*))?\r\n", header)
        if not found:
            raise Refusal(Code.PROXY, "what answers is no HTTP proxy: check its address")
        status = int(found[1])
        if 200 <= status < 300:
            return
        words = "".join(c if c.isprintable() else "?" for c in (found[2] or b"")[:60].decode("ascii", "replace"))
        cure = {
            407: "it wants user and password: name a file with them",
            403: "it does not allow this target: ask its operator",
            502: "it cannot reach the target: does the peer listen there?",
            504: "the target does not answer it: does the peer listen there?",
        }.get(status, "ask its operator")
        raise Refusal(Code.PROXY, f"the proxy answers {status} {words} for {self.target}: {cure}")


@dataclass(frozen=True)
class Relay:
    """Both parties dial out to a relay, see `securevfl_net.relay`.

    Attributes:
        relay: how it is reached; through a proxy, too.
        meeting: id that both parties know, 32 random bytes.
        token: of this party at the relay, 32 bytes.
        side: of this party in TLS.
    """

    relay: Dialer
    meeting: bytes = field(repr=False)
    token: bytes = field(repr=False)
    side: Side

    def __post_init__(self) -> None:
        if len(self.meeting) != ID or len(self.token) != TOKEN:
            raise InputError(f"a meeting id of {len(self.meeting)} bytes, a token of {len(self.token)}; each has {ID}")

    def dial(self, seconds: float) -> socket.socket:
        """See `Dialer`; waits until the other party has come."""
        end = time.monotonic() + seconds
        sock = self.relay.dial(seconds)
        try:
            introduce(sock, self.meeting, self.token, self.side, max(0.001, end - time.monotonic()))
            sock.settimeout(None)
        except BaseException:
            sock.close()
            raise
        return sock


@dataclass(frozen=True)
class Listen:
    """This party listens, and the peer dials."""

    address: Address

    def open(self) -> list[socket.socket]:
        """Listening sockets at all addresses of the host, IPv4 and IPv6; the caller closes them.

        Raises:
            InputError: the host is none of this machine, or the port is taken.
        """
        opened: list[socket.socket] = []
        try:
            targets = socket.getaddrinfo(
                self.address.host, self.address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            port = self.address.port
            for family, kind, protocol, _, where in dict.fromkeys(targets):
                sock = socket.socket(family, kind, protocol)
                opened.append(sock)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind((where[0], port, *where[2:]))
                port = sock.getsockname()[1]  # where the system chooses, the same for all
                sock.listen(_BACKLOG)
        except (OSError, UnicodeError) as error:
            for sock in opened:
                sock.close()
            why = getattr(error, "strerror", None) or error
            raise InputError(f"cannot listen at {self.address} ({why}): name a free port of this machine") from None
        return opened


def prepared(sock: socket.socket) -> socket.socket:
    """A connected socket as the session wants it: small messages go at once, and a peer that vanished is noticed."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.settimeout(None)
    return sock


def _header(sock: socket.socket, end: float) -> bytes:
    """An HTTP answer up to its empty line, and not a byte more: what follows is the tunnel's."""
    whole = b""
    while True:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)
        seen = sock.recv(_HEADER - len(whole), socket.MSG_PEEK)
        if not seen:
            raise ConnectionError("it says nothing more")
        both = whole[-3:] + seen
        place = both.find(b"\r\n\r\n")
        take = place + 4 - len(whole[-3:]) if place >= 0 else len(seen)
        whole += sock.recv(take)
        if place >= 0:
            return whole
        if len(whole) >= _HEADER or whole[:7] != b"HTTP/1."[: len(whole)]:
            raise Refusal(Code.PROXY, "what answers is no HTTP proxy, or one that does not stop: check its address")

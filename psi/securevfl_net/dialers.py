"""Get a connected TCP socket: dial, dial through a proxy, meet at a relay, or listen.

Dialing does not decide who is the TLS server: the parties agreed on that, and each sends its TLS side to the relay,
which pairs a client with a server. All of these calls block; the gate runs them in a separate thread.
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
from securevfl_net.identity import Refusal, RefusalCode
from securevfl_net.identity.files import read_private
from securevfl_net.relay import ID, TOKEN, Side, introduce

__all__ = ["Address", "Dialer", "Direct", "Listen", "Proxy", "Relay"]

_HEADER = 8 << 10
"""Maximum bytes of a proxy's answer before the tunnel begins."""
_CREDENTIALS = 1024
_HOST = re.compile(r"[0-9A-Za-z._:%-]{1,253}")
_BACKLOG = 64


class Address(msgspec.Struct, frozen=True):
    """A host and port to dial or to listen at.

    Attributes:
        host: a name, an IPv4 address, or an IPv6 address without brackets.
        port: 1 to 65535; 0 lets the system choose a port to listen at.

    Raises:
        InputError: the host or the port is invalid.
    """

    host: str
    port: int

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host):
            raise InputError(f"host {self.host[:80]!r}; expected a name or an IP address")
        if not 0 <= self.port <= 65535:
            raise InputError(f"port {self.port}; expected 1 to 65535")

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse ``host:port`` or ``[IPv6]:port``.

        Raises:
            InputError: `text` has neither form.
        """
        found = re.fullmatch(r"(?:\[([^\]]+)\]|([^:]+)):([0-9]{1,5})", text.strip())
        if not found:
            raise InputError(f"{text[:80]!r} is not an address; expected host:port or [IPv6]:port")
        return cls(found[1] or found[2], int(found[3]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Dialer(Protocol):
    """One way to connect to a peer."""

    def dial(self, seconds: float) -> socket.socket:
        """Return a connected, blocking socket to the peer within `seconds`.

        Raises:
            Refusal: the peer does not answer (``no-answer``), or a proxy or relay refuses.
        """


@dataclass(frozen=True)
class Direct:
    """Dial a peer that listens at a reachable address."""

    address: Address

    def dial(self, seconds: float) -> socket.socket:
        """See `Dialer`; tries each of the host's addresses, IPv6 and IPv4, in the system's order."""
        end = time.monotonic() + seconds
        try:
            targets = socket.getaddrinfo(self.address.host, self.address.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise Refusal(
                RefusalCode.NO_ANSWER, f"host {self.address.host!r} is unknown ({why}): check the address"
            ) from None
        why = "no time was left"
        for number, (family, kind, protocol, _, where) in enumerate(targets):
            left = (end - time.monotonic()) / (len(targets) - number)  # a silent address must leave time for the others
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
            return set_options(sock)
        raise Refusal(
            RefusalCode.NO_ANSWER,
            f"nobody answers at {self.address} within {seconds:g} s ({why}): does the peer listen there?",
        )


@dataclass(frozen=True)
class Proxy:
    """Dial through a tunnel of an HTTP proxy (CONNECT, RFC 9110, section 9.3.6).

    Attributes:
        proxy: how to reach the proxy.
        target: where the tunnel ends.
        credentials: private file with ``user:password`` in one line, sent as Basic (RFC 7617). The connection to the
            proxy is not encrypted.
    """

    proxy: Dialer
    target: Address
    credentials: Path | None = None

    def dial(self, seconds: float) -> socket.socket:
        """See `Dialer`."""
        end = time.monotonic() + seconds
        request = self._build_request()
        sock = self.proxy.dial(seconds)
        try:
            sock.settimeout(max(0.001, end - time.monotonic()))
            sock.sendall(request)
            self._check_answer(_read_header(sock, end))
            sock.settimeout(None)
        except TimeoutError:
            sock.close()
            raise Refusal(
                RefusalCode.PROXY, f"the proxy opened no tunnel to {self.target} within {seconds:g} s"
            ) from None
        except OSError as error:
            sock.close()
            why = error.strerror or error
            raise Refusal(RefusalCode.PROXY, f"the proxy hung up ({why}): is this a proxy's address?") from None
        except BaseException:
            sock.close()
            raise
        return sock

    def _build_request(self) -> bytes:
        lines = [f"CONNECT {self.target} HTTP/1.1", f"Host: {self.target}"]
        if self.credentials is not None:
            secret = read_private(self.credentials, _CREDENTIALS, "a proxy's user:password in one line").strip()
            if b":" not in secret or any(byte < 32 for byte in secret):
                raise InputError(f"{self.credentials} does not contain user:password in one line")
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(secret).decode()}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")

    def _check_answer(self, header: bytes) -> None:
        found = re.match(rb"HTTP/1\.[01] ([0-9]{3})(?: ([^\r\n]*))?\r\n", header)
        if not found:
            raise Refusal(RefusalCode.PROXY, "this is not an HTTP proxy: check its address")
        status = int(found[1])
        if 200 <= status < 300:
            return
        words = "".join(c if c.isprintable() else "?" for c in (found[2] or b"")[:60].decode("ascii", "replace"))
        cure = {
            407: "it requires a user and password: name a file with them",
            403: "it does not allow this target: ask its operator",
            502: "it cannot reach the target: does the peer listen there?",
            504: "the target does not answer the proxy: does the peer listen there?",
        }.get(status, "ask its operator")
        raise Refusal(RefusalCode.PROXY, f"the proxy answers {status} {words} for {self.target}: {cure}")


@dataclass(frozen=True)
class Relay:
    """Meet the peer at a relay that both parties dial, see `securevfl_net.relay`.

    Attributes:
        relay: how to reach it, directly or through a proxy.
        meeting: the id shared by both parties, 32 random bytes.
        token: this party's token at the relay, 32 bytes.
        side: this party's side in TLS.
    """

    relay: Dialer
    meeting: bytes = field(repr=False)
    token: bytes = field(repr=False)
    side: Side

    def __post_init__(self) -> None:
        if len(self.meeting) != ID or len(self.token) != TOKEN:
            raise InputError(
                f"meeting id of {len(self.meeting)} bytes, token of {len(self.token)}; each must have {ID}"
            )

    def dial(self, seconds: float) -> socket.socket:
        """See `Dialer`; waits until the other party arrives."""
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
    """Listen for a peer that dials."""

    address: Address

    def open_sockets(self) -> list[socket.socket]:
        """Open listening sockets at all addresses of the host, IPv4 and IPv6; the caller closes them.

        Raises:
            InputError: the host is not an address of this machine, or the port is in use.
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


def set_options(sock: socket.socket) -> socket.socket:
    """Set the session's socket options: send small messages immediately, and detect a peer that vanished."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.settimeout(None)
    return sock


def _read_header(sock: socket.socket, end: float) -> bytes:
    """Read an HTTP answer up to its empty line and no further: the next bytes belong to the tunnel."""
    whole = b""
    while True:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)
        seen = sock.recv(_HEADER - len(whole), socket.MSG_PEEK)
        if not seen:
            raise ConnectionError("it closed the connection")
        both = whole[-3:] + seen
        place = both.find(b"\r\n\r\n")
        take = place + 4 - len(whole[-3:]) if place >= 0 else len(seen)
        whole += sock.recv(take)
        if place >= 0:
            return whole
        if len(whole) >= _HEADER or whole[:7] != b"HTTP/1."[: len(whole)]:
            raise Refusal(
                RefusalCode.PROXY, "the answer is not an HTTP proxy's, or its header never ends: check its address"
            )

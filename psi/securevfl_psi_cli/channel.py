"""A connection to the peer: TCP on this machine, or TLS 1.3 with both certificates pinned."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from securevfl_psi.errors import CertificateError, ConnectionLost, InputError, PSIError

from securevfl_psi_cli.certificates import Pins

__all__ = [
    "READY",
    "Address",
    "connect",
    "hang_up",
    "left_politely",
    "require_pinned",
    "secured",
    "shown",
    "trouble",
]

READY = b"\x01"
"""What the listening side says once it has accepted the caller's certificate."""
_AGAIN = 0.2  # seconds between two attempts to connect
_LINGER = 2.0  # seconds in which a peer may take what was said last


@dataclass(frozen=True)
class Address:
    """Where to listen, or whom to call.

    Attributes:
        host: a name or a number.
        port: 0 lets the system choose one to listen at.
    """

    host: str
    port: int

    def resolved(self) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
        """What the host's name stands for.

        Raises:
            InputError: nothing.
        """
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError(f"--host {self.host!r} is unknown: {why}") from None
        return [(family, (str(where[0]), int(where[1]))) for family, _, _, _, where in found]

    def local(self) -> bool:
        """Whether nothing but this machine is reached."""
        return all(ipaddress.ip_address(where[0].split("%")[0]).is_loopback for _, where in self.resolved())


def connect(address: Address, wait: float) -> socket.socket:
    """Calls until somebody answers.

    Raises:
        InputError: an unknown host.
        ConnectionLost: nobody answers within `wait` seconds.
    """
    targets = address.resolved()
    end = time.monotonic() + wait
    while True:
        for _, where in targets:
            try:
                return socket.create_connection(where, timeout=max(_AGAIN, end - time.monotonic()))
            except OSError as error:
                why = error.strerror or str(error)
        if time.monotonic() > end:
            raise ConnectionLost(
                f"nobody answers at {shown(where)} within {wait:g} s ({why}): does the peer listen there? Raise --wait"
            )
        time.sleep(_AGAIN)


@contextmanager
def secured(sock: socket.socket, pins: Pins | None, *, timeout: float) -> Iterator[socket.socket]:
    """The calling side's connection for the run, plain without `pins`; closed at the end, see `left_politely`.

    TLS 1.3 lets the calling side finish before its certificate was looked at, so the listening side says with one byte
    that it was accepted.

    Raises:
        CertificateError: another certificate than the expected one, here or there.
        ConnectionLost: no handshake within `timeout` seconds, or the peer does not speak TLS 1.3.
    """
    with ExitStack() as stack:
        try:
            sock.settimeout(timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if pins is not None:
                sock = pins.context(server=False).wrap_socket(sock, do_handshake_on_connect=False)
        finally:
            stack.enter_context(left_politely(sock))
        if isinstance(sock, ssl.SSLSocket) and pins is not None:
            try:
                sock.do_handshake()
                require_pinned(sock, pins)
                if sock.recv(1) != READY:
                    raise CertificateError(_not_accepted(pins))
            except OSError as error:
                raise trouble(error, pins) from None
        yield sock


def require_pinned(sock: ssl.SSLSocket, pins: Pins) -> None:
    """Do nothing where the peer showed the expected certificate.

    Raises:
        CertificateError: it showed another one.
    """
    if not pins.fits(sock.getpeercert(binary_form=True)):
        raise CertificateError(f"the peer shows another certificate than {pins.peer}: is it who you think it is?")


def trouble(error: OSError, pins: Pins) -> PSIError:
    """What a handshake's error means."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return CertificateError(
            f"the peer shows another certificate than {pins.peer} ({error.verify_message}): is it who you think it is?"
        )
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if "ALERT" in reason:
            return CertificateError(_not_accepted(pins))
        why = reason.replace("_", " ").lower() or "it hung up"
        return ConnectionLost(f"no TLS 1.3 with the peer ({why}): does it run with --cert, too?")
    if isinstance(error, TimeoutError):
        return ConnectionLost("the peer was silent during the TLS handshake: does it run with --cert, too?")
    return ConnectionLost(f"the peer hung up during the TLS handshake: {error.strerror or error}")


def _not_accepted(pins: Pins) -> str:
    return f"the peer does not accept this party's certificate: is its --peer-cert the same as {pins.certificate}?"


@contextmanager
def left_politely(sock: socket.socket) -> Iterator[None]:
    """Closes a connection at the end, after the peer could take what was said."""
    try:
        yield
    finally:
        hang_up(sock)


def hang_up(sock: socket.socket) -> None:
    """Says that nothing more comes, and takes what is under way: closing with bytes unread would discard, at the peer,
    what was said last."""
    end = time.monotonic() + _LINGER
    try:
        sock.shutdown(socket.SHUT_WR)
        while (left := end - time.monotonic()) > 0:
            sock.settimeout(left)
            if not sock.recv(1 << 16):
                break
    except OSError:
        pass
    finally:
        sock.close()


def shown(where: tuple[object, ...]) -> str:
    """An address for people."""
    host, port = str(where[0]), where[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

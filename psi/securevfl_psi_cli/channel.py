"""A connection to the peer: TCP on this machine, or TLS 1.3 with both certificates pinned."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from securevfl_net.dialers import Address, Direct
from securevfl_net.identity import Handshake, Refusal, run_handshake
from securevfl_psi.errors import ConnectionLost, InputError

from securevfl_psi_cli.credentials import Pins, explain_refusal, wrong_input

__all__ = [
    "Address",
    "connect",
    "hang_up",
    "hanging_up",
    "is_local",
    "make_address",
    "parse_address",
    "secure_connection",
]

_AGAIN = 0.2  # seconds between two attempts to connect
_LINGER = 2.0  # seconds in which a peer may take what was sent last


def make_address(host: str, port: int) -> Address:
    """An address from two options.

    Raises:
        InputError: a host that cannot be one, or a port out of range.
    """
    with wrong_input():
        return Address(host, port)


def parse_address(text: str, option: str) -> Address:
    """An address from ``HOST:PORT``, the value of an option.

    Raises:
        InputError: another form.
    """
    try:
        with wrong_input():
            return Address.parse(text)
    except InputError:
        raise InputError(f"{option} {text!r}; HOST:PORT is needed, the port from 0 to 65535") from None


def is_local(address: Address) -> bool:
    """Whether the address is on this machine only.

    Raises:
        InputError: the host name cannot be resolved.
    """
    return all(ipaddress.ip_address(where.split("%")[0]).is_loopback for where in _resolve_host(address))


def _resolve_host(address: Address) -> list[str]:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"--host {address.host!r} is unknown: {why}") from None
    return [str(where[0]) for *_, where in found]


def connect(address: Address, wait: float) -> socket.socket:
    """Calls until somebody answers.

    Raises:
        InputError: an unknown host.
        ConnectionLost: nobody answers within `wait` seconds.
    """
    _resolve_host(address)  # a wrong name is the option's mistake, and calling again does not mend it
    end = time.monotonic() + wait
    while True:
        try:
            return Direct(address).dial(max(_AGAIN, end - time.monotonic()))
        except Refusal as refusal:
            if time.monotonic() > end:
                raise ConnectionLost(f"{refusal.words} Called for {wait:g} s: raise --wait") from None
        time.sleep(_AGAIN)


@contextmanager
def secure_connection(sock: socket.socket, pins: Pins | None, *, timeout: float) -> Iterator[socket.socket]:
    """The calling side's connection for the run, plain without `pins`; closed at the end, see `hanging_up`.

    Raises:
        CertificateError: another certificate than the expected one, here or there.
        ConnectionLost: no handshake within `timeout` seconds, or the peer does not speak TLS 1.3.
    """
    with ExitStack() as stack:
        try:
            if pins is not None:
                tls = pins.make_tls_context(server=False).wrap_socket(sock, do_handshake_on_connect=False)
                sock = tls
        finally:
            stack.enter_context(hanging_up(sock))
        if pins is not None:
            tls.setblocking(False)
            try:
                run_handshake(tls, Handshake(tls, pins.book), timeout)
            except Refusal as refusal:
                raise explain_refusal(refusal, pins) from None
        sock.settimeout(timeout)
        yield sock


@contextmanager
def hanging_up(sock: socket.socket) -> Iterator[None]:
    """Close a connection at the end, once the peer had time to read what was sent."""
    try:
        yield
    finally:
        hang_up(sock)


def hang_up(sock: socket.socket) -> None:
    """Signal the end, and read what is under way: closing with bytes unread would discard, at the peer,
    what was sent last."""
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

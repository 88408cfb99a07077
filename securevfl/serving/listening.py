"""The HTTP server: sockets, TLS and clients' certificates around the application."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import uvicorn

from securevfl.agreement import Address
from securevfl.errors import InputError
from securevfl.serving.access import AccessControl
from securevfl.serving.guards import App, Guarded
from securevfl.serving.http import application
from securevfl.serving.settings import ServingFile
from securevfl.serving.strict_http import Connections, StrictHttp

__all__ = ["AddressTaken", "serve_application", "serve_asgi"]

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_IDLE = 15
"""Seconds that an idle connection is kept."""
_RENEWED = 30.0
"""Seconds between two looks at whether the certificate's files have changed."""
_LEAVE = 20
"""Seconds that requests in flight have when the server stops."""


class AddressTaken(InputError):
    """Another process listens there."""


class _Server(uvicorn.Server):
    """Leaves signals to the party's process."""

    def capture_signals(self) -> Any:
        """Capture nothing."""
        return nullcontext()


@asynccontextmanager
async def serve_application(front: AccessControl, file: ServingFile) -> AsyncIterator[Address]:
    """Answer HTTP as long as the block lasts; requests in flight end before it is left.

    Args:
        front: who may ask, and what is answered.
        file: the serving file.

    Yields:
        The address.

    Raises:
        InputError: an address that cannot be had, or certificates that cannot be read.
    """
    async with serve_asgi(application(front), file, address_wait=front.address_wait) as address:
        yield address


@asynccontextmanager
async def serve_asgi(
    app: App, file: ServingFile, *, address_wait: Callable[[str], float] | None = None
) -> AsyncIterator[Address]:
    """Answer HTTP by any application; see `serve_application`.

    Args:
        app: answers.
        file: the serving file.
        address_wait: counts a request from a network address and returns the seconds that it has to wait.

    Raises:
        AddressTaken: another process listens there.
    """
    http = file.http
    tls = None if http.certificate is None else _tls_context(file)
    connections = Connections(most=file.limits.connections, each=file.limits.address_connections)
    config = uvicorn.Config(
        Guarded(
            app,
            hosts=_LOOPBACK_NAMES if http.tokens is None else None,
            address_wait=address_wait,
        ),
        http=cast("Any", partial(StrictHttp, connections)),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,  # paths reveal little, but the log must contain nothing about requested customers
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=_LEAVE,
    )
    config.load()
    config.ssl = tls
    server = _Server(config)
    bound = _bind_socket(Address.parse(http.listen))
    serving = asyncio.ensure_future(server.serve(sockets=[bound]))
    renewing = asyncio.ensure_future(_load_renewed(file, tls) if tls is not None else asyncio.sleep(0))
    try:
        host, port = bound.getsockname()[:2]
        yield Address(str(host), int(port))
    finally:
        renewing.cancel()
        server.should_exit = True
        with suppress(asyncio.CancelledError):
            await serving
        bound.close()


def _bind_socket(address: Address) -> socket.socket:
    try:
        bound = socket.create_server(
            (address.host, address.port), family=socket.AF_INET6 if ":" in address.host else socket.AF_INET
        )
        # Accepted connections inherit it; asyncio sets it only on sockets that say IPPROTO_TCP. Without it the second
        # segment of an answer waits 40 ms for the client's delayed acknowledgement.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return bound
    except OSError as error:
        kind = AddressTaken if error.errno == errno.EADDRINUSE else InputError
        raise kind(f"http.listen is {address}, which cannot be had ({error.strerror}): choose another") from None


async def _load_renewed(file: ServingFile, tls: ssl.SSLContext) -> None:
    """Load the certificate and its key again when their files have changed, until cancelled.

    A connection that exists keeps the one that it was made with. Files that do not fit each other yet are tried again.
    """
    pair = (file.folder / str(file.http.certificate), file.folder / str(file.http.key))
    loaded = _read_marks(pair)
    while True:
        await asyncio.sleep(_RENEWED)
        marks = _read_marks(pair)
        if marks == loaded or marks is None:
            continue
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*pair)  # a wrong pair must not spoil the one in use
            tls.load_cert_chain(*pair)
            loaded = marks
        except (OSError, ssl.SSLError):
            continue


def _read_marks(files: Sequence[Path]) -> tuple[tuple[int, int, int], ...] | None:
    try:
        return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in (file.stat() for file in files))
    except OSError:  # being replaced
        return None


def _tls_context(file: ServingFile) -> ssl.SSLContext:
    """TLS 1.3 alone, no tickets: a client whose certificate was taken back cannot come in with one."""
    http = file.http
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    try:
        context.load_cert_chain(file.folder / str(http.certificate), file.folder / str(http.key))
        if http.clients is not None:
            context.load_verify_locations(file.folder / http.clients)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"http: a certificate cannot be used ({error}): give PEM files that exist") from None
    return context

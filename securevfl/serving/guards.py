"""Protect the HTTP application: no oversized body, no request from another site's page, no error text to clients."""

from __future__ import annotations

import json
import logging
import math
import traceback
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

__all__ = ["App", "Guarded", "Message", "Receive", "Send"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger("securevfl.serving")


class _TooLarge(Exception):
    """A body longer than the limit."""


class Guarded:
    """An application behind limits. It is bare ASGI because the limits must apply before anything parses a byte.

    Args:
        app: the application.
        most: bytes of a body.
        hosts: accepted host names of requests; None for all. On loopback without authentication this prevents a web
            page in a browser of the same machine from sending requests under its own host name (DNS rebinding).
        address_wait: counts a request from a network address and returns the seconds that it has to wait.
    """

    def __init__(
        self,
        app: App,
        *,
        most: int = 1 << 20,
        hosts: Iterable[str] | None = None,
        address_wait: Callable[[str], float] | None = None,
    ) -> None:
        self._address_wait = address_wait
        self._app = app
        self._most = most
        self._hosts = None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification, version 3."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        wait = 0.0 if self._address_wait is None else self._address_wait(str((scope.get("client") or ("?",))[0]))
        if wait:
            await _send_status(send, 429, "too many requests from this address", rule="address", wait=wait)
            return
        headers = {bytes(name).lower(): bytes(value) for name, value in scope["headers"]}
        wrong = self._find_fault(scope, headers)
        if wrong is not None:
            await _send_status(send, *wrong)
            return
        began = False
        size = 0

        async def count_received() -> Message:
            nonlocal size
            message = await receive()
            # Content-Length may be missing or false, so bytes are counted as they come.
            size += len(message.get("body", b""))
            if size > self._most:
                raise _TooLarge
            return message

        async def note_start(message: Message) -> None:
            nonlocal began
            began = began or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, count_received, note_start)
        except _TooLarge:
            if not began:
                await _send_status(send, 413, f"a body has at most {self._most} bytes")
        except Exception as error:  # its text may contain an identifier: neither the log nor the client gets it
            last = traceback.extract_tb(error.__traceback__)[-1]
            _log.error("%s at %s:%s", type(error).__name__, last.filename, last.lineno)
            if not began:
                await _send_status(
                    send, 500, f"an unforeseen error ({type(error).__name__}); see the log for its place"
                )

    def _find_fault(self, scope: Scope, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        if self._hosts is not None:
            host = headers.get(b"host", b"").decode("latin-1").rpartition(":")
            name = host[0] if host[1] and host[2].isdigit() else "".join(host)
            if name.strip("[]").lower() not in self._hosts:
                return 421, "this address is not served: without authentication, ask under localhost or 127.0.0.1"
        if (
            # A web page can post other types to another site without a preflight request; JSON needs one.
            scope["method"] == "POST"
            and headers.get(b"content-type", b"").split(b";")[0].strip() != b"application/json"
        ):
            return 415, "a body is application/json"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._most:
            return 413, f"a body has at most {self._most} bytes"
        return None


async def _send_status(send: Send, status: int, reason: str, *, rule: str = "", wait: float = 0.0) -> None:
    body = json.dumps({"reason": reason, "party": "", "rule": rule}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"retry-after", str(math.ceil(wait)).encode())] if wait else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

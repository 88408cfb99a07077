"""A second process of a party, which waits for the state folder of the first and takes over when that is gone.

The lock of the folder decides who serves: the system releases it when a process ends, however it ends. So there is one
process at a time with the party's key, and for the peers the next one is a restarted party. A process on a copy of the
folder holds another lock, and the peers refuse it.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from securevfl.agreement import Address
from securevfl.errors import InputError, Parked
from securevfl.process.metrics import serve_metrics
from securevfl.serving.guards import App, Message, Receive, Send
from securevfl.serving.settings import ServingFile

__all__ = ["RETRY", "Standby", "answer_standby", "wait_for_port"]

RETRY = 2
"""Seconds after which a client may ask a waiting process again."""
_LOOK = 0.2
"""Seconds between two tries to lock the folder."""
_PORT = 10.0
"""Seconds that the gate of a process that is gone may keep its port."""


class Standby:
    """What a waiting process shows: a line, its health and metrics, and 503 to everybody who asks for scores.

    Args:
        file: the party's serving file.
        http: whether the party answers HTTP.
        metrics: address of the metrics; None for none.
        version: of the software, for the metrics.
        say: receives lines for people, the first one when the process begins to wait.
        end: set when the process is to stop.

    Attributes:
        party: whose process it is.
        waited: whether it had to wait.
    """

    def __init__(
        self,
        party: str,
        file: ServingFile,
        *,
        http: bool,
        metrics: str | None,
        version: str,
        say: Callable[[str], None],
        end: asyncio.Event,
    ) -> None:
        self.party = party
        self.waited = False
        self._file, self._http, self._metrics = file, http, metrics
        self._say, self._end = say, end
        self._state = _State(party, version)
        self._held = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    async def wait(self, why: InputError) -> None:
        """Wait a moment before the next try; the first time, begin to answer.

        Args:
            why: the folder is in use.

        Raises:
            Parked: the process was stopped.
        """
        if not self.waited:
            self.waited = True
            self._say(f"standby: {why.args[0].partition(': ')[0]}; this process takes over when that one is gone")
            await self._open()
        try:
            async with asyncio.timeout(_LOOK):
                await self._end.wait()
        except TimeoutError:
            return
        raise Parked(f"{self.party!r} was stopped while it stood by")

    async def close(self) -> None:
        """Stop answering, before the server opens the same ports."""
        await self._held.aclose()

    async def _open(self) -> None:
        if self._metrics is not None:
            place = Address.parse(self._metrics)
            try:
                self._held.enter_context(serve_metrics(self._state, place.port, host=place.host))
            except InputError as error:
                self._say(f"standby without metrics: {error}")
        if not self._http:
            return
        # What answers later is loaded now, so that it answers soon.
        from securevfl.serving import http  # noqa: F401
        from securevfl.serving.listening import AddressTaken, serve_asgi

        try:
            address = await self._held.enter_async_context(serve_asgi(answer_standby, self._file))
        except AddressTaken as error:
            self._say(f"standby without HTTP: {error}")
        else:
            self._say(f"Standby answers 503 at {address}")


class _State:
    """The metrics of a process that waits."""

    def __init__(self, party: str, version: str) -> None:
        self._party, self._version = party, version

    def collect(self) -> Iterator[Any]:
        """See `prometheus_client.registry.Collector`."""
        from securevfl.process.metric_names import metric_family

        yield metric_family("info", {(self._party, self._version): 1})
        yield metric_family("standby", 1)


async def answer_standby(scope: Message, receive: Receive, send: Send) -> None:
    """The HTTP application of a process that waits; see the ASGI specification, version 3."""
    if scope["type"] != "http":
        return
    path = scope["path"]
    status, content = 503, {"reason": "this process stands by: another one of this party serves; ask again"}
    if path == "/healthz":
        status, content = 200, {"alive": True, "standby": True}  # type: ignore[dict-item]
    elif path == "/readyz":
        content = {"ready": False, "waiting_for": {}, "problem": "standby: another process of this party serves"}  # type: ignore[dict-item]
    else:
        content |= {"party": "", "rule": ""}
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"cache-control", b"no-store"), *([(b"retry-after", str(RETRY).encode())] if status == 503 else [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


_: App = answer_standby


async def wait_for_port(address: Address | None) -> None:
    """Wait until nobody listens at an address of this machine: the gate of a process that was killed ends a moment
    later. Returns after a while in any case.
    """
    if address is None or not address.port:
        return
    until = time.monotonic() + _PORT
    while time.monotonic() < until:
        try:
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            socket.create_server((address.host, address.port), family=family).close()
        except OSError:
            await asyncio.sleep(_LOOK)
        else:
            return

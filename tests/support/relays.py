"""A relay in a thread of its own, and parties that dial out to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from securevfl_net.dialers import Address, Direct, Listen, Relay
from securevfl_net.relay import Limits, RelayServer, Side, Tokens
from securevfl_net.relay.introduction import key_of

MEETING = bytes(range(32))
TOKEN, OTHER_TOKEN = b"t" * 32, b"o" * 32
LIMIT = 60.0


@dataclass
class Running:
    """A relay that runs."""

    server: RelayServer
    log: list[Mapping[str, object]] = field(default_factory=list)
    loop: asyncio.AbstractEventLoop | None = None
    stop: Callable[[], object] = bool

    @property
    def address(self) -> Address:
        host, port = self.server.addresses[0]
        return Address(host, port)

    def dialer(self, side: Side, *, meeting: bytes = MEETING, token: bytes = TOKEN) -> Relay:
        return Relay(Direct(self.address), meeting, token, side)


@contextmanager
def relay(**limits: float) -> Iterator[Running]:
    """A relay on this machine; no task of it ended with an error that nobody expected."""
    log: list[Mapping[str, object]] = []
    tokens = Tokens({"one": key_of(TOKEN), "other": key_of(OTHER_TOKEN)})
    server = RelayServer(Listen(Address("127.0.0.1", 0)).open_sockets(), tokens, Limits(**limits), log.append)  # type: ignore[arg-type]
    running = Running(server, log)
    wrong: list[object] = []
    begun = threading.Event()

    def work() -> None:
        async def whole() -> None:
            running.loop = asyncio.get_running_loop()
            running.loop.set_exception_handler(lambda _, context: wrong.append(context))
            task = asyncio.create_task(server.run())
            running.stop = task.cancel
            begun.set()
            with suppress(asyncio.CancelledError):
                await task

        asyncio.run(whole())

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(LIMIT)
    try:
        yield running
    finally:
        assert running.loop is not None
        running.loop.call_soon_threadsafe(running.stop)
        thread.join(LIMIT)
        assert not thread.is_alive()
        assert not wrong

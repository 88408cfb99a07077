"""The front: accept connections, find the party that each calls, hand the socket over to it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress

from securevfl_net.dialers import Address
from securevfl_net.entrance import LONGEST, NOT_HERE, Call, read_call
from securevfl_net.gate.connection import Phase
from securevfl_net.gate.doors import Listener
from securevfl_net.gate.handshakes import Handshakes, find_network

__all__ = ["Front"]

_FIRST, _MOST = 0.002, 0.25
"""Seconds between two looks at a caller whose first bytes are not complete: they stay where they are, unread."""
_BREATH = 0.6
"""Seconds without taking connections after the machine had no descriptors left."""
_LINGER = 2.0
"""Seconds in which a refused caller may read why."""
_DRAINED = 64 << 10


class _Caller:
    """A connection whose first bytes are not complete."""

    dialled = False

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.phase = Phase.PEEK
        self.task: asyncio.Task[None] | None = None


class Front:
    """See the module.

    Args:
        listen: addresses to listen at.
        called: is told whom a caller named that is hosted here, and takes no calls now.
        most: callers that may be unidentified at once, shared between the networks that they call from as at a gate.
        seconds: in which a caller must say whom it calls.

    Raises:
        InputError: it cannot listen at an address.

    Attributes:
        doors: name of each party that is hosted, see `name_entrance`, and the socket to its gate, which does not block;
            None while it takes no calls.
        handed: connections handed over.
        refused: reason → connections refused. There are a few reasons; no caller can add one.
    """

    def __init__(
        self,
        listen: Iterable[Address],
        *,
        called: Callable[[str], None] = lambda name: None,
        most: int = 128,
        seconds: float = 10.0,
    ) -> None:
        self.doors: dict[str, socket.socket | None] = {}
        self.handed = 0
        self.refused: Counter[str] = Counter()
        self._listeners = [Listener(address, self._take) for address in listen]
        self._called, self._seconds = called, seconds
        self._callers: Handshakes[_Caller] = Handshakes(most)

    @property
    def addresses(self) -> list[Address]:
        """Where it listens, with the ports that the system chose."""
        return [listener.address for listener in self._listeners]

    async def run(self) -> None:
        """Serve until it is cancelled."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.add_reader(listener.sock, self._accept, loop, listener)
        try:
            await loop.create_future()
        finally:
            for listener in self._listeners:
                loop.remove_reader(listener.sock)
                listener.sock.close()
            tasks = [one.task for one in self._callers if one.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, loop: asyncio.AbstractEventLoop, listener: Listener) -> None:
        listener.accept()
        if listener.is_pausing(time.monotonic()):
            loop.remove_reader(listener.sock)
            loop.call_later(_BREATH, self._resume, loop, listener)

    def _resume(self, loop: asyncio.AbstractEventLoop, listener: Listener) -> None:
        if listener.sock.fileno() >= 0:
            loop.add_reader(listener.sock, self._accept, loop, listener)

    def _take(self, sock: socket.socket) -> None:
        network = find_network(sock)
        if (loser := self._callers.choose_loser(network)) is not None and loser.task is not None:
            self.refused["too many callers at once"] += 1
            self._callers.remove(loser)
            loser.task.cancel()
        caller = _Caller(sock)
        self._callers.add(caller, network)
        caller.task = asyncio.ensure_future(self._serve(caller))
        caller.task.add_done_callback(lambda _: self._end(caller))

    def _end(self, caller: _Caller) -> None:
        caller.sock.close()
        if caller in self._callers:
            self._callers.remove(caller)

    async def _serve(self, caller: _Caller) -> None:
        sock = caller.sock
        sock.setblocking(False)
        try:
            async with asyncio.timeout(self._seconds):
                why = await self._pass_on(caller)
        except TimeoutError:
            why = "it did not say in time whom it calls"
        except OSError:
            why = "the connection broke"
        if not why:
            return
        self.refused[why] += 1
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LINGER):
                await self._refuse(sock)

    async def _pass_on(self, caller: _Caller) -> str:
        """Hand a caller over to whom it calls; why not, or nothing."""
        sock, pause, seen = caller.sock, _FIRST, b""
        loop = asyncio.get_running_loop()
        await _readable(sock)
        while True:
            try:
                now = sock.recv(LONGEST, socket.MSG_PEEK)
            except BlockingIOError:
                now = seen
            if not now:
                return "it hung up"
            caller.phase = Phase.SHAKE
            try:
                call = read_call(now)
            except ValueError as error:
                return str(error)
            if call is not None:
                break
            seen = now
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MOST)
        if call.skip:
            await loop.sock_recv(sock, call.skip)
        return self._hand_over(caller, call)

    def _hand_over(self, caller: _Caller, call: Call) -> str:
        """See `_pass_on`."""
        name = call.name or (next(iter(self.doors)) if len(self.doors) == 1 else "")
        if not name:
            return "it does not say which agreement it calls, and several are here" if self.doors else "none is here"
        if name not in self.doors:
            return "no agreement of this name is here"
        door = self.doors[name]
        if door is None:
            self._called(name)
            return "the agreement that it calls takes no calls now"
        try:
            socket.send_fds(door, [b"\1"], [caller.sock.fileno()])
        except OSError:
            return "the party that it calls does not take calls fast enough, or has just ended"
        self.handed += 1
        if call.name:  # who knows one: its network keeps a few places in a flood
            caller.phase = Phase.LIVE
        return ""

    async def _refuse(self, sock: socket.socket) -> None:
        """Tell a caller that it is wrong here, and let it read that: closing with unread bytes would lose the words."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(sock, NOT_HERE)
        with suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        drained = 0
        while drained < _DRAINED and (more := len(await loop.sock_recv(sock, 1 << 12))):
            drained += more


async def _readable(sock: socket.socket) -> None:
    """Wait until the caller has sent something or hung up; reads nothing."""
    loop, number = asyncio.get_running_loop(), sock.fileno()
    found = loop.create_future()
    loop.add_reader(number, lambda: None if found.done() else found.set_result(None))
    try:
        await found
    finally:
        loop.remove_reader(number)

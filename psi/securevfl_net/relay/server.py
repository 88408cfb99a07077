"""The relay server: pairs two connections with the same meeting id and copies bytes between them.

It does not inspect what it copies, writes nothing to disk, and keeps one buffer per direction: if a reader is slow, the
sender waits. A wrong introduction drops the connection; an error in one connection does not affect others.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from securevfl_net.networks import network_of
from securevfl_net.relay.introduction import ASKED, HELLO, ID, NONCE, PAIRED, WAITING, Side, prove_key
from securevfl_net.relay.limits import Allowance, Limits
from securevfl_net.relay.tokens import Tokens

__all__ = ["RelayServer"]

_BUFFER = 64 << 10
_QUIET = 10.0
"""Minimum seconds between log lines about connections refused for the same reason."""


class _Refused(Exception):
    """A refusal: the party gets one letter, the log gets the reason."""

    def __init__(self, letter: bytes, why: str) -> None:
        self.letter = letter
        super().__init__(why)


@dataclass(eq=False)
class _Guest:
    """A connection after its introduction."""

    sock: socket.socket
    customer: str
    side: Side
    met: asyncio.Future[_Guest | None]
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class _Pair:
    task: asyncio.Task[None]


class RelayServer:
    """A relay listening at some addresses; made by `open`.

    Args:
        listeners: listening sockets, which it closes at its end.
        tokens: its customers.
        limits: its limits.
        log: receives events, without meeting ids, tokens or payload.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        listeners: list[socket.socket],
        tokens: Tokens,
        limits: Limits,
        log: Callable[[Mapping[str, object]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.addresses = [sock.getsockname()[:2] for sock in listeners]
        self._listeners, self._tokens, self._limits, self._log, self._clock = listeners, tokens, limits, log, clock
        self.allowance = Allowance(limits)
        self._waiting: dict[tuple[bytes, Side], _Guest] = {}
        self._pairs: dict[bytes, _Pair] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: dict[str, tuple[float, int]] = {}

    async def run(self) -> None:
        """Serve until it is cancelled."""
        for sock in self._listeners:
            sock.setblocking(False)
        accepting = [asyncio.create_task(self._accept_connections(sock)) for sock in self._listeners]
        try:
            await asyncio.gather(*accepting)
        finally:
            for task in [*accepting, *self._tasks]:
                task.cancel()
            await asyncio.gather(*accepting, *self._tasks, return_exceptions=True)
            for sock in self._listeners:
                sock.close()

    async def _accept_connections(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, where = await loop.sock_accept(listener)
            except OSError as error:  # descriptors ran out, or the caller is gone already
                self._log_refusal(f"accept: {error.strerror}")
                await asyncio.sleep(0.1)
                continue
            address = network_of(str(where[0]))
            if not self.allowance.admit_address(address, self._clock()):
                sock.close()
                self._log_refusal("too many connections or attempts")
                continue
            task = asyncio.create_task(self._serve_connection(sock, address))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve_connection(self, sock: socket.socket, address: str) -> None:
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                await self._serve_guest(sock)
            except _Refused as refused:
                self._log_refusal(str(refused))
                if refused.letter:
                    with suppress(OSError, TimeoutError):
                        await self._send_bytes(sock, refused.letter)
                        sock.shutdown(socket.SHUT_WR)
            except (OSError, TimeoutError) as error:
                self._log_refusal(f"introduction: {type(error).__name__}")
        finally:
            sock.close()
            self.allowance.release_address(address)

    async def _serve_guest(self, sock: socket.socket) -> None:
        async with asyncio.timeout(self._limits.introduction):
            customer, side, meeting = await self._receive_introduction(sock)
        if not self.allowance.admit_connection(customer):
            raise _Refused(b"L", "a customer's connections")
        try:
            await self._pair_or_wait(sock, customer, side, meeting)
        finally:
            self.allowance.give_back(customer)

    async def _receive_introduction(self, sock: socket.socket) -> tuple[str, Side, bytes]:
        if await self._read_exactly(sock, len(HELLO)) != HELLO:
            raise _Refused(b"", "no introduction")
        nonce = os.urandom(NONCE)
        await self._send_bytes(sock, nonce)
        asked = await self._read_exactly(sock, ASKED)
        meeting, name, shown = asked[1 : 1 + ID], asked[1 + ID : -32], asked[-32:]
        found = self._tokens.find_key(name)
        customer, key = found or ("", bytes(32))
        right = hmac.compare_digest(prove_key(key, nonce, asked[0], meeting), shown)
        if found is None or not right or asked[0] not in set(Side):
            raise _Refused(b"T", "unknown token or wrong proof")
        if not self.allowance.count_bytes(customer, 0, self._clock()):
            raise _Refused(b"Q", "a customer's bytes of a day")
        return customer, Side(asked[0]), meeting

    async def _pair_or_wait(self, sock: socket.socket, customer: str, side: Side, meeting: bytes) -> None:
        me = _Guest(sock, customer, side, asyncio.get_running_loop().create_future())
        other = self._waiting.pop((meeting, Side(1 - side)), None)
        if other is not None and not other.met.done():
            other.met.set_result(me)
            with suppress(OSError, TimeoutError):  # the other one copies, and finds out
                await self._send_bytes(sock, PAIRED)
            await me.over.wait()
            return
        await self._send_bytes(sock, WAITING)
        before = self._waiting.get((meeting, side))
        if before is not None and not before.met.done():
            before.met.set_result(None)
        self._waiting[meeting, side] = me
        try:
            await self._wait_for_other(me)
            found = me.met.result()
        finally:
            if self._waiting.get((meeting, side)) is me:
                del self._waiting[meeting, side]
        if found is None:
            raise _Refused(b"X", "replaced by a newer connection of its side")
        try:
            await self._serve_pair(me, found, meeting)
        finally:
            found.over.set()

    async def _wait_for_other(self, me: _Guest) -> None:
        """Wait until the other party arrives, this one disconnects, or it sends something too early."""
        gone = asyncio.create_task(_wait_readable(me.sock))
        try:
            await asyncio.wait(_all(me.met, gone), timeout=self._limits.waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone
        if not me.met.done():
            left = gone.done() and not gone.cancelled()
            me.met.cancel()
            raise _Refused(b"", "gone while it waited") if left else _Refused(b"N", "nobody came")

    async def _serve_pair(self, one: _Guest, other: _Guest, meeting: bytes) -> None:
        await self._send_bytes(one.sock, PAIRED)
        before = self._pairs.get(meeting)
        if before is not None:
            before.task.cancel()  # both came again: the pair of before is of connections that broke
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a pair is served by a task")
        mine = self._pairs[meeting] = _Pair(task)
        began = self._clock()
        passed = [0, 0]
        shown = hashlib.sha256(meeting).hexdigest()[:12]
        self._log({"event": "paired", "pair": shown, "customers": [one.customer, other.customer]})
        last = [began]
        try:
            copies = [
                asyncio.create_task(self._copy_bytes(one, other, passed, 0, last)),
                asyncio.create_task(self._copy_bytes(other, one, passed, 1, last)),
                asyncio.create_task(self._wait_until_idle(last)),
            ]
            try:
                both = asyncio.gather(copies[0], copies[1])
                await asyncio.wait(_all(both, copies[2]), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for copy in copies:
                    copy.cancel()
                await asyncio.gather(*copies, both, return_exceptions=True)
        finally:
            if self._pairs.get(meeting) is mine:
                del self._pairs[meeting]
            seconds = round(self._clock() - began, 3)
            self._log({"event": "ended", "pair": shown, "bytes": passed, "seconds": seconds})

    async def _copy_bytes(
        self, source: _Guest, target: _Guest, passed: list[int], which: int, last: list[float]
    ) -> None:
        loop = asyncio.get_running_loop()
        buffer = memoryview(bytearray(_BUFFER))
        pace = self._limits.bytes_a_second
        while count := await loop.sock_recv_into(source.sock, buffer):
            now = last[0] = self._clock()
            if not self.allowance.count_bytes(source.customer, count, now):
                self._log_refusal("a customer's bytes of a day")
                raise ConnectionError("the bytes of today are used up")
            await loop.sock_sendall(target.sock, buffer[:count])
            passed[which] += count
            last[0] = self._clock()
            pause = count / pace - (last[0] - now)
            if pause > 0.001:
                await asyncio.sleep(pause)
        with suppress(OSError):
            target.sock.shutdown(socket.SHUT_WR)

    async def _wait_until_idle(self, last: list[float]) -> None:
        while (left := last[0] + self._limits.idle - self._clock()) > 0:  # noqa: ASYNC110 - until the last byte is old
            await asyncio.sleep(left)

    async def _read_exactly(self, sock: socket.socket, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = await asyncio.get_running_loop().sock_recv(sock, count - len(found))
            if not more:
                raise _Refused(b"", "hung up in the introduction")
            found += more
        return found

    async def _send_bytes(self, sock: socket.socket, data: bytes) -> None:
        async with asyncio.timeout(self._limits.introduction):
            await asyncio.get_running_loop().sock_sendall(sock, data)

    def _log_refusal(self, why: str) -> None:
        """Log at most one line per reason every ten seconds, so that a connection flood cannot flood the log."""
        now = self._clock()
        then, quiet = self._told.get(why, (-_QUIET, 0))
        if now - then < _QUIET:
            self._told[why] = then, quiet + 1
            return
        self._told[why] = now, 0
        self._log({"event": "refused", "why": why, "times": quiet + 1})


def _all(*waited: asyncio.Future[Any]) -> set[asyncio.Future[Any]]:
    return set(waited)


async def _wait_readable(sock: socket.socket) -> None:
    """Wait until the other end sends something or hangs up; reads nothing."""
    loop = asyncio.get_running_loop()
    found = loop.create_future()
    number = sock.fileno()

    def come() -> None:
        if not found.done():
            found.set_result(None)

    loop.add_reader(number, come)
    try:
        await found
    finally:
        loop.remove_reader(number)

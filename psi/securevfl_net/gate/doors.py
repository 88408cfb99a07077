"""How connections begin: a listener that nobody can stop from outside, and outgoing calls that wait in their own
threads.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from securevfl_net.dialers import Address, Dialer
from securevfl_net.errors import InputError, PeerRefused
from securevfl_net.identity import Refusal, RefusalCode

__all__ = ["Callers", "Door", "Listener"]

_BACKLOG = 128
_TURN = 16
"""Connections that are taken at once, before others have their turn."""
_BREATH = 0.5
"""Seconds without taking connections after the machine had no descriptors left."""
_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Listener:
    """A port.

    Args:
        address: where.
        arrived: is called with each connection.

    Raises:
        InputError: it cannot listen there.
    """

    def __init__(self, address: Address, arrived: Callable[[socket.socket], None]) -> None:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            self.sock = socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
        except (OSError, UnicodeError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError(f"cannot listen at {address}: {why}; name another address in the party file") from None
        self.sock.setblocking(False)
        self._arrived = arrived
        self._rests = 0.0

    @property
    def address(self) -> Address:
        """The address it listens on, with the port that the system chose."""
        host, port = self.sock.getsockname()[:2]
        return Address(str(host), int(port))

    def is_pausing(self, now: float) -> bool:
        """Whether it is pausing and accepts nobody."""
        return now < self._rests

    def accept(self) -> None:
        """Take who is there. No caller can make this fail for others."""
        for _ in range(_TURN):
            try:
                sock, _ = self.sock.accept()
            except BlockingIOError:
                return
            except OSError as error:  # a caller that is gone again, or this machine is short of something
                if error.errno in _SHORT:
                    self._rests = time.monotonic() + _BREATH
                    return
                continue
            self._arrived(sock)


class Door:
    """A socket through which another process hands over connections that it accepted: see `securevfl_net.front`.

    Args:
        number: its descriptor, of a stream between processes.
        arrived: is called with each connection.

    Raises:
        InputError: it is no such socket.
    """

    def __init__(self, number: int, arrived: Callable[[socket.socket], None]) -> None:
        try:
            self.sock = socket.socket(fileno=number)
        except OSError as error:
            raise InputError(f"descriptor {number} is no socket ({error.strerror}): only a node gives one") from None
        self.sock.setblocking(False)
        self._arrived = arrived
        self._over = False

    def is_pausing(self, now: float) -> bool:
        """Whether nobody hands over anything any more."""
        return self._over

    def accept(self) -> None:
        """Take what was handed over."""
        for _ in range(_TURN):
            try:
                data, numbers, _, _ = socket.recv_fds(self.sock, 1, 1)
            except BlockingIOError:
                return
            except OSError:
                data, numbers = b"", []
            if not data:
                self._over = True
                return
            for number in numbers:  # none, if this process has no descriptors left
                self._arrived(socket.socket(fileno=number))


class Callers:
    """Calls to peers. Looking up names and waiting for proxies and relays blocks, so each call has a thread.

    Args:
        selector: is woken when a call ended.
        ended: is called by `collect` with the peer's number, and a connected socket or what went wrong.
    """

    def __init__(
        self, selector: selectors.BaseSelector, ended: Callable[[int, socket.socket | str | PeerRefused], None]
    ) -> None:
        self._results: deque[tuple[int, socket.socket | str | PeerRefused]] = deque()
        self._ended = ended
        self._wake, self._woken = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)
        selector.register(self._wake, selectors.EVENT_READ, self.collect)

    def call(self, peer: int, dialer: Dialer, seconds: float) -> None:
        """Call in the background."""
        threading.Thread(target=self._dial_peer, args=(peer, dialer, seconds), daemon=True).start()

    def _dial_peer(self, peer: int, dialer: Dialer, seconds: float) -> None:
        result: socket.socket | str | PeerRefused
        try:
            result = dialer.dial(seconds)
        except Refusal as refusal:
            result = refusal.words if refusal.code is RefusalCode.NO_ANSWER else refusal
        except (OSError, UnicodeError, InputError) as error:
            result = str(getattr(error, "strerror", None) or error)
        self._results.append((peer, result))
        os.write(self._woken, b".")

    def collect(self, _: int) -> None:
        """Take the calls that ended."""
        try:
            while os.read(self._wake, 4096):
                pass
        except BlockingIOError:
            pass
        while self._results:
            self._ended(*self._results.popleft())

"""Where a party waits for its peer. Strangers (a port scan, a browser, another certificate) are told so, noted, and do
not end the wait; several are looked at side by side, so that a silent one does not keep the peer out."""

from __future__ import annotations

import math
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from securevfl_psi.errors import CertificateError, ConnectionLost, InputError, PSIError
from securevfl_psi.wire import MAGIC

from securevfl_psi_cli.certificates import Pins
from securevfl_psi_cli.channel import READY, Address, hang_up, require_pinned, shown, trouble

__all__ = ["Listener"]

_CALLERS = 16  # that are looked at side by side; the one that came first makes room
_LEAVING = 64  # strangers that are still told why
_TICK = 0.05


@dataclass
class _Caller:
    """Somebody who called and has not shown yet who it is.

    Attributes:
        sock: not blocking.
        where: its address.
        until: when it is given up, monotonic.
        said: it began to speak, so looking again at once tells nothing.
    """

    sock: socket.socket
    where: str
    until: float
    said: bool = False


class Listener:
    """Listens at an address until it is closed.

    Args:
        address: where.
        pins: the certificates; None for plain TCP, where whoever begins as a peer does counts as one.
        timeout: seconds that a caller has to show who it is.
        refused: called with a line for each stranger.

    Raises:
        InputError: an address where this machine cannot listen.
    """

    def __init__(
        self, address: Address, pins: Pins | None, *, timeout: float, refused: Callable[[str], None] = lambda _: None
    ) -> None:
        family, where = address.resolved()[0]
        self._pins, self._timeout, self._refused = pins, timeout, refused
        self._context = None if pins is None else pins.context(server=True)
        self._last: PSIError | None = None
        self._strangers = 0
        self._callers: list[_Caller] = []
        self._begun = time.monotonic()
        try:
            self._door = socket.create_server(where, family=family, backlog=_CALLERS)
        except OSError as error:
            raise InputError(f"cannot listen at {shown(where)}: {error.strerror or error}") from None
        self._door.setblocking(False)

    def __enter__(self) -> Listener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._door.close()
        for caller in self._callers:
            caller.sock.close()

    @property
    def where(self) -> str:
        """The address, for people."""
        return shown(self._door.getsockname())

    def meet(self, wait: float | None) -> tuple[socket.socket, str]:
        """The first connection whose other end is the peer, as far as its certificate, or its first bytes, tell; and
        from where.

        Args:
            wait: seconds since this party began to listen; None for as long as it takes.

        Raises:
            ConnectionLost, CertificateError: the peer did not come; the last stranger's error, if there were some.
        """
        end = math.inf if wait is None else self._begun + wait
        while time.monotonic() <= end:
            with selectors.DefaultSelector() as selector:
                selector.register(self._door, selectors.EVENT_READ)
                speaking = False
                for caller in self._callers:
                    speaking |= caller.said
                    if not caller.said:
                        selector.register(caller.sock, selectors.EVENT_READ)
                nearest = min([end, *(caller.until for caller in self._callers)]) - time.monotonic()
                selector.select(min(max(nearest, 0.0), _TICK if speaking else 1.0))
            self._take_calls()
            for caller in list(self._callers):
                if found := self._look(caller):
                    return found, caller.where
        given = f"within {wait:g} s: raise --wait, or look there"
        if self._last is None:
            raise ConnectionLost(f"nobody connected {given}")
        others = f"{self._strangers} connection{'' if self._strangers == 1 else 's'} refused, the last because"
        raise type(self._last)(f"the peer did not connect {given} ({others} {self._last})")

    def refuse(self, where: str, error: PSIError) -> None:
        """Note a stranger who looked like the peer until it spoke."""
        self._strangers += 1
        self._last = error
        self._refused(f"Refused {where}: {error}; listening on")

    def _take_calls(self) -> None:
        while True:
            try:
                sock, where = self._door.accept()
            except (BlockingIOError, OSError):  # nobody more; or one that has left already
                return
            until = time.monotonic() + self._timeout
            sock.setblocking(False)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._context is not None:
                    sock = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            except OSError:
                sock.close()
                continue
            self._callers.append(_Caller(sock, shown(where), until))
            if len(self._callers) > _CALLERS:
                self._give_up(self._callers[0], ConnectionLost("it showed nothing while many others called"))

    def _look(self, caller: _Caller) -> socket.socket | None:
        """The caller's connection, blocking again, if it is the peer's."""
        try:
            known = self._begins(caller) if self._pins is None else self._handshake(caller)
        except PSIError as error:
            self._give_up(caller, error)
            return None
        if known:
            self._callers.remove(caller)
            caller.sock.settimeout(self._timeout)
            return caller.sock
        if time.monotonic() > caller.until:
            self._give_up(caller, ConnectionLost(f"it did not show who it is within {self._timeout:g} s"))
        return None

    def _handshake(self, caller: _Caller) -> bool:
        sock, pins = caller.sock, self._pins
        if not isinstance(sock, ssl.SSLSocket) or pins is None:
            raise ConnectionLost("it has no TLS")
        try:
            sock.do_handshake()
            require_pinned(sock, pins)
            sock.send(READY)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError as error:
            raise trouble(error, pins) from None
        return True

    @staticmethod
    def _begins(caller: _Caller) -> bool:
        """Whether the first bytes are those of a frame; they stay to be read."""
        try:
            begin = caller.sock.recv(len(MAGIC), socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError as error:
            raise ConnectionLost(f"the connection broke: {error.strerror or error}") from None
        if not begin:
            raise ConnectionLost("it hung up before it said anything")
        if not MAGIC.startswith(begin):
            raise ConnectionLost("it does not speak this protocol: its bytes are no frame")
        caller.said = True
        return begin == MAGIC

    def _give_up(self, caller: _Caller, error: PSIError) -> None:
        self._callers.remove(caller)
        self.refuse(caller.where, error)
        if isinstance(error, CertificateError) and threading.active_count() < _LEAVING:  # its refusal is under way
            threading.Thread(target=hang_up, args=(caller.sock,), daemon=True).start()
        else:
            caller.sock.close()

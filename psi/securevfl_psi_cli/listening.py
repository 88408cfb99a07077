"""Where a party waits for its peer. A stranger (a port scan, a browser, another certificate) is refused and noted, and
does not end the wait; several are looked at side by side, so that a silent one does not keep the peer out."""

from __future__ import annotations

import math
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from securevfl_net.dialers import Address, Listen
from securevfl_net.identity import Accepted, Handshake, Want
from securevfl_psi.errors import ConnectionLost, PSIError
from securevfl_psi.wire import MAGIC

from securevfl_psi_cli.channel import hang_up
from securevfl_psi_cli.credentials import Pins, explain_refusal, wrong_input

__all__ = ["PeerListener"]

_CALLERS = 16  # that are looked at side by side; the one that came first makes room
_LEAVING = 64  # refused callers that may still read why
_LINGER = 2.0  # seconds in which a refused caller may read why
_TICK = 0.05


@dataclass
class _Caller:
    """Somebody who called and has not shown yet who it is.

    Attributes:
        sock: not blocking.
        where: its address.
        until: when it is given up, monotonic.
        handshake: in TLS; None over plain TCP.
        want: what its handshake waits for.
        said: it began to speak, so there is no point in looking again at once.
        refused: it may read why, and is noted already.
    """

    sock: socket.socket
    where: str
    until: float
    handshake: Handshake | None = None
    want: Want = Want.READ
    said: bool = False
    refused: bool = False


class PeerListener:
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
        self._pins, self._timeout, self._refused = pins, timeout, refused
        self._context = None if pins is None else pins.make_tls_context(server=True)
        self._last: PSIError | None = None
        self._strangers = 0
        self._callers: list[_Caller] = []
        self._begun = time.monotonic()
        with wrong_input():
            self._doors = Listen(address).open_sockets()
        for door in self._doors:
            door.setblocking(False)

    def __enter__(self) -> PeerListener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for door in self._doors:
            door.close()
        for caller in self._callers:
            # A refusal is under way: closing with bytes unread would discard it at the peer.
            if caller.refused and threading.active_count() < _LEAVING:
                threading.Thread(target=hang_up, args=(caller.sock,), daemon=True).start()
            else:
                caller.sock.close()

    @property
    def where(self) -> str:
        """The address, for people."""
        return _format_address(self._doors[0].getsockname())

    def accept_peer(self, wait: float | None) -> tuple[socket.socket, str]:
        """The first connection whose other end is the peer, as far as its certificate, or its first bytes, tell; and
        from where.

        Args:
            wait: seconds since this party began to listen; None for as long as it takes.

        Raises:
            ConnectionLost, CertificateError: the peer did not come; the last stranger's error, if there were some.
        """
        end = math.inf if wait is None else self._begun + wait
        while time.monotonic() <= end:
            self._wait_for_callers(end)
            self._take_calls()
            for caller in list(self._callers):
                if found := self._check_caller(caller):
                    return found, caller.where
        given = f"within {wait:g} s: raise --wait, or look there"
        if self._last is None:
            raise ConnectionLost(f"nobody connected {given}")
        others = f"{self._strangers} connection{'' if self._strangers == 1 else 's'} refused, the last because"
        raise type(self._last)(f"the peer did not connect {given} ({others} {self._last})")

    def note_stranger(self, where: str, error: PSIError) -> None:
        """Note a stranger who looked like the peer until it spoke."""
        self._strangers += 1
        self._last = error
        self._refused(f"Refused {where}: {error}; listening on")

    def _wait_for_callers(self, end: float) -> None:
        """Until somebody calls or speaks, or has had its time."""
        with selectors.DefaultSelector() as selector:
            for door in self._doors:
                selector.register(door, selectors.EVENT_READ)
            for caller in self._callers:
                if not caller.said:
                    events = selectors.EVENT_WRITE if caller.want is Want.WRITE else selectors.EVENT_READ
                    selector.register(caller.sock, events)
            nearest = min([end, *(caller.until for caller in self._callers)]) - time.monotonic()
            speaking = any(caller.said for caller in self._callers)
            selector.select(min(max(nearest, 0.0), _TICK if speaking else 1.0))

    def _take_calls(self) -> None:
        for door in self._doors:
            while self._take_call(door):
                pass

    def _take_call(self, door: socket.socket) -> bool:
        try:
            sock, where = door.accept()
        except OSError:  # nobody more; or one that has left already
            return False
        caller = _Caller(sock, _format_address(where), time.monotonic() + self._timeout)
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None and self._pins is not None:
                tls = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                caller.sock, caller.handshake = tls, Handshake(tls, self._pins.book)
        except OSError:
            sock.close()
            return True
        self._callers.append(caller)
        waiting = [one for one in self._callers if not one.refused]
        if len(waiting) > _CALLERS:
            self._give_up(waiting[0], ConnectionLost("it showed nothing while many others called"))
        return True

    def _check_caller(self, caller: _Caller) -> socket.socket | None:
        """The caller's connection, blocking again, if it is the peer's."""
        late = time.monotonic() > caller.until
        if caller.refused:
            if late or self._step_handshake(caller) is Want.DONE:
                self._drop_caller(caller)
            return None
        try:
            known = self._begins_frame(caller) if caller.handshake is None else self._is_accepted(caller)
        except PSIError as error:
            self._give_up(caller, error)
            return None
        if known:
            self._callers.remove(caller)
            caller.sock.settimeout(self._timeout)
            return caller.sock
        if late:
            self._give_up(caller, ConnectionLost(f"it did not show who it is within {self._timeout:g} s"))
        return None

    @staticmethod
    def _step_handshake(caller: _Caller) -> Want:
        caller.want = Want.DONE if caller.handshake is None else caller.handshake.step()
        return caller.want

    def _is_accepted(self, caller: _Caller) -> bool:
        self._step_handshake(caller)
        outcome = None if caller.handshake is None else caller.handshake.outcome
        if outcome is None or self._pins is None:
            return False
        if isinstance(outcome, Accepted):
            return True
        raise explain_refusal(outcome, self._pins)

    @staticmethod
    def _begins_frame(caller: _Caller) -> bool:
        """Whether the first bytes are those of a frame; they stay to be read."""
        try:
            begin = caller.sock.recv(len(MAGIC), socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError as error:
            raise ConnectionLost(f"the connection broke: {error.strerror or error}") from None
        if not begin:
            raise ConnectionLost("it hung up before it sent anything")
        if not MAGIC.startswith(begin):
            raise ConnectionLost("it does not speak this protocol: its bytes are no frame")
        caller.said = True
        return begin == MAGIC

    def _give_up(self, caller: _Caller, error: PSIError) -> None:
        """Note a stranger. One whose handshake was refused may still read why."""
        self.note_stranger(caller.where, error)
        refused = caller.handshake is not None and caller.handshake.outcome is not None
        if refused and caller.want is not Want.DONE:
            caller.refused, caller.until = True, time.monotonic() + _LINGER
        else:
            self._drop_caller(caller)

    def _drop_caller(self, caller: _Caller) -> None:
        self._callers.remove(caller)
        caller.sock.close()


def _format_address(where: tuple[object, ...]) -> str:
    return str(Address(str(where[0]), int(str(where[1]))))

"""Connections among several parties, one between each two, and the frames of a joint run over all of them.

Of two parties the one whose name sorts first listens, the other one calls. Every connection is TLS 1.3 with both
certificates pinned: the protocol's pairwise keys must come from whom they name.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from securevfl_psi.errors import CertificateError, ConnectionLost, MalformedError, PeerRefused, PSIError
from securevfl_psi.joint import Joint
from securevfl_psi.wire import Frame, FrameReader, FrameWriter, Kind

from securevfl_psi_cli.channel import Address, connect, left_politely, secured
from securevfl_psi_cli.credentials import Pins
from securevfl_psi_cli.driver import Traffic
from securevfl_psi_cli.listening import Listener

__all__ = ["Neighbour", "meet_all", "move"]

_READ = 1 << 18
_TICK = 0.5
_LEAST = 64  # bytes that must move within the timeout, as in `net`


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """Another party.

    Attributes:
        name: of it.
        address: where it listens.
        pins: this party's certificate and key, and that party's certificate.
    """

    name: str
    address: Address
    pins: Pins


def meet_all(
    name: str,
    at: Address,
    neighbours: Mapping[str, Neighbour],
    stack: ExitStack,
    *,
    wait: float,
    timeout: float,
    say: Callable[[str], None],
) -> dict[str, socket.socket]:
    """Connections with all other parties, by their names.

    Args:
        name: this party's.
        at: where it listens.
        neighbours: the others.
        stack: closes the connections at the end.
        wait: seconds until all must be there.
        timeout: seconds that a caller has to show who it is.
        say: is told what happens.

    Raises:
        ConnectionLost, CertificateError: somebody is not there in time, or is another one than expected.
        InputError: an address where this machine cannot listen.
    """
    end = time.monotonic() + wait
    callers = {other.name: other for other in neighbours.values() if other.name > name}
    found: dict[str, socket.socket] = {}
    with ExitStack() as doors:
        door = None
        if callers:
            pins = Pins.merged(other.pins for other in callers.values())
            door = doors.enter_context(Listener(at, pins, timeout=timeout, refused=say))
            say(f"Listening at {door.where}")
        for other in sorted(neighbours.values(), key=lambda one: one.name):
            if other.name < name:  # by name: who waits for whom has no circle
                left = max(0.1, end - time.monotonic())
                sock = connect(other.address, left)
                left = max(0.1, end - time.monotonic())
                found[other.name] = stack.enter_context(secured(sock, other.pins, timeout=left))
                say(f"Connected with {other.name}")
        while door is not None and not callers.keys() <= found.keys():
            missing = [one for one in callers if one not in found]
            try:
                caught, where = door.meet(wait)
            except PSIError as error:
                raise type(error)(f"{' and '.join(missing)} did not come: {error}") from None
            caller = pins.party(caught)
            if caller not in missing:
                caught.close()
                door.refuse(where, CertificateError("that party is here already"))
                continue
            stack.enter_context(left_politely(caught))
            found[caller] = caught
            say(f"Connected with {caller}")
    return found


class _Line:
    """A connection, what goes over it and what is due from it."""

    def __init__(self, name: str, sock: socket.socket, joint: Joint, traffic: Traffic) -> None:
        self.name, self.sock, self._traffic = name, sock, traffic
        self._sending, self._hearing = joint.sending(name), joint.receiving(name)
        self._writer, self._reader = FrameWriter(), FrameReader()
        self._inbox: deque[Frame] = deque()
        self._due: Kind | None = None
        self.pending = memoryview(b"")
        self._sent = self._heard = self._closed = False
        sock.setblocking(False)

    @property
    def done(self) -> bool:
        """Whether all was said and heard."""
        return self._sent and self._heard and not self.pending

    @property
    def full(self) -> bool:
        """Whether frames lie here that cannot be used yet, so that no more are taken."""
        return bool(self._inbox) or self._closed

    def move(self) -> bool:
        """One round; whether anything happened."""
        return self._write() | self._read() | self._hear()

    def refuse(self, error: PSIError) -> None:
        """Tells the peer why this party ends, as far as it still listens."""
        try:
            self.sock.settimeout(1.0)
            self.sock.sendall(bytes(self.pending) + self._writer.write(Kind.REFUSED, type(error).__name__.encode()))
            self.sock.shutdown(socket.SHUT_WR)  # all lines before one is closed: else parties wait for each other
        except OSError:
            return

    def _write(self) -> bool:
        made = False
        if not self.pending and not self._sent:
            try:
                frame = next(self._sending)
            except StopIteration:
                self._sent = made = True
            else:
                if frame is not None:
                    self.pending, made = memoryview(self._writer.write(frame.kind, frame.payload)), True
        if self.pending:
            try:
                count = self.sock.send(self.pending)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return made
            except OSError as error:
                raise self._broken(error) from None
            self.pending, made = self.pending[count:], True
            self._traffic.sent += count
        return made

    def _read(self) -> bool:
        if self.full or self._heard:
            return False
        try:
            data = self.sock.recv(_READ)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError as error:
            raise self._broken(error) from None
        self._traffic.received += len(data)
        self._closed = not data
        self._inbox.extend(self._reader.feed(data))
        return True

    def _hear(self) -> bool:
        heard = False
        while not self._heard:
            try:
                if self._due is None:
                    self._due = next(self._hearing)
                if self._due is None:
                    return heard
                if not self._inbox:
                    break
                frame = self._inbox.popleft()
                if frame.kind == Kind.REFUSED:
                    why = frame.payload.decode("ascii", "replace")
                    raise PeerRefused(f"{self.name!r} ended the run: {why if why.isidentifier() else 'no reason'}")
                if frame.kind != self._due:
                    raise MalformedError(f"{self.name!r} sent {frame.kind.name} where {self._due.name} is due")
                heard = True
                self._due = self._hearing.send(frame)
            except StopIteration:
                self._heard = heard = True
        if self._closed and not self._heard:
            raise ConnectionLost(f"{self.name!r} hung up in the middle of the run: look there")
        if self._heard and self._inbox:
            raise MalformedError(f"{self.name!r} sent a {self._inbox[0].kind.name} after the end")
        return heard

    def _broken(self, error: OSError) -> PSIError:
        return ConnectionLost(f"the connection with {self.name!r} broke: {error.strerror or error}")


def move(joint: Joint, socks: Mapping[str, socket.socket], *, timeout: float, deadline: float) -> Traffic:
    """Runs a party's scripts with all others to their end, in one thread. The sockets stay open.

    Args:
        joint: this party's scripts.
        socks: a connection with each other party, whose TLS handshake is done.
        timeout: seconds with fewer than 64 bytes over all connections together after which the run is given up.
        deadline: seconds for the whole run, however much moves.

    Raises:
        PSIError: what a script raises, after all others were told.
        ConnectionLost: somebody hung up, all were silent for too long, or the deadline is over.
    """
    traffic = Traffic()
    lines = [_Line(name, sock, joint, traffic) for name, sock in socks.items()]
    begun = last = time.monotonic()
    counted = 0
    try:
        while not all(line.done for line in lines):
            moved = False
            for line in lines:
                moved |= line.move()
            now, total = time.monotonic(), traffic.sent + traffic.received
            if total - counted >= _LEAST:
                last, counted = now, total
            waiting = " and ".join(repr(line.name) for line in lines if not line.done)
            if now - begun > deadline:
                raise ConnectionLost(
                    f"the run was not done within {deadline:g} s, its overall deadline; {waiting} had not ended: raise "
                    "--deadline, or look there"
                )
            if now - last > timeout:
                raise ConnectionLost(f"{waiting}: silent for {timeout:g} s, or all but: raise --timeout, or look there")
            if not moved:
                _sleep(lines, min(_TICK, timeout, deadline))
    except PSIError as error:
        for line in lines:
            line.refuse(error)
        raise
    return traffic


def _sleep(lines: list[_Line], seconds: float) -> None:
    """Until something can move."""
    with selectors.DefaultSelector() as selector:
        for line in lines:
            wanted = (0 if line.full or line.done else selectors.EVENT_READ) | (
                selectors.EVENT_WRITE if line.pending else 0
            )
            if wanted:
                selector.register(line.sock, wanted)
        selector.select(seconds)

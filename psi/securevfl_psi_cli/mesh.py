"""Connections among several parties, one between each two, and the frames of a joint run over all of them.

Of two parties the one whose name sorts first listens, the other one calls. Every connection is TLS 1.3 with both
certificates pinned: the protocol's pairwise keys must come from whom they name.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from securevfl_psi.errors import CertificateError, ConnectionLost, MalformedError, PeerRefused, PSIError
from securevfl_psi.joint import Joint
from securevfl_psi.wire import Kind

from securevfl_psi_cli.byte_stream import ActivityTimer, Traffic
from securevfl_psi_cli.channel import Address, connect, hanging_up, secure_connection
from securevfl_psi_cli.credentials import Pins
from securevfl_psi_cli.frame_stream import FrameStream
from securevfl_psi_cli.listening import PeerListener

__all__ = ["Neighbour", "meet_all", "run_joint"]

_TICK = 0.5


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
        say: called with each progress message.

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
            pins = Pins.merge_pins(other.pins for other in callers.values())
            door = doors.enter_context(PeerListener(at, pins, timeout=timeout, refused=say))
            say(f"Listening at {door.where}")
        for other in sorted(neighbours.values(), key=lambda one: one.name):
            if other.name < name:  # by name: who waits for whom has no circle
                left = max(0.1, end - time.monotonic())
                sock = connect(other.address, left)
                left = max(0.1, end - time.monotonic())
                found[other.name] = stack.enter_context(secure_connection(sock, other.pins, timeout=left))
                say(f"Connected with {other.name}")
        while door is not None and not callers.keys() <= found.keys():
            missing = [one for one in callers if one not in found]
            try:
                caught, where = door.accept_peer(wait)
            except PSIError as error:
                raise type(error)(f"{' and '.join(missing)} did not come: {error}") from None
            caller = pins.identify_peer(caught)
            if caller not in missing:
                caught.close()
                door.note_stranger(where, CertificateError("that party is here already"))
                continue
            stack.enter_context(hanging_up(caught))
            found[caller] = caught
            say(f"Connected with {caller}")
    return found


class _PeerExchange:
    """The frames that a joint run sends to one party and expects from it."""

    def __init__(self, name: str, sock: socket.socket, joint: Joint, traffic: Traffic, timeout: float) -> None:
        self.name, self.stream = name, FrameStream(sock, name, timeout=timeout, traffic=traffic)
        self._sending, self._receiving = joint.send_script(name), joint.receive_script(name)
        self._due: Kind | None = None
        self.pending = memoryview(b"")
        self._sent = self._received = self._closed = False
        sock.setblocking(False)

    @property
    def is_done(self) -> bool:
        """Whether all frames of both directions were moved."""
        return self._sent and self._received and not self.pending

    @property
    def is_full(self) -> bool:
        """Whether frames wait here that the run cannot use yet; no more are received until it can."""
        return bool(self.stream.inbox) or self._closed

    def move_frames(self) -> bool:
        """Do one round; return whether anything happened."""
        return self._send_frames() | self._receive_frames() | self._use_frames()

    def refuse(self, error: PSIError) -> None:
        """Send the peer the reason why this party ends, if it still listens."""
        refusal = self.stream.encode_frame(Kind.REFUSED, type(error).__name__.encode())
        self.stream.send_last(bytes(self.pending) + refusal)
        with suppress(OSError):
            # All lines shut down before one is closed: otherwise parties wait for each other.
            self.stream.sock.shutdown(socket.SHUT_WR)

    def _send_frames(self) -> bool:
        moved = False
        if not self.pending and not self._sent:
            try:
                frame = next(self._sending)
            except StopIteration:
                self._sent = moved = True
            else:
                if frame is not None:
                    self.pending, moved = memoryview(self.stream.encode_frame(frame.kind, frame.payload)), True
        if count := self.stream.send_some(self.pending):
            self.pending, moved = self.pending[count:], True
        return moved

    def _receive_frames(self) -> bool:
        if self.is_full or self._received:
            return False
        data = self.stream.receive_some()
        if data is None:
            return False
        self._closed = not data
        self.stream.decode_frames(data)
        return True

    def _use_frames(self) -> bool:
        used = False
        while not self._received:
            try:
                if self._due is None:
                    self._due = next(self._receiving)
                if self._due is None:
                    return used
                if not self.stream.inbox:
                    break
                frame = self.stream.inbox.popleft()
                if frame.kind == Kind.REFUSED:
                    why = frame.payload.decode("ascii", "replace")
                    raise PeerRefused(f"{self.name!r} ended the run: {why if why.isidentifier() else 'no reason'}")
                if frame.kind != self._due:
                    raise MalformedError(f"{self.name!r} sent {frame.kind.name} where {self._due.name} is due")
                used = True
                self._due = self._receiving.send(frame)
            except StopIteration:
                self._received = used = True
        if self._closed and not self._received:
            raise ConnectionLost(f"{self.name!r} closed the connection during the run: check its output")
        if self._received and self.stream.inbox:
            raise MalformedError(f"{self.name!r} sent a {self.stream.inbox[0].kind.name} after the end")
        return used


def run_joint(joint: Joint, socks: Mapping[str, socket.socket], *, timeout: float, deadline: float) -> Traffic:
    """Run a party's scripts with all others to their end, in one thread. The sockets stay open.

    Args:
        joint: this party's scripts.
        socks: name → connection with that party, whose TLS handshake is done.
        timeout: seconds with fewer than 64 bytes over all connections together after which the run is given up.
        deadline: seconds for the whole run, however much moves.

    Raises:
        PSIError: what a script raises; the other parties receive a refusal first.
        ConnectionLost: somebody hung up, all were silent for too long, or the deadline is over.
    """
    traffic = Traffic()
    lines = [_PeerExchange(name, sock, joint, traffic, timeout) for name, sock in socks.items()]
    timer = ActivityTimer(timeout, deadline)
    try:
        while not all(line.is_done for line in lines):
            moved = False
            for line in lines:
                moved |= line.move_frames()
            timer.check_bounds(traffic.total, [line.name for line in lines if not line.is_done])
            if not moved:
                _wait_for_lines(lines, min(_TICK, timeout, deadline))
    except PSIError as error:
        for line in lines:
            line.refuse(error)
        raise
    return traffic


def _wait_for_lines(lines: list[_PeerExchange], seconds: float) -> None:
    """Wait until something can move."""
    with selectors.DefaultSelector() as selector:
        for line in lines:
            wanted = (0 if line.is_full or line.is_done else selectors.EVENT_READ) | (
                selectors.EVENT_WRITE if line.pending else 0
            )
            if wanted:
                selector.register(line.stream.sock, wanted)
        selector.select(seconds)

"""One TCP connection of a gate: from the first byte through TLS and both verdicts to frames of the session."""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from securevfl_net.entrance import HELLO, NOT_HERE, REVERSED
from securevfl_net.identity import Accepted, Handshake, PeerBook, Refusal, Want
from securevfl_net.identity.handshake import SILENT
from securevfl_net.identity.refusal import RefusalCode, from_tls, refuse_absent

if TYPE_CHECKING:
    from securevfl_net.session import Line

__all__ = ["Connection", "Contexts", "Phase", "Turn"]

_TURN = 1 << 20
"""Bytes that one connection may move before others have their turn."""
_PULL = 256 << 10
_UNSENT = 512 << 10
"""Most bytes that wait in the kernel unsent, so that pings and aborts do not queue behind bulk there."""
_LINGER = 2.0
"""Seconds in which a peer may still read the last bytes."""
_WAITS = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError, InterruptedError)

Contexts = Callable[[bool], ssl.SSLContext]
"""Whether this party is the TLS server → the current TLS context."""


class Phase:
    """Progress of a connection."""

    PEEK = 0
    SHAKE = 1
    LIVE = 2
    LINGER = 3
    OVER = 4


class Turn:
    """Result of a turn."""

    WAIT = 0
    AGAIN = 1
    OVER = 2


class Connection:
    """A connection from its first byte to its last.

    Attributes:
        phase: of `Phase`.
        expected: the peer that was called; empty where somebody called.
        dialled: whether this party called.
        since: when it began.
        heard: when bytes last came.
        moved: bytes of frames, both ways.
        number: its descriptor.
        party: whose it is, once that is known.
        certificate: that the peer showed, DER.
        fingerprint: of it.
        line: of the session.
        refusal: why it ended, where it was refused.
        why: it ended, in words.
        reads: whether it accepts bytes now; the gate pauses it if the program does not keep up with notes.

    Args:
        sock: connected.
        contexts: TLS contexts.
        book: whom to let in.
        live: party → fingerprint of established connections.
        expected: the peer that was called.
        server: this party's role in TLS, where it called.
        direct: whether the called side has yet to learn that it begins, where it does.
        called: name of the party called, where this party called it directly; see `securevfl_net.entrance`.
        knock: sent before everything else, where this party called.
    """

    __slots__ = (
        "_book",
        "_called",
        "_contexts",
        "_live",
        "_mask",
        "_out",
        "_shake",
        "certificate",
        "dialled",
        "expected",
        "fingerprint",
        "heard",
        "line",
        "moved",
        "number",
        "party",
        "phase",
        "reads",
        "refusal",
        "server",
        "since",
        "sock",
        "until",
        "why",
    )

    def __init__(
        self,
        sock: socket.socket,
        contexts: Contexts,
        book: PeerBook,
        live: dict[str, str],
        *,
        seconds: float,
        expected: str = "",
        server: bool | None = None,
        direct: bool = True,
        called: str = "",
        knock: bytes = b"",
    ) -> None:
        self.sock = sock
        self.number = sock.fileno()
        self._contexts, self._book, self._live = contexts, book, live
        self._shake: Handshake | None = None
        self._out: deque[memoryview] = deque()
        self._mask = 0
        self.expected, self.dialled, self.server = expected, server is not None, server
        self._called = called
        self.phase = Phase.PEEK
        self.since = self.heard = time.monotonic()
        self.until = self.since + seconds
        self.moved = 0
        self.party = self.fingerprint = self.why = ""
        self.certificate = b""
        self.line: Line | None = None
        self.refusal: Refusal | None = None
        self.reads = True
        sock.setblocking(False)
        if sock.family in {socket.AF_INET, socket.AF_INET6}:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
        if server is not None:
            if server and direct:
                sock.send(knock + REVERSED)  # the first bytes of a connection always fit
                self._mask = selectors.EVENT_READ  # what comes is a hello, or that nobody of this name is there
            else:
                self._begin_tls(server)

    def wanted_events(self) -> int:
        """Socket events to wait for."""
        return self._mask

    def make_progress(self) -> int:
        """Move what can be moved now; see `Turn`. Handshakes and bytes; the gate looks at `line` and `phase` after."""
        try:
            if self.phase == Phase.PEEK:
                self._peek_first_byte()
            if self.phase == Phase.SHAKE:
                self._step_handshake()
            if self.phase == Phase.LIVE:
                return self._move_bytes()
            if self.phase == Phase.LINGER:
                self._discard_input()
        except OSError as error:
            self.end(
                from_tls(error, self.party or self.expected).words
                if self.phase != Phase.LIVE
                else _describe_error(error)
            )
        return Turn.OVER if self.phase == Phase.OVER else Turn.WAIT

    def _peek_first_byte(self) -> None:
        self._mask = selectors.EVENT_READ
        try:
            first = self.sock.recv(1, socket.MSG_PEEK)
        except _WAITS:
            return
        if self.dialled:
            if first == NOT_HERE[:1]:
                self.refusal = refuse_absent(self.expected)
                self.end(self.refusal.words)
            else:
                self._begin_tls(True)
        elif first == REVERSED:
            self.sock.recv(1)
            self._begin_tls(False)
        elif first and first[0] == HELLO:
            self._begin_tls(True)
        else:
            words = "the bytes received are not TLS: is the caller a party?" if first else "somebody called and hung up"
            self.refusal = Refusal(RefusalCode.NOT_TLS if first else RefusalCode.HUNG_UP, words)
            self.end(words)

    def _begin_tls(self, server: bool) -> None:
        self.server = server
        self.sock = tls = self._contexts(server).wrap_socket(
            self.sock,
            server_side=server,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=True,
            server_hostname=None if server else self._called or None,
        )
        self._shake = Handshake(tls, self._book, expected=self.expected, live=self._live)
        self.phase = Phase.SHAKE

    def _step_handshake(self) -> None:
        shake = self._shake
        if shake is None:
            return
        want = shake.step()
        self._mask = selectors.EVENT_WRITE if want is Want.WRITE else selectors.EVENT_READ
        outcome = shake.outcome
        if isinstance(outcome, Refusal):
            self.refusal = outcome
            self.until = min(self.until, time.monotonic() + _LINGER)
            if want is Want.DONE:
                self.end(f"{outcome.code}: {outcome.words}")
        elif isinstance(outcome, Accepted):
            self._shake = None
            self.party, self.fingerprint = outcome.party, outcome.certificate.fingerprint
            self.certificate = outcome.certificate.der
            self.heard = time.monotonic()
            self.phase = Phase.LIVE
        elif want is Want.DONE:
            self.end("the handshake ended without a verdict")

    def _move_bytes(self) -> int:
        line = self.line
        if line is None:
            return Turn.WAIT
        broken = None
        try:
            done, blocked = self._write_socket(line)
        except OSError as error:  # the peer reads nothing any more; its last bytes may still be in the buffer
            done, blocked, broken = False, False, error
        more = self._read_socket(line) if self.reads and not line.over else False
        if broken is not None:
            if not more:
                self.end(_describe_error(broken))
            return Turn.AGAIN if more else Turn.OVER
        if line.over and done:
            done, blocked = self._write_socket(line)  # its last words
        if line.over and done:
            self._linger_before_close(line.why)
            return Turn.OVER if self.phase == Phase.OVER else Turn.WAIT
        self._mask = (selectors.EVENT_READ if self.reads else 0) | (selectors.EVENT_WRITE if blocked else 0)
        return Turn.AGAIN if more or not (done or blocked) else Turn.WAIT

    def _write_socket(self, line: Line) -> tuple[bool, bool]:
        """Whether everything was written, and whether the socket is full."""
        out, sock, total = self._out, self.sock, 0
        while total < _TURN:
            if not out:
                out.extend(line.pull_bytes(_PULL))
                if not out:
                    return True, False
            try:
                count = sock.send(out[0])
            except _WAITS:
                return False, True
            total += count
            self.moved += count
            if count == len(out[0]):
                out.popleft()
            else:
                out[0] = out[0][count:]
        return False, False

    def _read_socket(self, line: Line) -> bool:
        """Whether more may follow."""
        sock, total = self.sock, 0
        recv_into = sock.recv_into
        try:
            while total < _TURN:
                count = recv_into(line.receive_buffer())
                if not count:
                    self.end("the peer closed the connection")
                    return False
                total += count
                line.commit_received(count)
                if line.over:
                    break
        except _WAITS:
            return False
        finally:
            if total:
                self.moved += total
                self.heard = time.monotonic()
        return not line.over

    def flush(self) -> int:
        """Write what the session has, where nothing waits to be written; see `Turn`."""
        line = self.line
        if self.phase != Phase.LIVE or self._out or line is None:
            return Turn.WAIT
        try:
            done, blocked = self._write_socket(line)
        except OSError:
            return Turn.AGAIN
        if line.over:
            return Turn.AGAIN
        self._mask = (selectors.EVENT_READ if self.reads else 0) | (selectors.EVENT_WRITE if blocked else 0)
        return Turn.WAIT if done or blocked else Turn.AGAIN

    def close_gracefully(self, why: str) -> None:
        """Write the rest, close the sending side, and accept nothing any more."""
        if self.line is not None and not self.line.over:
            self._out.extend(self.line.pull_bytes(_PULL))
            self.line.mark_closed()
            self.line.why = why

    def _linger_before_close(self, why: str) -> None:
        """Close the sending side and discard what arrives: closing with unread bytes would make the peer lose our last
        ones.
        """
        self.why = self.why or why
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.end(why)
            return
        self.phase = Phase.LINGER
        self.until = time.monotonic() + _LINGER
        self._mask = selectors.EVENT_READ
        self._discard_input()

    def _discard_input(self) -> None:
        try:
            # At most 64 reads a turn: a peer that keeps sending must not hold the loop.
            for _ in range(64):
                if not self.sock.recv(1 << 16):
                    self.end(self.why)
                    return
        except _WAITS:
            return

    def end_if_late(self, now: float) -> None:
        """End it where its time is up."""
        if self.phase in {Phase.LIVE, Phase.OVER} or now < self.until:
            return
        if self._shake is not None and self.refusal is None:
            self._shake.time_is_up()
            outcome = self._shake.outcome
            self.refusal = outcome if isinstance(outcome, Refusal) else None
        elif self.phase == Phase.PEEK:
            words = SILENT if self.dialled else "a caller connected and sent nothing"
            self.refusal = Refusal(RefusalCode.NO_ANSWER, words, party=self.expected)
        self.end(self.why or (self.refusal.words if self.refusal is not None else "its time is up"))

    def end(self, why: str) -> None:
        """Close it."""
        if self.phase != Phase.OVER:
            self.phase = Phase.OVER
            self.why = why
            if self._shake is not None:
                self._shake.time_is_up()
                self._shake = None
            self._out.clear()
            if self.line is not None:
                self.line.mark_closed()

    def release(self) -> None:
        """Close its descriptor, once no selector waits for it."""
        self.sock.close()


def _describe_error(error: OSError) -> str:
    reason = getattr(error, "reason", None)
    return f"the connection broke: {(reason or error.strerror or str(error)).replace('_', ' ').lower()}"

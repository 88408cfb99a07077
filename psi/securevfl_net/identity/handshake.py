"""Identify the peer of a TLS connection: each side sends whether it accepts the other, and if not, why.

In TLS 1.3 the client finishes before the server checks its certificate, and an alert is one byte. So each side sends
READY, or REFUSED with a code and a text, inside TLS; the connection is open when both have sent READY. Every verdict
contains its sender's wall clock, so that both sides can explain an expired or not yet valid certificate by the
difference of their clocks.

The handshake is a routine for an event loop over non-blocking connections::

    handshake = Handshake(tls, book, expected="shop")
    while (want := handshake.step()) is not Want.DONE:
        ...                                  # wait until `tls` can be read or written; or call `handshake.time_is_up()`
    handshake.outcome                        # Accepted, or the Refusal

`tls` is a non-blocking `ssl.SSLSocket`, or an `ssl.SSLObject` over `ssl.MemoryBIO`; the caller moves its bytes after
each step.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from functools import partial
from typing import TypeVar

from securevfl_net.identity.book import PeerBook
from securevfl_net.identity.certificate import TOLERANCE, Certificate
from securevfl_net.identity.refusal import WORDS, Refusal, RefusalCode, from_tls
from securevfl_net.identity.tls import ALPN

__all__ = ["SILENT", "Accepted", "Handshake", "Want", "run_handshake"]

_READY, _REFUSED = 1, 2
_HEAD = struct.Struct(">BQ")  # verdict; the sender's clock, milliseconds since 1970
_DRAINED = 64 << 10
"""Maximum bytes to discard while a refused peer reads its refusal."""
_LINGER = 2.0
"""Seconds for a refused peer to read its refusal, in `run_handshake`."""

SILENT = "the peer did not finish the handshake in time: is a party at this address?"
"""Words about a peer that takes too long."""
_T = TypeVar("_T")


class Want(Enum):
    """The event a handshake waits for."""

    READ = auto()
    WRITE = auto()
    DONE = auto()


@dataclass(frozen=True)
class Accepted:
    """Both sides accepted each other.

    Attributes:
        party: the peer's name.
        certificate: the certificate that it showed.
        clock_ahead: how far the peer's wall clock is ahead of this one's, including the travel time of its message.
    """

    party: str
    certificate: Certificate
    clock_ahead: timedelta


class Handshake:
    """One connection's handshake.

    Args:
        tls: a non-blocking connection before its TLS handshake.
        book: the accepted peers.
        expected: the party that was dialed; empty if any peer may connect.
        live: party → fingerprint of live connections, see `PeerBook.identify_peer`. Leave out a connection that this
            one replaces, unless it has the same certificate.

    Attributes:
        outcome: None until it is decided. A refusal is set before `step` returns DONE, while the peer still reads the
            text.
    """

    def __init__(
        self,
        tls: ssl.SSLSocket | ssl.SSLObject,
        book: PeerBook,
        *,
        expected: str = "",
        live: Mapping[str, str] | None = None,
    ) -> None:
        self.outcome: Accepted | Refusal | None = None
        self._tls, self._book, self._expected, self._live = tls, book, expected, live
        self._steps = self._run_steps()

    def step(self) -> Want:
        """Continue as far as possible without blocking."""
        return next(self._steps, Want.DONE)

    def time_is_up(self) -> None:
        """Stop the handshake because the caller's time limit has passed."""
        if self.outcome is None:
            self.outcome = Refusal(RefusalCode.NO_ANSWER, SILENT, party=self._expected)
        self._steps.close()

    def _run_steps(self) -> Generator[Want, None, None]:
        refusal = None
        try:
            yield from self._retry_tls(self._tls.do_handshake)
            if self._tls.selected_alpn_protocol() != ALPN:
                raise Refusal(
                    RefusalCode.OTHER_PROTOCOL, f"the peer does not speak {ALPN}: is a party at this address?"
                )
            der = self._tls.getpeercert(binary_form=True)
            party = self._book.identify_peer(der, expected=self._expected, live=self._live)
        except Refusal as found:
            self.outcome = refusal = found  # its words may still gain what the clocks say
        except OSError as error:
            self.outcome = from_tls(error, self._expected)
            if self.outcome.by == "here":
                yield from self._let_it_read()
            return
        try:
            yield from self._send_verdict(refusal)
            heard, ahead = yield from self._receive_verdict()
        except OSError as error:
            self.outcome = refusal or from_tls(error, self._expected)
            return
        except Refusal as found:
            self.outcome = refusal or found
            return
        if refusal is not None:
            self.outcome = self._with_clocks(refusal, ahead)
            yield from self._let_it_read()
        elif heard is not None:
            self.outcome = self._with_clocks(heard, ahead)
        else:
            certificate = Certificate.from_der(der or b"")
            self._book.clocks[party] = ahead
            self._book.record_use(party, certificate.fingerprint)
            self.outcome = Accepted(party, certificate, ahead)

    def _retry_tls(self, call: Callable[[], _T]) -> Generator[Want, None, _T]:
        while True:
            try:
                return call()
            except ssl.SSLWantReadError:
                yield Want.READ
            except ssl.SSLWantWriteError:
                yield Want.WRITE

    def _send_verdict(self, refusal: Refusal | None) -> Generator[Want, None, None]:
        head = _HEAD.pack(_REFUSED if refusal else _READY, _to_milliseconds(self._book.now()))
        frame = head
        if refusal is not None:
            code, words = refusal.code.encode(), _truncate_words(refusal.words)
            frame += bytes((len(code),)) + code + bytes((len(words),)) + words
        while frame:
            sent = yield from self._retry_tls(partial(self._tls.write, frame))
            frame = frame[sent:]

    def _receive_verdict(self) -> Generator[Want, None, tuple[Refusal | None, timedelta]]:
        verdict, clock = _HEAD.unpack((yield from self._read_exactly(_HEAD.size)))
        here = self._book.now()
        ahead = timedelta(milliseconds=min(clock, 1 << 48) - _to_milliseconds(here))
        if verdict == _READY:
            return None, ahead
        if verdict != _REFUSED:
            raise Refusal(
                RefusalCode.OTHER_PROTOCOL, f"the peer's verdict is {verdict}; expected 1 or 2: is it a party?"
            )
        parts = []
        for _ in range(2):
            (length,) = yield from self._read_exactly(1)
            parts.append((yield from self._read_exactly(length)) if length else b"")
        words = "".join(c if c.isprintable() else "?" for c in parts[1].decode("utf-8", "replace"))
        try:
            code = RefusalCode(parts[0].decode("ascii", "replace"))
        except ValueError:
            code = RefusalCode.OTHER_PROTOCOL
        return Refusal(code, words, by="peer", party=self._expected), ahead

    def _read_exactly(self, count: int) -> Generator[Want, None, bytes]:
        """Read exactly `count` bytes; the next bytes belong to the session."""
        found = b""
        while len(found) < count:
            more = yield from self._retry_tls(partial(self._tls.read, count - len(found)))
            if not more:
                words = "the peer hung up before it sent its verdict"
                raise Refusal(RefusalCode.HUNG_UP, words, party=self._expected)
            found += more
        return found

    def _with_clocks(self, refusal: Refusal, ahead: timedelta) -> Refusal:
        if refusal.code not in {RefusalCode.EXPIRED, RefusalCode.NOT_YET_VALID, RefusalCode.CRL_OUT_OF_DATE}:
            return refusal
        words = f"{refusal.words}; {self._compare_clocks(ahead, refusal.party)}"
        return Refusal(refusal.code, words, by=refusal.by, party=refusal.party)

    def _compare_clocks(self, ahead: timedelta, party: str) -> str:
        if abs(ahead) <= TOLERANCE:
            return "the clocks of both sides agree: the file is the cause, not a clock"
        way = "ahead of" if ahead > timedelta() else "behind"
        apart = f"the peer's clock is {abs(ahead).total_seconds() / 60:.0f} min {way} this one"
        others = {name: by for name, by in self._book.clocks.items() if name != party}
        if others and all(abs(by - ahead) <= TOLERANCE for by in others.values()):
            return f"{apart}, and so is that of {', '.join(sorted(others))}: set the clock here"
        if others and all(abs(by) <= TOLERANCE for by in others.values()):
            return f"{apart}, which agrees with {', '.join(sorted(others))}: the peer has to set its clock"
        return f"{apart}: one of the two is wrong, compare both with a time server"

    def _let_it_read(self) -> Generator[Want, None, None]:
        """Shut down sending and discard incoming bytes: closing a socket with unread bytes would reset the connection,
        and the peer would lose the refusal.
        """
        if not isinstance(self._tls, ssl.SSLSocket):
            return
        try:
            self._tls.shutdown(socket.SHUT_WR)  # from here on it is a plain socket
            drained = 0
            while drained < _DRAINED:
                try:
                    more = len(self._tls.recv(1 << 12))
                except BlockingIOError:
                    yield Want.READ
                    continue
                if not more:
                    return
                drained += more
        except OSError:
            return


def _to_milliseconds(when: datetime) -> int:
    return max(0, int((when - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000))


def _truncate_words(words: str) -> bytes:
    return words.encode()[:WORDS].decode(errors="ignore").encode()


def run_handshake(sock: ssl.SSLSocket, handshake: Handshake, seconds: float) -> Accepted:
    """Run a handshake to its end, blocking; closes `sock` on failure.

    Args:
        sock: the handshake's non-blocking connection.
        handshake: not yet started.
        seconds: time limit.

    Raises:
        Refusal: one side does not accept the other.
    """
    end = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        while (want := handshake.step()) is not Want.DONE:
            if handshake.outcome is not None:
                end = min(end, time.monotonic() + _LINGER)
            selector.modify(sock, selectors.EVENT_READ if want is Want.READ else selectors.EVENT_WRITE)
            if not selector.select(max(0.0, end - time.monotonic())):
                handshake.time_is_up()
                break
    if isinstance(handshake.outcome, Accepted):
        return handshake.outcome
    sock.close()
    if handshake.outcome is None:  # a finished handshake has one
        raise Refusal(RefusalCode.HUNG_UP, "the handshake ended without a verdict")
    raise handshake.outcome

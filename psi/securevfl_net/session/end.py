"""One party's end of the session with one peer."""

from __future__ import annotations

import secrets

from securevfl_net.errors import InputError
from securevfl_net.incarnation import NONCE
from securevfl_net.session import events as ev
from securevfl_net.session.frames import NO_VIEW, REASON, FrameKind, Position, blocked_frame, encode_frame, text_bytes
from securevfl_net.session.hello import hello_frame
from securevfl_net.session.line import Line
from securevfl_net.session.meeting import REPLACED, Meeting
from securevfl_net.session.refusal import SessionRefusal
from securevfl_net.session.streams import Incoming, Outgoing

__all__ = ["VIEW", "SessionEnd"]

VIEW = 16
"""Bytes of a view."""
_YOUNG = 8
"""Connections of one peer that may wait for its hello."""
_NOTES = 1 << 20
"""Bytes of notes that may wait to be written."""
_UNHURRIED = 64 << 10
"""Most bytes of parts whose acknowledgement may wait for something to go with."""


class SessionEnd(Meeting):
    """One end of a session: numbers, acknowledgements, credits and the handshake, without sockets, clocks or threads.

    The gate opens a `Line` for each TLS connection with the peer (`open_line`), moves bytes between it and the socket,
    and handles what `take_events` returns. Programs see parts of messages, exactly once and in order, whatever happens
    to connections, as long as both processes live and stay in one view.

    Args:
        me: this party.
        peer: the other one.
        agreement: SHA-256 of the proposal's bytes.
        own: this process.
        known: the newest incarnation of the peer that this party has seen, if any.
        limits: bounds.
        fields: of the agreement, name → digest of its value: a peer with another agreement can then learn where the two
            differ, see `facts`.

    Attributes:
        hears_peer: whether the present connection shows signs of life, which needs a clock; never unless set. Another
            process of the peer is then refused.

    Raises:
        InputError: two parties of one name, or an agreement that is not a SHA-256.
    """

    # --- the gate's side: connections

    def open_line(self) -> Line:
        """A fresh, authenticated connection with the peer. It takes the place of the present one once both ends agree.

        The party with the smaller name opens: of several connections both use the one that it opened last, whoever
        dialled. Close lines that are `over`.
        """
        self._connections += 1
        line = Line(self, self._connections, secrets.token_bytes(NONCE))
        if self._first:
            for older in self._young:
                older.end(REPLACED)
                older.last_words.clear()
            self._young.clear()
            line.last_words.append(hello_frame(self._build_hello(line, b"", Position())))
        elif len(self._young) >= _YOUNG:
            self._young.pop(0).end("too many connections without a hello")
        self._young.append(line)
        return line

    @property
    def is_up(self) -> bool:
        """Whether both ends have accepted each other on some connection."""
        return self._line is not None

    def take_events(self) -> list[ev.Event]:
        """Events since the last call, in order."""
        found = self._events
        if self._beat is not None:
            found.append(ev.Beaten(self._beat))
            self._beat = None
        if not found:
            return []
        self._events = []
        return found

    def tick(self, waits: str = "") -> None:
        """About a second has gone by. Grows the window where the peer waits for room and this end's program waits too,
        and reports a deadlock where both wait for each other and the window cannot grow.

        Args:
            waits: what the program waits for at another peer, if it does and so reads nothing here. The window then
                grows, and no deadlock is reported: that peer may only be slow.
        """
        self._control = 0
        step = self._out.blocked_step
        theirs = self._theirs
        now = (self._in.received, self._in.next_limit, self._out.acked, self._out.allowed)
        waiting = step is not None or bool(waits)
        if not waiting or theirs is None or theirs[0] != self._in.next_limit or not self.is_up:
            self._still, self._idle = None, 0
            return
        if now != self._still:
            self._still, self._idle = now, 0
            return
        self._idle += 1
        if self._in.window < self.limits.max_window:
            self._in.window = min(2 * self._in.window, self.limits.max_window)
            self._owes, self._still, self._idle = True, None, 0
        elif step is not None and self._idle == self.limits.patience:
            self._events.append(ev.Deadlocked(step, theirs[1], self._in.window))

    # --- the program's side

    @property
    def view(self) -> bytes:
        """The current view; empty before the first."""
        return self._in.view

    @property
    def held_bytes(self) -> int:
        """Bytes of parts that are kept until the peer has them, with overhead. The gate takes no more parts from the
        program while it is `limits.window` or above."""
        return self._out.held

    @property
    def is_ready(self) -> bool:
        """Whether another message may be passed on: less than the window is in flight."""
        return self._out.held < self.limits.window

    @property
    def blocked_step(self) -> str | None:
        """The step of the next part if it waits for the peer's program to read; otherwise None."""
        return self._out.blocked_step

    @property
    def may_wait(self) -> bool:
        """Whether nothing has to be written now but the acknowledgement of little, which can go with the next part or
        note. Write it within milliseconds: the peer keeps its parts until then.
        """
        incoming, out = self._in, self._out
        if not self._arrived or self._owes or self._bye or self._abort is not None or self._line is None:
            return False
        if self._ping is not None or self._notes or self._line.last_words or out.queue:
            return False
        return incoming.arrived - incoming.announced < min(_UNHURRIED, incoming.window >> 3)

    @property
    def window(self) -> int:
        """Bytes that the peer may be ahead of this end's program."""
        return self._in.window or self.limits.window

    @property
    def unread_bytes(self) -> int:
        """Bytes of parts that arrived and were not given back by `credit_window`, with overhead."""
        return self._in.unread_bytes

    @property
    def last_sent(self) -> int:
        """Number of the last part of this view that left."""
        return self._out.sent

    @property
    def last_received(self) -> int:
        """Number of the last part of this view that arrived."""
        return self._in.received

    @property
    def is_finished(self) -> bool:
        """Whether BYE was written on the present or last connection; everything before it was acknowledged."""
        return self._bye_sent

    def begin_view(self, view: bytes) -> None:
        """Begin a view: both streams restart, and the peer may send to this end.

        Args:
            view: 16 bytes that were never begun here before.

        Raises:
            InputError: they were, or are not 16 bytes.
        """
        if len(view) != VIEW or view[: len(NO_VIEW)] == NO_VIEW:
            raise InputError(
                f"a view of {len(view)} bytes, {view.hex()[:40]!r}; it has {VIEW} and begins with no zeros"
            )
        tag = view[: len(NO_VIEW)]
        if tag in self._views:
            raise InputError(f"view {view.hex()[:16]} was begun before; every attempt needs a new view")
        self._views.add(tag)
        self._acknowledge_last()
        self._discard_incoming()
        self._in = Incoming(view, self.limits.window)
        self._out = Outgoing(tag)
        if self._grant.tag == tag:
            self._out.allowed = self._grant.allowed
        self._owes = True

    def open_view(self) -> None:
        """Parts may leave: all parties are in this view.

        Raises:
            InputError: no view was begun.
        """
        if not self._in.view:
            raise InputError("the session was opened before a view was begun")
        self._out.opened = True

    def leave_view(self) -> None:
        """Leave the view: what was not sent, and what still comes in it, is dropped."""
        self._acknowledge_last()
        self._discard_incoming()
        self._in, self._out = Incoming(), Outgoing()

    def _acknowledge_last(self) -> None:
        """Acknowledge, ahead of all else, what arrived in a view that is about to end here: the peer keeps its parts,
        and says no goodbye, until it has that.
        """
        incoming = self._in
        if self._arrived and self._line is not None and incoming.view:
            last = Position(incoming.tag, incoming.received, incoming.granted)
            self._notes.append(encode_frame(FrameKind.ACK, last.pack()))
        self._arrived = False

    def send_part(self, part: memoryview, *, first_total: int | None, step: str = "") -> None:
        """Send a part of a message in the present view.

        Args:
            part: 1 to `limits.part` bytes; not to be changed until the peer has it.
            first_total: bytes of the whole message for its first part; otherwise None.
            step: its purpose, which the peer's report names while the part waits.

        Raises:
            InputError: no view was begun, or the part does not fit its message.
        """
        if not self._in.view or self._bye:
            raise InputError("a part was sent while no view is begun, or after the goodbye")
        self._out.add_part(part, first_total, step, self.limits)

    def credit_window(self, view: bytes, cost: int) -> None:
        """The program has taken parts of that cost (`Part.cost`) out of the window. Those of other views are void.

        Raises:
            InputError: more than arrived.
        """
        incoming = self._in
        if view != incoming.view:
            return
        incoming.credit_window(cost)
        if self._theirs is not None or incoming.next_limit - incoming.granted >= incoming.window >> 2:
            self._owes = True

    def send_note(self, payload: bytes) -> None:
        """Send a note to the peer's program: in order within one connection, and lost with it, or if there is no
        connection.

        Raises:
            InputError: it is longer than `limits.note`, or too many wait.
        """
        self._queue_note(FrameKind.NOTE, payload)

    def send_endorsement(self, payload: bytes) -> None:
        """Send the endorsement of a new certificate; as `send_note`.

        Raises:
            InputError: it is empty, longer than `limits.note`, or too many wait.
        """
        self._queue_note(FrameKind.ENDORSE, payload)

    def _queue_note(self, kind: FrameKind, payload: bytes) -> None:
        if not (kind == FrameKind.ENDORSE) <= len(payload) <= self.limits.note:
            raise InputError(f"a note of {len(payload)} bytes; the limit is {self.limits.note}")
        if self._line is None:
            return
        if self._note_bytes + len(payload) > _NOTES:
            raise InputError(f"{self._note_bytes} bytes of notes wait for {self.peer!r}; the limit is {_NOTES}")
        self._note_bytes += len(payload)
        self._notes.append(encode_frame(kind, payload))

    def send_ping(self, beat: bytes) -> None:
        """Show the peer a sign of life; it takes the place of one that was not written yet.

        Raises:
            InputError: more than 512 bytes.
        """
        if len(beat) > 512:
            raise InputError(f"a sign of life of {len(beat)} bytes; the limit is 512")
        self._ping = encode_frame(FrameKind.PING, beat)

    def abort(self, reason: str) -> None:
        """Notify the peer that this party's program ended with an error; nothing else is sent any more."""
        self._abort = encode_frame(FrameKind.ABORT, text_bytes(reason, REASON))

    def say_goodbye(self) -> None:
        """Say goodbye, once everything that was sent is acknowledged; repeated over each new connection."""
        self._bye = True

    def refuse(self, code: str, words: str) -> None:
        """End the present connection for a reason of the gate, for example a revoked certificate."""
        for line in [self._line, *self._young]:
            if line is not None:
                self.on_refusal(line, SessionRefusal(code, words))

    # --- writing

    def pull_bytes(self, line: Line, most: int) -> list[memoryview]:
        """See `LineOwner`."""
        out: list[memoryview] = []
        if line.last_words:
            out = [memoryview(b"".join(line.last_words))]
            line.last_words = []
        if line is not self._line:
            return out
        urgent: list[bytes] = []
        if self._abort is not None:
            urgent.append(self._abort)
            self._end_line(line, "this party has aborted")
        else:
            self._write_urgent(urgent)
        size = sum(map(len, urgent))
        if line.up and self._out.opened and size < most:
            self._out.take_frames(most - size, out, urgent)
            self._tell_blocked(out)
        elif urgent:
            out.append(memoryview(b"".join(urgent)))
        if line.up and self._bye and not self._bye_sent and not self._out.held:
            self._bye_sent = True
            out.append(memoryview(encode_frame(FrameKind.BYE)))
        return out

    def _write_urgent(self, out: list[bytes]) -> None:
        if self._notes:
            out += self._notes
            self._notes.clear()
            self._note_bytes = 0
        if self._ping is not None:  # behind the notes: who answers it has them
            out.append(self._ping)
            self._ping = None
        if self._owes or self._arrived:
            self._owes = self._arrived = False
            if self._in.view:
                incoming = self._in
                if incoming.next_limit > incoming.granted:
                    self._theirs = None
                out.append(encode_frame(FrameKind.ACK, incoming.announce_position().pack()))

    def _tell_blocked(self, out: list[memoryview]) -> None:
        step = self._out.blocked_step
        if step is not None and self._blocked_at != self._out.allowed:
            self._blocked_at = self._out.allowed
            out.append(memoryview(blocked_frame(self._out.tag, self._out.allowed, step)))

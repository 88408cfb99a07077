"""One party's end of the session with one peer."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Mapping

from securevfl.errors import InputError
from securevfl.transport.incarnation import NONCE, Incarnation
from securevfl.transport.session import events as ev
from securevfl.transport.session.facts import facts
from securevfl.transport.session.frames import (
    NO_VIEW,
    REASON,
    FrameKind,
    Position,
    blocked_frame,
    frame,
    read_blocked,
    read_refuse,
    refuse_frame,
    text_bytes,
)
from securevfl.transport.session.hello import Hello, hello_frame, known_or_newer, read_hello
from securevfl.transport.session.limits import DEFAULT_SESSION_LIMITS, OVERHEAD, SessionLimits
from securevfl.transport.session.line import Line
from securevfl.transport.session.refusal import Refusal, printable
from securevfl.transport.session.streams import Incoming, Outgoing
from securevfl.transport.version import VERSION

__all__ = ["VIEW", "SessionEnd"]

VIEW = 16
"""Bytes of a view."""
_REPLACED = "a newer connection takes its place"
_YOUNG = 8
"""Connections of one peer that may wait for its hello."""
_REMEMBERED = 64
"""Connections of the peer whose hellos are known again."""
_NOTES = 1 << 20
"""Bytes of notes that may wait to be written."""


class SessionEnd:
    """One end of a session: numbers, acknowledgements, credits and the handshake, without sockets, clocks or threads.

    The gate makes a `Line` for each TLS connection with the peer by `connected`, moves bytes between it and the socket,
    and reads `events`. Programs see parts of messages, exactly once and in order, whatever happens to connections, as
    long as both processes live and stay in one view.

    Args:
        me: this party.
        peer: the other one.
        agreement: SHA-256 of the proposal's bytes.
        own: this process.
        known: the newest incarnation of the peer that this party has seen, if any.
        limits: bounds.
        fields: of the agreement, name → digest of its value: so that a peer with another one can be told where the two
            differ, see `facts`.

    Raises:
        InputError: two parties of one name, or an agreement that is no SHA-256.
    """

    def __init__(
        self,
        me: str,
        peer: str,
        *,
        agreement: bytes,
        own: Incarnation,
        known: Incarnation | None = None,
        limits: SessionLimits = DEFAULT_SESSION_LIMITS,
        fields: Mapping[str, bytes] | None = None,
    ) -> None:
        if me == peer or not me or not peer or max(len(me.encode()), len(peer.encode())) > 200:
            raise InputError(f"a session between {me!r} and {peer!r}; two names of 1 to 200 bytes are needed")
        if len(agreement) != 32:
            raise InputError(f"the agreement's digest has {len(agreement)} bytes; SHA-256 has 32")
        self.me = me
        self.peer = peer
        self.own = own
        self.limits = limits
        self.known = known
        self._agreement = agreement
        self._fields = dict(fields or {})
        self._first = me < peer
        self._line: Line | None = None
        self._young: list[Line] = []
        self._connections = 0
        self._seen: tuple[Incarnation | None, list[int]] = (None, [])
        self._greeting: Hello | None = None
        self._met: Incarnation | None = None
        self._events: list[ev.Event] = []
        self._beat: bytes | None = None
        self._out = Outgoing()
        self._in = Incoming()
        self._grant = Position()
        self._views: set[bytes] = set()
        self._stale = 0
        self._notes: deque[bytes] = deque()
        self._note_bytes = 0
        self._ping: bytes | None = None
        self._abort: bytes | None = None
        self._bye = self._bye_sent = self._left = False
        self._owes = False
        self._blocked_at = -1
        self._theirs: tuple[int, str] | None = None
        self._control = 0
        self._still: tuple[int, int, int, int] | None = None
        self._idle = 0

    # --- the gate's side: connections

    def connected(self) -> Line:
        """A fresh, authenticated connection with the peer. It takes the place of the present one once both ends agree.

        The party with the smaller name opens: of several connections the one that it opened last is used, whoever
        dialled. Lines that are `over` are to be closed.
        """
        self._connections += 1
        line = Line(self, self._connections, secrets.token_bytes(NONCE))
        if self._first:
            for older in self._young:
                older.end(_REPLACED)
                older.last_words.clear()
            self._young.clear()
            line.last_words.append(hello_frame(self._hello(line, b"", Position())))
        elif len(self._young) >= _YOUNG:
            self._young.pop(0).end("too many connections without a hello")
        self._young.append(line)
        return line

    @property
    def up(self) -> bool:
        """Whether there is a connection on which both ends have accepted each other."""
        return self._line is not None

    def events(self) -> list[ev.Event]:
        """What happened since the last call, in order."""
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
            waits: for what the program waits at another peer's end, where it does; it reads nothing here meanwhile. It
                makes the window grow and is no deadlock: that peer may only be slow.
        """
        self._control = 0
        step = self._out.blocked
        theirs = self._theirs
        now = (self._in.received, self._in.allowed, self._out.acked, self._out.allowed)
        waiting = step is not None or bool(waits)
        if not waiting or theirs is None or theirs[0] != self._in.allowed or not self.up:
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
        """The view that was begun; empty where there is none."""
        return self._in.view

    @property
    def held(self) -> int:
        """Bytes of parts that are kept until the peer has them, with overhead. The gate takes no more parts from the
        program while it is `limits.window` or above."""
        return self._out.held

    @property
    def ready(self) -> bool:
        """Whether another message may be handed over: less than the window is on its way."""
        return self._out.held < self.limits.window

    @property
    def blocked(self) -> str | None:
        """The step of the next part, where it waits until the peer's program reads; None where nothing does."""
        return self._out.blocked

    @property
    def window(self) -> int:
        """Bytes that the peer may be ahead of this end's program."""
        return self._in.window or self.limits.window

    @property
    def unread(self) -> int:
        """Bytes of parts that arrived and were not given back by `credit`, with overhead."""
        return self._in.unread

    @property
    def sent(self) -> int:
        """Number of the last part of this view that left."""
        return self._out.sent

    @property
    def received(self) -> int:
        """Number of the last part of this view that arrived."""
        return self._in.received

    @property
    def finished(self) -> bool:
        """Whether BYE was written on the present or last connection; everything before it was acknowledged."""
        return self._bye_sent

    def begin(self, view: bytes) -> None:
        """Begin a view: both streams start anew, and the peer may send to this end.

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
            raise InputError(f"view {view.hex()[:16]} was begun before; every attempt has a view of its own")
        self._views.add(tag)
        self._leave()
        self._in = Incoming(view, self.limits.window)
        self._out = Outgoing(tag)
        if self._grant.tag == tag:
            self._out.allowed = self._grant.allowed
        self._owes = True

    def open(self) -> None:
        """Parts may leave: all parties are in this view.

        Raises:
            InputError: no view was begun.
        """
        if not self._in.view:
            raise InputError("the session was opened before a view was begun")
        self._out.opened = True

    def park(self) -> None:
        """Leave the view: what was not sent, and what still comes in it, is dropped."""
        self._leave()
        self._in, self._out = Incoming(), Outgoing()

    def send(self, part: memoryview, *, first_total: int | None, step: str = "") -> None:
        """Send a part of a message in the present view.

        Args:
            part: 1 to `limits.part` bytes; not to be changed until the peer has it.
            first_total: bytes of the whole message, where this is its first part; otherwise None.
            step: what it is, for the peer to name where it waits.

        Raises:
            InputError: no view was begun, or the part does not fit its message.
        """
        if not self._in.view or self._bye:
            raise InputError("a part was sent while no view is begun, or after the goodbye")
        self._out.add(part, first_total, step, self.limits)

    def credit(self, view: bytes, cost: int) -> None:
        """The program has taken parts of that cost (`Part.cost`) out of the window. Those of other views are void.

        Raises:
            InputError: more than arrived.
        """
        incoming = self._in
        if view != incoming.view:
            return
        incoming.credit(cost)
        if self._theirs is not None or incoming.allowed - incoming.granted >= incoming.window >> 2:
            self._owes = True

    def note(self, payload: bytes) -> None:
        """Send a note to the peer's program: in order within one connection, and lost with it, or where there is none.

        Raises:
            InputError: it is longer than `limits.note`, or too many wait.
        """
        self._queue_note(FrameKind.NOTE, payload)

    def endorse(self, payload: bytes) -> None:
        """Send the endorsement of a new certificate; as `note`.

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
        self._notes.append(frame(kind, payload))

    def ping(self, beat: bytes) -> None:
        """Show the peer a sign of life; it takes the place of one that was not written yet.

        Raises:
            InputError: more than 512 bytes.
        """
        if len(beat) > 512:
            raise InputError(f"a sign of life of {len(beat)} bytes; the limit is 512")
        self._ping = frame(FrameKind.PING, beat)

    def abort(self, reason: str) -> None:
        """Tell the peer that this party's program ended with an error; nothing else is sent any more."""
        self._abort = frame(FrameKind.ABORT, text_bytes(reason, REASON))

    def bye(self) -> None:
        """Say goodbye, once everything that was sent is acknowledged; over each new connection again."""
        self._bye = True

    def refuse(self, code: str, words: str) -> None:
        """End the present connection for a reason that the gate knows, for example a revoked certificate."""
        for line in [self._line, *self._young]:
            if line is not None:
                self.on_refusal(line, Refusal(code, words))

    # --- what lines tell

    def on_refusal(self, line: Line, refusal: Refusal) -> None:
        """See `LineOwner`."""
        if line.over:
            return
        self._end(line, f"{refusal.code}: {refusal.words}")
        line.last_words = [refuse_frame(refusal, self.me)]
        self._events.append(ev.Refused(refusal.code, refusal.words, True, refusal.party))

    def on_closed(self, line: Line) -> None:
        """See `LineOwner`."""
        self._forget(line)

    def on_frame(self, line: Line, kind: int, body: memoryview) -> None:
        """See `LineOwner`."""
        self._control += 1
        if self._control > self.limits.control:
            raise Refusal(
                "flood", f"{self._control} control frames within a second; the limit is {self.limits.control}"
            )
        match kind:
            case FrameKind.ACK:
                self._on_position(Position.unpack(body))
            case FrameKind.PING:
                self._beat = bytes(body)
            case FrameKind.NOTE | FrameKind.ENDORSE:
                if len(body) > self.limits.note:
                    raise Refusal("over-limit", f"a note of {len(body)} bytes; the limit is {self.limits.note}")
                self._events.append((ev.Noted if kind == FrameKind.NOTE else ev.Endorsed)(bytes(body)))
            case FrameKind.BLOCKED:
                self._on_blocked(*read_blocked(body))
            case FrameKind.HELLO:
                self._on_hello(line, read_hello(body))
            case FrameKind.ACCEPT:
                self._on_accept(line, body)
            case FrameKind.REFUSE:
                fault, code, words = read_refuse(body)
                self._end(line, f"{self.peer} refused: {code}: {words}")
                self._events.append(ev.Refused(code, words, False, ("", self.peer, self.me)[fault]))
            case FrameKind.ABORT:
                self._end(line, f"{self.peer} aborted")
                self._events.append(ev.Aborted(printable(body, REASON)))
            case FrameKind.BYE:
                if self._left:
                    raise Refusal("broken-rule", "a second goodbye on one connection")
                self._left = True
                self._events.append(ev.Bye())
            case _:
                raise Refusal("no-session", f"a frame of kind {kind}")

    def on_head(self, line: Line, tag: bytes, number: int, size: int, total: int | None) -> Incoming | None:
        """See `LineOwner`."""
        incoming = self._in
        if self._left:
            raise Refusal("broken-rule", "a part after the goodbye")
        if tag != incoming.tag or not incoming.view:
            self._stale -= size + OVERHEAD
            if self._stale < 0:
                raise Refusal("broken-rule", f"a part of view {tag.hex()}, which this end never opened to the peer")
            return None
        incoming.admit(number, size, total, self.limits)
        return incoming

    def on_part(self, incoming: Incoming | None, data: memoryview, total: int | None) -> None:
        """See `LineOwner`."""
        if incoming is None or incoming is not self._in:
            return
        last = incoming.take(len(data), total)
        self._owes = True
        self._events.append(ev.Part(incoming.view, total, data, last))

    # --- the handshake

    def _hello(self, line: Line, answers: bytes, position: Position) -> Hello:
        known = self.known
        return Hello(
            messages=VERSION,
            part=self.limits.part,
            agreement=self._agreement,
            me=self.me,
            peer=self.peer,
            own=(self.own.count, self.own.nonce),
            expected=(known.count, known.nonce) if known else None,
            connection=line.number,
            id=line.id,
            answers=answers,
            tag=position.tag,
            received=position.received,
            allowed=position.allowed,
            facts=b"" if answers or not self._first else facts(self._fields, line.id),
        )

    def _on_hello(self, line: Line, hello: Hello) -> None:
        hello.check(self._hello(line, b"", Position()), line.id if self._first else b"", self._fields)
        known_or_newer(hello.incarnation, self.known, self.peer)
        line.greeted = True
        if self._first:
            self._use(line, hello.incarnation)
            position = self._in.position()
            line.last_words.append(frame(FrameKind.ACCEPT, hello.id + position.pack()))
            self._rise(line, hello.incarnation, hello.position)
            return
        if not self._is_newest(hello):
            self._end(line, _REPLACED)
            return
        self._greeting = hello
        self._use(line, hello.incarnation)
        line.last_words.append(hello_frame(self._hello(line, hello.id, self._in.position())))

    def _is_newest(self, hello: Hello) -> bool:
        """Whether the peer opened no later connection of which the hello has come.

        Raises:
            Refusal: this very hello has come before, or one of so much later connections that nobody can tell.
        """
        incarnation, numbers = self._seen
        if incarnation != hello.incarnation:
            self._seen = (hello.incarnation, [hello.connection])
            return True
        last = numbers[-1]
        if hello.connection in numbers or hello.connection <= last - _REMEMBERED:
            raise Refusal(
                "replayed-hello", f"the hello of connection {hello.connection} again, after that of connection {last}"
            )
        numbers.append(hello.connection)
        numbers.sort()
        del numbers[:-_REMEMBERED]
        return hello.connection > last

    def _on_accept(self, line: Line, body: memoryview) -> None:
        greeting = self._greeting
        if self._first or greeting is None or body[:NONCE] != line.id:
            raise Refusal(
                "replayed-hello",
                f"connection {bytes(body[:8]).hex()} is accepted by {self.peer!r}; this one is {line.id.hex()[:16]}",
            )
        self._rise(line, greeting.incarnation, Position.unpack(body[NONCE:]))

    def _use(self, line: Line, peer: Incarnation) -> None:
        """From here on this end takes nothing from other lines, so that its position is final for them."""
        for older in [self._line, *self._young]:
            if older is not None and older is not line and (older.up or older.greeted):
                self._end(older, _REPLACED)
        self._stale = 0
        if self._met is not None and peer != self._met:
            self._void()

    def _rise(self, line: Line, peer: Incarnation, position: Position) -> None:
        """The handshake is done: go on with the streams behind what the peer has."""
        resumed = peer == self._met
        self.known = self._met = peer
        self._young.remove(line)
        self._line, line.up = line, True
        self._notes.clear()
        self._note_bytes = 0
        self._bye_sent = self._left = False
        self._blocked_at, self._theirs = -1, None
        self._grant = Position()
        if self._in.view:
            try:
                if position.tag == self._out.tag:
                    self._out.rewind(position)
                else:
                    self._out.rewind(Position(self._out.tag, self._out.acked, self._out.allowed))
                    self._out.allowed = 0  # the peer has left this view, or has not begun it
            except Refusal as refusal:
                self._leave()
                self._void()
                resumed = False
                self._events.append(ev.Torn(refusal.words))
        if position.received == 0:
            self._grant = position
        self._events.append(ev.Up(peer, resumed))

    def _void(self) -> None:
        """Both streams end, and their view with them."""
        self._in, self._out = Incoming(), Outgoing()
        self._theirs = None

    # --- positions and room

    def _on_position(self, position: Position) -> None:
        if position.tag == self._out.tag and self._in.view:
            before = self._out.acked
            self._out.acknowledged(position)
            self._control -= self._out.acked > before  # there are no more of these than parts that left
        elif position.received == 0:
            self._grant = position

    def _on_blocked(self, tag: bytes, limit: int, step: str) -> None:
        incoming = self._in
        if not incoming.view or tag != incoming.tag or limit < incoming.granted:
            return
        if limit > incoming.granted:
            raise Refusal("broken-rule", f"the peer waits at {limit}; it was granted {incoming.granted}")
        before, self._theirs = self._theirs, (limit, step)
        if incoming.allowed > limit:
            self._owes = True
        elif before != self._theirs:
            self._events.append(ev.Blocked(step))

    def _leave(self) -> None:
        """Parts that the peer sends before it hears of the change are dropped, and no more than were granted."""
        self._stale += max(0, self._in.granted - self._in.arrived)
        self._theirs, self._still, self._idle, self._blocked_at = None, None, 0, -1

    # --- writing

    def pull(self, line: Line, most: int) -> list[memoryview]:
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
            self._end(line, "this party has aborted")
        else:
            self._urgent(urgent)
        size = sum(map(len, urgent))
        if urgent:
            out.append(memoryview(b"".join(urgent)))
        if line.up and self._out.opened and size < most:
            self._out.take(most - size, out)
            self._tell_blocked(out)
        if line.up and self._bye and not self._bye_sent and not self._out.held:
            self._bye_sent = True
            out.append(memoryview(frame(FrameKind.BYE)))
        return out

    def _urgent(self, out: list[bytes]) -> None:
        if self._ping is not None:
            out.append(self._ping)
            self._ping = None
        if self._notes:
            out += self._notes
            self._notes.clear()
            self._note_bytes = 0
        if self._owes:
            self._owes = False
            if self._in.view:
                incoming = self._in
                if incoming.allowed > incoming.granted:
                    self._theirs = None
                out.append(frame(FrameKind.ACK, incoming.position().pack()))

    def _tell_blocked(self, out: list[memoryview]) -> None:
        step = self._out.blocked
        if step is not None and self._blocked_at != self._out.allowed:
            self._blocked_at = self._out.allowed
            out.append(memoryview(blocked_frame(self._out.tag, self._out.allowed, step)))

    def _end(self, line: Line, why: str) -> None:
        line.end(why)
        self._forget(line)

    def _forget(self, line: Line) -> None:
        if line is self._line:
            self._line = None
        if line in self._young:
            self._young.remove(line)

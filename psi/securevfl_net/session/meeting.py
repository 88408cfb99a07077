"""How one end of a session handles the peer's frames: the handshake, parts, positions, refusals."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from securevfl_net.errors import InputError
from securevfl_net.incarnation import NONCE, Incarnation
from securevfl_net.session import events as ev
from securevfl_net.session.facts import encode_facts
from securevfl_net.session.frames import (
    REASON,
    FrameKind,
    Position,
    encode_frame,
    read_blocked,
    read_refuse,
    refuse_frame,
)
from securevfl_net.session.hello import Hello, hello_frame, known_or_newer, read_hello
from securevfl_net.session.limits import DEFAULT_SESSION_LIMITS, OVERHEAD, SessionLimits
from securevfl_net.session.line import Line
from securevfl_net.session.refusal import SessionRefusal, make_printable
from securevfl_net.session.streams import Incoming, Outgoing
from securevfl_net.version import VERSION

__all__ = ["REPLACED", "Meeting"]

REPLACED = "a newer connection takes its place"
"""Why a connection is over that neither end refused."""
_REMEMBERED = 64
"""Connections of the peer whose hellos are known again."""


class Meeting:
    """The state of one end, and how each frame of the peer changes it; see `SessionEnd`."""

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
        self.hears_peer: Callable[[], bool] = lambda: False
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
        self._owes = self._arrived = False
        self._blocked_at = -1
        self._theirs: tuple[int, str] | None = None
        self._control = 0
        self._still: tuple[int, int, int, int] | None = None
        self._idle = 0

    # --- callbacks of lines

    def on_refusal(self, line: Line, refusal: SessionRefusal) -> None:
        """See `LineOwner`."""
        if line.over:
            return
        self._end_line(line, f"{refusal.code}: {refusal.words}")
        line.last_words = [refuse_frame(refusal, self.me)]
        self._events.append(ev.Refused(refusal.code, refusal.words, True, refusal.party))

    def on_closed(self, line: Line) -> None:
        """See `LineOwner`."""
        self._forget_line(line)

    def on_frame(self, line: Line, kind: int, body: memoryview) -> None:
        """See `LineOwner`."""
        self._control += 1
        if self._control > self.limits.control:
            raise SessionRefusal(
                "flood", f"{self._control} control frames within a second; the limit is {self.limits.control}"
            )
        match kind:
            case FrameKind.ACK:
                self._on_position(Position.unpack(body))
            case FrameKind.PING:
                self._beat = bytes(body)
            case FrameKind.NOTE | FrameKind.ENDORSE:
                if len(body) > self.limits.note:
                    raise SessionRefusal("over-limit", f"a note of {len(body)} bytes; the limit is {self.limits.note}")
                self._events.append((ev.Noted if kind == FrameKind.NOTE else ev.Endorsed)(bytes(body)))
            case FrameKind.BLOCKED:
                self._on_blocked(*read_blocked(body))
            case FrameKind.HELLO:
                self._on_hello(line, read_hello(body))
            case FrameKind.ACCEPT:
                self._on_accept(line, body)
            case FrameKind.REFUSE:
                fault, code, words = read_refuse(body)
                self._end_line(line, f"{self.peer} refused: {code}: {words}")
                self._events.append(ev.Refused(code, words, False, ("", self.peer, self.me)[fault]))
            case FrameKind.ABORT:
                self._end_line(line, f"{self.peer} aborted")
                self._events.append(ev.Aborted(make_printable(body, REASON)))
            case FrameKind.BYE:
                if self._left:
                    raise SessionRefusal("broken-rule", "a second goodbye on one connection")
                self._left = True
                self._events.append(ev.Bye())
            case _:
                raise SessionRefusal("no-session", f"a frame of kind {kind}")

    def on_head(self, line: Line, tag: bytes, number: int, size: int, total: int | None) -> Incoming | None:
        """See `LineOwner`."""
        incoming = self._in
        if self._left:
            raise SessionRefusal("broken-rule", "a part after the goodbye")
        # Parts of a view that was just left may still be in flight, but never more than this end had granted.
        if tag != incoming.tag or not incoming.view:
            self._stale -= size + OVERHEAD
            if self._stale < 0:
                raise SessionRefusal(
                    "broken-rule", f"a part of view {tag.hex()}, which this end never opened to the peer"
                )
            return None
        incoming.admit_part(number, size, total, self.limits)
        return incoming

    def on_part(self, incoming: Incoming | None, data: memoryview, total: int | None) -> None:
        """See `LineOwner`."""
        if incoming is None or incoming is not self._in:
            return
        last = incoming.count_part(len(data), total)
        self._arrived = True
        self._events.append(ev.MessagePart(incoming.view, total, data, last))

    # --- the handshake

    def _build_hello(self, line: Line, answers: bytes, position: Position) -> Hello:
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
            # The connection's random id is the key, so that these bytes differ on every connection.
            facts=b"" if answers or not self._first else encode_facts(self._fields, line.id),
        )

    def _on_hello(self, line: Line, hello: Hello) -> None:
        hello.check_against(self._build_hello(line, b"", Position()), line.id if self._first else b"", self._fields)
        self._refuse_beside_running(hello.incarnation)
        known_or_newer(hello.incarnation, self.known, self.peer)
        line.greeted = True
        if self._first:
            self._use_line(line, hello.incarnation)
            position = self._in.announce_position()
            line.last_words.append(encode_frame(FrameKind.ACCEPT, hello.id + position.pack()))
            self._resume_streams(line, hello.incarnation, hello.position)
            return
        if not self._is_newest(hello):
            self._end_line(line, REPLACED)
            return
        self._greeting = hello
        self._use_line(line, hello.incarnation)
        line.last_words.append(hello_frame(self._build_hello(line, hello.id, self._in.announce_position())))

    def _refuse_beside_running(self, found: Incarnation) -> None:
        """Refuse another process of the peer while the one before shows signs of life: it may run on a copy of the
        state folder. A restarted process is refused for a few seconds at most, where its predecessor's connection still
        seems to stand.

        Raises:
            SessionRefusal: another process runs.
        """
        met = self._met
        if met is None or found == met or found.count < met.count or self._line is None or not self.hears_peer():
            return
        raise SessionRefusal(
            "running-incarnation",
            f"start {met.count} of {self.peer!r} is connected and runs, so this process, start {found.count}, may run "
            "on a copy of its state folder: let one of them run",
            self.peer,
        )

    def _is_newest(self, hello: Hello) -> bool:
        """Whether no hello of a later connection of the peer has arrived.

        Raises:
            Refusal: this very hello has arrived before, or one of a connection so much later that the order is unknown.
        """
        incarnation, numbers = self._seen
        if incarnation != hello.incarnation:
            self._seen = (hello.incarnation, [hello.connection])
            return True
        last = numbers[-1]
        # Only the last few numbers are stored, so an older one cannot be told from a replay.
        if hello.connection in numbers or hello.connection <= last - _REMEMBERED:
            raise SessionRefusal(
                "replayed-hello", f"the hello of connection {hello.connection} again, after that of connection {last}"
            )
        numbers.append(hello.connection)
        numbers.sort()
        del numbers[:-_REMEMBERED]
        return hello.connection > last

    def _on_accept(self, line: Line, body: memoryview) -> None:
        greeting = self._greeting
        # The random id shows that the peer answers this connection and not a recorded one.
        if self._first or greeting is None or body[:NONCE] != line.id:
            raise SessionRefusal(
                "replayed-hello",
                f"connection {bytes(body[:8]).hex()} is accepted by {self.peer!r}; this one is {line.id.hex()[:16]}",
            )
        self._resume_streams(line, greeting.incarnation, Position.unpack(body[NONCE:]))

    def _use_line(self, line: Line, peer: Incarnation) -> None:
        """From here on this end accepts nothing from other lines, so that its position is final for them."""
        for older in [self._line, *self._young]:
            if older is not None and older is not line and (older.up or older.greeted):
                self._end_line(older, REPLACED)
        self._stale = 0
        if self._met is not None and peer != self._met:
            self._void_view()

    def _resume_streams(self, line: Line, peer: Incarnation, position: Position) -> None:
        """Finish the handshake: continue the streams after what the peer has received."""
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
            except SessionRefusal as refusal:
                self._discard_incoming()
                self._void_view()
                resumed = False
                self._events.append(ev.ConnectionBroken(refusal.words))
        if position.received == 0:
            self._grant = position
        self._events.append(ev.Up(peer, resumed))

    def _void_view(self) -> None:
        """Both streams end, and their view with them."""
        self._in, self._out = Incoming(), Outgoing()
        self._theirs = None

    # --- positions and room

    def _on_position(self, position: Position) -> None:
        if position.tag == self._out.tag and self._in.view:
            before = self._out.acked
            self._out.acknowledge(position)
            self._control -= self._out.acked > before  # there are no more of these than parts that left
        elif position.received == 0:
            self._grant = position

    def _on_blocked(self, tag: bytes, limit: int, step: str) -> None:
        incoming = self._in
        if not incoming.view or tag != incoming.tag or limit < incoming.granted:
            return
        if limit > incoming.granted:
            raise SessionRefusal("broken-rule", f"the peer waits at {limit}; it was granted {incoming.granted}")
        before, self._theirs = self._theirs, (limit, step)
        if incoming.next_limit > limit:
            self._owes = True
        elif before != self._theirs:
            self._events.append(ev.Blocked(step))

    def _discard_incoming(self) -> None:
        """Drop parts that the peer sends before it learns of the change; it can send no more than was granted."""
        self._stale += max(0, self._in.granted - self._in.arrived)
        self._theirs, self._still, self._idle, self._blocked_at = None, None, 0, -1

    def _end_line(self, line: Line, why: str) -> None:
        line.end(why)
        self._forget_line(line)

    def _forget_line(self, line: Line) -> None:
        if line is self._line:
            self._line = None
        if line in self._young:
            self._young.remove(line)

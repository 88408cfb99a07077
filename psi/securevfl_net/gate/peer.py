"""One peer, as its party's gate sees it: its session, its connections, when to call, what to report to the program."""

from __future__ import annotations

import random
import struct
import time
from typing import TYPE_CHECKING

import msgspec

from securevfl_net.errors import InputError
from securevfl_net.gate.frames import Bulk, Frames, Outbox
from securevfl_net.session import (
    OVERHEAD,
    Aborted,
    Beaten,
    Blocked,
    Bye,
    ConnectionBroken,
    Deadlocked,
    Endorsed,
    MessagePart,
    Noted,
    Refused,
    SessionEnd,
    Up,
)

if TYPE_CHECKING:
    from securevfl_net.gate.connection import Connection
    from securevfl_net.gate.settings import Timing
    from securevfl_net.session import Event

__all__ = ["NOTED", "REFUSAL", "GatePeer", "LinkRow"]

_PING = struct.Struct("<QQIfI")
"""The sender's clock, the last clock it received and how long ago, all in microseconds; seconds that its program was
seen to compute; milliseconds since its program's last report.
"""
_GATHER = 16 << 20
"""Most bytes of one message passed to a slow program at once."""
REFUSAL = msgspec.json.Encoder()
_BEAT = msgspec.msgpack.Decoder(tuple[int, int, int, str, str, bytes])
NOTED = 1 << 20
"""Bytes of notes that may wait for the program before their peer is read no more."""
_RECALL = 2.0
"""Seconds after which a peer that left is called again, where it may come back."""
_AGAIN = 60.0
"""Seconds after which the same refusal is reported to the program again."""
_PINGS = 3
"""A connection on which nothing came for as many signs of life may be dead: another process takes its place."""
_CODES = 16
"""Most different refusals of one peer that are reported to the program in that time."""


class LinkRow(msgspec.Struct, array_like=True):
    """State of one connection, sent to the program each second; see `LinkState`."""

    connected: bool
    since: float
    connections: int
    round_trip: float | None
    silent: float | None
    blocked: bool
    why: str


class GatePeer:
    """A peer.

    Args:
        index: in the order of the settings.
        session: with it.
        outbox: to the program.
        timing: seconds.
        calls: whether this party calls it.
        recalls: whether it does so again after the peer left in good order.

    Attributes:
        knocks: whether to say whom it calls before everything else: a node is there, and could not tell.
    """

    def __init__(
        self, index: int, session: SessionEnd, outbox: Outbox, timing: Timing, *, calls: bool, recalls: bool = False
    ) -> None:
        self.index = index
        self.name = session.peer
        self.session = session
        self.calls, self.recalls = calls, recalls
        self.connections: list[Connection] = []
        self.current: Connection | None = None
        self.left = False
        self.aborted = False
        self.dialling = False
        self.knocks = False
        self.next_call = 0.0
        self.pause = 0.0
        self.generation = 0
        self.noted = 0
        self.waits = ""
        self.awaits = False
        self._echoed = 0
        self._unpinned = b""
        self._late = 0, 0.0
        self._endorsed_on: tuple[Connection | None, float] = None, 0.0
        self._endorsed_at = 0
        self.why = "not connected yet"
        self._outbox = outbox
        self._timing = timing
        self._told_up = False
        self._bulk: Bulk | None = None
        self._held = 0
        self._beat = b""
        self._heard: bytes | None = None
        self._theirs = (0, 0.0)
        self._round_trip: float | None = None
        self._next_ping = 0.0
        self._count = 0
        self._since = time.monotonic()
        self._refusals: dict[str, float] = {}
        session.hears_peer = self._hears_peer

    # --- the program's side

    def begin_view(self, generation: int, view: bytes) -> None:
        """A view begins."""
        self.session.begin_view(view)
        self._beat, self.awaits, self.waits = b"", False, ""
        self.generation, self._held, self._bulk = generation, 0, None

    def open_view(self) -> None:
        """Release parts; does nothing if the session abandoned the view because the peer restarted."""
        if self.session.view:
            self.session.open_view()

    def leave_view(self) -> None:
        """It is over."""
        self.session.leave_view()
        self._held, self._bulk = 0, None

    def send_part(self, generation: int, total: int, body: memoryview) -> None:
        """Send a part; of an earlier view, or one that the session gave up, it is dropped."""
        session = self.session
        if generation != self.generation & 0xFF or not session.view or self.aborted:
            return
        if total:
            length = body[0]
            session.send_part(
                body[1 + length :], first_total=total, step=bytes(body[1 : 1 + length]).decode(errors="replace")
            )
            self._held += len(body) - 1 - length + OVERHEAD
        else:
            session.send_part(body, first_total=None)
            self._held += len(body) + OVERHEAD

    def credit_window(self, generation: int, cost: int) -> None:
        """The program took parts out of the window."""
        if generation == self.generation & 0xFF and self.session.view:
            self.session.credit_window(self.session.view, cost)

    def forward_beat(self, payload: bytes, worked: float, spoke: float) -> None:
        """The program's sign of life for this peer."""
        self._beat = payload
        awaits, step = _BEAT.decode(payload)[3:5]
        self.awaits = bool(awaits)
        self.waits = f"{step} of {awaits}" if awaits not in ("", self.name) else ""
        self.send_ping(worked, spoke)

    def tell_endorsement(self, payload: bytes, since: float, worked: float, spoke: float) -> bool:
        """Send the endorsement of a new certificate, unless this connection has carried it: what a connection did not
        deliver before it ended is lost.

        Args:
            payload: the endorsement.
            since: when the program gave it.
            worked, spoke: as for `send_ping`.

        Returns:
            Whether the peer has answered a ping that was sent behind it, and so has stored it.
        """
        if not self.session.is_up:
            return False
        if self._endorsed_on != (self.current, since):
            try:
                self.session.send_endorsement(payload)
            except InputError:  # too many notes wait: soon again
                return False
            self._endorsed_on, self._endorsed_at = (self.current, since), int(1e6 * time.monotonic())
            self.send_ping(worked, spoke)
        return self._echoed >= self._endorsed_at

    def handle_pin(self, payload: bytes) -> None:
        """The program has stored an endorsement: answer the pings behind it."""
        if self._unpinned and payload == self._unpinned:
            self._unpinned, self._theirs = b"", self._late

    def send_ping(self, worked: float, spoke: float) -> None:
        """Show the peer a sign of life: the program's last one, and what the gate saw of the program since."""
        now = time.monotonic()
        self._next_ping = now + self._timing.ping
        clock, at = self._theirs
        held = min(int(1e6 * (now - at)), (1 << 32) - 1) if clock else 0
        quiet = min(int(1e3 * (now - spoke)), (1 << 32) - 1)
        self.session.send_ping(_PING.pack(int(1e6 * now), clock, held, worked, quiet) + self._beat)

    # --- the network's side

    @property
    def may_call(self) -> bool:
        """Whether this party calls it at all: not one that ended the job, or left and does not come back."""
        return self.calls and not self.aborted and (self.recalls or not self.left)

    def is_call_due(self, now: float) -> bool:
        """Whether to call now."""
        if not self.may_call or self.dialling or now < self.next_call:
            return False
        return not self._live_connections() or self.is_replacement_due(now)

    def is_replacement_due(self, now: float) -> bool:
        """Whether the present connection is the only one and due for replacement."""
        one = self.current
        if one is None or self._live_connections() != [one]:
            return False
        return now - one.since > self._timing.age or one.moved > self._timing.volume

    def _live_connections(self) -> list[Connection]:
        return [one for one in self.connections if one.line is not None and not one.line.over]

    def handle_failure(self, why: str) -> None:
        """Handle a failed call or handshake: wait a little longer each time."""
        self.why = why
        timing = self._timing
        self.pause = min(max(timing.first, 1.5 * self.pause), timing.most)
        self.next_call = time.monotonic() + self.pause * random.uniform(0.75, 1.0)  # noqa: S311  # no secret

    def handle_loss(self, connection: Connection) -> None:
        """A connection is over."""
        if connection in self.connections:
            self.connections.remove(connection)
        if connection is self.current:
            self.current = None
        if connection.why:
            self.why = connection.why
        others = self._live_connections()
        if self._told_up and not self.session.is_up and not others:
            self._told_up = False
            self._since = time.monotonic()
            self.pause, self.next_call = 0.0, 0.0
            if not self.left:
                self._outbox.put_frame(Frames.DOWN, self.why.encode(), peer=self.index)
        elif not self._told_up and not others:
            self.handle_failure(connection.why)

    def _hears_peer(self) -> bool:
        one = self.current
        return one is not None and time.monotonic() - one.heard < _PINGS * self._timing.ping

    def report_refusal(self, code: str, words: str, *, ours: bool, party: str = "") -> None:
        """Report a refusal to the program, with the party whose process is at fault, if known; the same one at most
        once a minute.
        """
        now = time.monotonic()
        self._refusals = {known: at for known, at in self._refusals.items() if now - at < _AGAIN}
        if code not in self._refusals and len(self._refusals) < _CODES:  # the peer makes up its codes as it likes
            self._refusals[code] = now
            words = words if ours or words.startswith("the peer refuses: ") else f"the peer refuses: {words}"
            self._outbox.put_frame(Frames.REFUSED, REFUSAL.encode((code, words, party)), peer=self.index)

    def relay_events(self, worked: float, spoke: float) -> None:
        """Take what happened in the session to the program."""
        session = self.session
        for event in session.take_events():
            self._handle_event(event, worked, spoke)
        held = session.held_bytes
        if held < self._held:
            self._outbox.put_frame(Frames.ROOM, peer=self.index, generation=self.generation, number=self._held - held)
            self._held = held
        if self._heard is not None and not self._outbox.urgent:
            self._outbox.put_frame(Frames.BEAT, self._heard, peer=self.index)
            self._heard = None

    def _handle_event(self, event: Event, worked: float, spoke: float) -> None:
        outbox = self._outbox
        match event:
            case MessagePart():
                self._handle_part(event)
            case Up():
                self._handle_up(event, worked, spoke)
            case Noted() | Endorsed():
                kind = Frames.NOTE if isinstance(event, Noted) else Frames.ENDORSE
                if isinstance(event, Endorsed):
                    if not self._unpinned:
                        self._late = self._theirs
                    self._unpinned = event.payload
                self.noted += len(event.payload)
                outbox.put_frame(kind, event.payload, peer=self.index)
            case Beaten():
                self._handle_beat(event.beat)
            case Refused():
                self.report_refusal(event.code, event.words, ours=event.ours, party=event.party)
            case ConnectionBroken():
                self.report_refusal("broken-rule", event.reason, ours=True)
            case Aborted():
                self.left = True
                outbox.put_frame(Frames.ABORT, event.reason.encode(), peer=self.index)
            case Bye():
                self.left, self.next_call = True, max(self.next_call, time.monotonic() + _RECALL)
                outbox.put_frame(Frames.ENDED, peer=self.index)
            case Deadlocked():
                outbox.put_frame(
                    Frames.DEADLOCKED, REFUSAL.encode((event.step, event.theirs, event.window)), peer=self.index
                )
            case Blocked():
                pass

    def _handle_up(self, event: Up, worked: float, spoke: float) -> None:
        self._told_up, self.left = True, False
        self._count += 1
        self._since = time.monotonic()
        self.pause = 0.0
        self.current = next((one for one in self.connections if one.line is not None and one.line.up), None)
        if not event.resumed:
            self._bulk, self._held = None, 0
        fingerprint = self.current.fingerprint if self.current is not None else ""
        body = REFUSAL.encode((str(event.peer), fingerprint))
        self._outbox.put_frame(Frames.UP, body, peer=self.index, count=int(event.resumed))
        self.send_ping(worked, spoke)

    def _handle_part(self, event: MessagePart) -> None:
        bulk = self._bulk
        if event.total is not None or bulk is None or bulk.begun or bulk.size > _GATHER:
            bulk = Bulk(Frames.PART, self.generation, self.index, event.total or 0)
            self._outbox.put_bulk(bulk)
            self._bulk = bulk
        self._outbox.add_part(bulk, event.data)
        if event.last:
            self._bulk = None

    def _handle_beat(self, beat: bytes) -> None:
        if len(beat) < _PING.size:
            return
        clock, echo, held, worked, quiet = _PING.unpack_from(beat)
        now = time.monotonic()
        self._late = clock, now
        if not self._unpinned:  # a ping behind an endorsement is answered once the program has stored it
            self._theirs = self._late
        self._echoed = max(self._echoed, echo)
        trip = now - (echo + held) / 1e6
        if echo and 0 <= trip < self._timing.silent:
            self._round_trip = trip
        self._heard = struct.pack("<fI", worked, quiet) + beat[_PING.size :]

    def link_row(self, now: float) -> LinkRow:
        """The peer's row for the program."""
        one = self.current
        return LinkRow(
            self.session.is_up,
            now - self._since,
            self._count,
            self._round_trip,
            now - one.heard if one is not None else None,
            self.session.blocked_step is not None,
            "" if self.session.is_up else self.why,
        )

    def run_timers(self, now: float, worked: float, spoke: float) -> None:
        """Do what is due."""
        if self.session.is_up and now >= self._next_ping:
            self.send_ping(worked, spoke)
        for one in list(self.connections):
            if now - one.heard > self._timing.silent:
                one.end(f"nothing came for {now - one.heard:.0f} s: the peer's machine or the network is gone")
            elif one is not self.current and one.line is not None and not one.line.up and now > one.until:
                one.end("the peer sent no hello in time")
            elif not self.calls and now - one.since > 1.5 * self._timing.age + 60:
                one.end("the connection is old, and the peer did not replace it")

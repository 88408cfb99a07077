"""The gate: one loop over the program, the listener and all connections. It sees parts of messages, but no table."""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import time
from contextlib import suppress

import msgspec

from securevfl_net.errors import InputError, PeerRefused, ProtocolError, SecureVFLError
from securevfl_net.gate.connection import Connection, Phase, Turn
from securevfl_net.gate.doors import Callers, Listener
from securevfl_net.gate.frames import FrameIn, Frames, GateLost, Inbox, Outbox
from securevfl_net.gate.peer import NOTED, REFUSAL, GatePeer
from securevfl_net.gate.program import ProgramWatch
from securevfl_net.gate.settings import GateSettings
from securevfl_net.identity import Refusal, context
from securevfl_net.session import Incarnation, SessionEnd, SessionLimits

__all__ = ["Gate", "serve"]

_TICK = 1.0
_SOON = 0.1
"""Seconds between two looks at the timers, with and without something that may be late."""
_ABORT = 5.0
"""Seconds in which peers may take the reason of an abort."""
_STRANGERS = 5
"""Most refusals of unidentified callers that are reported to the program in a minute."""
_ENCODER = msgspec.msgpack.Encoder()


class Gate:
    """See the module.

    Args:
        program: the socket to it.
        settings: from the program.

    Raises:
        InputError: settings, certificates or addresses that cannot be used.
    """

    def __init__(self, program: socket.socket, settings: GateSettings) -> None:
        self._settings, self._timing = settings, settings.timing
        self._program = program
        self._identity = settings.identity()
        self._book = settings.book.book(settings.me, settings.agreement)
        self._contexts: dict[bool, ssl.SSLContext] = {}
        self._version = -1
        self._out = Outbox()
        self._in = Inbox(self._frame, lambda *head: memoryview(bytearray(head[-1])))
        self._watch = ProgramWatch(os.getppid())
        self._selector = selectors.DefaultSelector()
        self._masks: dict[int, int] = {}
        self._strangers: list[Connection] = []
        self._again: dict[Connection, None] = {}
        self._peers = [self._peer(index, name) for index, name in enumerate(settings.peers)]
        self._by_name = {peer.name: peer for peer in self._peers}
        self._callers = Callers(self._selector, self._called)
        self._dialers = {name: way.dialer(server=settings.me < name) for name, way in settings.routes.items()}
        self._told = 0
        self._next_tick = self._next_reload = 0.0
        self._minute = self._renewing = 0.0
        self._farewell = 0.0
        self._done = False
        self._tls(True)
        self._listeners = [Listener(address, self._arrived) for address in settings.listen]
        program.setblocking(False)
        self._selector.register(program, selectors.EVENT_READ, None)
        for listener in self._listeners:
            self._selector.register(listener.sock, selectors.EVENT_READ, listener)
        self._out.put_frame(Frames.LISTENING, REFUSAL.encode([listener.address for listener in self._listeners]))

    def _peer(self, index: int, name: str) -> GatePeer:
        settings = self._settings
        known = settings.known.get(name)
        session = SessionEnd(
            settings.me,
            name,
            agreement=settings.agreement,
            own=Incarnation.read(settings.incarnation),
            known=Incarnation.read(known) if known else None,
            limits=SessionLimits(**settings.limits),
            fields=settings.fields,
        )
        return GatePeer(index, session, self._out, settings.timing, calls=name in settings.routes)

    # --- the loop

    def run(self) -> None:
        """Serve until the program says goodbye or is gone.

        Raises:
            GateLost: the program is gone.
        """
        while not self._over():
            now = time.monotonic()
            if now >= self._next_tick:
                self._timers(now)
            for key, _ in self._selector.select(0 if self._again else max(0.0, self._next_tick - now)):
                if key.fileobj is self._program:
                    continue
                if isinstance(key.data, Connection):
                    self._again[key.data] = None
                elif isinstance(key.data, Listener):
                    key.data.accept()
                else:
                    key.data(0)
            self._in.read(self._program)
            again, self._again = self._again, {}
            for connection in again:
                self._turn(connection)
            self._look()
            self._out.write(self._program)
            self._wait(self._program, selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0), None)

    def _over(self) -> bool:
        if not self._farewell:
            return False
        now = time.monotonic()
        if not self._done:
            if any(self._waits_for(peer, now) for peer in self._peers):
                self._next_tick = min(self._next_tick, now + _SOON)
                return False
            self._done = True
            self._out.put_frame(Frames.DONE)
            for peer in self._peers:
                for one in peer.connections:
                    if one.phase == Phase.LIVE:
                        one.leave("this party is done")
                        self._again[one] = None
        lingers = any(one.phase == Phase.LINGER for peer in self._peers for one in peer.connections)
        self._next_tick = min(self._next_tick, now + _SOON)
        return not self._out and not lingers

    def _waits_for(self, peer: GatePeer, now: float) -> bool:
        """Whether a peer has yet to read what this party sent."""
        if peer.left or peer.session.finished:
            return False
        if peer.aborted:
            return any(one.phase == Phase.LIVE for one in peer.connections)
        return peer.session.up or now < self._farewell

    def _look(self) -> None:
        """Carry events of sessions to the program, and the program's frames to connections."""
        watch = self._watch
        for peer in self._peers:
            peer.look(watch.worked, watch.spoke)
            for one in list(peer.connections):
                if one.phase == Phase.LIVE and one not in self._again:
                    if one.flush() == Turn.AGAIN:
                        self._again[one] = None
                    self._settle(one)
            peer.look(watch.worked, watch.spoke)
            if not self._out.urgent:
                peer.noted = 0
            if peer.calls and not peer.dialling and peer.is_replacement_due(time.monotonic()):
                self._next_tick = 0.0
            held = peer.noted > NOTED
            for one in peer.connections:
                if one.reads == held:
                    one.reads = not held
                    self._again[one] = None
        if self._out.urgent == 0:
            for peer in self._peers:
                peer.noted = 0

    def _turn(self, connection: Connection) -> None:
        stranger = connection.line is None
        if connection.turn() == Turn.AGAIN:
            self._again[connection] = None
        if stranger and connection.phase == Phase.LIVE:
            self._known(connection)
        self._settle(connection)

    def _settle(self, connection: Connection) -> None:
        """Register the events that it waits for, or remove it."""
        if connection.phase != Phase.OVER:
            self._wait(connection.sock, connection.wants(), connection)
            return
        self._again.pop(connection, None)
        number = connection.number
        if number in self._masks:
            del self._masks[number]
            self._selector.unregister(number)
        connection.release()
        if connection in self._strangers:
            self._strangers.remove(connection)
            self._turned_away(connection)
        elif connection.party:
            peer = self._by_name[connection.party]
            peer.look(self._watch.worked, self._watch.spoke)  # what came before the end
            peer.lost(connection)

    def _wait(self, sock: socket.socket, mask: int, data: Connection | None) -> None:
        number = sock.fileno()
        before = self._masks.get(number, selectors.EVENT_READ if sock is self._program else 0)
        if mask == before:
            return
        if not before:
            self._selector.register(number, mask, data)
        elif not mask:
            self._selector.unregister(number)
        else:
            self._selector.modify(sock if sock is self._program else number, mask, data)
        self._masks[number] = mask
        if not mask:
            del self._masks[number]

    # --- connections

    def _arrived(self, sock: socket.socket) -> None:
        """Accept a caller. If too many are unidentified, drop the one that has been silent longest."""
        if len(self._strangers) >= self._timing.strangers:
            self._strangers[0].end("too many callers at once")
            self._settle(self._strangers[0])
        with suppress(OSError):
            self._meet(Connection(sock, self._tls, self._book, self._live(), seconds=self._timing.handshake))

    def _called(self, index: int, result: socket.socket | str | PeerRefused) -> None:
        """A call of this party ended."""
        peer = self._peers[index]
        peer.dialling = not isinstance(result, PeerRefused | str)
        if isinstance(result, PeerRefused):
            peer.refused(result.code, str(result), ours=True)
            peer.failed(str(result))
        elif isinstance(result, str):
            peer.failed(result)
        else:
            try:
                connection = Connection(
                    result,
                    self._tls,
                    self._book,
                    self._live(),
                    seconds=self._timing.handshake,
                    expected=peer.name,
                    server=self._settings.me < peer.name,
                    direct=not self._settings.routes[peer.name].rendezvous,
                )
            except OSError as error:
                peer.dialling = False
                peer.failed(str(error))
            else:
                self._meet(connection)

    def _meet(self, connection: Connection) -> None:
        self._strangers.append(connection)
        self._next_tick = min(self._next_tick, time.monotonic() + _SOON)
        self._turn(connection)

    def _known(self, connection: Connection) -> None:
        """Both sides have accepted each other."""
        self._strangers.remove(connection)
        peer = self._by_name[connection.party]
        if connection.dialled:
            peer.dialling = False
        if connection.server != (self._settings.me < peer.name):
            connection.end(f"{peer.name!r} plays the part in TLS that is this party's")
            return
        connection.line = peer.session.connected()
        connection.until = time.monotonic() + self._timing.handshake
        peer.connections.append(connection)
        if peer.aborted or self._done:
            connection.leave("this party is done")
        self._again[connection] = None

    def _turned_away(self, connection: Connection) -> None:
        refusal = connection.refusal
        name = connection.expected or (refusal.party if refusal is not None else "")
        peer = self._by_name.get(name)
        if connection.dialled and peer is not None:
            peer.dialling = False
            peer.failed(connection.why)
        if refusal is None:
            return
        if peer is not None:
            peer.refused(refusal.code, refusal.words, ours=refusal.by == "here")
            return
        now = time.monotonic()
        if now > self._minute:
            self._minute, self._told = now + 60.0, 0
        self._told += 1
        if self._told <= _STRANGERS:
            words = refusal.words if refusal.by == "here" else f"the peer refuses: {refusal.words}"
            self._out.put_frame(Frames.REFUSED, REFUSAL.encode((refusal.code, words)), peer=0xFFFF)

    def _live(self) -> dict[str, str]:
        return {peer.name: peer.current.fingerprint for peer in self._peers if peer.current is not None}

    def _tls(self, server: bool) -> ssl.SSLContext:
        """The current TLS context: rebuilt with the party's certificate, the pinned ones and the authorities."""
        if self._version != self._book.version:
            self._contexts = {side: context(self._identity, self._book, server=side) for side in (True, False)}
            self._version = self._book.version
        return self._contexts[server]

    # --- timers

    def _timers(self, now: float) -> None:
        busy = bool(self._strangers) or bool(self._renewing)
        for connection in list(self._strangers):
            connection.late(now)
            self._settle(connection)
        tick = now >= self._next_reload or now - self._watch_at >= _TICK
        if tick:
            self._second(now)
        for peer in self._peers:
            peer.run_timers(now, self._watch.worked, self._watch.spoke)
            for one in list(peer.connections):
                one.late(now)
                self._settle(one)
                busy = busy or one.phase == Phase.LINGER
            if peer.is_call_due(now) and not self._farewell:
                peer.dialling = True
                meets = bool(self._settings.routes[peer.name].rendezvous)
                seconds = self._timing.meeting if meets else self._timing.handshake
                self._callers.call(peer.index, self._dialers[peer.name], seconds)
        for listener in self._listeners:
            self._wait_listener(listener, now)
        if self._renewing:
            self._renew(now)
        calls = [peer.next_call for peer in self._peers if peer.calls and not peer.connections and not peer.dialling]
        self._next_tick = min([now + (_SOON if busy else _TICK), *(max(call, now + 0.01) for call in calls)])

    _watch_at = 0.0

    def _second(self, now: float) -> None:
        self._watch_at = now
        self._watch.sample(waits=any(peer.awaits for peer in self._peers))
        for peer in self._peers:
            peer.session.tick(peer.waits)
        if self._out.urgent < NOTED:
            self._out.put_frame(Frames.STATE, _ENCODER.encode([peer.link_row(now) for peer in self._peers]))
        if now >= self._next_reload:
            self._next_reload = now + self._timing.reload
            self._reload()

    def _wait_listener(self, listener: Listener, now: float) -> None:
        listens = listener.sock in self._selector.get_map()
        if listener.is_pausing(now) and listens:
            self._selector.unregister(listener.sock)
        elif not listener.is_pausing(now) and not listens:
            self._selector.register(listener.sock, selectors.EVENT_READ, listener)

    def _reload(self) -> None:
        """Read revocation lists again, and check every connection against them."""
        try:
            self._book.reload()
        except InputError as error:
            self._out.put_frame(Frames.REFUSED, REFUSAL.encode(("crl-out-of-date", str(error))), peer=0xFFFF)
        for peer in self._peers:
            for one in peer.connections:
                if one.phase != Phase.LIVE:
                    continue
                try:
                    self._book.accepts(one.certificate, expected=peer.name)
                except Refusal as refusal:
                    peer.session.refuse(refusal.code, refusal.words)
                    self._again[one] = None

    # --- the program

    def _frame(self, frame: FrameIn) -> None:
        """Execute a frame from the program."""
        self._watch.spoke = time.monotonic()
        kind = frame.kind
        if kind == Frames.PART:
            body = frame.body if frame.placed else memoryview(bytes(frame.body))
            self._peers[frame.peer].send(frame.generation, frame.number, body)
        elif kind == Frames.CREDIT:
            self._peers[frame.peer].credit(frame.generation, frame.number)
        elif kind == Frames.BEAT:
            self._peers[frame.peer].beat(bytes(frame.body), self._watch.worked, self._watch.spoke)
        elif kind == Frames.NOTE:
            peer = self._peers[frame.peer]
            try:
                peer.session.note(bytes(frame.body))
            except InputError:  # too many wait; notes may be lost with their connection only
                self._leave(peer, "too many notes wait to be written")
        else:
            self._command(kind, frame.generation, bytes(frame.body))

    def _command(self, kind: int, generation: int, body: bytes) -> None:
        match kind:
            case Frames.BEGIN:
                for peer in self._peers:
                    peer.begin(generation, body)
            case Frames.OPEN:
                for peer in self._peers:
                    peer.open()
            case Frames.PARK:
                for peer in self._peers:
                    peer.park()
            case Frames.ABORT | Frames.CLOSE:
                self._goodbye(body.decode(errors="replace"), abort=kind == Frames.ABORT)
            case Frames.ENDORSE:
                for peer in self._peers:
                    with suppress(InputError):
                        peer.session.endorse(body)
            case Frames.PIN:
                with suppress(Refusal):  # the program took it
                    self._book.endorse(body)
            case Frames.RENEW:
                self._renewing = self._next_tick = time.monotonic()
                for peer in self._peers:
                    peer.ping(self._watch.worked, self._watch.spoke)
            case _:
                raise ProtocolError(f"a frame of kind {kind} from the program")

    def _goodbye(self, reason: str, *, abort: bool) -> None:
        for peer in self._peers:
            if abort:
                peer.session.abort(reason)
                peer.aborted = True
            else:
                peer.session.bye()
        self._farewell = time.monotonic() + (_ABORT if abort else self._timing.farewell)

    def _leave(self, peer: GatePeer, why: str) -> None:
        for one in peer.connections:
            one.leave(why)
            self._again[one] = None

    def _renew(self, now: float) -> None:
        """Present the newest certificate from now on: every connection is made again and continues where it was.

        It waits until connected peers have answered a ping sent after the endorsement, so that they have received it.
        """
        behind = 1e6 * self._renewing
        waits = any(peer.session.up and peer.echoed < behind for peer in self._peers)
        if waits and now < self._renewing + self._timing.silent:
            self._next_tick = min(self._next_tick, now + _SOON)
            return
        self._renewing = 0.0
        self._identity = self._identity.newest()
        self._version = -1
        for peer in self._peers:
            self._leave(peer, "this party shows another certificate from now on")
            peer.next_call = 0.0


def serve(program: socket.socket) -> int:
    """Read settings, be the gate, and return an exit code: 0 after a goodbye, 1 where the program is gone, 2 where the
    settings cannot be used."""
    told: list[GateSettings] = []

    def take(frame: FrameIn) -> None:
        told.append(msgspec.msgpack.decode(bytes(frame.body), type=GateSettings))

    inbox = Inbox(take, lambda *head: memoryview(bytearray(head[-1])))
    try:
        while not told:
            inbox.read(program, 1)
        Gate(program, told[0]).run()
    except GateLost:
        return 1
    except SecureVFLError as error:
        outbox = Outbox()
        outbox.put_frame(Frames.FAILED, REFUSAL.encode((type(error).__name__, str(error))))
        with suppress(GateLost):
            program.setblocking(True)
            outbox.write(program)
        return 2
    return 0

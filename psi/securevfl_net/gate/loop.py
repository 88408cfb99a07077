"""The gate: one loop over the program, the listener and all connections. It sees parts of messages, but no table."""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import time
from contextlib import suppress
from typing import Any

import msgspec

from securevfl_net.entrance import knock_for, name_entrance
from securevfl_net.errors import InputError, MachineFault, PeerRefused, ProtocolError, SecureVFLError
from securevfl_net.exit_codes import find_machine_fault
from securevfl_net.gate.connection import Connection, Phase, Turn
from securevfl_net.gate.doors import Callers, Door, Listener
from securevfl_net.gate.frames import FrameIn, Frames, GateLost, Inbox, Outbox
from securevfl_net.gate.handshakes import Handshakes, find_network
from securevfl_net.gate.peer import NOTED, REFUSAL, GatePeer
from securevfl_net.gate.program import ProgramWatch
from securevfl_net.gate.settings import GateSettings
from securevfl_net.identity import Refusal, RefusalCode, make_tls_context
from securevfl_net.session import Incarnation, SessionEnd, SessionLimits

__all__ = ["Gate", "serve"]

_TICK = 1.0
_SOON = 0.1
"""Seconds between two looks at the timers, with and without something that may be late."""
_UNHURRIED = 0.005
"""Seconds for which the acknowledgement of a small part waits for something to go with."""
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
        self._identity = settings.load_identity()
        self._book = settings.book.build_book(settings.me, settings.agreement)
        self._contexts: dict[bool, ssl.SSLContext] = {}
        self._version = -1
        self._out = Outbox()
        self._in = Inbox(self._execute_frame, lambda *head: memoryview(bytearray(head[-1])))
        self._watch = ProgramWatch(os.getppid())
        self._selector = selectors.DefaultSelector()
        self._masks: dict[int, int] = {}
        self._strangers: Handshakes[Connection] = Handshakes(settings.timing.strangers)
        self._again: dict[Connection, None] = {}
        self._peers = [self._make_peer(index, name) for index, name in enumerate(settings.peers)]
        self._by_name = {peer.name: peer for peer in self._peers}
        self._callers = Callers(self._selector, self._finish_call)
        self._dialers = {name: way.build_dialer(server=settings.me < name) for name, way in settings.routes.items()}
        self._told = 0
        self._next_tick = self._next_reload = 0.0
        self._minute = self._endorsing = 0.0
        self._waiting_since = 0.0
        self._endorsement = b""
        self._farewell = 0.0
        self._done = False
        self._current_tls(True)
        self._listeners = [Listener(address, self._accept_caller) for address in settings.listen]
        self._entrances: list[Listener | Door] = [*self._listeners, *self._open_door()]
        program.setblocking(False)
        self._selector.register(program, selectors.EVENT_READ, None)
        for entrance in self._entrances:
            self._selector.register(entrance.sock, selectors.EVENT_READ, entrance)
        self._out.put_frame(Frames.LISTENING, REFUSAL.encode([listener.address for listener in self._listeners]))

    def _open_door(self) -> list[Door]:
        return [] if self._settings.door is None else [Door(self._settings.door, self._accept_caller)]

    def _make_peer(self, index: int, name: str) -> GatePeer:
        settings = self._settings
        known = settings.known.get(name)
        session = SessionEnd(
            settings.me,
            name,
            agreement=settings.agreement,
            own=Incarnation.from_text(settings.incarnation),
            known=Incarnation.from_text(known) if known else None,
            limits=SessionLimits(**settings.limits),
            fields=settings.fields,
        )
        calls = name in settings.routes
        return GatePeer(index, session, self._out, settings.timing, calls=calls, recalls=settings.recalls)

    # --- the loop

    def run(self) -> None:
        """Serve until the program says goodbye or is gone.

        Raises:
            GateLost: the program is gone.
        """
        while not self._is_over():
            now = time.monotonic()
            if now >= self._next_tick:
                self._run_timers(now)
            seconds = 0 if self._again else max(0.0, self._next_tick - now)
            for key, _ in self._selector.select(min(seconds, _UNHURRIED) if self._waiting_since else seconds):
                if key.fileobj is self._program:
                    self._in.read(self._program)
                elif isinstance(key.data, Connection):
                    self._again[key.data] = None
                elif isinstance(key.data, Listener | Door):
                    key.data.accept()
                else:
                    key.data(0)
            again, self._again = self._again, {}
            for connection in again:
                self._serve_connection(connection)
            self._relay_events()
            self._out.write(self._program)
            self._set_events(self._program, selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0), None)

    def _is_over(self) -> bool:
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
                        one.close_gracefully("this party is done")
                        self._again[one] = None
        lingers = any(one.phase == Phase.LINGER for peer in self._peers for one in peer.connections)
        self._next_tick = min(self._next_tick, now + _SOON)
        return not self._out and not lingers

    def _waits_for(self, peer: GatePeer, now: float) -> bool:
        """Whether a peer has yet to read what this party sent."""
        if peer.left or peer.session.is_finished:
            return False
        if peer.aborted:
            return any(one.phase == Phase.LIVE for one in peer.connections)
        return peer.session.is_up or now < self._farewell

    def _relay_events(self) -> None:
        """Carry events of sessions to the program, and the program's frames to connections."""
        watch = self._watch
        waits, late = False, bool(self._waiting_since) and time.monotonic() >= self._waiting_since + _UNHURRIED
        for peer in self._peers:
            peer.relay_events(watch.worked, watch.spoke)
            if peer.session.may_wait and not late:
                waits = True
            else:
                self._flush_connections(peer)
            peer.relay_events(watch.worked, watch.spoke)
            if not self._out.urgent:
                peer.noted = 0
            if peer.calls and not peer.dialling and peer.is_replacement_due(time.monotonic()):
                self._next_tick = 0.0
            held = peer.noted > NOTED
            for one in peer.connections:
                if one.reads == held:
                    one.reads = not held
                    self._again[one] = None
        self._waiting_since = (self._waiting_since or time.monotonic()) if waits else 0.0
        if self._out.urgent == 0:
            for peer in self._peers:
                peer.noted = 0

    def _flush_connections(self, peer: GatePeer) -> None:
        """Write what its session has."""
        for one in list(peer.connections):
            if one.phase == Phase.LIVE and one not in self._again:
                if one.flush() == Turn.AGAIN:
                    self._again[one] = None
                self._register_events(one)

    def _serve_connection(self, connection: Connection) -> None:
        stranger = connection.line is None
        if connection.make_progress() == Turn.AGAIN:
            self._again[connection] = None
        if stranger and connection.phase == Phase.LIVE:
            self._attach_to_peer(connection)
        self._register_events(connection)

    def _register_events(self, connection: Connection) -> None:
        """Register the events that it waits for, or remove it."""
        if connection.phase != Phase.OVER:
            self._set_events(connection.sock, connection.wanted_events(), connection)
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
            peer.relay_events(self._watch.worked, self._watch.spoke)  # what came before the end
            peer.handle_loss(connection)

    def _set_events(self, sock: socket.socket, mask: int, data: Connection | None) -> None:
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

    def _accept_caller(self, sock: socket.socket) -> None:
        """Accept a caller. If too many are unidentified, drop one of the network with the most of them."""
        network = find_network(sock)
        if (loser := self._strangers.choose_loser(network)) is not None:
            loser.end("too many callers at once")
            self._register_events(loser)
        with suppress(OSError):
            self._add_stranger(
                Connection(
                    sock, self._current_tls, self._book, self._live_fingerprints(), seconds=self._timing.handshake
                ),
                network,
            )

    def _finish_call(self, index: int, result: socket.socket | str | PeerRefused) -> None:
        """A call of this party ended."""
        peer = self._peers[index]
        peer.dialling = not isinstance(result, PeerRefused | str)
        if isinstance(result, PeerRefused):
            peer.report_refusal(result.code, str(result), ours=True)
            peer.handle_failure(str(result))
        elif isinstance(result, str):
            peer.handle_failure(result)
        else:
            try:
                connection = Connection(
                    result,
                    self._current_tls,
                    self._book,
                    self._live_fingerprints(),
                    seconds=self._timing.handshake,
                    expected=peer.name,
                    server=self._settings.me < peer.name,
                    **self._name_call(peer),
                )
            except OSError as error:
                peer.dialling = False
                peer.handle_failure(str(error))
            else:
                self._add_stranger(connection)

    def _name_call(self, peer: GatePeer) -> dict[str, Any]:
        """How a call says whom it calls; nothing to a relay, which pairs callers and need not know."""
        if self._settings.routes[peer.name].rendezvous:
            return {"direct": False}
        agreement = self._settings.agreement
        knock = knock_for(agreement, peer.name) if peer.knocks else b""
        return {"called": name_entrance(agreement, peer.name), "knock": knock}

    def _add_stranger(self, connection: Connection, network: str = "") -> None:
        self._strangers.add(connection, network)
        self._next_tick = min(self._next_tick, time.monotonic() + _SOON)
        self._serve_connection(connection)

    def _attach_to_peer(self, connection: Connection) -> None:
        """Both sides have accepted each other."""
        self._strangers.remove(connection)
        peer = self._by_name[connection.party]
        if connection.dialled:
            peer.dialling = False
        if connection.server != (self._settings.me < peer.name):
            connection.end(f"{peer.name!r} plays the part in TLS that is this party's")
            return
        connection.line = peer.session.open_line()
        connection.until = time.monotonic() + self._timing.handshake
        peer.connections.append(connection)
        if peer.aborted or self._done:
            connection.close_gracefully("this party is done")
        self._again[connection] = None

    def _turned_away(self, connection: Connection) -> None:
        refusal = connection.refusal
        name = connection.expected or (refusal.party if refusal is not None else "")
        peer = self._by_name.get(name)
        if connection.dialled and peer is not None:
            peer.dialling = False
            peer.handle_failure(connection.why)
            absent = refusal is not None and refusal.code is RefusalCode.NOT_HERE
            if absent and connection.server and not peer.knocks:
                peer.next_call = 0.0
            peer.knocks = absent
            if absent:
                return
        if refusal is None:
            return
        if peer is not None:
            peer.report_refusal(refusal.code, refusal.words, ours=refusal.by == "here")
            return
        now = time.monotonic()
        if now > self._minute:
            self._minute, self._told = now + 60.0, 0
        self._told += 1
        if self._told <= _STRANGERS:
            words = refusal.words if refusal.by == "here" else f"the peer refuses: {refusal.words}"
            self._out.put_frame(Frames.REFUSED, REFUSAL.encode((refusal.code, words, "")), peer=0xFFFF)

    def _live_fingerprints(self) -> dict[str, str]:
        return {peer.name: peer.current.fingerprint for peer in self._peers if peer.current is not None}

    def _current_tls(self, server: bool) -> ssl.SSLContext:
        """The current TLS context: rebuilt with the party's certificate, the pinned ones and the authorities."""
        if self._version != self._book.version:
            self._contexts = {side: make_tls_context(self._identity, self._book, server=side) for side in (True, False)}
            self._version = self._book.version
        return self._contexts[server]

    # --- timers

    def _run_timers(self, now: float) -> None:
        busy = len(self._strangers) > 0 or now < self._endorsing + self._timing.silent
        for connection in self._strangers:
            connection.end_if_late(now)
            self._register_events(connection)
        tick = now >= self._next_reload or now - self._watch_at >= _TICK
        if tick:
            self._run_each_second(now)
        for peer in self._peers:
            peer.run_timers(now, self._watch.worked, self._watch.spoke)
            for one in list(peer.connections):
                one.end_if_late(now)
                self._register_events(one)
                busy = busy or one.phase == Phase.LINGER
            if peer.is_call_due(now) and not self._farewell:
                peer.dialling = True
                meets = bool(self._settings.routes[peer.name].rendezvous)
                seconds = self._timing.meeting if meets else self._timing.handshake
                self._callers.call(peer.index, self._dialers[peer.name], seconds)
        for entrance in self._entrances:
            self._wait_listener(entrance, now)
        if self._endorsing:
            self._tell_endorsement()
        calls = [peer.next_call for peer in self._peers if peer.may_call and not peer.connections and not peer.dialling]
        self._next_tick = min([now + (_SOON if busy else _TICK), *(max(call, now + 0.01) for call in calls)])

    _watch_at = 0.0

    def _run_each_second(self, now: float) -> None:
        self._watch_at = now
        self._watch.sample(waits=any(peer.awaits for peer in self._peers))
        for peer in self._peers:
            peer.session.tick(peer.waits)
        if self._out.urgent < NOTED:
            self._out.put_frame(Frames.STATE, _ENCODER.encode([peer.link_row(now) for peer in self._peers]))
        if now >= self._next_reload:
            self._next_reload = now + self._timing.reload
            self._reload_revocations()

    def _wait_listener(self, listener: Listener | Door, now: float) -> None:
        listens = listener.sock in self._selector.get_map()
        if listener.is_pausing(now) and listens:
            self._selector.unregister(listener.sock)
        elif not listener.is_pausing(now) and not listens:
            self._selector.register(listener.sock, selectors.EVENT_READ, listener)

    def _reload_revocations(self) -> None:
        """Read revocation lists again, and check every connection against them."""
        try:
            self._book.reload()
        except InputError as error:
            self._out.put_frame(Frames.REFUSED, REFUSAL.encode(("crl-out-of-date", str(error), "")), peer=0xFFFF)
        for peer in self._peers:
            for one in peer.connections:
                if one.phase != Phase.LIVE:
                    continue
                try:
                    self._book.identify_peer(one.certificate, expected=peer.name)
                except Refusal as refusal:
                    peer.session.refuse(refusal.code, refusal.words)
                    self._again[one] = None

    # --- the program

    def _execute_frame(self, frame: FrameIn) -> None:
        """Execute a frame from the program."""
        self._watch.spoke = time.monotonic()
        kind = frame.kind
        if kind == Frames.PART:
            body = frame.body if frame.placed else memoryview(bytes(frame.body))
            self._peers[frame.peer].send_part(frame.generation, frame.number, body)
        elif kind == Frames.CREDIT:
            self._peers[frame.peer].credit_window(frame.generation, frame.number)
        elif kind == Frames.BEAT:
            self._peers[frame.peer].forward_beat(bytes(frame.body), self._watch.worked, self._watch.spoke)
        elif kind == Frames.NOTE:
            peer = self._peers[frame.peer]
            try:
                peer.session.send_note(bytes(frame.body))
            except InputError:  # too many wait; notes may be lost with their connection only
                self._close_connections(peer, "too many notes wait to be written")
        else:
            self._execute_command(kind, frame.generation, bytes(frame.body))

    def _execute_command(self, kind: int, generation: int, body: bytes) -> None:
        match kind:
            case Frames.BEGIN:
                for peer in self._peers:
                    peer.begin_view(generation, body)
            case Frames.OPEN:
                for peer in self._peers:
                    peer.open_view()
            case Frames.PARK:
                for peer in self._peers:
                    peer.leave_view()
            case Frames.ABORT | Frames.CLOSE:
                self._say_goodbye(body.decode(errors="replace"), abort=kind == Frames.ABORT)
            case Frames.ENDORSE:
                self._endorsement = bytes(body)
                self._endorsing = self._next_tick = time.monotonic()
            case Frames.PIN:
                with suppress(Refusal):  # the program took it
                    self._book.accept_endorsement(body)
                for peer in self._peers:
                    peer.handle_pin(body)
            case Frames.RENEW:
                self._renew_certificate()
            case _:
                raise ProtocolError(f"a frame of kind {kind} from the program")

    def _say_goodbye(self, reason: str, *, abort: bool) -> None:
        for peer in self._peers:
            if abort:
                peer.session.abort(reason)
                peer.aborted = True
            else:
                peer.session.say_goodbye()
        self._farewell = time.monotonic() + (_ABORT if abort else self._timing.farewell)

    def _close_connections(self, peer: GatePeer, why: str) -> None:
        for one in peer.connections:
            one.close_gracefully(why)
            self._again[one] = None

    def _tell_endorsement(self) -> None:
        """Give all peers the endorsement, over each new connection again, and tell the program once all have it."""
        since, watch = self._endorsing, self._watch
        have = [peer.tell_endorsement(self._endorsement, since, watch.worked, watch.spoke) for peer in self._peers]
        if all(have):
            self._endorsing = 0.0
            self._out.put_frame(Frames.RENEW)

    def _renew_certificate(self) -> None:
        """Present the newest certificate from now on: every connection is made again and continues where it was."""
        self._identity = self._identity.find_endorsed(self._endorsement)
        self._version = -1
        for peer in self._peers:
            self._close_connections(peer, "this party shows another certificate from now on")
            peer.next_call = 0.0


def serve(program: socket.socket) -> int:
    """Read settings, be the gate, and return an exit code: 0 after a goodbye, 1 where the program is gone, 2 where the
    settings cannot be used."""
    told: list[GateSettings] = []

    def take_settings(frame: FrameIn) -> None:
        told.append(msgspec.msgpack.decode(bytes(frame.body), type=GateSettings))

    inbox = Inbox(take_settings, lambda *head: memoryview(bytearray(head[-1])))
    try:
        while not told:
            inbox.read(program, 1)
        Gate(program, told[0]).run()
    except GateLost:
        return 1
    except SecureVFLError as error:
        outbox = Outbox()
        kind = MachineFault if find_machine_fault(error) is not None else type(error)
        outbox.put_frame(Frames.FAILED, REFUSAL.encode((kind.__name__, str(error))))
        with suppress(GateLost):
            program.setblocking(True)
            outbox.write(program)
        return 2
    return 0

"""A mesh over the network: the program's end of its gate."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace

import msgspec
from securevfl_net.gate.beats import read_beat
from securevfl_net.gate.frames import FrameIn, Frames, GateLost, Inbox, Outbox
from securevfl_net.gate.links import LinkStates
from securevfl_net.gate.settings import Address, BookSettings, GateSettings, Route, Timing
from securevfl_net.gate.spawn import BUFFER, spawn_gate
from securevfl_net.identity import Identity, PeerBook
from securevfl_net.identity import Refusal as IdentityRefusal
from securevfl_net.incarnation import Incarnation
from securevfl_net.link_state import LinkState
from securevfl_net.session import DEFAULT_SESSION_LIMITS, SessionLimits

from securevfl.errors import InputError, MachineFault, Parked, PeerEnded, ProtocolError, SecureVFLError
from securevfl.transport.channel import Channel
from securevfl.transport.mesh import (
    NOTE,
    VIEW,
    CertificateReplaced,
    Connected,
    ConnectionRefused,
    Disconnected,
    JobAborted,
    MeshEvent,
    NoteReceived,
    PeerLeft,
)
from securevfl.transport.network_channel import NetworkChannel
from securevfl.transport.wire import MessageLimits

__all__ = ["NetworkMesh"]

_START = 30.0
"""Seconds in which a gate must report that it is listening, on a busy machine."""
_PAIR = msgspec.json.Decoder(tuple[str, str])
_TRIPLE = msgspec.json.Decoder(tuple[str, str, str])
_FAILURES: Mapping[str, type[SecureVFLError]] = {"InputError": InputError, "MachineFault": MachineFault}
"""Errors with which a gate may end, by the name that it gives; any other is a `ProtocolError`."""


class NetworkMesh:
    """See `Mesh`. Made by `start`; lives in the event loop that started it.

    Attributes:
        me: the party.
        peers: sorted.
        incarnation: the party's own.
        listening: addresses at which the gate listens, with the ports that the system chose.
        outbox: frames to the gate.
    """

    def __init__(
        self, gate: subprocess.Popen[bytes], sock: socket.socket, settings: GateSettings, book: PeerBook
    ) -> None:
        self.me = settings.me
        self.peers = tuple(settings.peers)
        self.incarnation = Incarnation.from_text(settings.incarnation)
        self.listening: tuple[Address, ...] = ()
        self.outbox = Outbox()
        self._gate, self._sock, self._book = gate, sock, book
        self._limits = SessionLimits(**settings.limits)
        self._messages = MessageLimits(message_bytes=self._limits.message)
        self._farewell = settings.timing.farewell
        self._inbox = Inbox(self._take_frame, self._find_memory)
        self._loop = asyncio.get_running_loop()
        self._events: deque[MeshEvent] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._why = ""
        self._died = False
        self._view = b""
        self._past: set[bytes] = set()
        self._generation = 0
        self._channels: dict[str, NetworkChannel] = {}
        self._by_index: list[NetworkChannel | None] = [None] * len(self.peers)
        self._credits = [0] * len(self.peers)
        self._commits: list[Callable[[], None]] = []
        self._standing = LinkStates(self.peers)
        self._flushing = self._writing = False
        self._drained: asyncio.Future[None] | None = None
        self._endorsed: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(sock, self._read_frames)

    @classmethod
    async def start(
        cls,
        identity: Identity,
        book: PeerBook,
        *,
        agreement: bytes,
        fields: Mapping[str, bytes] | None = None,
        incarnation: Incarnation,
        listen: Iterable[Address] = (),
        routes: Mapping[str, Route] | None = None,
        known: Mapping[str, Incarnation] | None = None,
        limits: SessionLimits = DEFAULT_SESSION_LIMITS,
        timing: Timing | None = None,
        door: int | None = None,
        recalls: bool = False,
    ) -> NetworkMesh:
        """Start a gate and wait until it listens; connections come later, as events.

        Args:
            identity: the party's certificate; its name is the party's.
            book: the peers. Endorsements are checked by it, in this process.
            agreement: SHA-256 of the proposal.
            fields: of the agreement, name → digest of its value: a peer with another agreement learns in which fields
                they differ.
            incarnation: of this start; it was stored before.
            listen: where to listen; nowhere, if only this party calls.
            routes: peer → how to call it; the others call.
            known: newest incarnation that was seen of each peer.
            limits: of the sessions; parts are of one size at all parties.
            timing: seconds of the gate.
            door: descriptor through which a node hands over callers.
            recalls: whether peers that left in good order are called again.

        Raises:
            InputError: a certificate, a revocation list or an address that cannot be used.
            MachineFault: the gate did not start, or its address is still in use.
        """
        peers = sorted(book.peers)
        if strangers := sorted(set(routes or {}) - set(peers)):
            raise InputError(f"a route to {', '.join(strangers)}, who has no certificate in the book of peers")
        settings = GateSettings(
            me=identity.name,
            peers=peers,
            agreement=agreement,
            fields=dict(fields or {}),
            incarnation=str(incarnation),
            known={peer: str(one) for peer, one in (known or {}).items()},
            certificate=str(identity.certificate_file.absolute()),
            key=str(identity.key_file.absolute()),
            book=BookSettings.from_book(book),
            listen=list(listen),
            routes=dict(routes or {}),
            limits=asdict(limits),
            timing=timing or Timing(),
            door=door,
            recalls=recalls,
        )
        mesh = cls(*spawn_gate(door), settings, book)
        mesh.outbox.put_frame(Frames.SETTINGS, msgspec.msgpack.encode(settings))
        mesh.wake_writer()
        try:
            await asyncio.wait_for(asyncio.shield(mesh._started), _START)
        except TimeoutError:
            mesh.kill_gate()
            raise MachineFault(f"the gate of {mesh.me!r} did not start within {_START:.0f} s") from None
        except BaseException:
            mesh.kill_gate()
            raise
        return mesh

    # --- Mesh

    async def next_event(self) -> MeshEvent:
        """See `Mesh.next_event`."""
        while not self._events:
            self._require_gate()
            if self._waiter is not None and not self._waiter.done():
                raise ProtocolError("two readers wait for the events of one mesh; a party has one")
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._events.popleft()

    async def send_note(self, peer: str, payload: bytes) -> None:
        """See `Mesh.send_note`."""
        self._require_gate()
        if len(payload) > min(NOTE, self._limits.note):
            raise InputError(f"a note of {len(payload)} bytes; at most {NOTE} fit: shorten it, or send it as a message")
        if peer not in self.peers:
            raise InputError(f"{self.me!r} has no peer {peer!r}; it has {', '.join(self.peers)}")
        self.outbox.put_frame(Frames.NOTE, payload, peer=self.peers.index(peer))
        self.wake_writer()

    def begin_view(self, view: bytes) -> Mapping[str, Channel]:
        """See `Mesh.begin_view`."""
        self._require_gate()
        if len(view) != VIEW or view in self._past:
            raise InputError(f"a view needs {VIEW} bytes that no earlier view had; got {view.hex()}")
        self.park_view("another view began")
        self._view = bytes(view)
        self._past.add(self._view)
        self._generation += 1
        self.outbox.put_frame(Frames.BEGIN, self._view, generation=self._generation)
        for index, peer in enumerate(self.peers):
            channel = NetworkChannel(
                self,
                index,
                self._view,
                self._generation,
                window=self._limits.window,
                part=self._limits.part,
                limits=self._messages,
            )
            self._channels[peer] = self._by_index[index] = channel
        self.wake_writer()
        return dict(self._channels)

    def open_view(self) -> None:
        """See `Mesh.open_view`."""
        self._require_gate()
        if not self._view:
            raise InputError("there is no view to open; begin one first")
        self.outbox.put_frame(Frames.OPEN)
        self.wake_writer()

    def park_view(self, why: str) -> None:
        """See `Mesh.park_view`."""
        if self._view:
            self._end_view(Parked(why))

    def _end_view(self, failure: Exception) -> None:
        self._fail_channels(failure)
        self._commits.clear()
        self._channels, self._view = {}, b""
        self._by_index = [None] * len(self.peers)
        self._credits = [0] * len(self.peers)
        self.outbox.drop_bulk()
        self.outbox.put_frame(Frames.PARK)
        self.wake_writer()

    async def abort_job(self, reason: str) -> None:
        """See `Mesh.abort_job`."""
        self._require_gate()
        self._fail_channels(ProtocolError(f"{self.me!r} ended the job: {reason}"))
        self._commits.clear()
        self.outbox.drop_bulk()
        self.outbox.put_frame(Frames.ABORT, reason.encode())
        await self._finish_gate(10.0, f"the mesh of {self.me!r} ended the job")

    async def close(self) -> None:
        """See `Mesh.close`."""
        if self._why:
            return
        for channel in self._channels.values():
            channel.close()
        end = time.monotonic() + self._farewell
        while any(channel.has_pending and self._has_unsent(peer, end) for peer, channel in self._channels.items()):
            self._drained = self._loop.create_future()
            await asyncio.wait([self._drained], timeout=0.2)
            self._require_gate()
        self._commit_lines()
        self.outbox.put_frame_behind(Frames.CLOSE)
        await self._finish_gate(None, f"the mesh of {self.me!r} was closed")

    def link_states(self) -> Mapping[str, LinkState]:
        """See `Mesh.link_states`."""
        return {peer: self._standing.get_link(index) for index, peer in enumerate(self.peers)}

    # --- more than `Mesh`

    async def send_endorsement(self, endorsement: bytes) -> None:
        """Give all peers the endorsement of a new certificate. It returns once all have it: it waits for absent ones.

        Args:
            endorsement: as `Endorsement.to_signed_bytes` makes it.

        Raises:
            ProtocolError: the gate is gone.
        """
        self._require_gate()
        self._endorsed = self._loop.create_future()
        self.outbox.put_frame(Frames.ENDORSE, endorsement)
        self.wake_writer()
        await self._endorsed
        self._require_gate()

    def renew_certificate(self) -> None:
        """From now on present the newest certificate: the one endorsed last, or the newest that an authority issued.
        Connections are made again and continue where they were.
        """
        self._require_gate()
        self.outbox.put_frame(Frames.RENEW)
        self.wake_writer()

    def kill_gate(self) -> None:
        """Kill the gate at once, without notice to any peer."""
        self._gate.kill()
        self._lose_gate(f"the gate of {self.me!r} was killed")
        self._gate.wait()

    @property
    def gate_pid(self) -> int:
        """The gate's process number."""
        return self._gate.pid

    # --- for channels

    def wake_writer(self) -> None:
        """Write what waits, soon."""
        if not self._flushing and not self._why:
            self._flushing = True
            self._loop.call_soon(self._flush_outbox)

    def return_credit(self, index: int, generation: int, cost: int) -> None:
        """Parts were taken out of the window."""
        if generation == self._generation:
            self._credits[index] += cost
            if not self._flushing and not self._why:
                # A turn later than other frames: what the reader sends in answer then goes with it.
                self._flushing = True
                self._loop.call_soon(self._loop.call_soon, self._flush_outbox)

    def commit_first(self, commit: Callable[[], None]) -> None:
        """See `CommitsFirst`; until the view ends."""
        if commit not in self._commits:
            self._commits.append(commit)

    # --- inside

    async def _finish_gate(self, seconds: float | None, why: str) -> None:
        self.wake_writer()
        await asyncio.wait([self._done], timeout=seconds)
        self._lose_gate(why)
        try:
            await asyncio.to_thread(self._gate.wait, 5.0)
        except subprocess.TimeoutExpired:
            self._gate.kill()
            self._gate.wait()

    def _has_unsent(self, peer: str, end: float) -> bool:
        index = self.peers.index(peer)
        return time.monotonic() < end or self._standing.is_connected(index)

    def _flush_outbox(self) -> None:
        self._flushing = False
        if self._why:
            return
        self._commit_lines()
        for index, cost in enumerate(self._credits):
            if cost:
                self._credits[index] = 0
                self.outbox.put_frame(Frames.CREDIT, peer=index, generation=self._generation, number=cost)
        try:
            done = self.outbox.write(self._sock)
        except GateLost as error:
            self._close_writer(error)
            return
        if done == self._writing:
            self._writing = not done
            if done:
                self._loop.remove_writer(self._sock)
            else:
                self._loop.add_writer(self._sock, self._flush_outbox)
        if self.outbox.waiting < BUFFER >> 2:
            for channel in self._channels.values():
                if channel.has_pending:
                    channel.pump_parts()
            if self._drained is not None and not self._drained.done():
                self._drained.set_result(None)

    def _commit_lines(self) -> None:
        """Have the ledger write its lines before what they record leaves. If it cannot, nothing of the view leaves."""
        try:
            for commit in self._commits:
                commit()
        except (SecureVFLError, OSError) as error:
            self._end_view(error)

    def _read_frames(self) -> None:
        try:
            self._inbox.read(self._sock)
        except (GateLost, ProtocolError) as error:
            self._find_gate_dead(error)
        except OSError as error:  # a peer's new certificate could not be stored; what follows would be read twice
            why = f"what {self.me!r} must keep of a peer could not be stored: {error}; start the party again to resume"
            self._lose_gate(why, died=True)

    def _close_writer(self, error: GateLost) -> None:
        """Nothing can be written any more: first read what the gate sent before it ended, perhaps with its reason."""
        with suppress(GateLost, ProtocolError):
            while not self._why and self._inbox.read(self._sock):
                pass
        self._find_gate_dead(error)

    def _find_gate_dead(self, error: SecureVFLError) -> None:
        """The gate ended without being asked to: it was killed, or failed."""
        died = not self._done.done()
        self._lose_gate(f"the gate of {self.me!r} ended: {error}; start the party again to resume", died=died)

    def _lose_gate(self, why: str, *, died: bool = False) -> None:
        """The gate is gone: nothing can be done any more."""
        if self._why:
            return
        self._why, self._died = why, died
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        self._fail_channels(Parked(why) if died else PeerEnded(why))
        for future in (self._started, self._done, self._endorsed):
            if not future.done():
                if future is self._started:
                    future.set_exception(MachineFault(why) if died else ProtocolError(why))
                    future.exception()
                else:
                    future.set_result(None)
        self._wake_waiter()

    def _fail_channels(self, failure: Exception) -> None:
        for channel in self._channels.values():
            channel.fail_calls(failure)

    def _find_memory(
        self, kind: int, generation: int, peer: int, count: int, number: int, length: int
    ) -> memoryview | None:
        channel = self._by_index[peer] if peer < len(self._by_index) else None
        if kind != Frames.PART or channel is None or generation != self._generation & 0xFF:
            return None
        return channel.find_memory(number, length)

    def _take_frame(self, frame: FrameIn) -> None:
        kind = frame.kind
        if kind in (Frames.PART, Frames.ROOM):
            channel = self._by_index[frame.peer]
            if channel is None or frame.generation != self._generation & 0xFF:
                return
            if kind == Frames.PART:
                self._standing.received[frame.peer] += len(frame.body)
                channel.take_parts(frame)
            else:
                self._standing.sent[frame.peer] += frame.number
                channel.add_room(frame.number)
        elif kind == Frames.BEAT:
            self._take_beat(frame.peer, bytes(frame.body))
        elif kind == Frames.RENEW:
            if not self._endorsed.done():
                self._endorsed.set_result(None)
        elif kind == Frames.STATE:
            self._standing.update_links(frame.body)
        else:
            self._take_event(kind, frame.peer, frame.parts, bytes(frame.body))

    def _take_event(self, kind: int, index: int, count: int, body: bytes) -> None:
        peer = self.peers[index] if index < len(self.peers) else ""
        match kind:
            case Frames.UP:
                text, fingerprint = _PAIR.decode(body)
                self._standing.incarnations[peer] = incarnation = Incarnation.from_text(text)
                if fingerprint:
                    self._book.record_use(peer, fingerprint)
                self._add_event(Connected(peer, incarnation, bool(count)))
            case Frames.DOWN:
                self._add_event(Disconnected(peer, body.decode(errors="replace")))
            case Frames.NOTE:
                self._add_event(NoteReceived(peer, body))
            case Frames.REFUSED:
                self._add_event(ConnectionRefused(peer, *_TRIPLE.decode(body)))
            case Frames.ABORT:
                reason = body.decode(errors="replace")
                self._fail_channels(PeerEnded(f"{peer!r} ended the job for all: {reason}"))
                self._add_event(JobAborted(peer, reason))
            case Frames.ENDED:
                self._add_event(PeerLeft(peer))
            case Frames.ENDORSE:
                self._take_endorsement(peer, body)
            case Frames.DEADLOCKED:
                self._take_deadlock(peer, body)
            case Frames.LISTENING:
                self.listening = tuple(msgspec.json.decode(body, type=list[Address]))
                self._started.set_result(None)
            case Frames.FAILED:
                name, words = _PAIR.decode(body)
                failure = _FAILURES.get(name, ProtocolError)(words)
                if not self._started.done():
                    self._started.set_exception(failure)
                self._lose_gate(words, died=isinstance(failure, MachineFault))
            case Frames.DONE:
                self._done.set_result(None)
            case _:
                raise GateLost(f"it sent an unknown frame of kind {kind}")

    def _take_endorsement(self, peer: str, payload: bytes) -> None:
        try:
            found = self._book.accept_endorsement(payload, sender=peer)
        except IdentityRefusal as refusal:
            self._add_event(ConnectionRefused(peer, refusal.code, refusal.words))
            return
        self.outbox.put_frame(Frames.PIN, payload)
        self.wake_writer()
        self._add_event(CertificateReplaced(peer, found.certificate.fingerprint))

    def _take_deadlock(self, peer: str, body: bytes) -> None:
        step, theirs, window = msgspec.json.decode(body, type=tuple[str, str, int])
        words = (
            f"{self.me!r} waits for room for {step!r} and {peer!r} for {theirs!r}, neither reads, and the window has "
            f"grown to {window} bytes: exchange bulk both ways at once, or raise the window's limit"
        )
        channel = self._channels.get(peer)
        if channel is not None:
            channel.fail_calls(ProtocolError(words))

    def _take_beat(self, index: int, body: bytes) -> None:
        found = read_beat(body)
        if found is None:
            return
        beat, closed, quiet = found
        beat = replace(beat, at=time.monotonic() - quiet)
        self._standing.store_beat(index, beat, quiet)
        channel = self._by_index[index]
        if channel is not None:
            channel.take_beat(beat, closed)

    def _add_event(self, event: MeshEvent) -> None:
        self._events.append(event)
        self._wake_waiter()

    def _wake_waiter(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _require_gate(self) -> None:
        if self._died:
            raise MachineFault(self._why)
        if self._why:
            raise ProtocolError(f"{self._why}; nothing can be done over it any more")

"""Meshes in memory: all parties of a job in one process, with the faults of a network."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from securevfl_net.incarnation import Incarnation
from securevfl_net.link_state import Beat, LinkState

from securevfl.errors import InputError, Parked, PeerEnded, ProtocolError
from securevfl.transport.channel import WINDOW, Channel
from securevfl.transport.memory import MemoryChannel, Pipe
from securevfl.transport.mesh import (
    NOTE,
    VIEW,
    Connected,
    ConnectionRefused,
    Disconnected,
    JobAborted,
    MeshEvent,
    NoteReceived,
    PeerLeft,
)

__all__ = ["MemoryHub", "MemoryMesh"]


class MemoryHub(Mapping[str, "MemoryMesh"]):
    """The meshes of all parties, by name; at first all are connected.

    Args:
        names: of the parties, at least one.
        window: bytes that may be on their way in each direction of a channel.
        incarnations: of the parties; without one, a party gets its first.

    Raises:
        InputError: no party, one name twice, or a window below 1.
    """

    def __init__(
        self, names: Iterable[str], *, window: int = WINDOW, incarnations: Mapping[str, Incarnation] | None = None
    ) -> None:
        self.names = tuple(names)
        if not self.names or len(set(self.names)) < len(self.names):
            raise InputError(
                f"the parties of a mesh are {', '.join(self.names) or 'none'}; each needs a different name"
            )
        Pipe(window)  # refuses an invalid window
        self.window = window
        self.pipes: dict[tuple[bytes, str, str], Pipe] = {}
        self._cut: set[frozenset[str]] = set()
        self._meshes: dict[str, MemoryMesh] = {}
        given = incarnations or {}
        for name in self.names:
            self._meshes[name] = MemoryMesh(self, name, given.get(name) or Incarnation.start_after(0))
        for one, other in self._iter_pairs():
            self.connect(one, other)

    def __getitem__(self, name: str) -> MemoryMesh:
        return self._meshes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def _iter_pairs(self) -> Iterator[tuple[str, str]]:
        return ((a, b) for i, a in enumerate(self.names) for b in self.names[i + 1 :])

    def are_connected(self, one: str, other: str) -> bool:
        """Whether two parties are connected now."""
        alive = self._meshes[one].alive and self._meshes[other].alive
        return alive and frozenset((one, other)) not in self._cut

    def connect(self, one: str, other: str) -> None:
        """Connect two parties, if both are running and the link is not cut."""
        if self.are_connected(one, other):
            self._meshes[one].on_connected(self._meshes[other])
            self._meshes[other].on_connected(self._meshes[one])
            self.update_flow(one, other)

    def update_flow(self, one: str, other: str) -> None:
        """Look again at what passes between two parties that are both there."""
        for sender, receiver in ((one, other), (other, one)):
            mesh, peer = self._meshes[sender], self._meshes[receiver]
            pipe = self.pipes.get((mesh.view or b"", sender, receiver))
            if pipe is None or not (mesh.alive and peer.alive):
                continue
            pipe.flows = mesh.is_open and peer.view == mesh.view and self.are_connected(one, other)
            if pipe.flows:
                pipe.wake_reader()
            elif mesh.is_open and mesh.view != peer.view and mesh.view not in peer.past:
                self._refuse_view(mesh, peer)

    def _refuse_view(self, mesh: MemoryMesh, peer: MemoryMesh) -> None:
        words = (
            f"{mesh.me!r} opened a view that {peer.me!r} did not begin: open one after all have announced that "
            "they began it"
        )
        mesh.put_event(ConnectionRefused(peer.me, "other-view", words))
        peer.put_event(ConnectionRefused(mesh.me, "other-view", words))

    def cut(self, one: str, other: str) -> None:
        """Break the connection of two parties until `mend`; what is on its way stays."""
        if self.are_connected(one, other):
            self._cut.add(frozenset((one, other)))
            self._meshes[one].put_event(Disconnected(other, "the connection was cut"))
            self._meshes[other].put_event(Disconnected(one, "the connection was cut"))
            self.update_flow(one, other)

    def mend(self, one: str, other: str) -> None:
        """Connect two parties again that were cut from each other."""
        if frozenset((one, other)) in self._cut:
            self._cut.discard(frozenset((one, other)))
            self.connect(one, other)

    def crash(self, name: str) -> None:
        """Stop a party without notice: calls of its mesh raise, and peers see a lost connection."""
        there = [peer for peer in self.names if peer != name and self.are_connected(name, peer)]
        self._meshes[name].stop_calls(f"{name!r} crashed")
        for peer in there:
            self._meshes[peer].put_event(Disconnected(name, "the connection broke"))

    def start(self, name: str, incarnation: Incarnation | None = None) -> MemoryMesh:
        """Restart a party that crashed or closed.

        Args:
            name: of the party.
            incarnation: of this start; without one, the next.

        Raises:
            InputError: it runs.
        """
        before = self._meshes[name]
        if before.alive:
            raise InputError(f"{name!r} runs already; let it crash or close first")
        mesh = self._meshes[name] = MemoryMesh(
            self, name, incarnation or Incarnation.start_after(before.incarnation.count)
        )
        for peer in mesh.peers:
            self.connect(name, peer)
        return mesh


class MemoryMesh:
    """One party's mesh in memory; made by `MemoryHub`. See `Mesh`."""

    def __init__(self, hub: MemoryHub, me: str, incarnation: Incarnation) -> None:
        self.me = me
        self.peers = tuple(sorted(name for name in hub.names if name != me))
        self.incarnation = incarnation
        self.view: bytes | None = None
        self.past: set[bytes] = set()
        self.is_open = False
        self.alive = True
        self._hub = hub
        self._why = ""
        self._channels: dict[str, MemoryChannel] = {}
        self._events: deque[MeshEvent] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._met: dict[str, tuple[Incarnation, int, float]] = {}

    async def next_event(self) -> MeshEvent:
        """See `Mesh.next_event`."""
        while not self._events:
            self._require_alive()
            if self._waiter is not None and not self._waiter.done():
                raise ProtocolError("two readers wait for the events of one mesh; a party has one")
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._events.popleft()

    def put_event(self, event: MeshEvent) -> None:
        """Queue an event."""
        if self.alive:
            self._events.append(event)
            self._wake_waiter()

    def on_connected(self, peer: MemoryMesh) -> None:
        """Handle a new connection to a peer."""
        before, count, _ = self._met.get(peer.me, (None, 0, 0.0))
        self._met[peer.me] = (peer.incarnation, count + 1, time.monotonic())
        self.put_event(Connected(peer.me, peer.incarnation, before == peer.incarnation))

    def stop_calls(self, why: str) -> None:
        """Every call raises from now on."""
        self.alive, self._why = False, why
        for channel in self._channels.values():
            channel.fail_calls(PeerEnded(why))
        self._wake_waiter()

    async def send_note(self, peer: str, payload: bytes) -> None:
        """See `Mesh.send_note`."""
        self._require_alive()
        if len(payload) > NOTE:
            raise InputError(f"a note of {len(payload)} bytes; at most {NOTE} fit: shorten it, or send it as a message")
        if peer not in self.peers:
            raise InputError(f"{self.me!r} has no peer {peer!r}; it has {', '.join(self.peers)}")
        if self._hub.are_connected(self.me, peer):
            self._hub[peer].put_event(NoteReceived(self.me, bytes(payload)))

    def begin_view(self, view: bytes) -> Mapping[str, Channel]:
        """See `Mesh.begin_view`."""
        self._require_alive()
        if len(view) != VIEW or view in self.past or view == self.view:
            raise InputError(f"a view needs {VIEW} bytes that no earlier view had; got {view.hex()}")
        self.park_view("another view began")
        self.view, self.is_open = bytes(view), False
        for peer in self.peers:
            forth, back = self._find_pipe(self.me, peer), self._find_pipe(peer, self.me)
            self._channels[peer] = MemoryChannel(forth, back)
            self._hub.update_flow(self.me, peer)
        return dict(self._channels)

    def _find_pipe(self, sender: str, receiver: str) -> Pipe:
        key = (self.view or b"", sender, receiver)
        pipe = self._hub.pipes.get(key)
        if pipe is None:
            pipe = self._hub.pipes[key] = Pipe(self._hub.window)
            pipe.flows = False
        return pipe

    def open_view(self) -> None:
        """See `Mesh.open_view`."""
        self._require_alive()
        if self.view is None:
            raise InputError("there is no view to open; begin one first")
        self.is_open = True
        for peer in self.peers:
            self._hub.update_flow(self.me, peer)

    def park_view(self, why: str) -> None:
        """See `Mesh.park_view`."""
        if self.view is None:
            return
        self.past.add(self.view)
        for peer, channel in self._channels.items():
            channel.fail_calls(Parked(why))
            self._hub.pipes.pop((self.view, peer, self.me), None)  # unread; its writer keeps its own reference
            if self._hub[peer].view != self.view:
                self._hub.pipes.pop((self.view, self.me, peer), None)
        self._channels, self.view, self.is_open = {}, None, False

    async def abort_job(self, reason: str) -> None:
        """See `Mesh.abort_job`."""
        self._require_alive()
        for peer in self.peers:
            if self._hub.are_connected(self.me, peer):
                self._hub[peer].peer_aborted(self.me, reason)
        for channel in self._channels.values():
            channel.fail_calls(ProtocolError(f"{self.me!r} ended the job: {reason}"))

    def peer_aborted(self, peer: str, reason: str) -> None:
        """A peer ended the job."""
        self.put_event(JobAborted(peer, reason))
        for channel in self._channels.values():
            channel.fail_calls(PeerEnded(f"{peer!r} ended the job for all: {reason}"))

    async def close(self) -> None:
        """See `Mesh.close`."""
        if self.alive:
            there = [peer for peer in self.peers if self._hub.are_connected(self.me, peer)]
            for channel in self._channels.values():
                channel.close()
            self.stop_calls(f"the mesh of {self.me!r} was closed")
            for peer in there:
                self._hub[peer].put_event(PeerLeft(self.me))

    def link_states(self) -> Mapping[str, LinkState]:
        """See `Mesh.link_states`."""
        return {peer: self._link_state(peer) for peer in self.peers}

    def _link_state(self, peer: str) -> LinkState:
        incarnation, count, since = self._met.get(peer, (None, 0, time.monotonic()))
        channel = self._channels.get(peer)
        return LinkState(
            connected=self._hub.are_connected(self.me, peer),
            incarnation=incarnation,
            since=time.monotonic() - since,
            connections=count,
            beat=Beat() if channel is None else channel.last_beat,
            blocked=channel is not None and not channel.can_send,
        )

    def _wake_waiter(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _require_alive(self) -> None:
        if not self.alive:
            raise ProtocolError(f"{self._why}; nothing can be done over it any more")

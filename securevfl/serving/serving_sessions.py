"""Serve sessions over a mesh in sequence: parties agree on a state, serve, and agree again when one has restarted."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from securevfl_net.incarnation import Incarnation

from securevfl.errors import MachineFault, Parked, PeerEnded, ProtocolError, RangeError
from securevfl.party.rendezvous import Action, Began, Go, Park, Rendezvous, Say
from securevfl.party.reports import Report, View
from securevfl.party.superseded import SupersededWatch
from securevfl.run.events import RunEvents
from securevfl.serving.end_mark import EndMark
from securevfl.transport import (
    Channel,
    Connected,
    ConnectionRefused,
    Disconnected,
    JobAborted,
    Mesh,
    MeshEvent,
    NoteReceived,
    PeerLeft,
)

__all__ = ["SessionServer", "describe_end"]

_SERVING = b"\x03"
"""First byte of a note, so that a party that trains does not mistake it for its own kind."""
_LOOK = 1.0
"""Seconds between two looks at how long peers have refused this process."""
_GONE = 30.0
"""Seconds for which a process that was killed at the end of a prediction waits for peers that may need it."""
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0


def describe_end(error: BaseException) -> str:
    """Say for the ledger's closing line how a session ended that did not end in order."""
    if isinstance(error, asyncio.CancelledError | PeerEnded):
        return "broken off: a process was stopped or restarted"
    return f"ended: {type(error).__name__}"


class SessionServer(ABC):
    """One party's server over a mesh, until it is closed.

    Args:
        mesh: connections to all peers.

    Attributes:
        away: peer → why it is not connected.
        why: why the last session was parked.
        failure: why the last session ended; empty after one that ended as it should.
        sessions: how many began.
        approval: this party's signature of the agreement, for the peers.
        admits: whether the party serves in a view of these reports; see `Rendezvous`.
        news: receives who connected and disconnected, and counts of what was served; never identifiers.
        over: whether no session is to follow the one that goes.
        seen: receives the incarnation of each peer that connects.
        end_mark: of a prediction; None for a server that stays.
        was_over: whether the prediction was over before this process began, and no peer needed it.
        settled: called when this party has all that it needs to answer.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.away = dict.fromkeys(mesh.peers, "not connected yet")
        self.why = self.failure = ""
        self.sessions = 0
        self.news = RunEvents()
        self.approval = b""
        self.admits: Callable[[Mapping[str, Report]], bool] = _admit_all
        self.over = False
        self.end_mark: EndMark | None = None
        self.was_over = False
        self._here = time.monotonic()
        self.seen: Callable[[str, Incarnation], None] = lambda peer, incarnation: None
        self._superseded = SupersededWatch(mesh.me)
        self.settled: Callable[[], None] = _do_nothing
        self._gathering: Rendezvous | None = None
        self._session: asyncio.Task[None] | None = None
        self._channels: Mapping[str, Channel] = {}
        self._failed = 0

    @abstractmethod
    async def serve_session(self, view: View, channels: Mapping[str, Channel]) -> None:
        """Serve over the channels of a view, until the session is to be replaced by another one."""

    @abstractmethod
    def alignment_mark(self) -> str:
        """Mark of the alignment with which this party could continue, hexadecimal; empty for none."""

    def peers_changed(self) -> None:  # noqa: B027 - nothing, unless somebody waits
        """Somebody came or went, or a session ended."""

    async def run(self) -> None:
        """Serve until cancelled, or until it is over.

        Raises:
            SecureVFLError: what no other session would mend: a refused job, tables that cannot be used.
            PeerEnded: a peer ended it for all.
            Superseded: peers know another process of this party, on another copy of its state folder.
            Parked: another process was there and is gone: start this one again.
        """
        gathering = self._gathering = Rendezvous(
            self.mesh.me, self.mesh.peers, self._build_report(), admits=self.admits
        )
        hearing = asyncio.ensure_future(self.mesh.next_event())
        actions: list[Action] = [] if self.mesh.peers else gathering.on_parked(self._build_report())
        parks, began = True, time.monotonic()
        marked = self.end_mark is not None and self.end_mark.is_there
        try:
            while True:
                if marked and not self.sessions and time.monotonic() - began > _GONE:
                    self.was_over = True
                    return
                if self.over and self._are_gone():
                    return
                actions = await self._perform_actions(gathering, actions)
                if actions:
                    continue
                waiting = {hearing} if self._session is None else {hearing, self._session}
                look = _LOOK if self._superseded.is_waiting or marked or self.over else None
                await asyncio.wait(waiting, timeout=look, return_when=asyncio.FIRST_COMPLETED)
                self._superseded.check()
                if self._session is not None and self._session.done():
                    if self.over and not self._session.cancelled() and self._session.exception() is None:
                        parks = False  # the last messages may still be on their way: closing the mesh waits for them
                        return
                    actions = await self._leave_session(gathering, "the session ended")
                if hearing.done():
                    event = hearing.result()
                    hearing = asyncio.ensure_future(self.mesh.next_event())
                    actions += self._take_event(gathering, event)
        finally:
            hearing.cancel()
            if self._session is not None:
                self._session.cancel()
                with suppress(BaseException):
                    await self._session
            if parks:
                self.mesh.park_view("it stops serving")

    def _are_gone(self) -> bool:
        """Whether all peers have been away for half a minute: they have ended, as this party has all that it needs."""
        return len(self.away) == len(self.mesh.peers) and time.monotonic() - self._here > _GONE

    def note_over(self) -> None:
        """Nothing is left to do in this prediction but to say so."""
        self.over, self._here = True, time.monotonic()
        if self.end_mark is not None:
            self.end_mark.write()

    def waiting_reasons(self) -> dict[str, str]:
        """Peer → what this party waits for; empty while a session goes."""
        return {} if self._gathering is None else self._gathering.find_awaited()

    def _build_report(self) -> Report:
        return Report(incarnation=str(self.mesh.incarnation), alignment=self.alignment_mark(), approval=self.approval)

    def _take_event(self, gathering: Rendezvous, event: MeshEvent) -> list[Action]:
        actions: list[Action] = []
        match event:
            case Connected():
                self.away.pop(event.peer, None)
                self._superseded.take_arrival(event.peer)
                self.seen(event.peer, event.incarnation)
                self.news.report_event("up", f"{event.peer} is connected", peer=event.peer, resumed=event.resumed)
                actions = gathering.on_connected(event.peer, str(event.incarnation), event.resumed)
            case Disconnected():
                self.away[event.peer], self._here = event.why, time.monotonic()
                self.news.report_event("down", f"{event.peer} is not connected: {event.why}", peer=event.peer)
                actions = gathering.on_disconnected(event.peer)
            case PeerLeft():
                self.away[event.peer], self._here = "it stopped serving", time.monotonic()
                self.news.report_event("down", f"{event.peer} stopped serving", peer=event.peer)
                actions = gathering.on_disconnected(event.peer)
            case NoteReceived():
                try:
                    actions = gathering.on_note(event.peer, _rendezvous_note(event))
                except ProtocolError as error:  # its message is ignored; the next report replaces it
                    self.failure = str(error)
            case ConnectionRefused():
                words = f"{event.code}: {event.words}"
                self.news.report_event("refused", words, peer=event.peer, code=event.code)
                if event.peer in self.away:
                    self.away[event.peer] = words
                self._superseded.take_refusal(event)
            case JobAborted():
                raise PeerEnded(f"{event.peer!r} ended serving for all: {event.reason}")
            case _:
                pass
        self.peers_changed()
        return actions

    async def _perform_actions(self, gathering: Rendezvous, actions: Iterable[Action]) -> list[Action]:
        queue = deque(actions)
        while queue:
            match queue.popleft():
                case Say(peer=peer, payload=payload):
                    await self.mesh.send_note(peer, _SERVING + payload)
                case Began(view=view):
                    self._channels = self.mesh.begin_view(view.mark)
                case Go(view=view):
                    self.mesh.open_view()
                    self.sessions += 1
                    self._session = asyncio.ensure_future(self.serve_session(view, self._channels))
                case Park(why=why):
                    return [*await self._leave_session(gathering, why), *queue]
        return []

    async def _handle_end(self, session: asyncio.Task[None], why: str) -> None:
        """Decide from a session's end how the next one begins."""
        error = None if session.cancelled() else session.exception()
        if session.cancelled() or isinstance(error, Parked | PeerEnded):
            self.failure = why
            self.news.report_event("parked", f"no scores for now: {why}")
        elif isinstance(error, MachineFault) and self.end_mark is not None:
            raise error  # a prediction ends, and is started again; a server stays until there is room
        elif isinstance(error, ProtocolError | RangeError | TimeoutError | OSError):
            self.failure = str(error) or type(error).__name__
            self.news.report_event("parked", f"no scores for now: {self.failure}", error=type(error).__name__)
            self._failed += 1
            await asyncio.sleep(min(_FIRST_PAUSE * 2**self._failed, _LONGEST_PAUSE))
        elif error is not None:
            raise error
        else:
            self._failed = 0

    async def _leave_session(self, gathering: Rendezvous, why: str) -> list[Action]:
        """Leave a session and send a new report; after a repeated failure only after a pause."""
        self.why = why
        self.mesh.park_view(why)
        session, self._session = self._session, None
        self.failure = ""
        if session is not None:
            session.cancel()  # it may wait for a question, and not for a peer
            await asyncio.wait({session})
            await self._handle_end(session, why)
        self.peers_changed()
        return gathering.on_parked(self._build_report())


def _do_nothing() -> None:
    pass


def _admit_all(reports: Mapping[str, Report]) -> bool:
    return True


def _rendezvous_note(note: NoteReceived) -> bytes:
    if note.payload[:1] != _SERVING:
        raise ProtocolError(f"{note.peer!r} runs another command: all parties serve, or all predict")
    return note.payload[1:]

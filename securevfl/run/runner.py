"""Run one party over any mesh: connect, rendezvous, run the program, park and resume, end.

A program runs once in each attempt: consent, alignment, training. It uses channels to all peers and ends with a result
or an error. When a peer is lost, the attempt is parked: the program is cancelled, and all parties agree again on the
state to resume from. A party with a result announces it and stays until all have theirs, because a peer killed on the
last step needs the others once more.

A simulation runs one such course for each party over memory, a process runs one over a network.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Generic, TypeVar

from securevfl.errors import (
    AlignmentError,
    Expired,
    MachineFault,
    Parked,
    PartyFailed,
    PeerEnded,
    PeerRefused,
    PolicyError,
    ProtocolError,
    RangeError,
    SecureVFLError,
)
from securevfl.party.attempts import Attempts, Restored, Superseded
from securevfl.party.rendezvous import Action, Began, Go, Park, Rendezvous, Say
from securevfl.party.reports import View
from securevfl.run.events import RunEvents
from securevfl.run.timeouts import Timeouts
from securevfl.transport import Channel
from securevfl.transport.mesh import (
    CertificateReplaced,
    Connected,
    ConnectionRefused,
    Disconnected,
    JobAborted,
    Mesh,
    MeshEvent,
    NoteReceived,
    PeerLeft,
)

__all__ = ["PartyRunner", "Program"]

T = TypeVar("T")
Program = Callable[[View, Mapping[str, Channel]], Awaitable[T]]
"""Runs in one attempt."""

_GATHERING, _FINISHED, _WORD = b"\x01", b"\x02", b"\x03"
"""First byte of a note: rendezvous; the party has its result in the view whose mark follows; its signed ledger head."""
_LAST_WORDS = 1.0
"""Seconds in which a program may read what a peer that ended the job sent before: a refusal perhaps."""
_TWO_PROCESSES = 20.0
"""Seconds for which a restarted process may be refused because its predecessor's connection still seems to stand."""
_LOOK = 1.0
"""Seconds between two checks of the clocks."""
_CAUSES: dict[str, tuple[type[SecureVFLError], str]] = {
    "aligned": (AlignmentError, "the parties have no common rows, or do not agree which they are"),
    "expired": (Expired, "a bound of the agreement is reached"),
    "policy": (PolicyError, "its policy forbids continuing"),
    "restored": (Restored, "its state folder is older than what its peers saw of it: it was restored from a back-up"),
    "protocol": (ProtocolError, "a peer sent what the protocol does not allow, or was silent for too long"),
    "range": (RangeError, "training diverged, or a value or a weight left the fixed-point range"),
    "targets": (PolicyError, "the computing parties checked the targets that were dealt, and refuse them"),
    "useless": (
        PolicyError,
        "the model does not predict better with the passive parties' columns than without, so it answers nothing",
    ),
    "failed": (PeerEnded, "its program failed"),
}
"""What peers learn of an error: only its kind. The message stays at the party because it may contain values of its
data.
"""


class PartyRunner(Generic[T]):
    """Runs a party's program until it has a result that all have, or an error.

    Args:
        mesh: the connections to all peers.
        attempts: what must not be forgotten.
        program: what runs in an attempt; it is cancelled when the attempt is parked.
        patience: how long to wait.
        news: receives the run's events.

    Attributes:
        waits: peer → what the party waits for; empty while its program runs.
        view: of the running attempt; None between attempts.
    """

    def __init__(
        self,
        mesh: Mesh,
        attempts: Attempts,
        program: Program[T],
        *,
        patience: Timeouts | None = None,
        news: RunEvents | None = None,
    ) -> None:
        self.view: View | None = None
        self._mesh = mesh
        self._attempts = attempts
        self._program = program
        self._patience = patience or Timeouts()
        self._news = news or RunEvents()
        self._gathering = Rendezvous(mesh.me, mesh.peers, attempts.current_report(), admits=attempts.admits)
        self._work: asyncio.Task[T] | None = None
        self._result: T | None = None
        self._has_result = False
        self._finished: dict[str, bytes] = {}
        self._away: dict[str, float] = {}
        self._refused: dict[str, PeerRefused] = {}
        self._superseded: dict[str, tuple[float, Superseded]] = {}
        self._waited: dict[str, str] = {}
        self._stop: asyncio.Event | None = None
        self._due = asyncio.Event()
        self._was_aborted = False
        self._peer_ended: tuple[float, SecureVFLError] | None = None
        self._alone = self._looked = time.monotonic()

    @property
    def awaited_peers(self) -> dict[str, str]:
        """See the class."""
        if self._has_result and self.view is not None:
            mark = self.view.mark
            return {peer: "its result" for peer in self._mesh.peers if self._finished.get(peer) != mark}
        return self._gathering.find_awaited()

    async def run(self) -> T:
        """The program's result, when all parties have theirs.

        Raises:
            Parked: the peers did not come in time, or `stop` was called; starting again resumes the run.
            MachineFault: the disk or the memory is full, or the gate died; likewise.
            Expired: the agreement's bounds are reached.
            PartyFailed: the program ended with an unforeseen error, its `__cause__`.
            SecureVFLError: another error ended it, here or at a peer.
        """
        self._stop = asyncio.Event()
        stopped = asyncio.ensure_future(self._stop.wait())
        due = asyncio.ensure_future(self._due.wait())
        event = asyncio.ensure_future(self._mesh.next_event())
        self._alone = self._looked = time.monotonic()
        try:
            await self._do_actions(self._alone_at_once())
            while not self._is_complete():
                awaited: set[asyncio.Future[object]] = {event, stopped, due}  # type: ignore[arg-type]
                if self._work is not None:
                    awaited.add(self._work)  # type: ignore[arg-type]
                await asyncio.wait(awaited, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
                if stopped.done():
                    raise Parked(f"{self._mesh.me!r} was stopped; start it again to resume")
                if due.done():
                    self._due.clear()
                    due = asyncio.ensure_future(self._due.wait())
                    await self._send_head()
                if event.done():
                    happened = event.result()
                    event = asyncio.ensure_future(self._mesh.next_event())
                    await self._handle_event(happened)
                if self._work is not None and self._work.done():
                    await self._handle_end(self._work)
                await self._check_timeouts()
        except (Parked, MachineFault, Superseded, Restored):  # for the others the job goes on
            await self._halt_attempt("the party's process ends; it may be started again")
            raise
        except asyncio.CancelledError:
            await self._halt_attempt("the party's process was interrupted")
            raise
        except BaseException as error:
            await self._fail_job(error)
            raise
        finally:
            for waiting in (event, stopped, due):
                waiting.cancel()
                with suppress(BaseException):
                    await waiting
        await self._mesh.close()
        return self._result  # type: ignore[return-value]

    def stop(self) -> None:
        """Stop cleanly, so that starting again resumes: `run` raises `Parked`. For a signal handler."""
        if self._stop is not None:
            self._stop.set()

    def publish_head(self) -> None:
        """Send all peers the party's signed ledger head: a checkpoint is on the disk."""
        self._due.set()

    async def _send_head(self) -> None:
        word = self._attempts.ledger_head() if self._work is not None else b""
        for peer in self._mesh.peers if word else ():
            await self._mesh.send_note(peer, _WORD + word)

    def _alone_at_once(self) -> list[Action]:
        """A party without peers gathers with nobody."""
        return [] if self._mesh.peers else self._gathering.on_parked(self._attempts.current_report())

    def _is_complete(self) -> bool:
        if not self._has_result or self.view is None:
            return False
        mark = self.view.mark
        return all(self._finished.get(peer) == mark for peer in self._mesh.peers)

    async def _handle_event(self, event: MeshEvent) -> None:
        if isinstance(event, Connected):
            self._away.pop(event.peer, None)
            self._refused.pop(event.peer, None)
            self._superseded.pop(event.peer, None)
            self._attempts.store_incarnation(event.peer, event.incarnation)
            self._news.report_event("up", f"{event.peer} is connected", peer=event.peer, resumed=event.resumed)
            await self._do_actions(self._gathering.on_connected(event.peer, str(event.incarnation), event.resumed))
            if self._has_result and self.view is not None:
                await self._mesh.send_note(event.peer, _FINISHED + self.view.mark)
        elif isinstance(event, Disconnected):
            self._handle_departure(event.peer, event.why)
        elif isinstance(event, NoteReceived):
            await self._on_note(event.peer, event.payload)
        elif isinstance(event, ConnectionRefused):
            words = f"{event.peer or 'a connection'} was refused: {event.words} ({event.code})"
            self._news.report_event("refused", words, peer=event.peer, code=event.code)
            if event.peer:
                self._refused[event.peer] = PeerRefused(event.code, event.words)
            if event.party == self._mesh.me and event.code in Superseded.CODES:
                self._handle_superseded(event)
        elif isinstance(event, JobAborted):
            await self._handle_abort(event)
        elif isinstance(event, PeerLeft):
            if self.view is None or self._finished.get(event.peer) != self.view.mark:
                self._handle_departure(event.peer, "its process ended")
        elif isinstance(event, CertificateReplaced):
            words = f"{event.peer} has a new certificate, SHA-256 {event.fingerprint}"
            self._news.report_event("rotated", words, peer=event.peer, fingerprint=event.fingerprint)

    def _handle_superseded(self, event: ConnectionRefused) -> None:
        """A peer knows another process of this party."""
        words = event.words.removeprefix("the peer refuses: ")
        if event.code == "twin-incarnation":  # a copy was there and is gone: the next start has a number of its own
            raise Parked(f"{event.peer!r} refuses this process: {words}: start it again, under a new number")
        error = Superseded(event.code, event.peer, words)
        if event.code != "running-incarnation":
            raise error
        self._superseded.setdefault(event.peer, (time.monotonic(), error))

    def _handle_departure(self, peer: str, why: str) -> None:
        self._away.setdefault(peer, time.monotonic())
        self._gathering.on_disconnected(peer)
        self._news.report_event("down", f"{peer} is not connected: {why}", peer=peer)

    async def _on_note(self, peer: str, payload: bytes) -> None:
        kind, rest = payload[:1], payload[1:]
        if kind == _GATHERING:
            await self._do_actions(self._gathering.on_note(peer, rest))
        elif kind == _FINISHED:
            self._finished[peer] = rest
        elif kind == _WORD:
            self._attempts.store_ledger_head(peer, rest)
        else:
            raise ProtocolError(f"{peer!r} sent an unknown kind of note: {kind.hex() or 'nothing'}")

    async def _handle_abort(self, event: JobAborted) -> None:
        self._was_aborted = True
        if self._work is not None:
            # The program may already have the cause (a peer's refusal, say), which explains more than the abort.
            await asyncio.wait({self._work}, timeout=_LAST_WORDS)
            if self._work.done() and not self._work.cancelled():
                error = self._work.exception()
                if isinstance(error, SecureVFLError) and not isinstance(error, PeerEnded):
                    raise error
        kind, words = _CAUSES.get(event.reason, _CAUSES["failed"])
        raise kind(f"{event.peer!r} ended the job: {words}; see its log for the cause")

    async def _do_actions(self, actions: Iterable[Action]) -> None:
        todo = deque(actions)
        while todo:
            action = todo.popleft()
            if isinstance(action, Say):
                await self._mesh.send_note(action.peer, _GATHERING + action.payload)
            elif isinstance(action, Began):
                self._attempts.check_attempt(action.view.attempt)
                self._attempts.store_agreement(action.view, action.reports)
                self._channels = self._mesh.begin_view(action.view.mark)
            elif isinstance(action, Go):
                self._start_attempt(action.view)
            elif isinstance(action, Park):
                await self._halt_attempt(action.why)
                todo.extend(self._gathering.on_parked(self._attempts.current_report()))

    def _start_attempt(self, view: View) -> None:
        self._attempts.store_beginning(view)
        self.view, self._has_result = view, False
        self._looked = time.monotonic()
        self._mesh.open_view()
        where = "" if view.start is None else f", from epoch {view.start[0]}"
        self._news.report_event("attempt", f"attempt {view.attempt} begins{where}", attempt=view.attempt)
        self._work = work = asyncio.ensure_future(self._program(view, self._channels))
        if isinstance(work, asyncio.Task):
            work.set_name(self._mesh.me)  # as tasks of a party are called

    async def _halt_attempt(self, why: str) -> None:
        """Park the channels, and cancel the program."""
        self._mesh.park_view(why)
        work, self._work = self._work, None
        if work is not None:
            work.cancel()
            with suppress(BaseException):
                await work
        if self.view is not None:
            self._count_time()
            self._news.report_event("parked", f"parked: {why}")
        self.view, self._has_result, self._peer_ended = None, False, None
        self._alone = time.monotonic()

    async def _handle_end(self, work: asyncio.Task[T]) -> None:
        """The program ended."""
        if work.cancelled():
            raise PeerEnded("a party's task was cancelled")
        error = work.exception()
        if error is None and self.view is not None:
            self._work = None
            self._result, self._has_result = work.result(), True
            self._alone = time.monotonic()
            self._news.report_event("finished", "the result is stored; waiting until all parties have theirs")
            for peer in self._mesh.peers:
                await self._mesh.send_note(peer, _FINISHED + self.view.mark)
        elif isinstance(error, Parked):
            self._work = None  # the mesh has parked; its next event gives the reason
        elif isinstance(error, PeerEnded):
            self._work, self._peer_ended = None, (time.monotonic(), error)  # the mesh's next event may give the reason
        elif isinstance(error, SecureVFLError):
            raise error
        elif error is not None:
            raise PartyFailed(self._mesh.me, error) from error

    async def _check_timeouts(self) -> None:
        """Compare the clocks with the timeouts and the agreement's dates."""
        now = time.monotonic()
        if self._peer_ended is not None and now - self._peer_ended[0] > _LAST_WORDS:
            raise self._peer_ended[1]
        if now - self._looked < _LOOK:
            return
        for since, error in self._superseded.values():
            if now - since > _TWO_PROCESSES:
                raise error
        self._tell_waits()
        if self.view is not None and not self._has_result:
            self._count_time()
            self._attempts.check_attempt(self.view.attempt)
            gone = [peer for peer, since in self._away.items() if now - since > self._patience.away]
            if gone:
                await self._halt_attempt(
                    f"{' and '.join(sorted(gone))} did not come back within {self._patience.away:.0f} s"
                )
                await self._do_actions(self._gathering.on_parked(self._attempts.current_report()))
            return
        self._looked = now
        if now - self._alone > self._patience.gather:
            self._give_up()

    def _give_up(self) -> None:
        waits = self.awaited_peers
        if self._has_result:
            # This party's own result is stored, so a silent peer must not turn it into a failure.
            self._finished |= {peer: self.view.mark for peer in waits if self.view is not None}
            self._news.report_event("alone", f"{', '.join(waits)} did not announce their results")
            return
        refused = [error for peer, error in self._refused.items() if peer in waits]
        if refused:
            raise refused[0]
        words = ", ".join(f"{peer} ({what})" for peer, what in waits.items())
        raise Parked(
            f"{self._mesh.me!r} waited {self._patience.gather:.0f} s for {words}: start it again when they are there"
        )

    def _count_time(self) -> None:
        now = time.monotonic()
        self._attempts.count_time(now - self._looked)
        self._looked = now

    def _tell_waits(self) -> None:
        waits = self.awaited_peers
        if waits != self._waited:
            self._waited = waits
            if waits:
                words = "waits for " + ", ".join(f"{peer} ({what})" for peer, what in waits.items())
                self._news.report_event("waits", words, **waits)

    async def _fail_job(self, error: BaseException) -> None:
        """End the job at all: the others read what is on its way to them, a refusal perhaps, before they stop."""
        # Let the channels' tasks write what was already sent; then wait about two round trips for it to arrive.
        for _ in range(20):
            await asyncio.sleep(0)
        trips = [state.round_trip for state in self._mesh.link_states().values() if state.round_trip is not None]
        if trips:
            await asyncio.sleep(min(0.1 + 2 * max(trips), _LAST_WORDS))
        # A peer that ended the job knows already; answering it would only cross its abort.
        if not self._was_aborted:
            with suppress(SecureVFLError):
                await self._mesh.abort_job(_name_cause(error))
        await self._halt_attempt(str(error))


def _name_cause(error: BaseException) -> str:
    """The name in `_CAUSES` of what ended the job."""
    if isinstance(error, PolicyError) and error.cause in _CAUSES:
        return error.cause
    found = (name for name, (kind, _) in _CAUSES.items() if isinstance(error, kind) and name != "failed")
    return next(found, "failed")

"""Run one party over any mesh: connect, rendezvous, run the program, park and resume, end.

A program runs once in each attempt: consent, alignment, training. It uses channels to all peers and ends with a result
or an error. When a peer is lost, the attempt is parked: the program is cancelled, and all parties agree again on the
state to resume from. A party with a result states it (`securevfl.party.finish`), because a peer killed on the last step
needs the others once more, and stays until all have everybody's statement, or for a stated time.

A simulation runs one such course for each party over memory, a process runs one over a network.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Generic, TypeVar

from securevfl_net.errors import fault_behind

from securevfl.errors import (
    MachineFault,
    Parked,
    PartyFailed,
    PeerEnded,
    PeerRefused,
    ProtocolError,
    SecureVFLError,
)
from securevfl.party.attempts import Attempts, Restored, Superseded
from securevfl.party.leaving import WentOn
from securevfl.party.rendezvous import Action, Began, Go, Park, Rendezvous, Say
from securevfl.party.reports import View
from securevfl.party.superseded import SupersededWatch
from securevfl.run.causes import explain_abort, name_cause
from securevfl.run.departing import LEAVING, Departing
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
"""First byte of a note: rendezvous; the statements that the party has; its signed ledger head."""
_LAST_WORDS = 1.0
"""Seconds in which a program may read what a peer that ended the job sent before: a refusal perhaps."""
_LOOK = 1.0
"""Seconds between two checks of the clocks."""
_MOST_STAYS = 6
"""Stated times, all together, for which a party that is done waits for peers that come and go."""
_GONE = 30.0
"""Seconds for which a party that has everybody's statement waits for peers that are gone: they too have finished."""
_REPEAT = 5.0
"""Seconds after which a finished party repeats its statements to peers that have not confirmed them."""


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
        self._end = attempts.open_finish(mesh.me, mesh.peers)
        self._departing = Departing(mesh, attempts, self._news)
        self._peers = tuple(peer for peer in mesh.peers if peer not in self._departing.gone)
        self._end.drop_peers(self._departing.gone)
        self._gathering = Rendezvous(mesh.me, self._peers, attempts.current_report(), admits=attempts.admits)
        self._work: asyncio.Task[T] | None = None
        self._result: T | None = None
        self._needed: set[str] = set()
        self._stays = ""
        self._repeated = self._quiet = self._finished = self._seen = time.monotonic()
        self._over = False
        self._away: dict[str, float] = {}
        self._refused: dict[str, PeerRefused] = {}
        self._superseded = SupersededWatch(mesh.me)
        self._waited: dict[str, str] = {}
        self._stop: asyncio.Event | None = None
        self._due = asyncio.Event()
        self._was_aborted = False
        self._peer_ended: tuple[float, SecureVFLError] | None = None
        self._alone = self._looked = time.monotonic()

    @property
    def awaited_peers(self) -> dict[str, str]:
        """See the class."""
        if self._departing.has_farewell:
            return dict.fromkeys(self._mesh.peers, "its word that it goes on")
        if self._end.own is None:
            return self._gathering.find_awaited()
        missing = self._end.unfinished
        found = {peer: "its confirmation" for peer in self._end.unconfirmed if peer not in missing}
        return found | dict.fromkeys(missing, "its result")

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """Peers that did not confirm the end, after `run`."""
        return self._end.unconfirmed

    @property
    def is_complete(self) -> bool:
        """Whether all parties are known to have finished, after `run`."""
        return self._end.is_complete

    async def run(self) -> T | None:
        """The program's result, when all parties have theirs, or this party has stayed for the stated time; None if an
        earlier process stored it.

        Raises:
            Parked: the peers did not come in time, or `stop` was called; starting again resumes the run.
            MachineFault: the disk is full, or the gate died; likewise.
            Expired: the agreement's bounds are reached.
            PartyFailed: the program ended with an unforeseen error, its `__cause__`.
            SecureVFLError: another error ended it, here or at a peer.
        """
        self._stop = asyncio.Event()
        stopped = asyncio.ensure_future(self._stop.wait())
        due = asyncio.ensure_future(self._due.wait())
        event = asyncio.ensure_future(self._mesh.next_event())
        self._alone = self._looked = time.monotonic()
        self._away = dict.fromkeys(self._peers, self._alone)
        try:
            await self._follow_departures()
            if self._end.own is not None:
                self._report_stay()
            elif not self._departing.has_farewell:
                await self._do_actions(self._alone_at_once())
            while not self._may_leave():
                awaited: set[asyncio.Future[object]] = {event, stopped, due}  # type: ignore[arg-type]
                if self._work is not None:
                    awaited.add(self._work)  # type: ignore[arg-type]
                await asyncio.wait(awaited, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
                if stopped.done():
                    if self._end.is_complete:
                        break
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
        except (Parked, MachineFault, Superseded, Restored, WentOn):  # for the others the job goes on
            await self._halt_attempt("the party's process ends; it may be started again")
            raise
        except asyncio.CancelledError:
            await self._halt_attempt("the party's process was interrupted")
            raise
        except BaseException as error:
            await self._end_on_error(error)
            raise
        finally:
            for waiting in (event, stopped, due):
                waiting.cancel()
                with suppress(BaseException):
                    await waiting
        await self._mesh.close()
        return self._result

    def stop(self) -> None:
        """Stop cleanly, so that starting again resumes: `run` raises `Parked`. For a signal handler."""
        if self._stop is not None:
            self._stop.set()

    def publish_head(self) -> None:
        """Send all peers the party's signed ledger head: a checkpoint is on the disk."""
        self._due.set()

    async def _send_head(self) -> None:
        word = self._attempts.ledger_head() if self._work is not None else b""
        for peer in self._peers if word else ():
            await self._mesh.send_note(peer, _WORD + word)

    def _alone_at_once(self) -> list[Action]:
        """A party without peers gathers with nobody."""
        return [] if self._peers else self._gathering.on_parked(self._attempts.current_report())

    def _may_leave(self) -> bool:
        return self._over or (self._end.is_complete and not self._end.unconfirmed)

    async def _handle_event(self, event: MeshEvent) -> None:
        if await self._departing.answer_departed(event):
            return
        if isinstance(event, Connected):
            self._away.pop(event.peer, None)
            self._refused.pop(event.peer, None)
            self._superseded.take_arrival(event.peer)
            self._attempts.store_incarnation(event.peer, event.incarnation)
            self._news.report_event("up", f"{event.peer} is connected", peer=event.peer, resumed=event.resumed)
            self._end.take_arrival(event.peer)
            self._quiet = time.monotonic()
            await self._send_statements([event.peer])
            await self._departing.send_words([event.peer])
            if not self._end.is_complete and not self._departing.has_farewell:
                await self._do_actions(self._gathering.on_connected(event.peer, str(event.incarnation), event.resumed))
        elif isinstance(event, Disconnected):
            self._handle_departure(event.peer, event.why)
        elif isinstance(event, NoteReceived):
            try:
                await self._on_note(event.peer, event.payload)
            except ProtocolError:
                if not self._end.is_complete:  # nothing that a peer sends can take the result away
                    raise
        elif isinstance(event, ConnectionRefused):
            words = f"{event.peer or 'a connection'} was refused: {event.words} ({event.code})"
            self._news.report_event("refused", words, peer=event.peer, code=event.code)
            if event.peer:
                self._refused[event.peer] = PeerRefused(event.code, f"no connection with {event.peer!r}: {event.words}")
            if not self._end.is_complete:
                self._superseded.take_refusal(event)
        elif isinstance(event, JobAborted):
            if not self._end.is_complete:
                await self._handle_abort(event)
        elif isinstance(event, PeerLeft):
            await self._handle_goodbye(event.peer)
        elif isinstance(event, CertificateReplaced):
            words = f"{event.peer} has a new certificate, SHA-256 {event.fingerprint}"
            self._news.report_event("rotated", words, peer=event.peer, fingerprint=event.fingerprint)

    async def _handle_goodbye(self, peer: str) -> None:
        """A peer left in good order, which none does before it has its result."""
        if self._end.own is None:
            self._handle_departure(peer, "it has its result and left; start it again if this party waits for it")
            return
        self._end.take_goodbye(peer)
        self._attempts.store_finish(self._end)

    def _handle_departure(self, peer: str, why: str) -> None:
        self._away.setdefault(peer, time.monotonic())
        self._gathering.on_disconnected(peer)
        self._news.report_event("down", f"{peer} is not connected: {why}", peer=peer)

    async def _on_note(self, peer: str, payload: bytes) -> None:
        kind, rest = payload[:1], payload[1:]
        if self._departing.has_farewell and kind != LEAVING:
            return  # it takes part in nothing more
        if kind == _GATHERING:
            if not self._end.is_complete:
                await self._do_actions(self._gathering.on_note(peer, rest))
                self._note_need(peer)
        elif kind == _FINISHED:
            await self._take_statements(peer, rest)
        elif kind == _WORD:
            self._attempts.store_ledger_head(peer, rest)
        elif kind == LEAVING:
            self._departing.take_words(peer, rest)
            await self._follow_departures()
        else:
            raise ProtocolError(f"{peer!r} sent an unknown kind of note: {kind.hex() or 'nothing'}", party=peer)

    def _note_need(self, peer: str) -> None:
        """Remember which peers reported that they have not finished, and so need this party."""
        own, report = self._end.own, self._gathering.known_reports.get(peer)
        if own is not None and report is not None:
            (self._needed.discard if report.finished == own.mark.hex() else self._needed.add)(peer)

    async def _take_statements(self, peer: str, payload: bytes) -> None:
        complete = self._end.is_complete
        grown = self._end.take_note(peer, payload)
        if later := self._end.find_later(payload, self._attempts.begun):
            raise Restored(
                f"{peer!r} has {self._mesh.me!r}'s signed statement that it finished in attempt {later}, and this "
                f"state folder records only {self._attempts.begun} attempts: it was restored from a back-up. Bring the "
                "newest folder back"
            )
        if grown:
            self._quiet = time.monotonic()
            self._attempts.store_finish(self._end)
        if self._end.is_complete and not complete:
            self._report_stay()
            await self._send_statements(self._peers)

    async def _consider_departures(self, now: float) -> None:
        if self._end.is_complete or (self._end.own is not None and not self._needed):
            return  # nobody trains any more
        away = {peer for peer, since in self._away.items() if now - since > self._patience.leaving}
        await self._departing.sign_absences(away & set(self._peers), self._peers)
        await self._follow_departures()

    async def _follow_departures(self) -> None:
        """Go on without whom all others have decided to go on without.

        Raises:
            WentOn: this party is among them.
        """
        if self._departing.is_left():
            self._over = True
            return
        gone = [peer for peer in self._peers if peer in self._departing.gone]
        if not gone:
            return
        self._peers = tuple(peer for peer in self._peers if peer not in gone)
        for peer in gone:
            self._needed.discard(peer)
            for known in (self._away, self._refused):
                known.pop(peer, None)
            self._superseded.take_arrival(peer)
        names = " and ".join(gone)
        self._news.report_event("left", f"goes on without {names}: all others signed it", **dict.fromkeys(gone, "left"))
        await self._halt_attempt(f"{names} left for good")
        self._end.drop_peers(gone)
        self._gathering.drop_peers(gone)
        await self._departing.send_words(self._mesh.peers)
        await self._do_actions(self._gathering.on_parked(self._attempts.current_report()))

    async def _send_statements(self, peers: Iterable[str]) -> None:
        """Send what this party knows of the end; nothing before it has finished."""
        self._repeated = time.monotonic()
        for peer in peers if self._end.own is not None else ():
            await self._mesh.send_note(peer, _FINISHED + self._end.note)

    def _report_stay(self) -> None:
        """Say that this party has its result, and for whom it stays; once while that is the same."""
        waits = self.awaited_peers
        words = "the result is stored"
        if waits:
            words = f"finished; staying {self._patience.stay:.0f} s for: {', '.join(waits)}"
        if words != self._stays:
            self._stays = words
            self._news.report_event("finished", words)

    async def _handle_abort(self, event: JobAborted) -> None:
        self._was_aborted = True
        if self._work is not None:
            # The program may already have the cause (a peer's refusal, say), which explains more than the abort.
            await asyncio.wait({self._work}, timeout=_LAST_WORDS)
            if self._work.done() and not self._work.cancelled():
                error = self._work.exception()
                if isinstance(error, SecureVFLError) and not isinstance(error, PeerEnded):
                    raise error
        raise explain_abort(event.peer, event.reason, self._mesh.me, self._names)

    @property
    def _names(self) -> tuple[str, ...]:
        return (self._mesh.me, *self._mesh.peers)

    async def _do_actions(self, actions: Iterable[Action]) -> None:
        todo = deque(actions)
        while todo:
            action = todo.popleft()
            if isinstance(action, Say):
                await self._mesh.send_note(action.peer, _GATHERING + action.payload)
            elif isinstance(action, Began):
                self._attempts.check_attempt(action.view.attempt)
                self._attempts.store_agreement(action.view, action.reports)
                channels = self._mesh.begin_view(action.view.mark)
                self._channels = {peer: channel for peer, channel in channels.items() if peer in self._peers}
            elif isinstance(action, Go):
                self._start_attempt(action.view)
            elif isinstance(action, Park):
                await self._halt_attempt(action.why)
                todo.extend(self._gathering.on_parked(self._attempts.current_report()))

    def _start_attempt(self, view: View) -> None:
        self._attempts.store_beginning(view)
        self.view = view
        self._result = None
        self._end.withdraw()
        self._attempts.store_finish(self._end)
        self._needed.clear()
        self._departing.begin_together(view.attempt)
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
        self.view, self._peer_ended = None, None
        self._alone = time.monotonic()

    async def _handle_end(self, work: asyncio.Task[T]) -> None:
        """The program ended."""
        if work.cancelled():
            raise PeerEnded("a party's task was cancelled")
        error = work.exception()
        if error is None and self.view is not None:
            self._work = None
            self._result = work.result()
            self._end.state_own(self._attempts.state_finished(self._mesh.me, self.view, self._result))
            self._attempts.store_finish(self._end)
            self._quiet = self._finished = time.monotonic()
            self._report_stay()
            await self._send_statements(self._peers)
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
        self._superseded.check()
        self._tell_waits()
        if self.view is None or self._end.own is not None:
            await self._consider_departures(now)
        if self._end.own is not None:
            await self._check_stay(now)
        elif self.view is not None:
            self._count_time()
            self._attempts.check_attempt(self.view.attempt)
            gone = [peer for peer, since in self._away.items() if now - since > self._patience.away]
            if gone:
                await self._halt_attempt(
                    f"{' and '.join(sorted(gone))} did not come back within {self._patience.away:.0f} s"
                )
                await self._do_actions(self._gathering.on_parked(self._attempts.current_report()))
        else:
            self._looked = now
            if now - self._alone > self._patience.gather:
                self._give_up()

    async def _check_stay(self, now: float) -> None:
        """Repeat the statements, and leave after the stated time; who reported that it must train again is waited for
        as before an attempt. A peer that comes and goes extends the time, but not for ever.
        """
        self._looked = now
        if now - self._repeated > _REPEAT:
            await self._send_statements(self._end.unconfirmed)
        since = now - self._finished
        if self._needed and not self._end.is_complete:
            gather = self._patience.gather
            if now - max(self._quiet, self._alone) > gather or since > _MOST_STAYS * gather:
                self._give_up()
        elif now - self._quiet > self._patience.stay or since > _MOST_STAYS * self._patience.stay:
            self._over = True
        elif self._end.is_complete:
            links = self._mesh.link_states()
            here = any(links[peer].connected for peer in self._end.unconfirmed)
            self._seen = now if here else self._seen
            self._over = now - max(self._seen, self._finished) > _GONE

    def _give_up(self) -> None:
        waits = self.awaited_peers
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

    async def _end_on_error(self, error: BaseException) -> None:
        """End the job for all; or only this process, if the machine is at fault.

        Raises:
            MachineFault: it is.
        """
        if (fault := fault_behind(error)) is None:
            await self._fail_job(error)
            return
        await self._halt_attempt("the party's process ends; it may be started again")
        raise _explain_fault(self._mesh.me, fault) from error

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
                await self._mesh.abort_job(name_cause(error, self._names))
        await self._halt_attempt(str(error))


def _explain_fault(me: str, fault: OSError) -> MachineFault:
    what, where = fault.strerror or str(fault), f" ({fault.filename})" if fault.filename else ""
    return MachineFault(f"{me!r} cannot go on here: {what}{where}; mend it and start the party again to resume")

"""Rendezvous: parties that may crash at any moment agree on the one state to resume from.

On each connection both ends send what they have (`Report`). A party that has all reports computes the *view* from them,
writes down that it takes part, and sends READY. It trains once all have sent READY for the same view. A party that
trains and receives a new report, or notices a restarted process, *parks*: it stops, then reports what it has by now.
All parties are needed, but for those without whom all others have decided to go on
(`securevfl.party.leaving`); there is no quorum. Every message of training carries its view, and the session refuses
those of another.

Two parties may be in different views for a while, but then neither reads the other's messages, and within one view all
start from the same state. `tests/party/test_gathering.py` checks this for the class over all orders of events with
three parties and two crashes.

The class does no I/O: it receives events and returns the actions to take, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import msgspec

from securevfl.errors import ProtocolError
from securevfl.party.reports import Ready, Report, View, decode_note, encode_note, view_of

__all__ = ["Action", "Began", "Go", "Park", "Rendezvous", "Say"]


@dataclass(frozen=True)
class Say:
    """Send a note to a peer."""

    peer: str
    payload: bytes = field(repr=False)


@dataclass(frozen=True)
class Began:
    """Store `view.attempt` as agreed, with the peers' reports, and sync; then open the receiving side of the view's
    channels. Only then do the actions that follow, which send READY.
    """

    view: View
    reports: Mapping[str, Report]


@dataclass(frozen=True)
class Go:
    """All are ready: send, and train. Checkpoints after `view.start` are put aside now, not before."""

    view: View


@dataclass(frozen=True)
class Park:
    """Stop what runs in the view; when it has stopped, call `Rendezvous.on_parked` with a new report."""

    why: str


T = TypeVar("T")
Action = Say | Began | Go | Park
Phase = Literal["reporting", "ready", "going", "parking"]


@dataclass(frozen=True)
class RendezvousState:
    """All that a `Rendezvous` remembers; it is replaced, never changed.

    Attributes:
        own: the party's report.
        phase: "reporting" until the view is known, "ready" until all are, "going"; "parking" until the party has
            stopped.
        view: that it takes part in.
        up: incarnation of each connected peer, empty for others.
        known: the last report of each peer.
        ready: mark of the view of each peer's last READY; empty before the first.
    """

    own: Report
    phase: Phase
    view: View | None
    up: tuple[str, ...]
    known: tuple[Report | None, ...]
    ready: tuple[bytes, ...]


def _admit_all(reports: Mapping[str, Report]) -> bool:
    return True


class Rendezvous:
    """One party's side of the rendezvous.

    Args:
        me: the party.
        peers: all others.
        report: the party's state; `Report.parks` is counted here.
        admits: given all parties' reports, whether the party takes part in a view of them: False to wait for another
            report, an error to stop. The same reports must give the same answer.

    Attributes:
        state: all that it remembers.
    """

    def __init__(
        self,
        me: str,
        peers: Iterable[str],
        report: Report,
        *,
        admits: Callable[[Mapping[str, Report]], bool] = _admit_all,
    ) -> None:
        self.me = me
        self.peers = tuple(sorted(peers))
        self._admits = admits
        none = len(self.peers)
        self.state = RendezvousState(report, "reporting", None, ("",) * none, (None,) * none, (b"",) * none)

    def on_connected(self, peer: str, incarnation: str, resumed: bool) -> list[Action]:
        """A peer is connected.

        Args:
            peer: which.
            incarnation: of its process.
            resumed: whether the connection continues the one before without loss; False for a new process or if
                messages were lost.
        """
        at, state = self._index_of(peer), self.state
        known = state.known[at]
        up = _replace_at(state.up, at, incarnation)
        # Nothing was lost on the way and the peer is the same process: its report is still valid.
        if resumed and known is not None and known.incarnation == incarnation:
            self.state = replace(state, up=up)
            return self._repeat_report(peer)
        self.state = replace(
            state, up=up, known=_replace_at(state.known, at, None), ready=_replace_at(state.ready, at, b"")
        )
        if state.phase in ("ready", "going"):
            restarted = known is None or known.incarnation != incarnation
            return self._park(f"{peer!r} was restarted" if restarted else f"messages of {peer!r} were lost on the way")
        return self._repeat_report(peer)

    def on_disconnected(self, peer: str) -> list[Action]:
        """A peer is not connected any more; whether it lives is not known."""
        at = self._index_of(peer)
        self.state = replace(self.state, up=_replace_at(self.state.up, at, ""))
        return []

    def on_note(self, peer: str, payload: bytes) -> list[Action]:
        """A peer's note arrived.

        Raises:
            ProtocolError: `payload` is not a message that the peer may send now.
        """
        at, said = self._index_of(peer), decode_note(peer, payload)
        if isinstance(said, Ready):
            self.state = replace(self.state, ready=_replace_at(self.state.ready, at, said.mark))
            return self._advance()
        state, known = self.state, self.state.known[at]
        # After a reconnection a report may arrive twice.
        if said == known:
            return []
        if said.incarnation != state.up[at]:
            raise ProtocolError(
                f"{peer!r} reports for {said.incarnation[:20]}…, but is connected as {state.up[at][:20] or 'gone'}…"
            )
        # A view is a digest of reports: two reports under one number would give the parties different views.
        if known is not None and known.incarnation == said.incarnation and said.parks <= known.parks:
            raise ProtocolError(f"{peer!r} sent two different reports with the number {said.parks}")
        self.state = replace(state, known=_replace_at(state.known, at, said))
        if state.phase == "going":
            return self._park(f"{peer!r} stopped, to resume from an earlier state")
        return self._advance()

    def on_parked(self, report: Report) -> list[Action]:
        """Handle that the party has stopped, or that its state has changed.

        Args:
            report: the party's present state.
        """
        own = msgspec.structs.replace(report, parks=self.state.own.parks + 1)
        self.state = replace(self.state, own=own, phase="reporting", view=None)
        told: list[Action] = [Say(peer, encode_note(own)) for peer in self._connected_peers()]
        return told + self._advance()

    def drop_peers(self, gone: Iterable[str]) -> None:
        """Go on without these peers, for good. Call it while nothing runs, and `on_parked` after it."""
        left = [at for at, peer in enumerate(self.peers) if peer not in set(gone)]
        self.peers = tuple(self.peers[at] for at in left)
        state = self.state
        self.state = replace(
            state,
            phase="reporting",
            view=None,
            up=tuple(state.up[at] for at in left),
            known=tuple(state.known[at] for at in left),
            ready=tuple(state.ready[at] for at in left),
        )

    def find_awaited(self) -> dict[str, str]:
        """Peer → what this party waits for: "a connection", "a report" or "ready"; empty while it trains."""
        state, found = self.state, {}
        if state.phase == "going":
            return {}
        for at, peer in enumerate(self.peers):
            if not state.up[at]:
                found[peer] = "a connection"
            elif state.known[at] is None:
                found[peer] = "a report"
            elif state.view is not None and state.ready[at] != state.view.mark:
                found[peer] = "ready"
        return found

    @property
    def known_reports(self) -> dict[str, Report]:
        """The last report of each party of which one is known, this one among them."""
        known = zip(self.peers, self.state.known, strict=True)
        return {self.me: self.state.own} | {peer: report for peer, report in known if report is not None}

    def _advance(self) -> list[Action]:
        """Take part in the view of all reports if it is new; begin it if all parties are ready."""
        state = self.state
        if state.phase not in ("reporting", "ready") or None in state.known:
            return []
        actions: list[Action] = []
        reports = self.known_reports
        view = self.view_of(reports)
        if view != state.view:
            self.state = state = replace(state, phase="reporting", view=None)
            if not self._admits(reports):
                return []
            self.state = state = replace(state, phase="ready", view=view)
            # The agreement is on disk before READY leaves, so a crash in between cannot hide an attempt.
            actions.append(Began(view, reports))
            actions += [Say(peer, encode_note(Ready(view.mark))) for peer in self._connected_peers()]
        if all(mark == view.mark for mark in state.ready):
            self.state = replace(state, phase="going")
            actions.append(Go(view))
        return actions

    view_of = staticmethod(view_of)

    def _repeat_report(self, peer: str) -> list[Action]:
        """Repeat what a peer needs, since a broken connection may have lost it. Nothing while the party parks, because
        its last report is out of date.
        """
        state = self.state
        if state.phase == "parking":
            return []
        said: list[Action] = [Say(peer, encode_note(state.own))]
        if state.view is not None:
            said.append(Say(peer, encode_note(Ready(state.view.mark))))
        return said

    def _park(self, why: str) -> list[Action]:
        self.state = replace(self.state, phase="parking", view=None)
        return [Park(why)]

    def _connected_peers(self) -> list[str]:
        return [peer for peer, up in zip(self.peers, self.state.up, strict=True) if up]

    def _index_of(self, peer: str) -> int:
        if peer not in self.peers:
            raise ProtocolError(f"{peer!r} is not a party of this run (parties: {', '.join(self.peers)})")
        return self.peers.index(peer)


def _replace_at(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])

"""One party's part in deciding that peers are gone for good: when to sign it, and whom to tell."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from securevfl.party.attempts import Attempts
from securevfl.party.leaving import WentOn
from securevfl.run.events import RunEvents
from securevfl.transport.mesh import Connected, Mesh, MeshEvent, NoteReceived

__all__ = ["LEAVING", "Departing"]

LEAVING = b"\x04"
"""First byte of a note with words on who left."""


class Departing:
    """Signs, stores, sends and takes the words of `securevfl.party.leaving`.

    Args:
        mesh: the connections to all peers of the agreement, to those that left, too.
        attempts: signs and stores words.
        news: receives what was signed.
    """

    def __init__(self, mesh: Mesh, attempts: Attempts, news: RunEvents) -> None:
        self._mesh = mesh
        self._attempts = attempts
        self._news = news
        self._known = attempts.open_departures(mesh.me, mesh.peers)

    @property
    def gone(self) -> tuple[str, ...]:
        """Parties without whom the job goes on."""
        return self._known.gone

    @property
    def has_farewell(self) -> bool:
        """Whether this party leaves itself: it only tells the others."""
        return self._known.has_farewell

    def begin_together(self, attempt: int) -> None:
        """All parties that are needed begin this attempt: what was signed of peers that are back is void."""
        self._known.forget_undecided(attempt)
        self._attempts.store_departures(self._known)

    async def send_words(self, peers: Iterable[str]) -> None:
        """Send what this party knows; nothing if it knows of nobody that left."""
        for peer in peers if self._known.words else ():
            await self._mesh.send_note(peer, LEAVING + self._known.note)

    def take_words(self, peer: str, payload: bytes) -> None:
        """Take a peer's words, and store them.

        Raises:
            ProtocolError: see `Departures.take_note`.
        """
        if self._known.take_note(peer, payload):
            self._attempts.store_departures(self._known)

    async def sign_absences(self, away: Collection[str], peers: Iterable[str]) -> None:
        """Sign that peers are gone which said so, or were away for too long; and tell the others.

        Args:
            away: who was away for longer than the agreement says.
            peers: that still take part.
        """
        gone = self._known.find_due(away)
        word = self._attempts.sign_departure(self._mesh.me, gone) if gone else None
        if word is None:
            return
        self._known.add_own(word)
        self._attempts.store_departures(self._known)
        words = f"signed: goes on without {', '.join(gone)} once all others sign it, too"
        self._news.report_event("leaving", words, **dict.fromkeys(gone, "gone"))
        await self.send_words(peers)

    def is_left(self) -> bool:
        """Whether the others go on without this party, as it asked for.

        Raises:
            WentOn: they do, and it did not ask for it.
        """
        me = self._mesh.me
        if me not in self._known.gone:
            return False
        if self._known.has_farewell:
            return True
        raise WentOn(
            f"the job went on without {me!r} since epoch {self._known.epoch}: all other parties signed that it was "
            "gone for longer than the agreement allows. Its ledger is valid and stays as it is; keep the folder for "
            "audits. To take part again, propose a new agreement"
        )

    async def answer_departed(self, event: MeshEvent) -> bool:
        """Whether the event is of a party that left; it is told so, and nothing else of it counts."""
        peer = getattr(event, "peer", "")
        if peer not in self._known.gone:
            return False
        if isinstance(event, Connected):
            self._attempts.store_incarnation(peer, event.incarnation)
            self._news.report_event("up", f"{peer} is connected; the job goes on without it", peer=peer)
        if isinstance(event, Connected) or (isinstance(event, NoteReceived) and event.payload[:1] != LEAVING):
            await self.send_words([peer])
        return True

"""Attempts at a run: what a party must keep between them, and how parties compare their counts.

With their consent, parties that keep journals exchange how many attempts each has recorded. A journal counts what its
own party released. A party whose files are lost would count from zero again and report too small an ε; its peers'
journals reveal that. Once all have consented, each party writes the attempt's number to its journal, announces it, and
waits for the others before it sends anything of the run. So if one party has *begun* an attempt, every other has
*agreed* to it, and a party without a record of an attempt that a peer began has lost lines. A party killed in between
has lost nothing, and the numbers agree again at the next attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from securevfl_net.incarnation import Incarnation

from securevfl.errors import InputError, PeerRefused, ProtocolError
from securevfl.party.finish import Finish, Statement
from securevfl.party.leaving import Departures, LeavingWord
from securevfl.party.reports import Report, View
from securevfl.party_context import PartyContext
from securevfl.privacy import describe_lost_attempts, fan_out
from securevfl.transport import Kind, Scalar

__all__ = ["Attempts", "Restored", "Superseded", "agree_attempt", "attempt_fields"]

_NUMBERS = ("agreed", "begun", "start")


class Restored(PeerRefused):
    """A state folder is older than what a peer saw of it; the code is ``"restored"``."""

    def __init__(self, words: str) -> None:
        super().__init__("restored", words)


class Superseded(PeerRefused):
    """Another process of this party, on another copy of its state folder, is the one that its peers know.

    Nobody can tell from outside which copy is the legitimate one, so the one whose running number goes on continues,
    and only the other one stops.
    """

    CODES = frozenset({"stale-incarnation", "twin-incarnation", "running-incarnation"})
    """Codes of refusals that mean this, or that may mean it."""

    def __init__(self, code: str, peer: str, words: str) -> None:
        super().__init__(
            code,
            f"{peer!r} refuses this process: {words}. If this state folder is a copy, or was restored from a back-up, "
            "delete it and use the newest one. If it is the only one that you know of, somebody else runs a copy of it "
            "with your keys: tell your peers, stop the job, and make new keys. The job goes on without this process",
        )


class Attempts:
    """Attempts of a process that nothing follows: a simulation's.

    Args:
        incarnation: of the process.
    """

    def __init__(self, incarnation: Incarnation) -> None:
        self.incarnation = incarnation
        self.agreed = 0
        self.begun = 0
        self.finish: Finish | None = None
        self.departures: Departures | None = None

    def current_report(self) -> Report:
        """The party's current report. Reads stored files, so call it only while no attempt runs."""
        return Report(
            incarnation=str(self.incarnation), agreed=self.agreed, begun=self.begun, finished=self._finished_mark
        )

    @property
    def _finished_mark(self) -> str:
        own = None if self.finish is None else self.finish.own
        return "" if own is None else own.mark.hex()

    def admits(self, reports: Mapping[str, Report]) -> bool:
        """Whether the party takes part with parties that gave these reports; see `Rendezvous`. It does not if all have
        finished together: they exchange their statements instead.
        """
        marks = {report.finished for report in reports.values()}
        return len(marks) > 1 or marks == {""}

    def open_finish(self, me: str, peers: Iterable[str]) -> Finish:
        """What is known of the job's end, from earlier processes too."""
        if self.finish is None:
            self.finish = Finish(me, peers)
        return self.finish

    def state_finished(self, me: str, view: View, result: object) -> Statement:
        """The party's statement that it has finished, with this result, which is stored."""
        return Statement(me, "", view.attempt, view.mark)

    def store_finish(self, finish: Finish) -> None:
        """Store what is known of the job's end, before any peer learns of it."""

    def open_departures(self, me: str, peers: Iterable[str]) -> Departures:
        """What is known of parties that left for good, from earlier processes too."""
        if self.departures is None:
            self.departures = Departures(me, peers, owners=(me, *peers))
        return self.departures

    def sign_departure(self, me: str, gone: tuple[str, ...]) -> LeavingWord | None:
        """This party's word that it goes on without these; None while it cannot: its rows are not aligned."""
        return None

    def store_departures(self, departures: Departures) -> None:
        """Store what is known of parties that left, before any peer learns of it."""

    def store_agreement(self, view: View, reports: Mapping[str, Report]) -> None:
        """Store that the party is ready for an attempt, before it announces it."""
        self.agreed = view.attempt

    def store_beginning(self, view: View) -> None:
        """Store that all are ready: the attempt begins."""
        self.begun = view.attempt

    def store_incarnation(self, peer: str, incarnation: Incarnation) -> None:
        """Keep a peer's newest incarnation, so that an older one is refused."""

    def ledger_head(self) -> bytes:
        """The party's signed ledger head for its peers; empty if it sends none."""
        return b""

    def store_ledger_head(self, peer: str, payload: bytes) -> None:
        """Store a peer's signed ledger head.

        Raises:
            ProtocolError: `payload` is not a signed ledger head of this peer.
        """

    def count_time(self, seconds: float) -> None:
        """Count time of an attempt."""

    def check_attempt(self, attempt: int) -> None:
        """Raise an error if the attempt may not begin or continue.

        Raises:
            Expired: a bound of the agreement is reached.
        """


def attempt_fields(site: PartyContext) -> dict[str, Scalar]:
    """The attempt's fields for this party's consent message; empty if its journal is not in a file."""
    journal = site.keeper.journal
    if journal.path is None:
        return {}
    return {"agreed": journal.agreed, "begun": journal.attempt, "start": site.keeper.start or 0}


async def agree_attempt(site: PartyContext, step: str, said: Mapping[str, Mapping[str, Scalar]]) -> None:
    """Compare this party's journal with its peers', and agree on the number of the attempt that begins.

    Args:
        site: the party's place.
        step: of the messages that announce that the number is written.
        said: peer → the fields of its consent message; peers whose journal is not in a file are skipped.

    Raises:
        InputError: this party or a peer has no record of an attempt that another began; or they would resume from
            different epochs.
        ProtocolError: a peer sends numbers that no journal can contain.
    """
    mine = attempt_fields(site)
    peers = {name: meta for name, meta in said.items() if "begun" in meta}
    if not mine or not peers:
        return
    every = {site.name: _read_counts(site.name, mine)}
    every |= {name: _read_counts(name, meta) for name, meta in peers.items()}
    lost = describe_lost_attempts({name: (agreed, begun) for name, (agreed, begun, _) in every.items()})
    if lost:
        raise InputError(lost)
    starts = {name: start for name, (_, _, start) in sorted(every.items())}
    if len(set(starts.values())) > 1:
        raise InputError(
            "the parties would resume from different epochs ("
            + ", ".join(f"{name}: {start}" for name, start in starts.items())
            + "): bring the missing checkpoints back, or start from the beginning in another folder at all parties"
        )
    attempt = max(agreed for agreed, _, _ in every.values()) + 1
    site.keeper.journal.record_agreed(attempt)
    meta: dict[str, Scalar] = {"job": site.job, "attempt": attempt}
    links = [site.links[name] for name in sorted(peers)]
    await fan_out(links, lambda link: link.send(Kind.CONTROL, step, meta=meta))
    for link in links:
        found = (await link.receive(Kind.CONTROL, step)).meta.get("attempt")
        if found != attempt:
            raise ProtocolError(f"{link.peer!r} counts attempt {found!r:.20}, {site.name!r} attempt {attempt}")


def _read_counts(name: str, meta: Mapping[str, Scalar]) -> tuple[int, int, int]:
    found = [meta.get(what) for what in _NUMBERS]
    agreed, begun, start = (n if type(n) is int and 0 <= n < 1 << 31 else -1 for n in found)
    if min(agreed, begun, start) < 0 or begun > agreed:
        raise ProtocolError(f"{name!r} sent impossible numbers of attempts: {found!r:.80}")
    return agreed, begun, start

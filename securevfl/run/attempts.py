"""State that a party must keep between attempts at a run. In a simulation it lasts as long as the process."""

from __future__ import annotations

from collections.abc import Mapping

from securevfl_net.incarnation import Incarnation

from securevfl.errors import PeerRefused
from securevfl.party.reports import Report, View

__all__ = ["Attempts", "Restored"]


class Restored(PeerRefused):
    """A state folder is older than what a peer saw of it; the code is ``"restored"``."""

    def __init__(self, words: str) -> None:
        super().__init__("restored", words)


class Attempts:
    """Attempts of a process that nothing follows: a simulation's.

    Args:
        incarnation: of the process.
    """

    def __init__(self, incarnation: Incarnation) -> None:
        self.incarnation = incarnation
        self.agreed = 0
        self.begun = 0

    def report(self) -> Report:
        """The party's current report. Reads stored files, so call it only while no attempt runs."""
        return Report(incarnation=str(self.incarnation), agreed=self.agreed, begun=self.begun)

    def admits(self, reports: Mapping[str, Report]) -> bool:
        """Whether the party takes part with parties that gave these reports; see `Gathering`."""
        return True

    def agree(self, view: View, reports: Mapping[str, Report]) -> None:
        """Store that the party is ready for an attempt, before it announces it."""
        self.agreed = view.attempt

    def begin(self, view: View) -> None:
        """Store that all are ready: the attempt begins."""
        self.begun = view.attempt

    def met(self, peer: str, incarnation: Incarnation) -> None:
        """Keep a peer's newest incarnation, so that an older one is refused."""

    def ledger_head(self) -> bytes:
        """The party's signed ledger head for its peers; empty if it sends none."""
        return b""

    def store_ledger_head(self, peer: str, payload: bytes) -> None:
        """Store a peer's signed ledger head.

        Raises:
            ProtocolError: `payload` is not a signed ledger head of this peer.
        """

    def use(self, seconds: float) -> None:
        """Count time of an attempt."""

    def check(self, attempt: int) -> None:
        """Raise an error if the attempt may not begin or continue.

        Raises:
            Expired: a bound of the agreement is reached.
        """

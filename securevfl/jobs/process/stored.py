"""What a party keeps in its state folder from one attempt to the next, and what it tells its peers of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from securevfl.errors import InputError
from securevfl.jobs.agreement import Agreement, Spent, check_running
from securevfl.jobs.agreement.party_file import Budget
from securevfl.jobs.checkpoint import FolderKeeper
from securevfl.jobs.runner.attempts import Attempts
from securevfl.jobs.state import StateFolder
from securevfl.jobs.written import file_digest
from securevfl.party.reports import Kept, Report, View
from securevfl.transport import Incarnation

__all__ = ["StoredAttempts"]

_KEEP_TIME = 5.0
"""Seconds of an attempt that a crash may leave uncounted."""


class StoredAttempts(Attempts):
    """Attempts that outlast the process.

    Args:
        state: the party's folder.
        incarnation: of this process.
        agreement: what all agreed to; with the party's own approval.
        keeper: keeps the party's checkpoints.
        budget: the party's own.

    Attributes:
        agreement: with the approvals of all peers that have told theirs.
    """

    def __init__(
        self,
        state: StateFolder,
        incarnation: Incarnation,
        agreement: Agreement,
        keeper: FolderKeeper,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(incarnation)
        self.agreement = agreement
        self._state = state
        self._keeper = keeper
        self._budget = budget
        self._seconds, self._unsaved = state.used, 0.0
        before = state.attempts
        self.agreed = max((one.number for one in before), default=0)
        self.begun = max((one.number for one in before if one.begun), default=0)

    def report(self) -> Report:
        kept = [
            Kept(epoch, step, attempt, file_digest(self._keeper.path(epoch, step)))
            for (epoch, step), attempt in self._keeper.whole().items()
        ]
        alignment = self._state.alignment()
        mine = self.agreement.approvals.get(self._state.party)
        return Report(
            incarnation=str(self.incarnation),
            kept=tuple(kept),
            agreed=self.agreed,
            begun=self.begun,
            alignment="" if alignment is None else alignment.digest,
            approval=b"" if mine is None else mine.raw,
        )

    def admits(self, reports: Mapping[str, Report]) -> bool:
        for name, report in sorted(reports.items()):
            if report.approval and name not in self.agreement.approvals:
                self.agreement = self.agreement.with_approval(report.approval, of=name)
        return self.agreement.complete

    def agree(self, view: View, reports: Mapping[str, Report]) -> None:
        self._state.ready(view.mark.hex(), 0 if view.start is None else view.start[0], view.attempt)
        self.agreed = view.attempt

    def begin(self, view: View) -> None:
        self.begun = view.attempt
        self._state.begun(view.mark.hex())

    @property
    def known(self) -> dict[str, Incarnation]:
        """Peer → the newest incarnation of it that was seen."""
        return {peer: Incarnation.read(text) for peer, text in self._state.met.items()}

    def met(self, peer: str, incarnation: Incarnation) -> None:
        self._state.meet(peer, str(incarnation))

    def use(self, seconds: float) -> None:
        self._unsaved += seconds
        if self._unsaved >= _KEEP_TIME or not seconds:
            self._state.use(self._unsaved)
            self._seconds, self._unsaved = self._seconds + self._unsaved, 0.0

    def check(self, attempt: int) -> None:
        if self._state.party not in self.agreement.approvals:
            raise InputError(f"{self._state.party!r} has not approved the agreement: run `securevfl approve` first")
        spent = Spent(attempts=attempt, seconds=self._seconds + self._unsaved)
        check_running(self.agreement, self._state.party, spent, datetime.now(UTC), budget=self._budget)

"""What a party stores in its state folder between attempts, and what it reports of it to its peers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec
from securevfl_net.incarnation import Incarnation

from securevfl.agreement import Agreement, AgreementUse, check_running
from securevfl.agreement.party_file import PartyBudget
from securevfl.errors import AuditError, InputError
from securevfl.party.attempts import Attempts, Restored
from securevfl.party.finish import Finish, Statement
from securevfl.party.leaving import LEAVING, Departures, LeavingWord, encode_words, verify_word
from securevfl.party.reports import CheckpointKey, Report, View
from securevfl.privacy import PublicSigningKey
from securevfl.process.attempt import AttemptOutcome
from securevfl.process.chains import Chains
from securevfl.process.leaving import Departed
from securevfl.process.state_folder import StateFolder
from securevfl.run.checkpoint import FolderKeeper
from securevfl.run.run_files import file_digest

__all__ = ["FINISHED", "StoredAttempts"]

FINISHED = "finished"
"""The type of content under which a party signs that it has finished."""

_KEEP_TIME = 5.0
"""Seconds of an attempt that a crash may leave uncounted."""


class StoredAttempts(Attempts):
    """Attempts that outlast the process.

    Args:
        state: the party's folder.
        incarnation: of this process.
        agreement: what all agreed to; with the party's own approval.
        keeper: keeps the party's checkpoints.
        chains: the party's ledger.
        budget: the party's own.
        departed: kept up to date here, for the attempts.

    Attributes:
        agreement: with the approvals received from peers.
    """

    def __init__(
        self,
        state: StateFolder,
        incarnation: Incarnation,
        agreement: Agreement,
        keeper: FolderKeeper,
        chains: Chains,
        budget: PartyBudget | None = None,
        departed: Departed | None = None,
    ) -> None:
        super().__init__(incarnation)
        self._departed = departed or Departed()
        self.agreement = agreement
        self._state = state
        self._keeper = keeper
        self._budget = budget
        self._chains = chains
        self._seconds, self._unsaved = state.seconds_used, 0.0
        before = state.attempts
        self.agreed = max((one.number for one in before), default=0)
        self.begun = max((one.number for one in before if one.begun), default=0)

    def current_report(self) -> Report:
        kept = [
            CheckpointKey(epoch, step, attempt, file_digest(self._keeper.path_of(epoch, step)))
            for (epoch, step), attempt in self._keeper.find_intact().items()
        ]
        alignment = self._state.read_alignment()
        mine = self.agreement.approvals.get(self._state.party)
        return Report(
            incarnation=str(self.incarnation),
            kept=tuple(kept),
            agreed=self.agreed,
            begun=self.begun,
            alignment="" if alignment is None else alignment.digest,
            approval=b"" if mine is None else mine.file_bytes,
            words=tuple(sorted(self._chains.own.peer_heads.items())),
            finished=self._finished_mark,
        )

    def admits(self, reports: Mapping[str, Report]) -> bool:
        for name, report in sorted(reports.items()):
            if report.approval and name not in self.agreement.approvals:
                self.agreement = self.agreement.with_approval_of(name, report.approval)
        me = self._state.party
        for name, report in sorted(reports.items()):
            self._check_older(me, name, report)
        return self.agreement.is_complete and super().admits(reports)

    def open_finish(self, me: str, peers: Iterable[str]) -> Finish:
        if self.finish is None:
            known = [one for one in self._state.statements if one.party != me or one.attempt >= self.begun]
            self.finish = Finish(me, peers, check=self._check_statement, known=known)
        return self.finish

    def _check_statement(self, one: Statement) -> None:
        key = self.agreement.proposal.public_keys.get(one.party, "")
        if one.agreement != self.agreement.digest:
            raise ValueError(f"{one.party!r} finished another agreement")
        try:
            PublicSigningKey.from_hex(key).verify(FINISHED, one.signed_content, one.signature)
        except (AuditError, ValueError) as error:
            raise ValueError(f"the statement of {one.party!r}: {error}") from None

    def open_departures(self, me: str, peers: Iterable[str]) -> Departures:
        if self.departures is None:
            proposal = self.agreement.proposal
            needed = {*proposal.owner_names, *filter(None, [proposal.coordinator_name])}
            known = self._state.leaving_words
            self.departures = Departures(me, peers, needed, check=self._check_word, known=known, begun=self.begun)
            self._tell_attempts(self.departures)
        return self.departures

    def _check_word(self, one: LeavingWord) -> None:
        if self.agreement.proposal.limits.leaving != "go-on":
            raise ValueError("by the agreement the job does not go on without a party")
        if one.agreement != self.agreement.digest:
            raise ValueError(f"{one.party!r} left another agreement")
        verify_word(one, self.agreement.proposal.public_keys)

    def sign_departure(self, me: str, gone: tuple[str, ...]) -> LeavingWord | None:
        alignment = self._state.read_alignment()
        if alignment is None or not alignment.digest:
            return None
        epoch = max((at for at, _ in self._keeper.find_intact()), default=0)
        word = LeavingWord(me, self.agreement.digest, gone, alignment.digest, epoch, self.agreed)
        return msgspec.structs.replace(word, signature=self._chains.sign(LEAVING, word.signed_content))

    def store_departures(self, departures: Departures) -> None:
        self._state.store_leaving_words(departures.words)
        self._tell_attempts(departures)

    def _tell_attempts(self, departures: Departures) -> None:
        self._departed.gone = departures.gone
        self._departed.epoch = departures.epoch
        self._departed.facts = {one.party: encode_words([one]).hex() for one in departures.decision}

    def state_finished(self, me: str, view: View, result: object) -> Statement:
        head, model = (result.ledger.head, result.model) if isinstance(result, AttemptOutcome) else ("", "")
        own = Statement(me, self.agreement.digest, view.attempt, view.mark, head, model)
        return msgspec.structs.replace(own, signature=self._chains.sign(FINISHED, own.signed_content))

    def store_finish(self, finish: Finish) -> None:
        self._state.store_statements(finish.statements.values())

    def _check_older(self, me: str, peer: str, report: Report) -> None:
        """Check whether a peer saw more of this party than its folder records.

        Raises:
            Restored: it did.
        """
        seen = [head for name, head in report.words if name == me]
        if peer == me or (report.begun <= self.agreed and all(self._chains.own.has_signed(head) for head in seen)):
            return
        raise Restored(
            f"{peer!r} began attempt {report.begun} and has a signed head of {me!r}'s ledger; "
            f"{self._state.path} records only {self.agreed} attempts, or not that head: it was restored from "
            "a back-up, or lines are lost, and ε would leave out what was released since. Bring the newest "
            "folder back; or make a new agreement, with other state folders, and add what was released so "
            "far to ε yourself"
        )

    def ledger_head(self) -> bytes:
        return self._chains.signed_head()

    def store_ledger_head(self, peer: str, payload: bytes) -> None:
        self._chains.store_head(peer, payload)

    def store_agreement(self, view: View, reports: Mapping[str, Report]) -> None:
        self._state.store_ready(view.mark.hex(), 0 if view.start is None else view.start[0], view.attempt)
        self.agreed = view.attempt

    def store_beginning(self, view: View) -> None:
        self.begun = view.attempt
        self._state.store_begun(view.mark.hex())

    @property
    def known_incarnations(self) -> dict[str, Incarnation]:
        """Peer → the newest incarnation of it that was seen."""
        return {peer: Incarnation.from_text(text) for peer, text in self._state.known_incarnations.items()}

    def store_incarnation(self, peer: str, incarnation: Incarnation) -> None:
        self._state.store_incarnation(peer, str(incarnation))

    def count_time(self, seconds: float) -> None:
        self._unsaved += seconds
        if self._unsaved >= _KEEP_TIME or not seconds:
            self._state.add_seconds(self._unsaved)
            self._seconds, self._unsaved = self._seconds + self._unsaved, 0.0

    def check_attempt(self, attempt: int) -> None:
        if self._state.party not in self.agreement.approvals:
            raise InputError(f"{self._state.party!r} has not approved the agreement: run `securevfl approve` first")
        spent = AgreementUse(attempts=attempt, seconds=self._seconds + self._unsaved)
        check_running(self.agreement, self._state.party, spent, datetime.now(UTC), budget=self._budget)

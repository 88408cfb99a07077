"""One party of an agreement: its state folder, its attempts, its status and its own report."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from securevfl_net.incarnation import Incarnation
from securevfl_net.link_state import LinkState

from securevfl.agreement import Agreement, Proposal
from securevfl.agreement.party_file import PartyBudget
from securevfl.agreement.starting import find_start
from securevfl.data import PartyTable
from securevfl.errors import DiskFull, MachineFault, Parked, SecureVFLError
from securevfl.ledger import Closing
from securevfl.party.leaving import Departures
from securevfl.party.report_options import ReportOptions
from securevfl.party_context import SILENCE, Observer
from securevfl.privacy import HeldNumbers, Policy, PrivateKey, ResultBook
from securevfl.process.attempt import AttemptOutcome, PartyAttempts
from securevfl.process.attempt_store import StoredAttempts
from securevfl.process.chains import Chains
from securevfl.process.observers import SeveralObservers
from securevfl.process.own_report import own_record
from securevfl.process.refused_connections import Refusals
from securevfl.process.state_folder import StateFolder, show_status
from securevfl.process.status import Status
from securevfl.report import Record, write_report
from securevfl.run.events import RunEvents, SeveralReceivers
from securevfl.run.machine import software_version
from securevfl.run.roster import Roster
from securevfl.run.run_files import sha256
from securevfl.run.runner import PartyRunner
from securevfl.run.timeouts import Timeouts
from securevfl.transport import Mesh

__all__ = ["JobProcess"]

_LOOK = 1.0
"""Seconds from one status to the next."""


class JobProcess:
    """A party that takes part in an agreement.

    Args:
        state: its folder, locked by this process; this start of the party is counted here.
        agreement: with its own approval; its peers' come from them.
        name: the party.
        key: its signing key.
        table: the party's table; None at a coordinator.
        policy: its own.
        budget: its own.
        device: its own.
        pool: its own.
        patience: how long it waits.
        silence: see `PartyContext.silence`.
        results: file in which it counts the numbers of its rows that it answered, over all agreements and what is
            served; beside its state folder unless given.
        organisations: see `PartyContext.organisations`.
        filters: see `PartyContext.filters`.
        baselines: whether a label owner also trains what it has alone, for its report.
        hearers: of what happens, observers and `RunEvents`.
        command: what makes the report again.
        report: what the party's own report decides with.
        start: folder of the earlier model, where the agreement goes on from one.

    Attributes:
        record: its own report, once there is one.
        left_after: the epoch from which the others go on, once this party has left for good; None otherwise.
        unconfirmed: after `attend`, peers that did not confirm that they have everybody's statement of the end.
    """

    def __init__(
        self,
        state: StateFolder,
        agreement: Agreement,
        name: str,
        key: PrivateKey,
        table: PartyTable | None,
        *,
        policy: Policy | None = None,
        budget: PartyBudget | None = None,
        device: str = "cpu",
        pool: str = "local",
        patience: Timeouts | None = None,
        silence: float = SILENCE,
        results: Path | None = None,
        organisations: Mapping[str, str] | None = None,
        filters: Path | None = None,
        baselines: bool = False,
        hearers: Iterable[RunEvents | Observer] = (),
        command: str = "",
        report: ReportOptions | None = None,
        start: Path | None = None,
    ) -> None:
        proposal = agreement.proposal
        self.name = name
        self.state = state
        self.table = table
        self.proposal = proposal
        own = {name: _bound_policy(policy or Policy(), proposal, name, budget)}
        self.job = proposal.job_of(device=device, pool=pool, policies=own, report=report)
        self.roster = Roster(
            owners=proposal.owner_names, passive=proposal.passive_names, coordinator=proposal.coordinator_name
        )
        self.status = Status(name, self.roster.role_of(name), self.job.algorithm.title, agreement.digest)
        everyone = [self.status, *hearers]
        self.incarnation = Incarnation(*state.count_start())
        self.chains = Chains(
            name,
            key,
            state.ledger_file.parent,
            software_version(),
            proposal.public_keys,
            stopped=state.machine_stopped,
            readmitted=state.readmissions,
        )
        self.refusals = Refusals(self.chains, self.incarnation.count)
        self.news = SeveralReceivers([*(one for one in everyone if isinstance(one, RunEvents)), self.refusals])
        book = results or state.path.parent / f"{name}.results.jsonl"
        self.course = PartyAttempts(
            state=state,
            job=self.job,
            roster=self.roster,
            name=name,
            table=table,
            chains=self.chains,
            note=self._agreement_facts,
            begun=self.refusals.write_to,
            observer=SeveralObservers([one for one in everyone if isinstance(one, Observer)]),
            keep=self._write_report,
            silence=silence,
            results=ResultBook(book, party=name, key=key, organisations=organisations),
            held=HeldNumbers(book.with_suffix(".peers")),
            own_policy=policy or Policy(),
            organisations=organisations or {},
            classes=proposal.class_count,
            filters=filters,
            baselines=baselines,
        )
        self.course.begin_from(find_start(proposal, name, self.job, start, table))
        self.attempts = StoredAttempts(
            state, self.incarnation, agreement, self.course.keeper, self.chains, budget, self.course.departed
        )
        self.finished: AttemptOutcome | None = None
        self.record: Record | None = None
        self.unconfirmed: tuple[str, ...] = ()
        self.left_after: int | None = None
        self._patience = patience or Timeouts(
            away=proposal.limits.reconnect, gather=proposal.limits.gather, leaving=proposal.limits.leaving_patience
        )
        self._command = command
        self._runner: PartyRunner[AttemptOutcome] | None = None

    async def attend(self, mesh: Mesh) -> AttemptOutcome | None:
        """Take part until the job is done at all parties; with a stored result, stay for peers that have not confirmed
        the end. `unconfirmed` names those that did not until this party left.

        Returns:
            This party's outcome; None if an earlier process stored it.

        Raises:
            Parked: the peers did not come, or `stop` was called: starting again resumes the run.
            MachineFault: the disk is full, or the gate died; likewise.
            SecureVFLError: the job failed.
        """
        if not self.attempts.open_finish(self.name, mesh.peers).is_complete:
            self.attempts.check_attempt(0)
        runner = PartyRunner(mesh, self.attempts, self.course, patience=self._patience, news=self.news)
        self._runner = runner
        self.course.keeper.saving = runner.publish_head
        writing = asyncio.ensure_future(self._write_status(mesh))
        try:
            finished = await runner.run()
            if self.attempts.departures is not None and self.attempts.departures.has_farewell:
                self._record_farewell(self.attempts.departures)
                return None
            self._record_end(runner)
            return finished
        except (Parked, MachineFault) as error:
            self.news.report_event("parked", str(error))
            raise
        except SecureVFLError as error:
            self.news.report_event("ended", f"{type(error).__name__}: {error}")
            raise
        finally:
            with suppress(DiskFull):  # a few seconds stay uncounted, as after a kill
                self.attempts.count_time(0.0)
            self.refusals.record_rest()
            writing.cancel()
            with suppress(asyncio.CancelledError):
                await writing
            self._show_status(mesh.link_states())

    def _record_farewell(self, departures: Departures) -> None:
        """Store that this party left, and that the others go on without it."""
        self.left_after = departures.epoch
        self.state.store_outcome({"done": True, "cause": "left", "unconfirmed": []})
        self.news.report_event("done", f"{self.name} left; the others go on without it from epoch {departures.epoch}")

    def _record_end(self, runner: PartyRunner[AttemptOutcome]) -> None:
        """Store how the job ended: who has confirmed that all have their results, and who has not."""
        stored = self.record is None
        if self.record is None:
            self.record = Record.read(self.state.report_folder / "metrics.json")
        if runner.is_complete and not (stored and self.chains.are_results_bound):
            self._bind_results()
        self.unconfirmed = runner.unconfirmed
        self.state.store_outcome({"done": runner.is_complete, "cause": "", "unconfirmed": list(self.unconfirmed)})
        words = "done: all parties have their results"
        if self.unconfirmed:
            words = f"done here; not confirmed by: {', '.join(self.unconfirmed)}"
        self.news.report_event("done", words)

    def stop(self) -> None:
        """Stop cleanly, so that starting again resumes."""
        if self._runner is not None:
            self._runner.stop()

    async def _write_status(self, mesh: Mesh) -> None:
        while True:
            links = mesh.link_states()
            self._show_status(links)
            self.news.links_changed(links)
            await asyncio.sleep(_LOOK)

    def _show_status(self, links: Mapping[str, LinkState]) -> None:
        with suppress(OSError):  # a disk that is full for a while ends no job for the sake of a status
            show_status(self.state.status_file, self.status.file_content(links))

    def _agreement_facts(self) -> Mapping[str, str]:
        """Facts of the agreement for each chain: at this point all approvals are known."""
        return self.attempts.agreement.ledger_note()

    def _write_report(self, finished: AttemptOutcome) -> None:
        """Write the party's own report before any peer learns that it has its results."""
        end = finished.ledger.last_line
        words = {peer: word.messages for peer, word in end.words.items()} if isinstance(end, Closing) else {}
        self.finished = finished
        self.record = own_record(
            self.name,
            self.proposal,
            self.job,
            self.roster.drop_parties(self.course.departed.gone),
            self.table,
            finished,
            command=self._command,
            heads=words,
        )
        write_report(self.record, self.state.report_folder)

    def _bind_results(self) -> None:
        """Write the chain that names the party's own results, once all parties have theirs."""
        file = self.state.report_folder / "metrics.json"
        self.chains.bind_results({file.name: sha256(file.read_bytes())})


def _bound_policy(policy: Policy, proposal: Proposal, name: str, budget: PartyBudget | None) -> Policy:
    """The party's policy with the limits on ε of the agreement and its own budget: each plan, plus what earlier
    attempts may have released, is checked against it before anything is sent.
    """
    card, own = proposal.card_of(name), budget or PartyBudget()
    pairs = [(card.epsilon, card.delta), (own.epsilon, own.delta)]
    for epsilon, delta in pairs:
        if epsilon is not None and delta is not None:
            policy = policy.combine_strictest(Policy(max_epsilon=epsilon, max_delta=delta))
    return policy

"""A party's own report, from what it alone knows. The label owner has the metrics, and what it has alone on the same
rows; every party has bytes, time, ε, findings and the receipt of its own links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime

import msgspec

from securevfl.agreement import Proposal
from securevfl.data import PartyTable
from securevfl.ledger import NoteLine
from securevfl.party import Job
from securevfl.party.candidates import trained_job
from securevfl.privacy import Ledger, Policy, PublicSigningKey
from securevfl.process.attempt import AttemptOutcome
from securevfl.report.record import (
    AlignmentRecord,
    CandidateRecord,
    ChoiceRecord,
    LearnedRecord,
    LedgerRecord,
    OwnShareRecord,
    PartyRecord,
    Record,
)
from securevfl.run.gains import add_gains
from securevfl.run.grouping import find_grouping
from securevfl.run.job_card import add_budgets, merge_findings, run_title
from securevfl.run.machine import describe_machine, package_versions
from securevfl.run.own_share import compute_own_share
from securevfl.run.receipt import link_records
from securevfl.run.recording import run_record
from securevfl.run.roster import Roster
from securevfl.run.simulation import RunOutcome
from securevfl.training import Trained

__all__ = ["own_record"]


def own_record(
    name: str,
    proposal: Proposal,
    job: Job,
    roster: Roster,
    table: PartyTable | None,
    finished: AttemptOutcome,
    *,
    command: str = "",
    heads: Mapping[str, int] | None = None,
) -> Record:
    """Record one party's view of a finished job.

    Args:
        name: the party.
        proposal: what all agreed to.
        job: with the party's own policy.
        roster: who took part.
        table: the party's table; None at a coordinator.
        finished: what the last attempt left.
        command: what makes it again.
        heads: peer → messages counted by its signed ledger head.
    """
    trained, ledger = finished.trained, finished.ledger
    ran = RunOutcome(trained={name: trained}, ledgers={name: ledger}, split=trained.split)
    own, grouping = next(iter(finished.alignments.values()), None), None
    if table is not None and own is not None and name in roster.owners:
        grouping = find_grouping(job.report, {name: table}, {name: own.rows[trained.split.test]}, name)
    trained_by = trained_job(job, trained)
    title, notes = run_title(trained_by), finished.alone.notes
    run = run_record(
        "train",
        trained_by,
        ran,
        roster.owners,
        roster.passive,
        finished.seconds,
        title=title,
        notes=notes,
        grouping=grouping,
    )
    if trained.choice is not None:  # what crossed was that of all candidates
        run = msgspec.structs.replace(run, learned=_learned_from_all(job, roster))
    return Record(
        name=f"{name}'s own report",
        title=f"{proposal.purpose} (as seen by {name})",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        versions=package_versions(),
        machine=describe_machine(job.device),
        job=job.describe(),
        parties=[_party_record(proposal, roster, one, name, table) for one in roster.names],
        alignment=_alignment_record(name, roster, table, finished),
        runs=add_gains([*finished.alone.runs, run], {**finished.alone.trained, "train": trained}),
        ledgers=_ledger_records(name, ledger, heads or {}),
        known_to=name,
        choice=_choice_record(job, trained),
        own_shares=_own_shares(name, job, roster, table, ledger),
    )


def _learned_from_all(job: Job, roster: Roster) -> list[LearnedRecord]:
    """What each party learns from the messages of all candidates together."""
    found = [one for owner in roster.owners for one in job.findings(roster.passive, owner) if roster.passive]
    return merge_findings(add_budgets(found, job))


def _choice_record(job: Job, trained: Trained) -> ChoiceRecord | None:
    """The candidates and the kept one, with figures only at the active party; None for a job of one algorithm."""
    choice = trained.choice
    if choice is None:
        return None
    tried = [CandidateRecord(key=name, chosen=name == choice.kept, **asdict(one)) for name, one in choice.tried.items()]
    tried += [CandidateRecord(key=name, title=name, why=why) for name, why in choice.left_out.items()]
    valid = [one.valid for one in tried if one.valid is not None]
    return ChoiceRecord(
        metric=choice.metric,
        chosen=choice.kept,
        rows=len(trained.split.valid),
        candidates=tried,
        margin=abs(valid[0] - valid[1]) if len(valid) > 1 else None,
        shares=len(tried) if job.protection.dp is not None else 1,
    )


def _own_shares(name: str, job: Job, roster: Roster, table: PartyTable | None, ledger: Ledger) -> list[OwnShareRecord]:
    """What the party's own table gives away to each label owner, who is the one that is answered."""
    if table is None or name not in roster.passive:
        return []
    numbers = job.policies.get(name, Policy()).allowed_numbers(len(table.feature_names))
    granted = 0 if numbers is None else _numbers_granted(ledger)
    if numbers is not None:
        numbers += granted
    found = compute_own_share(table, roster.owners[0], numbers, used=_numbers_used(ledger), granted=granted)
    return [msgspec.structs.replace(found, asker=owner) for owner in roster.owners]


def _numbers_granted(ledger: Ledger) -> int:
    """Numbers of each row that grants added in this run."""
    notes = [line for line in ledger.iter_lines() if isinstance(line, NoteLine) and line.note == "grant"]
    return sum(int(note.values.get("results", 0)) for note in notes)


def _numbers_used(ledger: Ledger) -> int | None:
    """Numbers of the row with most, with earlier runs; None where nobody counted."""
    notes = [line for line in ledger.iter_lines() if isinstance(line, NoteLine) and line.note == "results"]
    used = notes[-1].values.get("numbers with earlier runs") if notes else None
    return int(used) if isinstance(used, int | float) else None


def _party_record(proposal: Proposal, roster: Roster, name: str, me: str, table: PartyTable | None) -> PartyRecord:
    shown = proposal.card_of(name).table
    names: list[str] = []
    for columns in () if shown is None else (shown.numbers, shown.categories):
        names += [f"column {i + 1}" for i in range(columns)] if isinstance(columns, int) else columns
    if name == me and table is not None:
        return PartyRecord(name=name, role=roster.role_of(name), rows=table.rows, columns=list(table.feature_names))
    return PartyRecord(name=name, role=roster.role_of(name), rows=0, columns=names)


def _alignment_record(name: str, roster: Roster, table: PartyTable | None, finished: AttemptOutcome) -> AlignmentRecord:
    own = next(iter(finished.alignments.values()), None)
    split = finished.trained.split
    steps = {name: finished.ledger} if finished.aligning else {}
    return AlignmentRecord(
        protocol="" if own is None else own.protocol,
        common=0 if own is None else len(own.rows),
        train=len(split.train),
        valid=len(split.valid),
        test=len(split.test),
        pairwise={} if own is None else own.pairwise,
        seconds=finished.aligning,
        links=link_records(steps, only="psi/"),
        verified_by=[] if own is None else sorted({name, *own.verified_by}),
        digest="" if own is None else own.digest[:16],
    )


def _ledger_records(name: str, ledger: Ledger, heads: Mapping[str, int]) -> list[LedgerRecord]:
    """Records of the party's own key, and of its peers' keys with the number of messages in their signed heads."""
    mine = LedgerRecord(
        party=name,
        fingerprint=PublicSigningKey.from_hex(ledger.opening.key).fingerprint,
        messages=ledger.message_count,
        cross_signed_by=[],
    )
    peers = [
        LedgerRecord(
            party=peer,
            fingerprint=PublicSigningKey.from_hex(known.key).fingerprint,
            messages=heads.get(peer, 0),
            cross_signed_by=[name] if peer in heads else [],
        )
        for peer, known in ledger.peers.items()
    ]
    return sorted([mine, *peers], key=lambda one: one.party)

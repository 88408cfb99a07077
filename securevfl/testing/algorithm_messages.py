"""Checks of an algorithm's messages: they are declared, described and recorded, and do not deadlock."""

from __future__ import annotations

from itertools import chain

from securevfl.cut import Plain, Protection
from securevfl.errors import AuditError, ProtocolError
from securevfl.party import job_exchanges as declared_by_all
from securevfl.privacy import READABLE_KINDS, verify_chains
from securevfl.run.receipt import message_summary
from securevfl.run.simulation import RunOutcome
from securevfl.testing.algorithm_configuration import is_accepted
from securevfl.testing.failure import CheckFailed
from securevfl.testing.trial import Trial, check_equal_runs
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Kind, PartyRole

__all__ = ["check_findings", "check_ledgers", "check_messages", "check_receipt", "check_window"]


def check_messages(trial: Trial) -> None:
    """Check that every message sent was declared, and every declared one is sent, in the clear and sealed."""
    for protection in (Plain(), trial.sealing_protection):
        if not trial.exchanges_messages or not is_accepted(trial.algorithm, protection):
            continue
        try:
            ran = trial.sealed_run if protection.is_sealed else trial.plain_run
        except ProtocolError as error:
            if "declares" not in str(error):
                raise
            raise CheckFailed(f"under {protection.name!r}, {error}") from error
        _check_crossed(trial, ran, protection)


def _check_crossed(trial: Trial, ran: RunOutcome, protection: Protection) -> None:
    role = _party_roles(ran, trial)
    crossed = {
        (entry.what, entry.kind, role[name], role[entry.peer])
        for name, ledger in ran.ledgers.items()
        for entry in ledger.entries
        if entry.way == "sent"
    }
    for exchange in trial.declared_exchanges(protection):
        key = (exchange.step, exchange.kind, exchange.sender, exchange.receiver)
        if key not in crossed and not exchange.optional:
            raise CheckFailed(
                f"under {protection.name!r}, {exchange.kind.value} {exchange.step!r} is declared from the "
                f"{exchange.sender} to the {exchange.receiver} party and never crosses: leave the declaration out, or "
                "mark it optional"
            )


def _party_roles(ran: RunOutcome, trial: Trial) -> dict[str, PartyRole]:
    owners = {table.name for table in trial.people().label_owners}
    passive = {table.name for table in trial.people().passive}
    return {name: ACTIVE if name in owners else PASSIVE if name in passive else COORDINATOR for name in ran.ledgers}


def check_ledgers(trial: Trial) -> None:
    """Check that the ledgers of all parties verify, end with ``done`` and agree about each link."""
    ran = trial.plain_run
    lines = chain.from_iterable(ledger.lines for ledger in ran.ledgers.values())
    try:
        chains = verify_chains(enumerate(lines, 1))
    except AuditError as error:
        raise CheckFailed(f"the ledgers do not verify: {error}") from error
    for found in chains:
        if found.outcome != "done":
            raise CheckFailed(f"the ledger of {found.party!r} ends with {found.outcome!r}; 'done' was expected")
    for mine in chains:
        for peer in chains:
            sent = [(e.kind, e.what, e.shapes) for e in mine.entries if (e.way, e.peer) == ("sent", peer.party)]
            got = [(e.kind, e.what, e.shapes) for e in peer.entries if (e.way, e.peer) == ("received", mine.party)]
            if sent != got:
                raise CheckFailed(
                    f"{mine.party!r} sent {len(sent)} messages to {peer.party!r}, whose ledger has {len(got)}, or "
                    "other ones: a message was sent and never received"
                )


def check_receipt(trial: Trial) -> None:
    """Check that the receipt describes each step, and contains content messages if the algorithm declares any."""
    words = declared_by_all(trial.job(), trial.passive).descriptions
    lines = message_summary(trial.plain_run.ledgers, words)
    for line in lines:
        if line.what not in words.values():
            raise CheckFailed(f"the receipt calls a message {line.what!r}; declare it with words")
    readable = {kind.value for kind in READABLE_KINDS} | {Kind.CIPHERTEXT.value}
    if trial.exchanges_messages and not any(line.kind in readable for line in lines):
        raise CheckFailed("exchanges are declared, and nothing but control messages and masks crosses in a run")


def check_findings(trial: Trial) -> None:
    """Check that the report describes, for each party whose rows' values are sent, what others learn about it."""
    algorithm = trial.algorithm
    passive = [table.name for table in trial.people().passive]
    owners = [table.name for table in trial.people().label_owners]
    for protection in (Plain(), trial.sealing_protection):
        if not is_accepted(algorithm, protection):
            continue
        for owner in owners:
            found = algorithm.findings(protection, passive, owner)
            about = {finding.about for finding in found}
            for finding in found:
                if not finding.learns.strip() or finding.severity not in ("ok", "note", "leak"):
                    raise CheckFailed(
                        f"under {protection.name!r}, {finding!r} has an empty text or an unknown severity"
                    )
                if finding.party == finding.about:
                    raise CheckFailed(f"under {protection.name!r}, {finding!r}: a party learns about itself")
            missing = set(passive) - about
            if trial.exchanges_messages and (owner not in about or missing):
                raise CheckFailed(
                    f"under {protection.name!r}, findings say nothing about {sorted(missing or {owner})}, whose values "
                    "leave it: give reveals= to the declared exchange"
                )


def check_window(trial: Trial) -> None:
    """Check that the parties do not deadlock with one message at a time on each link, and get the same bits."""
    check_equal_runs(trial.plain_run, trial.run(trial.job(), window=1), "with one message at a time on each link")

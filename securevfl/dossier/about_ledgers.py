"""What documents tell of the ledgers: what crossed between organisations, policies, what was verified."""

from __future__ import annotations

from datetime import UTC, datetime

from securevfl.auditing import AuditLine
from securevfl.dossier.evidence import DossierEvidence
from securevfl.dossier.places import ask
from securevfl.dossier.sentences import Item, Row, Sentence, Source, Table, write_sentence

__all__ = ["cite_ledger", "describe_ledgers", "describe_messages", "list_policies"]


def describe_messages(evidence: DossierEvidence) -> list[Item]:
    """What crossed between organisations, added up from the verified ledgers of this run and its alignment."""
    lines = _merge_lines(evidence)
    if not lines:
        return [
            write_sentence(
                "What crossed between organisations is not known: no ledger is here. Each party's process writes one.",
                Source("file", f"no ledger for {evidence.origin}"),
            )
        ]
    rows = [
        Row(
            (f"{sender} → {', '.join(receivers)}", line.words, f"{count:,}", line.protection, line.reveals),
            (cite_ledger(evidence, line.party),),
        )
        for sender, receivers, line, count in lines
    ]
    return [Table(("from → to", "what", "messages", "protected by", "what the receiver can compute"), tuple(rows))]


def _merge_lines(evidence: DossierEvidence) -> list[tuple[str, list[str], AuditLine, int]]:
    """Lines of a sender's ledger, or of the receiver's where the sender's is not here; equal ones are added up.

    Returns:
        Sender, receivers, a line of theirs, number of messages.
    """
    if evidence.audit is None:
        return []
    runs = {(chain.run, chain.party) for chain in evidence.chains()}
    here = {party for _, party in runs}
    found: dict[tuple[str, ...], tuple[str, list[str], AuditLine, int]] = {}
    for line in evidence.audit.lines:
        sender, receiver = (line.party, line.peer) if line.way == "sent" else (line.peer, line.party)
        if (line.run, line.party) not in runs or (line.way == "received" and sender in here):
            continue
        key = sender, line.words, line.protection, line.reveals
        _, receivers, first, count = found.get(key, (sender, [], line, 0))
        if receiver not in receivers:
            receivers.append(receiver)
        found[key] = sender, receivers, first, count + line.messages
    return list(found.values())


def _describe_times(evidence: DossierEvidence, proof: Source) -> Sentence:
    chains = evidence.chains(all_runs=True)
    first = min(chain.opening.time for chain in chains)
    last = max(chain.last_time for chain in chains)
    begin, end = (datetime.fromtimestamp(time / 1e6, UTC) for time in (first, last))
    return write_sentence(f"The ledgers cover {begin:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC.", proof)


def cite_ledger(evidence: DossierEvidence, party: str) -> Source:
    """A ledger by its name and head alone, for tables; `describe_ledgers` has the rest."""
    head = evidence.chains(party=party, all_runs=True)[-1].head
    return Source("ledger", f"{party}.jsonl, head {head[:8]}…")


def list_policies(evidence: DossierEvidence) -> list[Item]:
    """Each party's own policy, as its ledger opened with it: what its links refuse whatever the job asks."""
    rows = []
    for party in sorted({chain.party for chain in evidence.chains()}):
        texts = dict.fromkeys(chain.opening.policy for chain in evidence.chains(party=party))
        texts.pop("none", None)
        for text in texts:
            rows.append(Row((party, text), (cite_ledger(evidence, party),)))
    if not rows:
        return [ask("policy")]
    return [Table(("whose policy", "what its own process requires of every message"), tuple(rows))]


def describe_ledgers(evidence: DossierEvidence) -> list[Item]:
    """The ledgers: their size, their heads and keys, what of them was compared, and what is missing."""
    if evidence.audit is None:
        return [
            write_sentence(
                "No ledger is here. Each party's process writes one, a signed line for each message.",
                Source("file", f"no ledger for {evidence.origin}"),
            )
        ]
    audit, rows = evidence.audit, []
    for party, key in sorted(audit.keys.items()):
        source = evidence.ledger_source(party)
        runs = ", ".join(dict.fromkeys(chain.run for chain in evidence.chains(party=party, all_runs=True)))
        pinned = "fixed by the agreement" if party in audit.pinned else "not pinned"
        rows.append(Row((f"{party}.jsonl", runs, key, pinned), (source,)))
    found: list[Item] = [Table(("ledger", "runs", "signed with", "key"), tuple(rows))]
    proof = Source("audit", f"of {evidence.origin}: {audit.messages:,} entries, every chain verified")
    found.append(_describe_times(evidence, proof))
    report = " and the report" if evidence.record is not None else ""
    found.append(write_sentence(f"All hashes, signatures{report} verified when this was written.", proof))
    if not evidence.is_pinned:
        text = (
            "No agreement fixes these keys: they show that nobody edited a ledger since it was signed, not who signed."
        )
        found.append(write_sentence(text, proof))
    if audit.compared:
        found.append(write_sentence(f"Both ends of {audit.compared} links were compared and agree.", proof))
    if audit.alone:
        peers = ", ".join(sorted({run for run, _ in audit.alone}))
        found.append(
            write_sentence(
                f"The peers' own ledgers are not here, so that run {peers} was not compared with them.", proof
            )
        )
    record = evidence.record
    for one in () if record is None else record.ledgers:
        if one.cross_signed_by:
            fact = evidence.reported(f"ledgers.{one.party}.cross_signed_by")
            found.append(write_sentence(f"The signed head of {one.party}'s ledger is held by {{who}}.", who=fact))
    for text in audit.incomplete:
        found.append(write_sentence(f"Incomplete: {text}.", Source("audit", f"of {evidence.origin}")))
    for name, epoch in audit.left.items():
        source = Source("audit", f"of {evidence.origin}")
        found.append(write_sentence(f"{name} left for good after epoch {epoch}; all others signed it.", source))
    return found

"""What documents tell of who could learn what: the card, the messages, noise, attacks, policies and ledgers."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from securevfl.auditing import AuditLine
from securevfl.dossier.evidence import DossierEvidence
from securevfl.dossier.places import ask
from securevfl.dossier.sentences import Item, Row, Sentence, Source, Table, write_row, write_sentence
from securevfl.report.attack_record import AttackLine, attack_lines
from securevfl.report.card import LEGEND
from securevfl.report.own_share import describe_own_share

__all__ = [
    "describe_attacks",
    "describe_card",
    "describe_epsilon",
    "describe_ledgers",
    "describe_messages",
    "describe_protection",
    "describe_table_share",
    "list_policies",
]


def describe_card(evidence: DossierEvidence) -> list[Item]:
    """Who could read what of whom, at worst, and what bounds or measured it."""
    card, source = evidence.card, evidence.card_source
    if card is None:
        return [write_sentence("No party has a peer in this job, so that none learns anything of another.", source)]
    rows = []
    for cell in card:
        what = "who is a customer of all" if cell.of == "membership" else f"{cell.of} of {cell.about}"
        sources = [source]
        if cell.source:
            sources.append(_source_of_figure(cell.source))
        why = ": ".join(text for text in (cell.says, cell.figure) if text)
        rows.append(Row((cell.reader, what, cell.standing, why or "no message reveals it"), tuple(sources)))
    found: list[Item] = [Table(("who could read", "what", "at worst", "why"), tuple(rows))]
    used = [standing for standing in LEGEND if any(cell.standing == standing for cell in card)]
    meanings = "; ".join(f"{standing}: {LEGEND[standing]}" for standing in used)
    found.append(write_sentence(f"Meaning of the third column: {meanings}.", source))
    if card.assumes:
        found.append(write_sentence(f"This holds if {card.assumes}.", source))
        found.append(ask("assumption"))
    for told in card.rows_told:
        found.append(write_sentence(f"{told}.", source))
    if card.read_cells:
        accepted = dict(evidence.settings("")).get("accept_leak")
        text = f"In {len(card.read_cells)} of {sum(1 for _ in card)} cells the reader “reads it”."
        found.append(write_sentence(text, source))
        if accepted is not None:
            found.append(write_sentence("The job accepts such leaks: {accepted}.", accepted=accepted))
        found.append(ask("leak"))
    return found


def _source_of_figure(text: str) -> Source:
    """Where a cell's figure is from. Only attacks on this very job are cited as such."""
    if text == "attacks on this job":
        return Source("attacks", "attacks.json")
    return Source("measured" if text.startswith("attacks on recorded runs") else "card", text)


def describe_messages(evidence: DossierEvidence) -> list[Item]:
    """What crossed between organisations, added up from the verified ledgers of this run and its alignment."""
    lines = _merge_lines(evidence)
    if not lines:
        return [
            write_sentence(
                "Nothing has crossed between organisations yet: no ledger is there.",
                Source("file", f"no ledger for {evidence.origin}"),
            )
        ]
    rows = [
        Row(
            (f"{sender} → {', '.join(receivers)}", line.words, f"{count:,}", line.protection, line.reveals),
            (_short_source(evidence, line.party),),
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


def _short_source(evidence: DossierEvidence, party: str) -> Source:
    """A ledger by its name and head alone, for tables; `describe_ledgers` has the rest."""
    head = evidence.chains(party=party, all_runs=True)[-1].head
    return Source("ledger", f"{party}.jsonl, head {head[:8]}…")


def describe_protection(evidence: DossierEvidence) -> list[Item]:
    """Which protection the messages had, and what of it is a setting."""
    if evidence.run is None:
        return [write_sentence(f"The job is protected by {evidence.title.partition(', ')[2]}.", _protection(evidence))]
    found: list[Item] = [
        write_sentence("Messages of training are protected by: {what}.", what=evidence.of_run("protection"))
    ]
    bare = sorted({line.what for line in evidence.run.receipt if not line.protected})
    if bare:
        found.append(
            write_sentence(
                f"These went in a form that the receiver reads: {'; '.join(bare)}.",
                Source("report", f"runs.{evidence.run_key}.receipt"),
            )
        )
    return found


def _protection(evidence: DossierEvidence) -> Source:
    return evidence.setting("protection.name").source


def describe_epsilon(evidence: DossierEvidence) -> list[Item]:
    """Differential privacy: what the report states, and what the audit computed again from the ledgers."""
    if evidence.agreement is not None and evidence.run is None:
        return _describe_agreed_epsilon(evidence)
    run = evidence.run
    rows = []
    for i, line in enumerate(() if run is None else run.epsilon_totals):
        epsilon = line.epsilon_rdp if line.epsilon_exact is None else line.epsilon_exact
        source = Source("report", f"runs.{evidence.run_key}.epsilon_totals.{i}")
        rows.append(Row((line.party, line.protects, f"{epsilon:.4g}", f"{line.delta:g}", line.adjacency), (source,)))
    audited = [] if evidence.audit is None else [*evidence.audit.epsilons]
    mine = {(chain.run, chain.party) for chain in evidence.chains()}
    for one in dict.fromkeys((e.party, e.what, e.epsilon, e.delta) for e in audited if (e.run, e.party) in mine):
        party, what, epsilon, delta = one
        text = "no bound: without noise" if math.isinf(epsilon) else f"{epsilon:.4g}"
        rows.append(
            Row((party, what, text, f"{delta:g}", "computed again by the audit"), (_short_source(evidence, party),))
        )
    if not rows:
        return [
            write_sentence(
                "No release of this run has noise, so that no ε bounds what its results reveal.",
                Source("report", f"runs.{evidence.run_key}.epsilon_totals (empty)"),
                *evidence.ledger_sources,
            )
        ]
    return [Table(("whose data", "what", "ε", "δ", "two tables that differ in"), tuple(rows))]


def _describe_agreed_epsilon(evidence: DossierEvidence) -> list[Item]:
    rows = []
    for name in evidence.roles:
        card = evidence.party_card(name)
        if card is not None and card.epsilon is not None:
            facts = [evidence.agreed(f"party.{name}.{which}") for which in ("epsilon", "delta")]
            rows.append(write_row(name, *facts))
    if rows:
        return [Table(("whose releases", "ε at most, over all attempts", "δ"), tuple(rows))]
    source = Source("agreement", "party.*.epsilon: not there")
    return [write_sentence("The agreement bounds no party's releases by an ε.", source)]


def describe_attacks(evidence: DossierEvidence) -> list[Item]:
    """What attacks on this job got; or that none was run, and how to run one."""
    if evidence.attacks is None:
        name = evidence.origin
        source = Source("attacks", f"attacks.json: not in {name}")
        if evidence.other_attacks:
            source = Source("attacks", f"attacks.json: of “{evidence.other_attacks}”, which is another job")
        return [
            write_sentence("No attack has been run on this job.", source),
            ask("attacks"),
        ]
    found = evidence.attacks
    made = Source("attacks", f"attacks.json of {found.created}, {len(found.seeds)} run(s)")
    rows = tuple(Row(_attack_cells(line), (made,)) for line in attack_lines(found))
    items: list[Item] = []
    if rows:
        items.append(Table(("attacker → victim", "attack", "got", "without the messages", "rows", "job states"), rows))
    items.append(
        write_sentence(
            "The attacks ran on the tables of their own job file; an attack that gets nothing proves nothing.", made
        )
    )
    for text in found.contradictions:
        items.append(write_sentence(f"An attack contradicts what the job calls ok: {text}.", made))
    for text in found.unstated:
        items.append(write_sentence(f"The job states nothing of this: {text}.", made))
    return items


def _attack_cells(line: AttackLine) -> tuple[str, ...]:
    known = f", {line.known} known" if line.known else ""
    return (
        f"{line.attacker} → {line.victim}",
        f"{line.attack} ({line.target}{known})",
        f"{line.metric} {line.value:.2f} ± {line.spread:.2f}",
        f"{line.baseline:.2f}",
        f"{line.rows:,}",
        line.severity or "nothing",
    )


def describe_table_share(evidence: DossierEvidence) -> list[Item]:
    """What this party's own table gives away at worst, as its own report computed it."""
    found: list[Item] = []
    for i, one in enumerate(() if evidence.record is None else evidence.record.own_shares):
        source = Source("report", f"own_shares.{i}")
        found.append(write_sentence(describe_own_share(one), source))
    if found:
        keep = "This is a statistic of this party's own table: no other organisation should get it."
        found.append(write_sentence(keep, Source("report", "own_shares")))
    return found


def list_policies(evidence: DossierEvidence) -> list[Item]:
    """Each party's own policy, as its ledger opened with it: what its links refuse whatever the job asks."""
    rows = []
    for party in sorted({chain.party for chain in evidence.chains()}):
        texts = dict.fromkeys(chain.opening.policy for chain in evidence.chains(party=party))
        texts.pop("none", None)
        for text in texts:
            rows.append(Row((party, text), (_short_source(evidence, party),)))
    if not rows:
        return [ask("policy")]
    return [Table(("whose policy", "what its links refuse otherwise"), tuple(rows))]


def describe_ledgers(evidence: DossierEvidence) -> list[Item]:
    """The ledgers: their size, their heads and keys, what of them was compared, and what is missing."""
    if evidence.audit is None:
        return [
            write_sentence(
                "No ledger is there yet; each party's process writes one, a signed line for each message.",
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
    found.append(write_sentence("All hashes, signatures and result files verified when this was written.", proof))
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

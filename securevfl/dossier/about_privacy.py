"""What documents tell of who could learn what: the card, the protection, noise and attacks."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from securevfl.dossier.about_ledgers import cite_ledger
from securevfl.dossier.evidence import DossierEvidence
from securevfl.dossier.places import ask
from securevfl.dossier.sentences import Item, Row, Source, Table, format_value, write_row, write_sentence
from securevfl.report.attack_record import AttackLine, attack_lines
from securevfl.report.card import LEGEND
from securevfl.report.own_share import describe_own_share

__all__ = [
    "WHO_IS_COMMON",
    "describe_attacks",
    "describe_bounds",
    "describe_card",
    "describe_epsilon",
    "describe_membership",
    "describe_protection",
    "describe_table_share",
]


WHO_IS_COMMON = "who is in the tables of all parties"
"""What aligning tells, in a reader's words."""

ON_THIS_JOB, ELSEWHERE = "attacks on this job", "elsewhere"
"""As `securevfl.report.card_making` writes them into a cell."""

_OF_NO_MATTER = frozenset({"accept_leak", "device", "link", "pool", "leaving", "seed"})
"""Options that change nothing of what a party could learn."""

_SEVERITIES = (
    "The last column is the worst that the job itself declares of these two parties, whatever bounds it: “leak” is "
    "data that can be read or computed, “note” a known and limited leak, “ok” what is by design."
)


def describe_card(evidence: DossierEvidence) -> list[Item]:
    """Who could read what of whom, at worst, and what bounds or measured it."""
    card, source = evidence.card, evidence.card_source
    if card is None:
        return [write_sentence("No party has a peer in this job, so that none learns anything of another.", source)]
    rows = []
    for cell in card:
        what = WHO_IS_COMMON if cell.of == "membership" else f"{cell.of} of {cell.about}"
        sources = [source]
        if cell.source:
            sources.append(_source_of_figure(cell.source))
        if cell.source == ON_THIS_JOB and ELSEWHERE in cell.figure:
            sources.append(Source("measured", "attacks on recorded runs, the figure “elsewhere”"))
        why = ": ".join(text for text in (cell.says, cell.figure) if text)
        rows.append(Row((cell.reader, what, cell.standing, _hedge(why)), tuple(sources)))
    found: list[Item] = [Table(("who could read", "what", "at worst", "why"), tuple(rows))]
    used = [standing for standing in LEGEND if any(cell.standing == standing for cell in card)]
    meanings = "; ".join(f"{standing}: {LEGEND[standing]}" for standing in used)
    found.append(write_sentence(f"Meaning of the third column: {meanings}.", source))
    if any(cell.figure for cell in card):
        text = (
            "In a figure, “without” is what the reader gets from its own data, without the messages; the difference is "
            "the leak. “Elsewhere” is from attacks on recorded runs of other tables."
        )
        found.append(write_sentence(text, source))
    found += describe_bounds(evidence)
    if card.assumes:
        found.append(write_sentence(f"All rows of this table hold only if {card.assumes}.", source))
        found.append(ask("assumption"))
    for told in card.rows_told:
        found.append(write_sentence(f"{told}.", source))
    if card.read_cells:
        accepted = dict(evidence.settings("")).get("accept_leak")
        text = f"In {len(card.read_cells)} of {sum(1 for _ in card)} cells the reader “reads it”."
        found.append(write_sentence(text, source))
        if accepted is not None:
            text = "The job did not accept this when it was agreed: accept_leak = {accepted}."
            if accepted.value is True:
                text = "The job accepts this: accept_leak = {accepted}."
            elif evidence.kind == "simulation":
                text = "Between organisations this job is refused as it is: accept_leak = {accepted}."
            found.append(write_sentence(text, accepted=accepted))
        found.append(ask("leak"))
    return found


def _hedge(why: str) -> str:
    """A card rests on what messages declare: it says no more here."""
    return (why or "no message reveals it").replace("no message reveals it", "no message is declared to reveal it")


def describe_membership(evidence: DossierEvidence) -> list[Item]:
    """That aligning alone tells who is in several tables, of how many people, and what nothing bounds of it."""
    cells = [cell for cell in evidence.card or () if cell.of == "membership" and cell.standing != "nothing found"]
    if not cells:
        return []
    readers = ", ".join(dict.fromkeys(cell.reader for cell in cells))
    text = (
        f"Whatever protects the columns, {readers} learn who is in the tables of all parties, by identifier: that "
        "somebody is a customer, debtor or patient of another organisation can be sensitive in itself. A party learns "
        "this of every identifier in its table, also of one that it guessed or bought, and cannot be made to forget it."
    )
    found: list[Item] = [write_sentence(text, evidence.card_source)]
    if evidence.record is not None and evidence.record.alignment.common:
        common = evidence.reported("alignment.common")
        found.append(write_sentence("In this run it was learned of {common} rows.", common=common))
    return found


def describe_bounds(evidence: DossierEvidence) -> list[Item]:
    """In one party's dossier: that a bound on another's rows is the other's to set, and the one here may not be it."""
    cells = evidence.card or ()
    if not any("numbers of each row" in cell.says and cell.about != evidence.me for cell in cells) or not evidence.me:
        return []
    text = (
        "How many numbers of a row another party is given is bounded by the policy of the party whose rows they are. "
        "Of others' rows, the table has the default, which their own policies may have changed: their own dossiers "
        "have the bound that holds."
    )
    return [write_sentence(text, evidence.card_source)]


def _source_of_figure(text: str) -> Source:
    """Where a cell's figure is from. Only attacks on this very job are cited as such."""
    if text == ON_THIS_JOB:
        return Source("attacks", "attacks.json")
    return Source("measured" if text.startswith("attacks on recorded runs") else "card", text)


def describe_protection(evidence: DossierEvidence) -> list[Item]:
    """Which protection the messages had, and what of it is a setting."""
    if evidence.run is None:
        return [write_sentence(f"The job is protected by {evidence.title.partition(', ')[2]}.", _protection(evidence))]
    found: list[Item] = [
        write_sentence("Messages of training are protected by: {what}.", what=evidence.of_run("protection"))
    ]
    if evidence.agreement is not None:
        sources = [Source("agreement", f"party.{name}") for name in evidence.roles]
        text = "The agreement names the certificates that identify each party, and the key that signs its ledger."
        found.append(write_sentence(text, *sources))
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
            Row((party, what, text, f"{delta:g}", "computed again by the audit"), (cite_ledger(evidence, party),))
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
            write_sentence("No attack on this job is known here; that does not show that none would succeed.", source),
            ask("attacks"),
        ]
    found = evidence.attacks
    made = Source("attacks", f"attacks.json of {found.created}, {len(found.seeds)} run(s)")
    rows = tuple(Row(_attack_cells(line), (made,)) for line in attack_lines(found))
    items: list[Item] = []
    if rows:
        items.append(Table(("attacker → victim", "attack", "got", "without the messages", "rows", "job states"), rows))
    if any(line.severity for line in attack_lines(found)):
        items.append(write_sentence(_SEVERITIES, made))
    items.append(
        write_sentence(
            f"The attacks ran on another run, of the job file “{found.name}”, on the tables that it names, with the "
            "same algorithm and protection. No ledger covers this file: nothing shows whether somebody edited it. An "
            "attack that gets nothing proves nothing. “Known” counts rows of the victim that the attacker had in full.",
            made,
        )
    )
    items += _compare_settings(evidence, found.job, made)
    for text in found.contradictions:
        items.append(write_sentence(f"An attack contradicts what the job calls ok: {text}.", made))
    for text in found.unstated:
        items.append(write_sentence(f"The job states nothing of this: {text}.", made))
    return items


def _compare_settings(evidence: DossierEvidence, attacked: Mapping[str, object], made: Source) -> list[Item]:
    """What the attacked job's settings have otherwise than this job's, for an attack on another job proves less."""
    found: list[Item] = []
    for section in ("", "algorithm", "protection"):
        theirs = attacked.get(section, {}) if section else attacked
        for name, fact in evidence.settings(section):
            if name in _OF_NO_MATTER or not isinstance(theirs, Mapping):
                continue
            other = theirs.get(name, fact.value)
            if msgspec.to_builtins(other) != msgspec.to_builtins(fact.value):
                text = (
                    f"This job has {f'{section}.{name}'.strip('.')} = {{here}}, the attacked one {format_value(other)}."
                )
                found.append(write_sentence(text, made, here=fact))
    return found


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

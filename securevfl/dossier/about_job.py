"""What every document tells of the job: its purpose, parties, columns, rows, method and settings, and how long it may
run."""

from __future__ import annotations

from collections.abc import Sequence

from securevfl.dossier.evidence import DossierEvidence
from securevfl.dossier.places import ask
from securevfl.dossier.sentences import (
    Fact,
    Item,
    Row,
    Source,
    Table,
    write_row,
    write_sentence,
)
from securevfl.transport import ACTIVE, COORDINATOR

__all__ = [
    "count_parties",
    "describe_columns",
    "describe_limits",
    "describe_method",
    "describe_parties",
    "describe_purpose",
    "describe_rows",
    "describe_settings",
    "describe_use",
]

_ROLES: dict[str, str] = {ACTIVE: "has the labels", COORDINATOR: "computes or coordinates, without a table"}
_MANY = 60


def describe_purpose(evidence: DossierEvidence) -> list[Item]:
    """The purpose that all parties signed; in a simulation, a place for it."""
    if evidence.agreement is not None:
        who = "as all parties signed it" if evidence.agreement.is_complete else "as the agreement's file states it"
        return [write_sentence(f"Purpose, {who}: “{{purpose}}”", purpose=evidence.agreed("purpose"))]
    return [
        write_sentence("The run is titled “{title}”.", title=evidence.reported("title")),
        ask("purpose"),
    ]


def count_parties(evidence: DossierEvidence) -> Fact:
    """How many organisations bring a table."""
    count = sum(role != COORDINATOR for role in evidence.roles.values())
    return Fact(count, Source("agreement", "party") if evidence.agreement is not None else Source("report", "parties"))


def describe_parties(evidence: DossierEvidence) -> list[Item]:
    """Each party with its role, the size of its table as far as it is known here, and its signing key."""
    rows = []
    for name, role in evidence.roles.items():
        record, card = evidence.party_record(name), evidence.party_card(name)
        sources = []
        size = "not known here"
        if record is not None and record.rows:
            size = f"{record.rows:,} rows"
            sources.append(Source("report", f"parties.{name}"))
        columns = "none" if role == COORDINATOR else "not known here"
        if card is not None:
            sources.append(Source("agreement", f"party.{name}"))
            columns = str(0 if card.table is None else card.table.columns)
        elif record is not None:
            columns = str(len(record.columns))
            sources.append(Source("report", f"parties.{name}"))
        key = "not pinned by an agreement" if card is None else card.public_key.fingerprint
        rows.append(
            Row(
                (name, _ROLES.get(role, "has features alone"), columns, size, key),
                tuple(dict.fromkeys(sources)) or (Source("report", f"runs.{evidence.run_key}.links"),),
            )
        )
    return [Table(("party", "role", "columns", "table", "signs with"), tuple(rows))]


def describe_columns(evidence: DossierEvidence) -> list[Item]:
    """The columns of each party, by name where they are known here, and the label."""
    rows = []
    for name in evidence.roles:
        record, card = evidence.party_record(name), evidence.party_card(name)
        if card is not None and card.table is not None:
            source = Source("agreement", f"party.{name}.table")
            for kind, columns in (("numbers", card.table.numbers), ("categories", card.table.categories)):
                if columns:
                    rows.append(Row((name, kind, _list_names(columns)), (source,)))
            rule = evidence.agreed(f"party.{name}.table.identifiers")
            rows.append(write_row(name, "identifiers, to find common rows", rule.as_text(f"compared by rule {rule}")))
            if card.table.label is not None:
                rows.append(
                    Row((name, "label", f"{card.table.label} ({_count_classes(card.table.classes)})"), (source,))
                )
        elif record is not None and record.columns:
            rows.append(Row((name, "features", _list_names(record.columns)), (Source("report", f"parties.{name}"),)))
    run = evidence.run
    if run is not None and run.evaluation is not None and evidence.agreement is None:
        owner = next((name for name, role in evidence.roles.items() if role == ACTIVE), "")
        target, classes = evidence.of_run("evaluation.target"), run.evaluation.classes
        named = f"{target} ({_count_classes(classes)})" if classes else f"{target} (a number)"
        rows.append(write_row(owner, "label", target.as_text(named)))
    return [Table(("party", "what", "columns"), tuple(rows))] if rows else []


def _list_names(names: int | Sequence[str]) -> str:
    if isinstance(names, int):
        return f"{names:,} columns, not named in the card"
    return ", ".join(names[:_MANY]) + (f", and {len(names) - _MANY:,} more" if len(names) > _MANY else "")


def _count_classes(classes: object) -> str:
    if isinstance(classes, int):
        return "a number" if classes == 1 else f"{classes} classes, not named in the card"
    return f"classes {_list_names(classes)}" if isinstance(classes, Sequence) and classes else "a number"


def describe_rows(evidence: DossierEvidence) -> list[Item]:
    """How many people's rows are common, and what they are used for."""
    if evidence.record is None:
        how = evidence.setting("align.protocol")
        return [write_sentence("Common rows are found by private set intersection (protocol = {how}).", how=how)]
    facts = {name: evidence.reported(f"alignment.{name}") for name in ("common", "train", "valid", "test")}
    found: list[Item] = [
        write_sentence(
            "{common} rows are common to all parties: {train} train the model, {valid} validate it and {test} test it.",
            **facts,
        )
    ]
    if evidence.record.alignment.protocol:
        found.append(write_sentence("They were found by {how}.", how=evidence.reported("alignment.protocol")))
    if evidence.record.alignment.verified_by:
        found.append(
            write_sentence(
                "{who} verified that all of them got the same common rows; nobody verified whose people the rows are.",
                who=evidence.reported("alignment.verified_by"),
            )
        )
    return found


def describe_method(evidence: DossierEvidence) -> list[Item]:
    """The algorithm, the protection and under which assumptions it protects."""
    if evidence.run is None:
        return [
            write_sentence(
                f"The job trains {evidence.title}.",
                evidence.setting("algorithm.name").source,
                evidence.setting("protection.name").source,
            )
        ]
    found: list[Item] = [write_sentence("The run trained {title}.", title=evidence.of_run("title"))]
    if evidence.run.assumes:
        found.append(write_sentence("It protects data only if {assumes}.", assumes=evidence.of_run("assumes")))
    return found


def describe_settings(evidence: DossierEvidence) -> list[Item]:
    """Every option of the job, section by section."""
    if not evidence.settings_known:
        return [
            write_sentence(
                "The report has the settings of its first run alone, and this is another one: only its title, {title}, "
                "is known.",
                title=evidence.of_run("title"),
            )
        ]
    rows = []
    for section, title in (
        ("", "job"),
        ("algorithm", "algorithm"),
        ("protection", "protection"),
        ("align", "alignment"),
    ):
        options = evidence.settings(section)
        if options:
            text = "; ".join(f"{name} = {fact}" for name, fact in options)
            rows.append(Row((title, text), (_source_of_section(evidence, section, options),)))
    all_listed = "All options are listed, also those that this algorithm or protection does not use."
    return [
        Table(("settings of", "option = value"), tuple(rows)),
        write_sentence(all_listed, *dict.fromkeys(source for row in rows for source in row.sources)),
    ]


def _source_of_section(evidence: DossierEvidence, section: str, options: Sequence[tuple[str, Fact]]) -> Source:
    return Source(options[0][1].source.kind, section or ("the job's own" if evidence.record is not None else "job"))


def _count_hours(seconds: Fact) -> Fact:
    """Seconds, as people write hours."""
    return seconds.as_text(f"{float(str(seconds.value)) / 3600:,.4g}")


def describe_limits(evidence: DossierEvidence) -> list[Item]:
    """How long and how often the agreement may be used, and what happens if a party leaves."""
    if evidence.agreement is None:
        return []
    found: list[Item] = [
        write_sentence(
            "The agreement ends on {expires}; up to {attempts} attempts, of {hours} hours together, are allowed.",
            expires=evidence.agreed("limits.expires"),
            attempts=evidence.agreed("limits.attempts"),
            hours=_count_hours(evidence.agreed("limits.seconds")),
        )
    ]
    leaving = evidence.agreed("limits.leaving")
    text = (
        "If a party leaves for good, the job ends at all parties (leaving = {leaving})."
        if leaving.value == "end"
        else "If a party with features alone leaves for good, the others may go on without it (leaving = {leaving})."
    )
    return [*found, write_sentence(text, leaving=leaving)]


def describe_use(evidence: DossierEvidence) -> list[Item]:
    """Who may ask the trained model for scores."""
    if evidence.agreement is None:
        return [ask("use")]
    if evidence.agreement.proposal.serving is None:
        text = "The agreement is about training alone: it lets nobody ask the trained model for further scores."
        return [write_sentence(text, Source("agreement", "serving: not there")), ask("use")]
    found: list[Item] = [
        write_sentence(
            "{asks} may ask the model for scores, in batches of at least {least}.",
            asks=evidence.agreed("serving.asks"),
            least=evidence.agreed("serving.min_batch"),
        )
    ]
    for name, text, free in (
        ("rows_per_day", "Up to {value} rows a day may be scored.", "how many rows are scored in a day"),
        ("scores_per_record", "One row may be scored up to {value} times a day.", "how often one row is scored"),
    ):
        if getattr(evidence.agreement.proposal.serving, name) is not None:
            found.append(write_sentence(text, value=evidence.agreed(f"serving.{name}")))
        else:
            none = Source("agreement", f"serving.{name}: not there")
            found.append(write_sentence(f"The agreement does not limit {free}.", none))
    return [*found, ask("use")]

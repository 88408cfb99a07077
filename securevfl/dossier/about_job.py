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
    Sentence,
    Source,
    Table,
    write_row,
    write_sentence,
)
from securevfl.transport import ACTIVE, COORDINATOR

__all__ = [
    "count_parties",
    "describe_basis",
    "describe_columns",
    "describe_limits",
    "describe_method",
    "describe_parties",
    "describe_purpose",
    "describe_rows",
    "describe_settings",
    "describe_use",
    "warn_of_kind",
]

_ROLES: dict[str, str] = {ACTIVE: "has the labels", COORDINATOR: "computes or coordinates, without a table"}
_MANY = 60


def warn_of_kind(evidence: DossierEvidence) -> Sentence | None:
    """What a reader must see first: that this was a simulation, or that nothing ran yet."""
    if evidence.kind == "simulation":
        return write_sentence(
            "Simulation: not a record of processing between organisations. One process had the tables of all parties; "
            "keep this dossier as a draft for the real job, and write it again from that job's ledgers.",
            Source("report", "known_to (empty: written by no single party)"),
        )
    if evidence.kind == "agreement":
        return write_sentence(
            "No finished run is known here: this dossier rests on the agreement alone, and states what would happen.",
            Source("file", f"{evidence.place.name}, without a finished run's report"),
        )
    return None


def describe_basis(evidence: DossierEvidence) -> list[Item]:
    """Which agreement, report and ledgers the dossier rests on, and who signed what."""
    found: list[Item] = []
    if evidence.agreement is not None:
        source = Source("agreement", f"SHA-256 {evidence.agreement.digest}")
        signed = ", ".join(evidence.agreement.approvals) or "nobody"
        found.append(
            write_sentence(
                f"Agreement {evidence.agreement.digest[:16]}… is approved by {signed}; these signatures verify.", source
            )
        )
        if missing := evidence.agreement.missing_parties:
            found.append(
                write_sentence(f"No approval by {', '.join(missing)} is beside the file or in a ledger.", source)
            )
    if evidence.record is not None:
        found.append(
            write_sentence(
                "The report is {name}, written {created}.",
                name=evidence.reported("name"),
                created=evidence.reported("created"),
            )
        )
        others = [run.title for run in evidence.record.runs if not run.baseline and run.key != evidence.run_key]
        if others:
            found.append(
                write_sentence(
                    f"It compares several runs; these documents are about {{title}}, not about: {'; '.join(others)}.",
                    Source("report", "runs"),
                    title=evidence.of_run("title"),
                )
            )
    return found


def describe_purpose(evidence: DossierEvidence) -> list[Item]:
    """The purpose that all parties signed; in a simulation, a place for it."""
    if evidence.agreement is not None:
        return [write_sentence("Purpose, as all parties read it: “{purpose}”", purpose=evidence.agreed("purpose"))]
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
        return [write_sentence("Common rows are found by {how}.", how=evidence.setting("align.protocol"))]
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
            write_sentence("The result was verified by {who}.", who=evidence.reported("alignment.verified_by"))
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
        found.append(
            write_sentence("What follows of its protection holds if {assumes}.", assumes=evidence.of_run("assumes"))
        )
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
    return [Table(("settings of", "option = value"), tuple(rows))]


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
        text = "The agreement is about training alone: nobody may ask the model for scores under it."
        return [write_sentence(text, Source("agreement", "serving: not there"))]
    found: list[Item] = [
        write_sentence(
            "{asks} may ask the model for scores, at least {least} of them at once.",
            asks=evidence.agreed("serving.asks"),
            least=evidence.agreed("serving.min_batch"),
        )
    ]
    for name, text in (
        ("rows_per_day", "Up to {value} rows a day may be scored."),
        ("scores_per_record", "One row may be scored up to {value} times a day."),
    ):
        if getattr(evidence.agreement.proposal.serving, name) is not None:
            found.append(write_sentence(text, value=evidence.agreed(f"serving.{name}")))
    return [*found, ask("use")]

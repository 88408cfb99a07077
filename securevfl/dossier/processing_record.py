"""A draft of the record of processing activities: GDPR Article 30(1) for a controller, 30(2) for a processor."""

from __future__ import annotations

from securevfl.dossier import about_basis, about_job, about_ledgers, about_privacy
from securevfl.dossier.evidence import DossierEvidence
from securevfl.dossier.places import ask
from securevfl.dossier.sentences import Document, FillIn, Item, Row, Section, Source, Table, write_sentence
from securevfl.transport import COORDINATOR

__all__ = ["write_processing_record"]

_CONTACT = ask("controller")
_OFFICER = ask("dpo")
_TRANSFERS = ask("transfers")


_KEPT = {
    "alignment.safetensors": "which of its rows the parties have in common",
    "checkpoints": "weights of this party at the end of epochs",
    "model": "this party's part of the trained model",
    "report": "this party's report",
    "ledgers": "a line for each message, without its content",
    "log.jsonl": "what the process did, and when",
    "secret.json": "the party's secret, from which it draws its first weights",
}
"""Name in a state folder → content; see `securevfl.process.state_folder`."""


def write_processing_record(evidence: DossierEvidence) -> Document:
    """Draft the record of one organisation: of a controller, or of a processor if it takes part without a table.

    Whether it is a controller or a processor is a judgement; the draft follows the role in the job and asks for it.
    """
    processor = bool(evidence.me) and evidence.roles.get(evidence.me) == COORDINATOR
    whose = f" of {evidence.me}" if evidence.me else ""
    kind = "as a processor" if processor else "as a controller"
    return Document(
        name="record-of-processing",
        title=f"Record of processing activities{whose}, {kind} (draft)",
        law="Regulation (EU) 2016/679 (GDPR), Article 30",
        warning=about_basis.warn_of_kind(evidence),
        sections=_write_for_processor(evidence) if processor else _write_for_controller(evidence),
    )


def _write_for_controller(evidence: DossierEvidence) -> tuple[Section, ...]:
    return (
        Section("Controller", "GDPR Art. 30(1)(a)", (_CONTACT, _OFFICER, *_list_others(evidence))),
        Section("Purposes", "GDPR Art. 30(1)(b)", tuple(about_job.describe_purpose(evidence))),
        Section(
            "People and data",
            "GDPR Art. 30(1)(c)",
            (
                ask("data_subjects"),
                *about_job.describe_columns(evidence),
                ask("special_categories"),
                *about_job.describe_rows(evidence),
                *_list_received(evidence),
            ),
        ),
        Section("Recipients", "GDPR Art. 30(1)(d)", _list_recipients(evidence)),
        Section("Transfers", "GDPR Art. 30(1)(e)", (_TRANSFERS,)),
        Section(
            "Time limits for erasure",
            "GDPR Art. 30(1)(f)",
            (
                *about_job.describe_limits(evidence),
                *_list_kept(evidence),
                ask("retention"),
            ),
        ),
        Section("Security measures", "GDPR Art. 30(1)(g) and 32(1)", _list_security(evidence)),
    )


def _write_for_processor(evidence: DossierEvidence) -> tuple[Section, ...]:
    return (
        Section("Processor and controllers", "GDPR Art. 30(2)(a)", (_CONTACT, _OFFICER, *_list_others(evidence))),
        Section(
            "Processing for each controller",
            "GDPR Art. 30(2)(b)",
            (
                write_sentence(
                    f"{evidence.me} takes part without a table: it computes or coordinates for the other parties.",
                    Source("agreement", f"party.{evidence.me}.role")
                    if evidence.agreement is not None
                    else Source("report", f"runs.{evidence.run_key}.links"),
                ),
                *about_job.describe_method(evidence),
                *about_ledgers.describe_messages(evidence),
                ask("processor_contract"),
            ),
        ),
        Section("Transfers", "GDPR Art. 30(2)(c)", (_TRANSFERS,)),
        Section("Security measures", "GDPR Art. 30(2)(d) and 32(1)", _list_security(evidence)),
    )


def _list_others(evidence: DossierEvidence) -> tuple[Item, ...]:
    """The other parties, who may be joint controllers or processors, and what has to be decided of them."""
    found: list[Item] = [*about_job.describe_parties(evidence)]
    found.append(ask("controllers"))
    helpers = [name for name, role in evidence.roles.items() if role == COORDINATOR and name != evidence.me]
    for name in helpers:
        found.append(
            FillIn(
                "helper",
                f"whether {name}, which takes part without a table, is a processor",
                "if so it keeps its own record (Art. 30(2)): securevfl dossier … --as " + name,
            )
        )
    return tuple(found)


def _list_received(evidence: DossierEvidence) -> list[Item]:
    """What this organisation could learn of others' people: data that it processes, too."""
    rows = [
        Row((cell.about or "all parties", _name_data(cell.of), cell.standing, cell.says), (evidence.card_source,))
        for cell in evidence.card or ()
        if evidence.me == cell.reader and cell.standing != "nothing found"
    ]
    return [Table(("received of", "what it tells of", "at worst", "by what"), tuple(rows))] if rows else []


def _name_data(of: str) -> str:
    return about_privacy.WHO_IS_COMMON if of == "membership" else of


def _list_kept(evidence: DossierEvidence) -> list[Item]:
    """What is there of the job in this organisation's state folder, each with what it contains."""
    state = evidence.state
    if state is None:
        return []
    there = sorted(one.name for one in state.iterdir()) if state.is_dir() else []
    rows = [
        Row((f"{state.name}/{name}", what), (Source("file", f"{state.name}/{name}"),))
        for name, what in _KEPT.items()
        if name in there
    ]
    if others := [name for name in there if name not in _KEPT]:
        text = "notes of the process on its attempts and peers, or files of somebody else: look at them"
        rows.append(Row((", ".join(others), text), (Source("file", state.name),)))
    if not rows:
        return []
    text = "No date in the agreement erases these files: somebody has to delete them in time."
    return [
        Table(("kept by this organisation", "contains"), tuple(rows)),
        write_sentence(text, Source("file", state.name)),
    ]


def _list_recipients(evidence: DossierEvidence) -> tuple[Item, ...]:
    """Who could read something of whom, by the card: a recipient of personal data is who can read it."""
    card, source = evidence.card, evidence.card_source
    rows = []
    for cell in card or ():
        if cell.standing != "nothing found" and evidence.me in ("", cell.about) and cell.of != "membership":
            what = f"{cell.of} of {cell.about}"
            rows.append(Row((cell.reader, what, cell.standing, cell.says or cell.figure or "–"), (source,)))
        elif cell.of == "membership" and cell.standing != "nothing found" and cell.reader != evidence.me:
            rows.append(Row((cell.reader, _name_data(cell.of), cell.standing, cell.says), (source,)))
    found: list[Item] = (
        [Table(("recipient", "of what", "at worst", "by what"), tuple(rows))]
        if rows
        else [write_sentence("The card of this job names no other party that reads data of this organisation.", source)]
    )
    return (
        *found,
        *about_job.describe_use(evidence),
        ask("recipients"),
    )


def _list_security(evidence: DossierEvidence) -> tuple[Item, ...]:
    return (
        *about_privacy.describe_protection(evidence),
        *about_ledgers.list_policies(evidence),
        *about_ledgers.describe_ledgers(evidence),
        ask("access"),
    )

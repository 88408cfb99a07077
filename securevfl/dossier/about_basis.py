"""What a dossier rests on: which kind of run it is of, which agreement, report and ledgers, and who signed what."""

from __future__ import annotations

from securevfl.dossier.evidence import DossierEvidence
from securevfl.dossier.places import ask
from securevfl.dossier.sentences import Item, Sentence, Source, write_sentence

__all__ = ["describe_basis", "warn_of_kind"]


def warn_of_kind(evidence: DossierEvidence) -> Sentence | None:
    """What a reader must see first: that this was a simulation, or that nothing ran yet."""
    if evidence.kind == "simulation":
        return write_sentence(
            "Simulation: not a record of processing between organisations. One process had the tables of all parties; "
            "keep this dossier as a draft for the real job, and write it again from that job's ledgers.",
            Source("report", "known_to (empty: written by no single party)"),
        )
    if evidence.kind == "organisation" and evidence.agreement is None:
        return write_sentence(
            "No agreement is beside these files: nothing here shows what was agreed, by whom, or whose keys signed. "
            "Write the dossier from the agreement's file.",
            Source("file", f"{evidence.origin}, without an agreement beside it"),
        )
    if evidence.kind == "agreement" and evidence.audit is not None:
        return write_sentence(
            "No run has finished, but one has begun: data has crossed between organisations, as the ledger shows. "
            "What is stated of results is what would happen.",
            Source("file", f"{evidence.origin}, without a finished run's report"),
            *evidence.ledger_sources,
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
        signed = ", ".join(evidence.agreement.approvals)
        text = f"is approved by {signed}; these signatures verify" if signed else "has no approval that is known here"
        found.append(write_sentence(f"Agreement {evidence.agreement.digest[:16]}… {text}.", source))
        if missing := evidence.agreement.missing_parties:
            found.append(
                write_sentence(f"No approval by {', '.join(missing)} is beside the file or in a ledger.", source)
            )
        found.append(ask("fingerprints"))
    if evidence.record is not None:
        found.append(
            write_sentence(
                "Figures are those of the report “{name}” of {created}.",
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

"""Gather the evidence of a dossier: find the files, verify the ledgers, and refuse what does not belong together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from securevfl.agreement import Agreement, Approval, read_agreement, read_party_file
from securevfl.agreement.approvals import SIGNATURE_OF
from securevfl.auditing import Audit, audit
from securevfl.dossier.evidence import DossierEvidence
from securevfl.errors import AuditError, InputError, UnknownNameError
from securevfl.ledger.lines import AGREEMENT
from securevfl.report.attack_record import AttackRecord, attacks_beside
from securevfl.report.record import Record
from securevfl.run.run_files import LEDGERS, OWN_RESULT, RESULT_FILE, file_digest

__all__ = ["gather_evidence"]

METRICS = "metrics.json"
AGREEMENT_FILE = "agreement.toml"


@dataclass(frozen=True)
class _Found:
    """Files of one run: folder with the ledgers, folder with the report, the agreement."""

    ledgers: Path | None
    report: Path | None
    agreement: Agreement | None
    state: Path | None = None


def gather_evidence(
    source: str | Path, *, me: str = "", run: str = "", party_file: Path | None = None, attacks: Path | None = None
) -> DossierEvidence:
    """What is known of a run, or of an agreement under which nothing ran yet.

    Args:
        source: the folder of a finished run, a party's state folder, or an agreement's file.
        me: the organisation whose dossier it is. With an agreement, its state folder is read.
        run: which of several runs of a comparison; the first one that is no baseline unless given.
        party_file: of `me`; ``ME.toml`` beside the agreement unless given.
        attacks: the folder or file of `securevfl attack`; ``attacks.json`` in the run's folder unless given.

    Raises:
        InputError: a file is missing or unreadable, or names another party; names it.
        AuditError: a ledger or a result does not verify, or the ledger is of another agreement.
    """
    place = Path(source)
    found = _find_agreement(place, me, party_file) if place.is_file() else _find_folder(place)
    record = None if found.report is None else Record.read(found.report / METRICS)
    _require_model(record, found.agreement)
    me = _check_party(me, record, found.agreement)
    verified = None if found.ledgers is None else _verify_ledgers(found.ledgers, found.agreement, me)
    if found.report is not None and verified is not None:
        _require_recorded(found.report / METRICS, verified)
    agreement = found.agreement
    if agreement is not None and verified is not None:
        agreement = _add_recorded_approvals(agreement, verified)
    key = "" if record is None else _choose_run(record, run)
    evidence = DossierEvidence(
        place=place,
        me=me,
        agreement=agreement,
        record=record,
        run_key=key,
        audit=verified,
        state=found.state,
    )
    if attacks is not None:
        return _add_attacks(evidence, AttackRecord.read(attacks / "attacks.json" if attacks.is_dir() else attacks))
    return _add_attacks(evidence, None if found.ledgers is None else attacks_beside(found.ledgers))


def _require_model(record: Record | None, agreement: Agreement | None) -> None:
    """Refuse statistics: each document describes a model, its training and its predictions."""
    describes = agreement is not None and agreement.proposal.algorithm.describes
    if describes or (record is not None and any(run.statistics is not None for run in record.runs)):
        raise InputError(
            "a dossier documents a model, and this job computed statistics of columns instead: write one for the job "
            "that trains; `securevfl report` and `securevfl audit` show these statistics"
        )


def _find_agreement(file: Path, me: str, party_file: Path | None) -> _Found:
    agreement = read_agreement(file)
    if not me:
        return _Found(None, None, agreement)
    agreement.proposal.card_of(me)
    own_file = party_file or file.parent / f"{me}.toml"
    if party_file is None and not own_file.exists():
        return _Found(None, None, agreement)  # of a person who has the agreement and not the party's machine
    own = read_party_file(own_file)
    if own.party != me:
        raise InputError(f"{own_file} is the file of {own.party!r}, and the dossier is of {me!r}: give --file")
    if not (own.state / "report" / METRICS).is_file():
        # An attempt that broke off has no report, yet messages crossed, and the common rows may be known.
        has_ledger = any((own.state / LEDGERS).glob("*.jsonl"))
        return _Found(own.state if has_ledger else None, None, agreement, own.state)
    return _Found(own.state, own.state / "report", agreement, own.state)


def _find_folder(folder: Path) -> _Found:
    if not folder.is_dir():
        raise InputError(f"{folder} does not exist: name the folder of a finished run, or an agreement's file")
    if (folder / "report" / METRICS).is_file():
        return _Found(folder, folder / "report", _agreement_beside(folder), folder)
    if (folder / METRICS).is_file():
        return _Found(folder, folder, None)
    raise InputError(
        f"{folder} has neither {METRICS} nor report/{METRICS}: name the folder of a finished run, such as runs/credit, "
        "a party's state folder, or an agreement's file"
    )


def _agreement_beside(state: Path) -> Agreement | None:
    """The agreement beside a state folder; whether it is the ledgers' own is checked with them."""
    file = state.resolve().parent / AGREEMENT_FILE
    return read_agreement(file) if file.is_file() else None


def _check_party(me: str, record: Record | None, agreement: Agreement | None) -> str:
    owner = "" if record is None else record.known_to
    if owner and me not in ("", owner):
        raise InputError(f"the report is {owner!r}'s own, and the dossier was asked for as {me!r}: leave --as out")
    if me and record is not None and agreement is None:
        ends = [name for run in record.runs for link in run.links for name in (link.sender, link.receiver)]
        known = list(dict.fromkeys([*(party.name for party in record.parties), *ends]))  # a helper has no table
        if me not in known:
            raise UnknownNameError("party of the run", me, known)
    return owner or me


def _verify_ledgers(folder: Path, agreement: Agreement | None, me: str) -> Audit:
    """The ledgers, verified; with an agreement, signed by its key and written under it.

    Raises:
        AuditError: they are not.
    """
    pins = {me: agreement.public_key(me).fingerprint} if agreement is not None and me else {}
    verified = audit(folder, pins=pins)
    if agreement is not None:
        signed = {
            str(note.values.get("agreement"))
            for chain in verified.chains
            for note in chain.notes
            if note.note == AGREEMENT
        }
        if not signed:
            raise AuditError(
                f"the ledgers in {folder} record no agreement, and the one given is {agreement.digest[:16]}…: name the "
                "folder of a run under this agreement"
            )
        other = signed - {agreement.digest}
        if other:
            raise AuditError(
                f"the ledgers in {folder} were written under agreement {min(other)[:16]}…, and the agreement given is "
                f"{agreement.digest[:16]}…: name the agreement of this run"
            )
    return verified


def _require_recorded(report: Path, verified: Audit) -> None:
    """Do nothing, unless no ledger has the digest of the report: its figures could be anybody's.

    The audit alone does not refuse this in a state folder, where the end of the ledger may be missing.

    Raises:
        AuditError: no closed line records this very file.
    """
    digest = file_digest(report)
    for chain in verified.chains:
        for note in chain.notes:
            named = Path(str(note.values.get("name"))).name == report.name
            if note.note in (RESULT_FILE, OWN_RESULT) and named and note.values.get("sha256") == digest:
                return
    raise AuditError(
        f"no ledger records {report}: the end of the ledger was cut off, or the report is of another run; take both as "
        "the run wrote them"
    )


def _add_recorded_approvals(agreement: Agreement, verified: Audit) -> Agreement:
    """The agreement with the approvals that the ledgers recorded; each signature is verified again.

    Raises:
        AuditError: a recorded signature does not verify.
    """
    for chain in verified.chains:
        for note in chain.notes:
            for name in agreement.missing_parties if note.note == AGREEMENT else ():
                signature = note.values.get(f"{SIGNATURE_OF}{name}")
                if isinstance(signature, str):
                    approval = Approval(agreement=agreement.digest, party=name, signature=signature)
                    agreement = agreement.with_approval(approval)
    return agreement


def _choose_run(record: Record, run: str) -> str:
    known = [one.key for one in record.runs if not one.baseline]
    if not known:
        raise InputError(f"{record.name!r} has baselines alone, which need no other organisation: no dossier is due")
    if run and run not in known:
        raise UnknownNameError("run of the comparison", run, known)
    return run or known[0]


def _add_attacks(evidence: DossierEvidence, found: AttackRecord | None) -> DossierEvidence:
    """The evidence with attacks on a job with this algorithm, protection and parties; of another's, the title alone."""
    if found is None:
        return evidence
    named = [name for claim in found.claims for name in (claim.party, claim.about)]
    named += [name for one in found.measured for name in (one.attacker, *one.victim.split(", ")) if " " not in name]
    strangers = set(named) - set(evidence.roles)
    if found.title != evidence.title or strangers:
        other = f"{found.title}, of {', '.join(sorted(strangers))}" if strangers else found.title
        return replace(evidence, other_attacks=other)
    return replace(evidence, attacks=found)

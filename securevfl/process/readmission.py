"""Admit a party again whose state folder was restored from a back-up: ask, grant, accept.

The folder's counts are too low: of starts, of attempts, and of what was released since. The party takes the highest of
what its peers saw, and counts each attempt that it cannot account for as a whole run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from securevfl.agreement import Agreement, PartyFile, row_of
from securevfl.errors import AuditError, InputError
from securevfl.ledger import (
    Readmission,
    ReadmissionRequest,
    chains_of,
    decode_readmission,
    encode_readmission,
    grant_readmission,
    read_lines,
    require_signed,
    sign_request,
)
from securevfl.privacy import Journal
from securevfl.process.state_folder import StateFolder

__all__ = ["accept_readmission", "ask_readmission", "grant_request", "read_readmission"]


def read_readmission(path: Path) -> ReadmissionRequest | Readmission:
    """Read a request or a grant; verifies no signature.

    Raises:
        InputError: there is none.
    """
    try:
        return decode_readmission(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from None


def ask_readmission(agreement: Agreement, own: PartyFile) -> bytes:
    """The request of the party whose folder was restored; it is stored in the folder.

    Raises:
        InputError: the folder is in use, or of another party or agreement.
    """
    with StateFolder.lock(own.state, party=own.party, agreement=agreement.digest) as state:
        number = max((one.number for one in state.attempts), default=0)
        request = encode_readmission(sign_request(agreement.digest, own.party, number, own.signing_key()))
        state.store_readmission(request, [])
    return request


def grant_request(agreement: Agreement, own: PartyFile, request: ReadmissionRequest) -> Readmission:
    """A peer's grant: signed, with what its own folder records of the party. The folder may be in use.

    Raises:
        InputError: the request is of another agreement or party.
        AuditError: the party did not sign it.
    """
    proposal = agreement.proposal
    if request.agreement != agreement.digest:
        raise InputError(
            f"the request is of agreement {request.agreement[:16]}…, this is {agreement.digest[:16]}…: give the "
            "agreement that the restored folder is of"
        )
    if request.party == own.party or request.party not in proposal.party_names:
        raise InputError(f"{own.party!r} cannot admit {request.party!r}: a peer of the agreement asks its peers")
    require_signed(request, proposal.card_of(request.party).public_key)
    state = StateFolder(own.state, own.party, agreement.digest)
    starts = state.known_incarnations.get(request.party, "").partition("-")[0]
    return grant_readmission(
        request,
        own.party,
        own.signing_key(),
        agreed=max((one.number for one in state.attempts), default=0),
        starts=int(starts or 0),
        head=_last_head(state.ledger_file, request.party),
    )


def _last_head(ledger: Path, party: str) -> str:
    if not ledger.exists():
        return ""
    chains, _ = chains_of(read_lines(ledger), str(ledger))
    heads = [word.head for chain in chains for _, name, word in chain.settled if name == party]
    return heads[-1] if heads else ""


def accept_readmission(agreement: Agreement, own: PartyFile, grants: Sequence[Readmission]) -> int:
    """Raise the counts of the restored folder to the highest that its peers saw. Doing it again changes nothing.

    Returns:
        Attempts that count as whole runs, because the folder does not account for them.

    Raises:
        InputError: a peer's grant is missing, or is of another request.
        AuditError: a peer did not sign its grant.
    """
    proposal = agreement.proposal
    with StateFolder.lock(own.state, party=own.party, agreement=agreement.digest) as state:
        request = state.readmission_request
        by = {grant.by: grant for grant in grants}
        peers = [name for name in proposal.party_names if name != own.party]
        if missing := sorted(set(peers) - set(by)):
            raise InputError(f"the grant of {', '.join(missing)} is missing: every peer must admit {own.party!r} again")
        for name in peers:
            _check_grant(by[name], request)
            require_signed(by[name], proposal.card_of(name).public_key)
            if by[name].agreed > proposal.limits.attempts:
                raise AuditError(
                    f"{name!r} saw {by[name].agreed:,} attempts; the agreement allows {proposal.limits.attempts:,}, so "
                    f"its grant is not true: ask {name!r} for another one"
                )
        agreed = max(by[name].agreed for name in peers)
        state.store_readmission(encode_readmission(request), [encode_readmission(by[name]) for name in peers])
        job = proposal.job_of()
        journal = Journal(own.party, job.digest, state.checkpoint_folder / f"{own.party}.journal.jsonl")
        journal.record_lost(request.nonce, agreed)
        state.raise_counts(starts=max(by[name].starts for name in peers), attempts=agreed)
        _show_newest(agreement, own)
        return journal.lost_attempts


def _show_newest(agreement: Agreement, own: PartyFile) -> None:
    """Show the newest endorsed certificate from now on: peers that have seen it refuse those before it."""
    series = row_of(agreement, own, note=own.state / "certificate")
    with suppress(InputError):
        if (found := series.find_next()) is not None:
            series.record_use(found[0])


def _check_grant(grant: Readmission, request: ReadmissionRequest) -> None:
    said = (grant.agreement, grant.party, grant.nonce, grant.attempts)
    if said != (request.agreement, request.party, request.nonce, request.attempts):
        raise AuditError(
            f"{grant.by!r} granted another request than this folder's: send the newest request to all peers, and take "
            "their answers to it"
        )

"""The re-admission of a party whose state folder was restored from a back-up: its request, and its peers' grants.

The folder records fewer attempts than the party took part in, and lacks lines of its ledger. Each peer signs what it
saw of the party: the party counts what it may have released by the highest of these numbers, and writes the grants into
its ledger. They explain what an audit finds missing there, and nothing else does.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from securevfl.errors import AuditError, InputError
from securevfl.ledger.keys import PrivateKey, PublicSigningKey
from securevfl.ledger.lines import READMITTED, Hex, Name, NoteLine

__all__ = [
    "Readmission",
    "ReadmissionRequest",
    "decode_readmission",
    "encode_readmission",
    "excused_attempts",
    "grant_readmission",
    "grants_in_note",
    "require_signed",
    "sign_request",
]

_SIGNED = "application/vnd.securevfl.readmission+json;version=1"
_MOST = 4000
"""Bytes of a request or a grant: a note of the ledger contains a grant whole."""
_Number = Annotated[int, Meta(ge=0, lt=1 << 31)]


class ReadmissionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="request"):
    """A party asks to be admitted again.

    Attributes:
        agreement: SHA-256 of the proposal, hexadecimal.
        party: who asks.
        nonce: 128 random bits, hexadecimal: a grant counts for one restored folder.
        attempts: number of the last attempt that the folder records.
        signature: the party's.
    """

    agreement: Hex
    party: Name
    nonce: Hex
    attempts: _Number
    signature: Hex = ""


class Readmission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="readmission"):
    """A peer admits a party again, and states what it saw of it.

    Attributes:
        agreement, party, nonce, attempts: of the request.
        by: who admits it.
        agreed: number of the last attempt that the peer agreed to; the party took part in none beyond it.
        starts: how often the party's process was started, as the peer saw it.
        head: the last signed head of the party's ledger that the peer has; empty without one.
        signature: the peer's.
    """

    agreement: Hex
    party: Name
    nonce: Hex
    attempts: _Number
    by: Name
    agreed: _Number
    starts: _Number
    head: Hex = ""
    signature: Hex = ""


_Signed = TypeVar("_Signed", ReadmissionRequest, Readmission)
_decoder = msgspec.json.Decoder(ReadmissionRequest | Readmission)


def sign_request(agreement: str, party: str, attempts: int, key: PrivateKey) -> ReadmissionRequest:
    """Ask for a re-admission; see `ReadmissionRequest`."""
    return _sign(
        ReadmissionRequest(agreement=agreement, party=party, nonce=os.urandom(16).hex(), attempts=attempts), key
    )


def grant_readmission(
    request: ReadmissionRequest, by: str, key: PrivateKey, *, agreed: int, starts: int, head: str
) -> Readmission:
    """Admit the party of a verified request again; see `Readmission`."""
    found = Readmission(
        agreement=request.agreement,
        party=request.party,
        nonce=request.nonce,
        attempts=request.attempts,
        by=by,
        agreed=agreed,
        starts=starts,
        head=head,
    )
    return _sign(found, key)


def _sign(content: _Signed, key: PrivateKey) -> _Signed:
    return msgspec.structs.replace(content, signature=key.sign(_SIGNED, _signed_part(content)))


def _signed_part(content: ReadmissionRequest | Readmission) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(content, signature=""))


def require_signed(content: ReadmissionRequest | Readmission, key: PublicSigningKey) -> None:
    """Verify the signature.

    Raises:
        AuditError: it is not that of the key.
    """
    key.verify(_SIGNED, _signed_part(content), content.signature)


def encode_readmission(content: ReadmissionRequest | Readmission) -> bytes:
    """The form that files and notes have."""
    return msgspec.json.encode(content)


def decode_readmission(raw: bytes) -> ReadmissionRequest | Readmission:
    """Parse a request or a grant; verifies no signature.

    Raises:
        InputError: the bytes are neither, or are not in their one form.
    """
    if len(raw) > _MOST:
        raise InputError(f"a request or a grant of a re-admission has up to {_MOST} bytes; this has {len(raw):,}")
    try:
        found: ReadmissionRequest | Readmission = _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InputError(f"this is neither a request nor a grant of a re-admission: {error}") from None
    if encode_readmission(found) != raw:
        raise InputError("the re-admission was changed by hand: take the file as `securevfl readmit` wrote it")
    return found


def grants_in_note(note: NoteLine) -> list[Readmission]:
    """The grants in a party's note of its re-admission; those that cannot be read are left out."""
    found = []
    for text in note.values.values() if note.note == READMITTED else ():
        try:
            grant = decode_readmission(str(text).encode())
        except InputError:
            continue
        if isinstance(grant, Readmission):
            found.append(grant)
    return found


def excused_attempts(
    party: str, notes: Iterable[NoteLine], keys: Mapping[str, PublicSigningKey], agreements: Collection[str]
) -> tuple[int, int] | None:
    """The first and the last attempt of a party of which its ledger may lack lines, because all its peers admitted it
    again; None without a re-admission that all of them signed.

    Args:
        party: whose ledger it is.
        notes: of its chains.
        keys: peer → its key, of all peers that the party ever met.
        agreements: SHA-256 of the proposals that the peers' ledgers name, hexadecimal. No grant counts under another.
    """
    first, last = 0, -1
    for note in notes:
        counted = [one for one in grants_in_note(note) if one.party == party and one.agreement in agreements]
        grants = {grant.by: grant for grant in counted}
        if not keys or set(keys) - set(grants) or len({grant.nonce for grant in grants.values()}) > 1:
            continue
        try:
            for name, key in keys.items():
                require_signed(grants[name], key)
        except AuditError:
            continue
        begin = max(1, min(grant.attempts for grant in grants.values()))
        first = begin if last < 0 else min(first, begin)
        last = max(last, *(grant.agreed for grant in grants.values()))
    return None if last < 0 else (first, last)

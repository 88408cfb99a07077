"""Public keys between parties are signed with the parties' own keys, which their agreement names.

Whoever stands between two parties, and shows each of them a certificate in the other's name, could otherwise put a key
in the place of theirs: values would be encrypted for it, and masks would be its own. So a `Link` signs each message of
kind `Kind.PUBLIC_KEY` that it sends, and checks each that it receives before a protocol sees it.

A signature is for one key in one place: the job, the run, the attempt with its view of the processes, the sessions,
roles and names of both parties, the step that the key belongs to, and the digest of the message, key and settings. It
is worth nothing for another of these.
"""

from __future__ import annotations

from dataclasses import replace

from securevfl.errors import AuditError, ProtocolError
from securevfl.ledger import Ledger, PublicSigningKey
from securevfl.transport import Message, measure_message

__all__ = ["SIGNED_BY_PROTOCOL", "check_public_key", "sign_public_key"]

SIGNED_BY_PROTOCOL = frozenset({"shares/key"})
"""Steps that sign their keys themselves: those of secret shares are signed for all three computing parties at once."""

_KIND = "application/vnd.securevfl.public-key;version=1"
_SIGNED = "signed"
"""The setting of a message that has its signature."""


def sign_public_key(ledger: Ledger, message: Message, peer: str) -> Message:
    """Sign a message with a public key for one peer.

    Returns:
        The message with its signature; as it is for a peer that has not introduced itself, as in protocols that are
        tried alone.
    """
    if peer not in ledger.peers or message.what in SIGNED_BY_PROTOCOL:
        return message
    content = _signed_content(ledger, message, peer, sent=True)
    return replace(message, meta={**message.meta, _SIGNED: ledger.sign_for_peers(_KIND, content)})


def check_public_key(ledger: Ledger, message: Message, peer: str) -> None:
    """Check a received message with a public key.

    Raises:
        ProtocolError: its peer has a known signing key, and did not sign this message for this party, place and time.
    """
    known = ledger.peers.get(peer)
    if message.what in SIGNED_BY_PROTOCOL or (known is None and not ledger.has_pinned(peer)):
        return
    signature = message.meta.get(_SIGNED)
    try:
        if known is None:
            raise AuditError("the party has not introduced itself")
        if not isinstance(signature, str):
            raise AuditError("it has no signature")
        bare = replace(message, meta={name: value for name, value in message.meta.items() if name != _SIGNED})
        content = _signed_content(ledger, bare, peer, sent=False)
        PublicSigningKey.from_hex(known.key).verify(_KIND, content, signature)
    except AuditError as error:
        raise ProtocolError(
            f"the public key {message.what!r} that {ledger.party!r} received in the name of {peer!r} is not signed by "
            f"{peer!r} for this job, run and attempt: {error}; nothing was encrypted or masked under it; somebody may "
            "be between the two: compare fingerprints with the party directly"
        ) from None


def _signed_content(ledger: Ledger, message: Message, peer: str, *, sent: bool) -> bytes:
    """What the sender of a public key signs; sender and receiver derive the same bytes."""
    opening, other = ledger.opening, ledger.peers[peer]
    mine, theirs = (opening.party, opening.role, opening.session), (peer, other.role, other.session)
    attempt, view = ledger.attempt
    where = (opening.job, opening.run, str(attempt), view)
    ends = (*mine, *theirs) if sent else (*theirs, *mine)
    parts = [part.encode() for part in (*where, *ends, message.what, measure_message(message)[1])]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)

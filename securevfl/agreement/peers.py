"""Build what a party's connections need from an agreement and its own file: its identity, and the book of its peers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path

from securevfl_net.identity import GRACE, Authority, CertificateSeries, Identity, PeerBook, Pin
from securevfl_net.identity.certificate import utc_now

from securevfl.agreement.approvals import Agreement
from securevfl.agreement.cards import PartyCard
from securevfl.agreement.party_file import PartyFile, PeerSection
from securevfl.errors import InputError

__all__ = ["identity_of", "peer_book", "require_peers", "row_of"]


def identity_of(own: PartyFile) -> Identity:
    """The party's TLS certificate and key, the newest that was rotated in.

    Raises:
        InputError: they cannot be used, or name another party.
    """
    found = Identity.load(own.resolve_path(own.keys.certificate), own.resolve_path(own.keys.key)).find_newest()
    if found.name != own.party:
        raise InputError(f"{found.certificate_file} names {found.name!r}; {own.path} is the file of {own.party!r}")
    return found


def row_of(agreement: Agreement, own: PartyFile, note: Path | None = None) -> CertificateSeries:
    """The party's certificates in order, and which of them its peers know.

    Args:
        agreement: names the certificates.
        own: the party's file.
        note: file that keeps which one is in use, over restarts.

    Raises:
        InputError: they cannot be used, or name another party.
    """
    card = next(card for card in agreement.proposal.party if card.name == own.party)
    pinned = card.tls_certificates if card.issuer_certificate is None else ()
    found = CertificateSeries(
        own.resolve_path(own.keys.certificate),
        own.resolve_path(own.keys.key),
        pinned,
        agreement=bytes.fromhex(agreement.digest),
        note=note,
    )
    if found.shown.name != own.party:
        file = found.shown.certificate_file
        raise InputError(f"{file} names {found.shown.name!r}; {own.path} is the file of {own.party!r}")
    return found


def require_peers(agreement: Agreement, own: PartyFile) -> dict[str, PeerSection]:
    """How to reach each peer of the agreement, by name.

    Raises:
        InputError: the party file omits a peer, or names somebody else.
    """
    peers = [name for name in agreement.proposal.party_names if name != own.party]
    missing = [name for name in peers if name not in own.peers]
    if missing:
        raise InputError(
            f"{own.path} gives no way to reach {', '.join(missing)}: add "
            + ", ".join(f"[peer.{name}]" for name in missing)
            + ' with dial = "host:port", listen = true or relay = "host:port"'
        )
    return {name: own.peers[name] for name in peers}


def peer_book(
    agreement: Agreement,
    own: PartyFile,
    *,
    store: Path | None = None,
    without: Collection[str] = (),
    now: Callable[[], datetime] = utc_now,
) -> PeerBook:
    """The peers as the agreement names them: by their certificates, or by their authority and their name.

    Args:
        agreement: whose approvals were verified.
        own: the party's file; it names revocation lists.
        store: file that keeps endorsements over restarts.
        without: parties that left for good: nobody connects to them.
        now: this machine's clock.

    Raises:
        InputError: a revocation list is missing or cannot be used.
    """
    strangers = {own.party, *without}
    rules = {card.name: _identity_rule(card, own) for card in agreement.proposal.party if card.name not in strangers}
    return PeerBook(
        own.party,
        rules,
        agreement=bytes.fromhex(agreement.digest),
        signers={card.name: card.public_key for card in agreement.proposal.party},
        grace=GRACE,
        store=store,
        now=now,
    )


def _identity_rule(card: PartyCard, own: PartyFile) -> Pin | Authority:
    issuer = card.issuer_certificate
    if issuer is None:
        return Pin(card.tls_certificates)
    section = own.peers.get(card.name)
    if section is None or section.crl is None:
        raise InputError(
            f"{card.name!r} is known by an authority: give its list of revoked certificates, crl = … in "
            f"[peer.{card.name}] of {own.path}"
        )
    return Authority(issuer, own.resolve_path(section.crl))

"""Reasons for refusing a connection: a short code, the same on both sides and in every log, and a text for people."""

from __future__ import annotations

import ssl
from enum import StrEnum
from typing import Literal

from securevfl_net.errors import PeerRefused

__all__ = ["Refusal", "RefusalCode", "from_tls", "refuse_absent"]

WORDS = 200
"""Maximum bytes of a refusal's text on the network (UTF-8)."""


class RefusalCode(StrEnum):
    """Why a connection was refused.

    Codes up to `CRL_OUT_OF_DATE` concern the peer's identity; the others mean that no party of this job answers.
    """

    UNKNOWN_CA = "unknown-ca"
    OTHER_NAME = "other-name"
    EXPIRED = "expired"
    NOT_YET_VALID = "not-yet-valid"
    REVOKED = "revoked"
    NO_CERTIFICATE = "no-certificate"
    UNFIT = "unfit-certificate"
    TLS_VERSION = "tls-version"
    TWO_OF_ONE_NAME = "two-of-one-name"
    NOT_IN_AGREEMENT = "not-in-agreement"
    CRL_OUT_OF_DATE = "crl-out-of-date"
    ENDORSEMENT = "wrong-endorsement"
    NOT_TLS = "not-tls"
    OTHER_PROTOCOL = "other-protocol"
    HUNG_UP = "hung-up"
    NO_ANSWER = "no-answer"
    PROXY = "proxy"
    RELAY = "relay"
    NOT_HERE = "not-here"


class Refusal(PeerRefused):
    """A connection, a certificate or an endorsement was refused.

    Attributes:
        code: the reason's name, equal on both sides.
        words: the text for people: the value, the bound and the cure.
        by: ``"here"`` if this side refused, ``"peer"`` if the peer did.
        party: the peer's name; empty if unknown.
    """

    def __init__(self, code: RefusalCode, words: str, *, by: Literal["here", "peer"] = "here", party: str = "") -> None:
        super().__init__(code, f"{'the peer refuses: ' if by == 'peer' else ''}{words}")
        self.code: RefusalCode = code
        self.words, self.by, self.party = words, by, party


_OWN = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
        RefusalCode.NO_CERTIFICATE,
        "the peer showed no certificate; each party must show its own",
    ),
    "UNSUPPORTED_PROTOCOL": (
        RefusalCode.TLS_VERSION,
        "the peer does not offer TLS 1.3, the only accepted version: update it",
    ),
    "VERSION_TOO_LOW": (
        RefusalCode.TLS_VERSION,
        "the peer does not offer TLS 1.3, the only accepted version: update it",
    ),
    "NO_PROTOCOLS_AVAILABLE": (
        RefusalCode.TLS_VERSION,
        "this machine's TLS library does not support TLS 1.3: update it",
    ),
}
"""OpenSSL's reason → this side's refusal."""

_ALERTS = {
    "UNKNOWN_CA": (RefusalCode.UNKNOWN_CA, "it has not pinned this party's certificate and does not trust its issuer"),
    "BAD_CERTIFICATE": (RefusalCode.UNFIT, "it cannot use this party's certificate"),
    "UNSUPPORTED_CERTIFICATE": (RefusalCode.UNFIT, "it cannot use a certificate of this kind"),
    "CERTIFICATE_UNKNOWN": (RefusalCode.UNFIT, "it cannot use this party's certificate"),
    "DECRYPT_ERROR": (
        RefusalCode.UNFIT,
        "the signature with this party's key is wrong: key and certificate do not belong together",
    ),
    "CERTIFICATE_EXPIRED": (RefusalCode.EXPIRED, "it rejects this party's certificate as expired"),
    "CERTIFICATE_REVOKED": (RefusalCode.REVOKED, "it rejects this party's certificate as revoked"),
    "CERTIFICATE_REQUIRED": (RefusalCode.NO_CERTIFICATE, "it requires a certificate, but this side showed none"),
    "PROTOCOL_VERSION": (RefusalCode.TLS_VERSION, "it and this side share no TLS version; 1.3 is needed"),
    "NO_APPLICATION_PROTOCOL": (RefusalCode.OTHER_PROTOCOL, "it does not speak svfl/1"),
    "ACCESS_DENIED": (RefusalCode.NOT_IN_AGREEMENT, "it does not accept this party"),
}
"""TLS alert (RFC 8446, section 6.2) → the peer's refusal."""

_ISSUER = frozenset({2, 18, 19, 20, 21, 24, 27})
"""X509_V_ERR_*: unknown issuer, self-signed certificate, or an issuer that is not an authority or not trusted."""


def from_tls(error: OSError, party: str = "") -> Refusal:
    """Convert an error of a TLS connection to a refusal.

    Args:
        error: from the `ssl` module or the socket.
        party: the peer's name; empty if unknown.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _explain_verification(error, party)
    reason = (getattr(error, "reason", None) or "") if isinstance(error, ssl.SSLError) else ""
    if reason.endswith("UNRECOGNIZED_NAME"):
        return refuse_absent(party)
    if "_ALERT_" in reason:
        name = reason.rsplit("_ALERT_", 1)[1]
        code, words = _ALERTS.get(
            name, (RefusalCode.OTHER_PROTOCOL, f"its TLS alert is {name.replace('_', ' ').lower()!r}")
        )
        return Refusal(code, words, by="peer", party=party)
    if reason in _OWN:
        return Refusal(*_OWN[reason], party=party)
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        shown = reason.replace("_", " ").lower() or "unreadable bytes"
        return Refusal(
            RefusalCode.NOT_TLS,
            f"the peer does not use TLS ({shown}): are this address and port a party's?",
            party=party,
        )
    why = "it gave no reason" if isinstance(error, ssl.SSLError) else error.strerror or error
    return Refusal(RefusalCode.HUNG_UP, f"the peer hung up during the handshake: {why}", party=party)


def refuse_absent(party: str = "") -> Refusal:
    """What a node says where the party called takes no calls."""
    words = (
        "a node is at this address, and no agreement of this name takes calls there now: it is not added yet, waits "
        "for its turn, or is done"
    )
    return Refusal(RefusalCode.NOT_HERE, words, by="peer", party=party)


def _explain_verification(error: ssl.SSLCertVerificationError, party: str) -> Refusal:
    if error.verify_code in _ISSUER:
        words = (
            "the peer's certificate is neither pinned here nor issued by an authority of this job: compare "
            "fingerprints; if the peer has replaced it, get its endorsement"
        )
        return Refusal(RefusalCode.UNKNOWN_CA, words, party=party)
    return Refusal(RefusalCode.UNFIT, f"the peer's certificate cannot be used: {error.verify_message}", party=party)

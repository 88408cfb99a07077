"""Why a connection was refused: a short code that both sides and every log share, and words for people."""

from __future__ import annotations

import ssl
from enum import StrEnum
from typing import Literal

from securevfl_net.errors import PeerRefused

__all__ = ["Code", "Refusal", "from_tls"]

WORDS = 200
"""Most bytes of the words that a refusal carries over the network (UTF-8)."""


class Code(StrEnum):
    """Why a connection was refused.

    The codes up to `CRL_OUT_OF_DATE` are about who the peer is; the others say that no party of this job is there.
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


class Refusal(PeerRefused):
    """A connection, a certificate or an endorsement was refused.

    Attributes:
        code: the reason's name, equal on both sides.
        words: for people: the value, the bound and the cure.
        by: ``"here"``, where this side refused; ``"peer"``, where the peer did.
        party: the peer's name, as far as it is known; else empty.
    """

    def __init__(self, code: Code, words: str, *, by: Literal["here", "peer"] = "here", party: str = "") -> None:
        super().__init__(code, f"{'the peer refuses: ' if by == 'peer' else ''}{words}")
        self.code: Code = code
        self.words, self.by, self.party = words, by, party


_OWN = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
        Code.NO_CERTIFICATE,
        "the peer showed no certificate; each party shows its own",
    ),
    "UNSUPPORTED_PROTOCOL": (
        Code.TLS_VERSION,
        "the peer offers no TLS 1.3, and nothing before it is accepted: update it",
    ),
    "VERSION_TOO_LOW": (Code.TLS_VERSION, "the peer offers no TLS 1.3, and nothing before it is accepted: update it"),
    "NO_PROTOCOLS_AVAILABLE": (Code.TLS_VERSION, "this machine's TLS library has no TLS 1.3: update it"),
}
"""OpenSSL's words → what this side refuses."""

_ALERTS = {
    "UNKNOWN_CA": (Code.UNKNOWN_CA, "it has neither pinned this party's certificate nor knows its issuer"),
    "BAD_CERTIFICATE": (Code.UNFIT, "it cannot use this party's certificate"),
    "UNSUPPORTED_CERTIFICATE": (Code.UNFIT, "it cannot use a certificate of this kind"),
    "CERTIFICATE_UNKNOWN": (Code.UNFIT, "it cannot use this party's certificate"),
    "DECRYPT_ERROR": (
        Code.UNFIT,
        "the signature with this party's key is wrong: key and certificate do not belong together",
    ),
    "CERTIFICATE_EXPIRED": (Code.EXPIRED, "it calls this party's certificate expired"),
    "CERTIFICATE_REVOKED": (Code.REVOKED, "it calls this party's certificate revoked"),
    "CERTIFICATE_REQUIRED": (Code.NO_CERTIFICATE, "it wants a certificate, and this side showed none"),
    "PROTOCOL_VERSION": (Code.TLS_VERSION, "it and this side have no version of TLS in common; 1.3 is needed"),
    "NO_APPLICATION_PROTOCOL": (Code.OTHER_PROTOCOL, "it does not speak svfl/1"),
    "ACCESS_DENIED": (Code.NOT_IN_AGREEMENT, "it does not let this party in"),
}
"""TLS alerts (RFC 8446, section 6.2) → what the peer refuses."""

_ISSUER = frozenset({2, 18, 19, 20, 21, 24, 27})
"""X509_V_ERR_*: no issuer is known, the certificate signs itself, the issuer is no authority, or is not trusted."""


def from_tls(error: OSError, party: str = "") -> Refusal:
    """What an error of a TLS connection means.

    Args:
        error: of the `ssl` module or the socket.
        party: the peer's name, as far as it is known.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _verification(error, party)
    reason = (getattr(error, "reason", None) or "") if isinstance(error, ssl.SSLError) else ""
    if "_ALERT_" in reason:
        name = reason.rsplit("_ALERT_", 1)[1]
        code, words = _ALERTS.get(name, (Code.OTHER_PROTOCOL, f"its TLS says {name.replace('_', ' ').lower()!r}"))
        return Refusal(code, words, by="peer", party=party)
    if reason in _OWN:
        return Refusal(*_OWN[reason], party=party)
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        shown = reason.replace("_", " ").lower() or "unreadable bytes"
        return Refusal(
            Code.NOT_TLS, f"what arrived is no TLS ({shown}): is this address and port a party's?", party=party
        )
    why = "it gave no reason" if isinstance(error, ssl.SSLError) else error.strerror or error
    return Refusal(Code.HUNG_UP, f"the peer hung up during the handshake: {why}", party=party)


def _verification(error: ssl.SSLCertVerificationError, party: str) -> Refusal:
    if error.verify_code in _ISSUER:
        words = (
            "the peer's certificate is neither pinned here nor issued by an authority of this job: compare fingerprints"
        )
        return Refusal(Code.UNKNOWN_CA, words, party=party)
    return Refusal(Code.UNFIT, f"the peer's certificate cannot be used: {error.verify_message}", party=party)

"""Who a party is in TLS and whom it lets in: its own certificate, its peers', endorsements, and a handshake that tells
both sides why one was refused."""

from securevfl.identity.book import GRACE, Authority, PeerBook, Pin
from securevfl.identity.certificate import TOLERANCE, URI, Certificate, read_certificates
from securevfl.identity.endorsement import Endorsement
from securevfl.identity.handshake import Accepted, Handshake, Want, shake
from securevfl.identity.own import Identity
from securevfl.identity.refusal import Code, Refusal
from securevfl.identity.revocation import RevocationList
from securevfl.identity.row import Row
from securevfl.identity.tls import ALPN, context

__all__ = [
    "ALPN",
    "GRACE",
    "TOLERANCE",
    "URI",
    "Accepted",
    "Authority",
    "Certificate",
    "Code",
    "Endorsement",
    "Handshake",
    "Identity",
    "PeerBook",
    "Pin",
    "Refusal",
    "RevocationList",
    "Row",
    "Want",
    "context",
    "read_certificates",
    "shake",
]

"""Who a party is in TLS and whom it lets in: its own certificate, its peers', endorsements, and a handshake that tells
both sides why one was refused."""

from securevfl_net.identity.book import GRACE, Authority, PeerBook, Pin
from securevfl_net.identity.certificate import TOLERANCE, URI, Certificate, read_certificates
from securevfl_net.identity.endorsement import Endorsement
from securevfl_net.identity.handshake import Accepted, Handshake, Want, shake
from securevfl_net.identity.own import Identity
from securevfl_net.identity.refusal import Code, Refusal
from securevfl_net.identity.revocation import RevocationList
from securevfl_net.identity.row import Row
from securevfl_net.identity.tls import ALPN, context

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

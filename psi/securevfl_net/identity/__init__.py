"""Identify parties in TLS: a party's certificate, its peers' certificates, endorsements, and a handshake that gives
both sides the reason of a refusal.
"""

from securevfl_net.identity.book import GRACE, Authority, PeerBook, Pin
from securevfl_net.identity.certificate import TOLERANCE, URI, Certificate, read_certificates
from securevfl_net.identity.endorsement import Endorsement
from securevfl_net.identity.handshake import Accepted, Handshake, Want, run_handshake
from securevfl_net.identity.own import Identity
from securevfl_net.identity.refusal import Refusal, RefusalCode
from securevfl_net.identity.revocation import RevocationList
from securevfl_net.identity.row import CertificateSeries
from securevfl_net.identity.tls import ALPN, make_tls_context

__all__ = [
    "ALPN",
    "GRACE",
    "TOLERANCE",
    "URI",
    "Accepted",
    "Authority",
    "Certificate",
    "CertificateSeries",
    "Endorsement",
    "Handshake",
    "Identity",
    "PeerBook",
    "Pin",
    "Refusal",
    "RefusalCode",
    "RevocationList",
    "Want",
    "make_tls_context",
    "read_certificates",
    "run_handshake",
]

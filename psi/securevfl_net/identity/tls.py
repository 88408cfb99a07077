"""TLS settings of all parties: only TLS 1.3 (RFC 8446), certificates on both sides, no tickets, no early data."""

from __future__ import annotations

import ssl

from securevfl_net.errors import InputError
from securevfl_net.identity.book import PeerBook
from securevfl_net.identity.own import Identity

__all__ = ["ALPN", "make_tls_context"]

ALPN = "svfl/1"
"""The protocol inside TLS (ALPN, RFC 7301)."""

_NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not define: `PeerBook` checks validity with its tolerance."""


def make_tls_context(identity: Identity, book: PeerBook, *, server: bool) -> ssl.SSLContext:
    """Make a context for new connections; make another one when `PeerBook.version` increased or the identity was
    renewed.

    A ticket would admit a client whose certificate has since been revoked, and early data could be replayed (RFC 8446,
    section 8). The server therefore sends no tickets, so no session can be resumed.

    Args:
        identity: what this party shows.
        book: OpenSSL's trust anchors; `PeerBook.identify_peer` identifies the peer afterwards.
        server: True for the server side in TLS, which does not depend on who dials.

    Raises:
        InputError: the files of the identity changed since they were read, or cannot be used.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = made.maximum_version = ssl.TLSVersion.TLSv1_3
    made.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if server:
        made.num_tickets = 0
    made.check_hostname = False  # a party's name is no host's
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags = ssl.VerifyFlags(made.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME)
    made.set_alpn_protocols([ALPN])
    for der in book.trust_anchors():
        made.load_verify_locations(cadata=der)
    current = Identity.load(identity.certificate_file, identity.key_file, now=book.now)
    if current.certificate != identity.certificate:
        raise InputError(f"{identity.certificate_file} has changed since it was read: start again")
    try:
        made.load_cert_chain(identity.certificate_file, identity.key_file, password=lambda: b"")
    except (ssl.SSLError, OSError) as error:
        why = getattr(error, "reason", None) or error.strerror or error
        raise InputError(f"{identity.certificate_file} with {identity.key_file} cannot be used in TLS: {why}") from None
    return made

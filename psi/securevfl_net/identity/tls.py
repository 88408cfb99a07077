"""TLS as the parties speak it: 1.3 alone (RFC 8446), both show a certificate, no tickets, no early data."""

from __future__ import annotations

import ssl

from securevfl_net.errors import InputError
from securevfl_net.identity.book import PeerBook
from securevfl_net.identity.own import Identity

__all__ = ["ALPN", "context"]

ALPN = "svfl/1"
"""The protocol inside (RFC 7301)."""

_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which Python has no name for: `PeerBook` judges times, with its tolerance."""


def context(identity: Identity, book: PeerBook, *, server: bool) -> ssl.SSLContext:
    """For connections from now on; make another one when `PeerBook.version` rose or the identity was renewed.

    A ticket would let a client in whose certificate was revoked since; early data could be replayed (RFC 8446, section
    8). The server sends no tickets, so there is nothing to resume with.

    Args:
        identity: what this party shows.
        book: which certificates OpenSSL may build on. Who the peer is, `PeerBook.accepts` says afterwards.
        server: the side in TLS, which does not depend on who dials.

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
    for der in book.anchors():
        made.load_verify_locations(cadata=der)
    current = Identity.load(identity.certificate_file, identity.key_file, now=book.now)
    if current.certificate != identity.certificate:
        raise InputError(f"{identity.certificate_file} is another certificate than when it was read: start again")
    try:
        made.load_cert_chain(identity.certificate_file, identity.key_file, password=lambda: b"")
    except (ssl.SSLError, OSError) as error:
        why = getattr(error, "reason", None) or error.strerror or error
        raise InputError(f"{identity.certificate_file} with {identity.key_file} cannot be used in TLS: {why}") from None
    return made

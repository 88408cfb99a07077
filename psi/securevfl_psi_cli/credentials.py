"""Who a party is in a run over a network, and whom it accepts: each makes its own certificate and pins the other's.

Certificates, pins and TLS are those of `securevfl_net.identity`; here they get the words of the command's options.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from securevfl_net import errors as net_errors
from securevfl_net.identity import (
    TOLERANCE,
    Certificate,
    Identity,
    PeerBook,
    Pin,
    Refusal,
    RefusalCode,
    read_certificates,
)
from securevfl_net.identity import make_tls_context as tls_context
from securevfl_net.identity.certificate import format_time, utc_now
from securevfl_net.identity.folder import new_party
from securevfl_psi.errors import CertificateError, ConnectionLost, InputError, PSIError

__all__ = ["Pins", "explain_refusal", "format_fingerprint", "make_certificate", "wrong_input"]

_NO_PARTY = {
    RefusalCode.NOT_TLS,
    RefusalCode.TLS_VERSION,
    RefusalCode.OTHER_PROTOCOL,
    RefusalCode.HUNG_UP,
    RefusalCode.NO_ANSWER,
}
"""Refusals after which nobody knows who was there: the connection is lost, no certificate is wrong."""


@contextmanager
def wrong_input() -> Iterator[None]:
    """Raise what `securevfl_net` calls wrong input as the `InputError` of these commands."""
    try:
        yield
    except net_errors.InputError as error:
        raise InputError(str(error)) from None


@dataclass(frozen=True)
class Pins:
    """Own certificate and key, and for each peer the one certificate that it may show. Made by `load`.

    Attributes:
        identity: this party's.
        peers: party → its certificate.
        files: party → the file that it was read from.
    """

    identity: Identity
    peers: Mapping[str, Certificate]
    files: Mapping[str, Path]

    @classmethod
    def load(cls, certificate: Path, key: Path, peers: Mapping[str, Path]) -> Pins:
        """Read all files, and try them in TLS, before anything is sent.

        Args:
            certificate, key: of this party, PEM.
            peers: party → file of its certificate, PEM, got in a way that nobody else can change.

        Raises:
            InputError: a file that cannot be read or used, a key of another certificate, a certificate that expired.
        """
        with wrong_input():
            identity = Identity.load(certificate, key)
            found = {name: read_certificates(file)[0] for name, file in peers.items()}
            made = cls(identity, found, dict(peers))
            for name, one in found.items():
                made._check_peer(one, peers[name])
            made.make_tls_context(server=True)
        return made

    def _check_peer(self, peer: Certificate, file: Path) -> None:
        own = self.identity
        if peer == own.certificate:
            raise InputError(f"--cert {own.certificate_file} and --peer-cert {file} are one certificate")
        now = utc_now()
        if not peer.not_before - TOLERANCE <= now <= peer.not_after + TOLERANCE:
            raise InputError(
                f"{file} is valid from {format_time(peer.not_before)} to {format_time(peer.not_after)}, and this "
                f"machine's clock reads {format_time(now)}: ask its party for a new one"
            )

    @property
    def book(self) -> PeerBook:
        """What judges a certificate that a peer shows.

        A certificate counts for the party that it names, which need not be what the options call it: two certificates
        with one name are two pins of that name.
        """
        named: dict[str, tuple[Certificate, ...]] = {}
        for name, one in self.peers.items():
            known = one.names[0] if len(one.names) == 1 else name
            named[known] = (*named.get(known, ()), one)
        return PeerBook(self.identity.name, {name: Pin(found) for name, found in named.items()})

    def make_tls_context(self, *, server: bool) -> ssl.SSLContext:
        """TLS 1.3 with these certificates and no other.

        Raises:
            InputError: the files of certificate and key were changed.
        """
        with wrong_input():
            return tls_context(self.identity, self.book, server=server)

    def restrict_to(self, name: str) -> Pins:
        """The same party, that accepts one of its peers alone."""
        return Pins(self.identity, {name: self.peers[name]}, {name: self.files[name]})

    @classmethod
    def merge_pins(cls, several: Iterable[Pins]) -> Pins:
        """One party's pins of several peers, for the port where all of them call."""
        first, *rest = several
        peers, files = dict(first.peers), dict(first.files)
        for other in rest:
            peers |= other.peers
            files |= other.files
        return cls(first.identity, peers, files)

    def identify_peer(self, sock: socket.socket) -> str:
        """Which peer is at the other end of a connection whose handshake is done; empty without TLS."""
        shown = sock.getpeercert(binary_form=True) if isinstance(sock, ssl.SSLSocket) else None
        return next((name for name, one in self.peers.items() if one.der == shown), "")


def explain_refusal(refusal: Refusal, pins: Pins) -> PSIError:
    """A refused handshake as the error of a command, with the option that may be wrong."""
    if refusal.code in _NO_PARTY:
        return ConnectionLost(f"no TLS 1.3 with the peer ({refusal.words}): does it run with --cert, too?")
    if refusal.by == "peer":
        return CertificateError(
            f"the peer does not accept this party's certificate ({refusal.words}): is its --peer-cert the same as "
            f"{pins.identity.certificate_file}?"
        )
    expected = " or ".join(map(str, pins.files.values()))
    return CertificateError(
        f"the peer shows another certificate than {expected} ({refusal.words}): is it who you think it is?"
    )


def format_fingerprint(certificate: Certificate) -> str:
    """SHA-256 of a certificate, 64 hexadecimal digits in groups of four."""
    text = certificate.fingerprint
    return " ".join(text[i : i + 4] for i in range(0, len(text), 4))


def make_certificate(name: str, folder: Path, days: int) -> tuple[Path, Path, str]:
    """A new Ed25519 key and a certificate that it signs itself.

    Args:
        name: the party's.
        folder: where ``NAME.crt`` and ``NAME.key`` go; made if it is missing. Only the owner may read the key.
        days: until it expires.

    Returns:
        Files of certificate and key, and the certificate's fingerprint.

    Raises:
        InputError: a name that no party can have, days that are not possible, files that are there already or cannot
            be written.
    """
    with wrong_input():
        made = new_party(name, folder, kind="ed25519", days=days, request=False)
    return folder / f"{name}.crt", folder / f"{name}.key", format_fingerprint(made)

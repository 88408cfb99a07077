"""Certificates of small parties, made in a temporary folder, and two sides that meet over a loopback socket."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from securevfl_net.identity import (
    URI,
    Accepted,
    Authority,
    Handshake,
    Identity,
    PeerBook,
    Pin,
    Refusal,
    make_tls_context,
    run_handshake,
)
from securevfl_net.identity.certificate import Certificate
from securevfl_net.identity.making import (
    Key,
    issue_certificate,
    make_authority,
    make_request,
    revocation_list,
    self_signed,
)

NOW = datetime.now(UTC).replace(microsecond=0)
HOUR = timedelta(hours=1)
LIMIT = 60.0


@dataclass
class Ca:
    """An authority, its list included."""

    folder: Path
    name: str
    certificate: Certificate
    key: Key
    revoked: list[tuple[int, datetime]] = field(default_factory=list)
    number: int = 0

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.crt"

    @property
    def crl(self) -> Path:
        return self.folder / f"{self.name}.crl"

    def publish(self, when: datetime = NOW, days: int = 30) -> Path:
        self.number += 1
        self.crl.write_bytes(
            revocation_list(self.certificate, self.key, self.revoked, when, number=self.number, days=days)
        )
        return self.crl

    def revoke(self, certificate: Certificate) -> Path:
        self.revoked.append((certificate.x509.serial_number, NOW))
        return self.publish()


@dataclass(frozen=True)
class World:
    """A folder in which parties and authorities make their files."""

    folder: Path

    def own(self, name: str, *, now: datetime = NOW, days: int = 90, kind: str = "p256", file: str = "") -> Identity:
        """A party with a certificate that it signs itself."""
        key = Key.generate(kind)  # type: ignore[arg-type]
        return self.saved(file or name, self_signed(name, key, now, days), key, now)

    def authority(self, name: str = "ca") -> Ca:
        key = Key.generate()
        ca = Ca(self.folder, name, make_authority(name, key, NOW - 1000 * HOUR), key)
        ca.file.write_bytes(ca.certificate.pem)
        ca.publish()
        return ca

    def issued(self, ca: Ca, name: str, *, now: datetime = NOW, days: int = 90, file: str = "") -> Identity:
        key = Key.generate()
        made = issue_certificate(make_request(name, key), ca.certificate, ca.key, now, name=name, days=days)
        return self.saved(file or name, made, key, now)

    def unnamed(self, ca: Ca) -> Identity:
        """A certificate of the authority that names no party."""
        return self._odd(ca, ec.generate_private_key(ec.SECP256R1()), "nobody", None, hashes.SHA256())

    def weak(self, ca: Ca, name: str, kind: str) -> Identity:
        """A certificate of the authority with a key or a signature that parties do not use."""
        keys = {
            "rsa": lambda: rsa.generate_private_key(65537, 2048),
            "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
        }
        key = keys.get(kind, lambda: ec.generate_private_key(ec.SECP256R1()))()
        return self._odd(ca, key, "weak", name, hashes.SHA224() if kind == "sha224" else hashes.SHA256())

    def _odd(self, ca: Ca, key: Any, stem: str, name: str | None, digest: Any) -> Identity:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, stem)])
        made = x509.CertificateBuilder(
            ca.certificate.x509.subject, subject, key.public_key(), x509.random_serial_number(), NOW - HOUR, NOW + HOUR
        )
        if name:
            san = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(URI + name)])
            made = made.add_extension(san, critical=False)
        signed = made.sign(ca.key.private, digest)
        files = self.folder / f"{stem}.crt", self.folder / f"{stem}.key"
        files[0].write_bytes(signed.public_bytes(Encoding.PEM))
        files[1].touch(mode=0o600)
        files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        found = Certificate(signed.public_bytes(Encoding.DER), signed, (name,) if name else (), False, stem)
        return Identity(found, *files)  # past the checks of `load`

    def saved(self, stem: str, certificate: Certificate, key: Key, now: datetime = NOW) -> Identity:
        files = self.folder / f"{stem}.crt", self.folder / f"{stem}.key"
        files[0].write_bytes(certificate.pem)
        files[1].touch(mode=0o600)
        files[1].write_bytes(key.pem)
        return Identity.load(*files, now=lambda: now)


@dataclass
class Side:
    """One side of a connection.

    Attributes:
        tls: what to use instead of the context of identity and book.
    """

    identity: Identity
    book: PeerBook
    expected: str = ""
    live: Mapping[str, str] | None = None
    tls: Callable[[], ssl.SSLContext] | None = None

    def open(self, sock: socket.socket, *, server: bool) -> Accepted | Refusal:
        made = self.tls() if self.tls else make_tls_context(self.identity, self.book, server=server)
        sock.setblocking(False)
        wrapped = made.wrap_socket(sock, server_side=server, do_handshake_on_connect=False)
        try:
            with wrapped:
                return run_handshake(
                    wrapped, Handshake(wrapped, self.book, expected=self.expected, live=self.live), seconds=LIMIT
                )
        except Refusal as refusal:
            return refusal


def meet(client: Side, server: Side) -> tuple[Accepted | Refusal, Accepted | Refusal]:
    """What both sides say, the client's first; over a TCP connection on this machine."""
    found: list[Accepted | Refusal] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        caller = socket.create_connection(listener.getsockname(), timeout=LIMIT)
        called, _ = listener.accept()
        thread = threading.Thread(target=lambda: found.append(server.open(called, server=True)))
        thread.start()
        mine = client.open(caller, server=False)
        thread.join(LIMIT)
    return mine, found[0]


def pinned(identity: Identity) -> Pin:
    return Pin((identity.certificate,))


def by(ca: Ca) -> Authority:
    return Authority.from_files(ca.file, ca.crl)

"""Certificates for a run over a network: each party makes its own and pins the other's, without any authority."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID
from securevfl_psi.errors import InputError

__all__ = ["Pins", "fingerprint", "make_certificate", "write_secret"]

_CLOCKS = datetime.timedelta(minutes=10)
_NAME = 64  # bytes of a common name: RFC 5280, appendix A.1, ub-common-name


@dataclass(frozen=True)
class Pins:
    """Own certificate and key, and the one certificate that the peer may show.

    Args:
        certificate, key: of this party, PEM.
        peer: the peer's certificate, PEM, got in a way that nobody else can change.

    Raises:
        InputError: a file that cannot be read or used; a key of another certificate; the peer's expired.
    """

    certificate: Path
    key: Path
    peer: Path

    def __post_init__(self) -> None:
        if fingerprint(_only(self.certificate)) == fingerprint(self.expected):
            raise InputError(f"--cert {self.certificate} and --peer-cert {self.peer} are one certificate")
        for path in (self.certificate, self.peer):
            found, now = _only(path), datetime.datetime.now(datetime.UTC)
            if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
                raise InputError(
                    f"{path} is valid from {found.not_valid_before_utc:%Y-%m-%d %H:%M} to "
                    f"{found.not_valid_after_utc:%Y-%m-%d %H:%M} UTC, and it is {now:%Y-%m-%d %H:%M}: make a new one"
                )
        self.context(server=True)

    @property
    def expected(self) -> x509.Certificate:
        """The peer's certificate."""
        return _only(self.peer)

    def context(self, *, server: bool) -> ssl.SSLContext:
        """TLS 1.3 and nothing before it; both sides must show a certificate, and the peer's is the only authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the pin says more than a name does
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(cadata=self.expected.public_bytes(serialization.Encoding.DER))
            context.load_cert_chain(self.certificate, self.key, password=lambda: b"")
        except (ssl.SSLError, OSError) as error:
            raise InputError(
                f"--cert {self.certificate} with --key {self.key} cannot be used: {_why(error)}; they must be a PEM "
                "certificate and its key without a password, as 'certificate' makes them"
            ) from None
        return context

    def fits(self, shown: bytes | None) -> bool:
        """Whether the peer showed exactly the expected certificate, DER; in constant time."""
        return hmac.compare_digest(shown or b"", self.expected.public_bytes(serialization.Encoding.DER))


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "bad password or no key").replace("_", " ").lower()
    return error.strerror or str(error)


def _only(path: Path) -> x509.Certificate:
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise InputError(f"{path} is no certificate in PEM") from None
    if len(found) != 1:
        raise InputError(f"{path} holds {len(found)} certificates; one is needed")
    return found[0]


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of the certificate, 64 hexadecimal digits in groups of four."""
    text = hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()
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
        InputError: a name that is no file name, days below 1, files that are there already or cannot be written.
    """
    if not name or len(name.encode()) > _NAME or name != Path(name).name or not name.isprintable():
        raise InputError(f"name {name!r}; 1 to {_NAME} bytes that can name a file are possible")
    if not 1 <= days <= 3660:
        raise InputError(f"--days {days}; 1 to 3660 are possible")
    key = Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _CLOCKS)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, None)
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files = folder / f"{name}.crt", folder / f"{name}.key"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in files:
            if path.exists():
                raise InputError(f"{path} is there already; remove it, or name another folder")
        write_secret(files[1], secret)
        files[0].write_bytes(certificate.public_bytes(pem))
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror or error}") from None
    return *files, fingerprint(certificate)


def write_secret(path: Path, content: bytes) -> None:
    """A new file that only its owner may read.

    Raises:
        InputError: it cannot be made, or is there already.
    """
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(content)
    except OSError as error:
        raise InputError(f"{path} cannot be made: {error.strerror or error}") from None

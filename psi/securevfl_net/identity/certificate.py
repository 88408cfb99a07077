"""Read a party's certificate: name, key and validity. Refuses unreadable and weak certificates."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding

from securevfl_net.errors import InputError
from securevfl_net.fields.names import explain_bad_name
from securevfl_net.identity.files import read_bounded

__all__ = [
    "SOON",
    "TOLERANCE",
    "URI",
    "Certificate",
    "describe_end",
    "format_time",
    "key_kind",
    "read_certificates",
    "utc_now",
]

URI = "securevfl:party/"
"""Prefix of the party's name in its certificate's subjectAltName of type URI (RFC 5280, section 4.2.1.6)."""

TOLERANCE = timedelta(minutes=5)
"""Tolerated difference of two clocks: a certificate is accepted this long before and after its validity."""

SOON = timedelta(days=30)
"""Before a certificate's end: `securevfl status` and `securevfl certs show` warn from then on."""

_MOST = 64 << 10
"""Maximum bytes of a certificate file; one certificate has about 700."""
_LARGEST = 16 << 10
"""Maximum bytes of one certificate, DER."""
_RSA = 2048
"""Minimum bits of an authority's RSA key (NIST SP 800-57 part 1, table 2: 112 bits of security)."""


def utc_now() -> datetime:
    """Return the time of this machine's wall clock."""
    return datetime.now(UTC)


def format_time(when: datetime) -> str:
    """Format a time for people, UTC, to the minute."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def describe_end(seconds: float) -> str:
    """A warning about a certificate that has these seconds left; empty if that is more than `SOON`."""
    if seconds < 0:
        return f"ended {-seconds / 86_400:.0f} days ago"
    return f"ends in {seconds / 86_400:.0f} days" if seconds <= SOON.total_seconds() else ""


def key_kind(key: object) -> str:
    """Name a key's type for people, for example ``"P-256"`` or ``"RSA-1024"``."""
    if isinstance(key, Ed25519PublicKey):
        return "Ed25519"
    if isinstance(key, EllipticCurvePublicKey):
        return {"secp256r1": "P-256", "secp384r1": "P-384"}.get(key.curve.name, key.curve.name)
    if isinstance(key, RSAPublicKey):
        return f"RSA-{key.key_size}"
    return type(key).__name__.removesuffix("PublicKey")


@dataclass(frozen=True)
class Certificate:
    """A parsed X.509 certificate.

    Attributes:
        der: the full certificate, DER.
        x509: the same as an object of the package `cryptography`.
        names: party names in its subjectAltName, ``securevfl:party/NAME``; a party's certificate has exactly one.
        authority: whether it may issue certificates.
        kind: type of its key, for people.
    """

    der: bytes
    x509: x509.Certificate = field(repr=False, compare=False)
    names: tuple[str, ...] = field(compare=False)
    authority: bool = field(compare=False)
    kind: str = field(compare=False)

    @classmethod
    def from_der(cls, der: bytes) -> Certificate:
        """Read a certificate in DER.

        Raises:
            InputError: it is too large or unreadable, or its key or signature is too weak.
        """
        if len(der) > _LARGEST:
            raise InputError(f"a certificate of {len(der)} bytes; the limit is {_LARGEST}")
        try:
            found = x509.load_der_x509_certificate(der)
            if found.public_bytes(Encoding.DER) != der:
                raise ValueError("bytes after its end")
            key = found.public_key()
            digest = found.signature_hash_algorithm
            names = _party_names(found)
            authority = _is_authority(found)
            _ = found.not_valid_before_utc, found.not_valid_after_utc, found.serial_number
        except (
            Exception
        ) as error:  # the library raises several unrelated kinds; whatever it is, there is no certificate
            raise InputError(f"not a readable X.509 certificate: {str(error)[:120] or type(error).__name__}") from None
        kind = key_kind(key)
        if digest is not None and digest.digest_size < 32:
            raise InputError(
                f"a certificate signed over {digest.name.upper()}; SHA-256 or better is needed: issue it again"
            )
        if not _is_strong(key, authority=authority):
            held = (
                f"an authority's is P-256, P-384, Ed25519 or RSA of {_RSA} bits"
                if authority
                else "P-256 or Ed25519 is needed"
            )
            raise InputError(f"a certificate whose key is {kind}; {held}: make a new one with `securevfl certs new`")
        return cls(der, found, names, authority, kind)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the DER, 64 lower-case hexadecimal digits."""
        return hashlib.sha256(self.der).hexdigest()

    @property
    def name(self) -> str:
        """The party's name.

        Raises:
            InputError: it names no party, or several.
        """
        if len(self.names) != 1:
            found = "no party" if not self.names else f"several parties ({', '.join(self.names)})"
            raise InputError(f"the certificate {self.fingerprint[:16]}… names {found}; one SAN URI {URI}NAME is needed")
        return self.names[0]

    @property
    def not_before(self) -> datetime:
        """Start of its validity."""
        return self.x509.not_valid_before_utc

    @property
    def not_after(self) -> datetime:
        """End of its validity."""
        return self.x509.not_valid_after_utc

    @property
    def pem(self) -> bytes:
        """The certificate in PEM."""
        return self.x509.public_bytes(Encoding.PEM)

    @property
    def self_signed(self) -> bool:
        """Whether it is self-signed."""
        return self.x509.issuer == self.x509.subject

    def issued_by(self, issuer: Certificate) -> bool:
        """Return True if `issuer` is an authority and signed this certificate itself."""
        if not issuer.authority:
            return False
        try:
            self.x509.verify_directly_issued_by(issuer.x509)
        except Exception:  # a wrong signature, name or kind of key; all say no
            return False
        return True


def _party_names(found: x509.Certificate) -> tuple[str, ...]:
    try:
        san = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    names = [
        uri.removeprefix(URI) for uri in san.get_values_for_type(x509.UniformResourceIdentifier) if uri.startswith(URI)
    ]
    if mistakes := [mistake for name in names if (mistake := explain_bad_name(name))]:
        raise ValueError(mistakes[0])
    return tuple(names)


def _is_authority(found: x509.Certificate) -> bool:
    try:
        return bool(found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except x509.ExtensionNotFound:
        return False


def _is_strong(key: object, *, authority: bool) -> bool:
    if isinstance(key, Ed25519PublicKey):
        return True
    if isinstance(key, EllipticCurvePublicKey):
        return isinstance(key.curve, SECP256R1 | SECP384R1 if authority else SECP256R1)
    return authority and isinstance(key, RSAPublicKey) and key.key_size >= _RSA


def read_certificates(path: str | Path, most: int = 1) -> tuple[Certificate, ...]:
    """Read the certificates in a PEM file.

    Args:
        path: the file.
        most: maximum number of certificates.

    Raises:
        InputError: it cannot be read, contains no certificate or too many, or one that is unreadable or weak.
    """
    file = Path(path)
    content = read_bounded(file, _MOST, "a file of certificates (PEM)")
    held = content.count(b"-----BEGIN CERTIFICATE-----")
    if not 1 <= held <= most:
        some = "one is" if most == 1 else f"1 to {most} are"
        raise InputError(f"{file} contains {held} certificates in PEM; {some} expected")
    try:
        found = x509.load_pem_x509_certificates(content)
    except Exception:  # as above
        raise InputError(f"{file} is not a certificate in PEM, or is damaged: get the file again") from None
    try:
        return tuple(Certificate.from_der(one.public_bytes(Encoding.DER)) for one in found)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None

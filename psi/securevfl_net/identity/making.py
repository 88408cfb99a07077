"""Keys and certificates are made here: a party's own, its request, and an authority's for development."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from securevfl_net.errors import InputError
from securevfl_net.fields.names import wrong_name
from securevfl_net.identity.certificate import URI, Certificate

__all__ = ["DAYS", "LIST_DAYS", "Key", "issue", "make_authority", "make_request", "revocation_list", "self_signed"]

DAYS = 90
"""Days that a new certificate is valid, if not given otherwise."""
LIST_DAYS = 30
"""Days until the next revocation list is due, if not given otherwise."""
_MOST_DAYS = 825
_AUTHORITY_DAYS = 3650
_BACKDATED = timedelta(minutes=10)
"""A new certificate is valid a little before it was made: the clocks of others may be behind."""
_USES = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])


@dataclass(frozen=True)
class Key:
    """A private key for TLS or of an authority; never a signing key, which `securevfl keys` makes."""

    private: EllipticCurvePrivateKey | Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls, kind: Literal["p256", "ed25519"] = "p256") -> Key:
        """A new one from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate() if kind == "ed25519" else ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def read(cls, pem: bytes) -> Key:
        """From PEM without a password.

        Raises:
            InputError: no key of P-256 or Ed25519.
        """
        try:
            found = load_pem_private_key(pem, password=None)
        except Exception:  # the library's words may hold parts of the file
            found = None
        right = isinstance(found, Ed25519PrivateKey) or (
            isinstance(found, EllipticCurvePrivateKey) and isinstance(found.curve, ec.SECP256R1)
        )
        if not right or not isinstance(found, Ed25519PrivateKey | EllipticCurvePrivateKey):
            raise InputError("no private key of P-256 or Ed25519 in PEM without a password")
        return cls(found)

    @property
    def pem(self) -> bytes:
        """As a file holds it (PKCS #8)."""
        return self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def digest(self) -> hashes.SHA256 | None:
        """What X.509 signs with this key: a SHA-256, or the whole content."""
        return None if isinstance(self.private, Ed25519PrivateKey) else hashes.SHA256()


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _window(days: int, most: int, now: datetime) -> tuple[datetime, datetime]:
    if not 1 <= days <= most:
        raise InputError(f"--days {days}; 1 to {most} are possible")
    return now - _BACKDATED, now + timedelta(days=days)


def _checked(name: str) -> str:
    if mistake := wrong_name(name):
        raise InputError(mistake)
    return name


def _builder(name: x509.Name, issuer: x509.Name, public: object, days: int, now: datetime) -> x509.CertificateBuilder:
    start, end = _window(days, _MOST_DAYS, now)
    return (
        x509.CertificateBuilder(issuer, name, public, x509.random_serial_number(), start, end)  # type: ignore[arg-type]
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)  # type: ignore[arg-type]
        .add_extension(_USES, critical=False)
    )


def _named(name: str) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(URI + name)])


def self_signed(name: str, key: Key, now: datetime, days: int = DAYS) -> Certificate:
    """A certificate that its own key signs, for peers that pin it.

    Raises:
        InputError: a name that no party can have, or days below 1 or above 825.
    """
    subject = _subject(_checked(name))
    made = _builder(subject, subject, key.private.public_key(), days, now)
    made = made.add_extension(_named(name), critical=False)
    return Certificate.of(made.sign(key.private, key.digest).public_bytes(Encoding.DER))


def make_request(name: str, key: Key) -> bytes:
    """A signing request (PKCS #10, RFC 2986) in PEM, for an authority; the key stays here.

    Raises:
        InputError: a name that no party can have.
    """
    made = x509.CertificateSigningRequestBuilder(_subject(_checked(name))).add_extension(_named(name), critical=False)
    return made.sign(key.private, key.digest).public_bytes(Encoding.PEM)


def make_authority(name: str, key: Key, now: datetime, days: int = _AUTHORITY_DAYS) -> Certificate:
    """An authority for development and small groups.

    Raises:
        InputError: an empty name or one above 64 letters, days below 1 or above 3650.
    """
    if not 1 <= len(name) <= 64 or not name.isprintable():
        raise InputError(f"an authority is called {name!r}; 1 to 64 printable letters are possible")
    start, end = _window(days, _AUTHORITY_DAYS, now)
    subject, public = _subject(name), key.private.public_key()
    use = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        x509.CertificateBuilder(subject, subject, public, x509.random_serial_number(), start, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(use, critical=True)
    )
    return Certificate.of(made.sign(key.private, key.digest).public_bytes(Encoding.DER))


def issue(
    request: bytes, authority: Certificate, key: Key, now: datetime, *, name: str, days: int = DAYS
) -> Certificate:
    """A certificate for a signing request, with the name that the authority gives and nothing else of the request's.

    Args:
        request: PEM.
        authority: the issuer's certificate.
        key: the issuer's.
        now: the issuer's clock.
        name: the party's, which the authority has checked; the request must ask for the same.
        days: until it expires, and no longer than the authority's own.

    Raises:
        InputError: a request that is unreadable, wrongly signed, for another name or with a weak key.
    """
    try:
        asked = x509.load_pem_x509_csr(request)
        right = asked.is_signature_valid
        san = asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = san.get_values_for_type(x509.UniformResourceIdentifier)
        public = asked.public_key()
    except x509.ExtensionNotFound:
        raise InputError(f"the request names no party; make it with `securevfl certs request {name}`") from None
    except Exception:  # the library raises several unrelated kinds
        raise InputError("no signing request in PEM, or a damaged one: get the .csr file again") from None
    if not right:
        raise InputError("the request is not signed with the key in it: get the .csr file again")
    if names != [URI + _checked(name)]:
        raise InputError(f"the request is for {', '.join(names) or 'nobody'}; {URI}{name} was expected")
    made = _builder(_subject(name), authority.x509.subject, public, days, now).add_extension(
        _named(name), critical=False
    )
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.x509.public_key())  # type: ignore[arg-type]
    signed = made.add_extension(identifier, critical=False).sign(key.private, key.digest)
    found = Certificate.of(signed.public_bytes(Encoding.DER))
    if not found.issued_by(authority):
        raise InputError(
            "the key is not that of the authority's certificate: name the two files that were made together"
        )
    if found.not_after > authority.not_after:
        raise InputError(
            f"--days {days} go beyond the authority's own time, {authority.not_after:%Y-%m-%d}: give fewer"
        )
    return found


def revocation_list(
    authority: Certificate,
    key: Key,
    revoked: Iterable[tuple[int, datetime]],
    now: datetime,
    *,
    number: int,
    days: int = LIST_DAYS,
) -> bytes:
    """A signed list of revoked certificates, PEM.

    Args:
        authority: the issuer's certificate.
        key: the issuer's.
        revoked: serial numbers, each with the time of its revocation.
        now: the issuer's clock.
        number: of the list, one more than the last one's.
        days: until the next list is due.

    Raises:
        InputError: days below 1 or above 825.
    """
    start, end = _window(days, _MOST_DAYS, now)
    made = x509.CertificateRevocationListBuilder(authority.x509.subject, start, end)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.x509.public_key())  # type: ignore[arg-type]
    made = made.add_extension(x509.CRLNumber(number), critical=False).add_extension(identifier, critical=False)
    for serial, when in revoked:
        made = made.add_revoked_certificate(
            x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(when).build()
        )
    return made.sign(key.private, key.digest).public_bytes(Encoding.PEM)

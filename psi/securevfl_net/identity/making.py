"""Make keys and certificates: for a party, for a signing request, and for a development authority."""

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
from securevfl_net.fields.names import explain_bad_name
from securevfl_net.identity.certificate import URI, Certificate

__all__ = [
    "DAYS",
    "LIST_DAYS",
    "Key",
    "issue_certificate",
    "make_authority",
    "make_request",
    "revocation_list",
    "self_signed",
]

DAYS = 90
"""Default validity of a new certificate, in days."""
LIST_DAYS = 30
"""Default days until the next revocation list is due."""
_MOST_DAYS = 825
_AUTHORITY_DAYS = 3650
_BACKDATED = timedelta(minutes=10)
"""A new certificate is backdated, because other machines' clocks may be behind."""
_USES = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])


@dataclass(frozen=True)
class Key:
    """A private key for TLS or for an authority. Signing keys for ledgers come from `securevfl keys`."""

    private: EllipticCurvePrivateKey | Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls, kind: Literal["p256", "ed25519"] = "p256") -> Key:
        """Generate a key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate() if kind == "ed25519" else ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def read(cls, pem: bytes) -> Key:
        """Read PEM without a password.

        Raises:
            InputError: it is not a P-256 or Ed25519 key.
        """
        try:
            found = load_pem_private_key(pem, password=None)
        except Exception:  # the library's words may hold parts of the file
            found = None
        right = isinstance(found, Ed25519PrivateKey) or (
            isinstance(found, EllipticCurvePrivateKey) and isinstance(found.curve, ec.SECP256R1)
        )
        if not right or not isinstance(found, Ed25519PrivateKey | EllipticCurvePrivateKey):
            raise InputError("not a P-256 or Ed25519 private key in PEM without a password")
        return cls(found)

    @property
    def pem(self) -> bytes:
        """The key in PEM (PKCS #8)."""
        return self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def digest(self) -> hashes.SHA256 | None:
        """The digest that X.509 signs with this key: SHA-256, or None for Ed25519, which signs the full content."""
        return None if isinstance(self.private, Ed25519PrivateKey) else hashes.SHA256()


def _subject_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _validity_window(days: int, most: int, now: datetime) -> tuple[datetime, datetime]:
    if not 1 <= days <= most:
        raise InputError(f"--days {days}; 1 to {most} are possible")
    return now - _BACKDATED, now + timedelta(days=days)


def _check_name(name: str) -> str:
    if mistake := explain_bad_name(name):
        raise InputError(mistake)
    return name


def _certificate_builder(
    name: x509.Name, issuer: x509.Name, public: object, days: int, now: datetime
) -> x509.CertificateBuilder:
    start, end = _validity_window(days, _MOST_DAYS, now)
    return (
        x509.CertificateBuilder(issuer, name, public, x509.random_serial_number(), start, end)  # type: ignore[arg-type]
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)  # type: ignore[arg-type]
        .add_extension(_USES, critical=False)
    )


def _name_extension(name: str) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(URI + name)])


def self_signed(name: str, key: Key, now: datetime, days: int = DAYS) -> Certificate:
    """Make a self-signed certificate, for peers that pin it.

    Raises:
        InputError: an invalid party name, or days below 1 or above 825.
    """
    subject = _subject_name(_check_name(name))
    made = _certificate_builder(subject, subject, key.private.public_key(), days, now)
    made = made.add_extension(_name_extension(name), critical=False)
    return Certificate.from_der(made.sign(key.private, key.digest).public_bytes(Encoding.DER))


def make_request(name: str, key: Key) -> bytes:
    """Make a signing request (PKCS #10, RFC 2986) in PEM for an authority; it does not contain the private key.

    Raises:
        InputError: an invalid party name.
    """
    made = x509.CertificateSigningRequestBuilder(_subject_name(_check_name(name))).add_extension(
        _name_extension(name), critical=False
    )
    return made.sign(key.private, key.digest).public_bytes(Encoding.PEM)


def make_authority(name: str, key: Key, now: datetime, days: int = _AUTHORITY_DAYS) -> Certificate:
    """Make a self-signed authority for development and small groups.

    Raises:
        InputError: an empty name or one above 64 characters, or days below 1 or above 3650.
    """
    if not 1 <= len(name) <= 64 or not name.isprintable():
        raise InputError(f"the authority's name is {name!r}; expected 1 to 64 printable characters")
    start, end = _validity_window(days, _AUTHORITY_DAYS, now)
    subject, public = _subject_name(name), key.private.public_key()
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
    return Certificate.from_der(made.sign(key.private, key.digest).public_bytes(Encoding.DER))


def issue_certificate(
    request: bytes, authority: Certificate, key: Key, now: datetime, *, name: str, days: int = DAYS
) -> Certificate:
    """Issue a certificate for the key in a signing request, under the authority's name for the party; ignores
    everything else in the request.

    Args:
        request: PEM.
        authority: the issuer's certificate.
        key: the issuer's key.
        now: the issuer's clock.
        name: the party's name, which the authority has checked; the request must contain the same name.
        days: validity, at most as long as the authority's.

    Raises:
        InputError: the request is unreadable, wrongly signed, for another name or has a weak key; or the issuer's
            certificate is no authority's.
    """
    if not authority.authority:
        raise InputError(
            "the issuer's certificate is a party's, not an authority's: make an authority with `securevfl certs ca`"
        )
    try:
        asked = x509.load_pem_x509_csr(request)
        right = asked.is_signature_valid
        san = asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = san.get_values_for_type(x509.UniformResourceIdentifier)
        public = asked.public_key()
    except x509.ExtensionNotFound:
        raise InputError(f"the request names no party; make it with `securevfl certs request {name}`") from None
    except Exception:  # the library raises several unrelated kinds
        raise InputError("not a signing request in PEM, or a damaged one: get the .csr file again") from None
    if not right:
        raise InputError("the request is not signed with the key in it: get the .csr file again")
    if names != [URI + _check_name(name)]:
        raise InputError(f"the request is for {', '.join(names) or 'nobody'}; expected {URI}{name}")
    made = _certificate_builder(_subject_name(name), authority.x509.subject, public, days, now).add_extension(
        _name_extension(name), critical=False
    )
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.x509.public_key())  # type: ignore[arg-type]
    signed = made.add_extension(identifier, critical=False).sign(key.private, key.digest)
    found = Certificate.from_der(signed.public_bytes(Encoding.DER))
    if not found.issued_by(authority):
        raise InputError(
            "the key does not match the authority's certificate: name the two files that were made together"
        )
    if found.not_after > authority.not_after:
        raise InputError(
            f"--days {days} goes beyond the authority's expiry, {authority.not_after:%Y-%m-%d}: give fewer"
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
    """Make a signed revocation list in PEM.

    Args:
        authority: the issuer's certificate.
        key: the issuer's key.
        revoked: serial numbers, each with the time of its revocation.
        now: the issuer's clock.
        number: number of the list, one more than the last.
        days: until the next list is due.

    Raises:
        InputError: days below 1 or above 825.
    """
    start, end = _validity_window(days, _MOST_DAYS, now)
    made = x509.CertificateRevocationListBuilder(authority.x509.subject, start, end)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.x509.public_key())  # type: ignore[arg-type]
    made = made.add_extension(x509.CRLNumber(number), critical=False).add_extension(identifier, critical=False)
    for serial, when in revoked:
        made = made.add_revoked_certificate(
            x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(when).build()
        )
    return made.sign(key.private, key.digest).public_bytes(Encoding.PEM)

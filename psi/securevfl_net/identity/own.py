"""A party's own certificate and its key."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from glob import escape
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from securevfl_net.errors import InputError
from securevfl_net.identity.certificate import TOLERANCE, Certificate, format_time, read_certificates, utc_now
from securevfl_net.identity.endorsement import Endorsement
from securevfl_net.identity.files import read_private

__all__ = ["Identity", "rotation_number", "series_files"]

_KEY = 8 << 10
"""Maximum bytes of a key file; a P-256 key file has about 240."""


@dataclass(frozen=True)
class Identity:
    """A party's identity in TLS. Made by `load`.

    Attributes:
        certificate: the certificate that it shows. certificate_file, key_file: PEM; TLS reads them again for each
            context.
        renewals: 0, or the number in the file's name, ``bank.3.crt``, which `securevfl certs rotate` counts up.
    """

    certificate: Certificate
    certificate_file: Path = field(compare=False)
    key_file: Path = field(compare=False, repr=False)

    @classmethod
    def load(cls, certificate: str | Path, key: str | Path, *, now: Callable[[], datetime] = utc_now) -> Identity:
        """Read both files.

        Args:
            certificate: PEM, one certificate, which names the party in its subjectAltName.
            key: PEM without a password, readable only by its owner; P-256 or Ed25519.
            now: this machine's clock.

        Raises:
            InputError: a file cannot be used; gives the reason and the cure.
        """
        (found,) = read_certificates(certificate)
        loaded = cls(found, Path(certificate), Path(key))
        loaded._check_key()
        try:
            _ = found.name
        except InputError as error:
            raise InputError(f"{certificate}: {error}") from None
        if found.authority:
            raise InputError(f"{certificate} belongs to an authority; a party needs its own: securevfl certs new")
        time = now()
        if not found.not_before - TOLERANCE <= time <= found.not_after + TOLERANCE:
            raise InputError(
                f"{certificate} is valid from {format_time(found.not_before)} to {format_time(found.not_after)}, "
                f"but this machine's clock reads {format_time(time)}: set the clock, or make a new one with "
                "`securevfl certs rotate`"
            )
        return loaded

    @property
    def name(self) -> str:
        """The party's."""
        return self.certificate.name

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, 64 hexadecimal digits."""
        return self.certificate.fingerprint

    @property
    def not_before(self) -> datetime:
        """Start of the certificate's validity."""
        return self.certificate.not_before

    @property
    def not_after(self) -> datetime:
        """End of the certificate's validity."""
        return self.certificate.not_after

    @property
    def renewals(self) -> int:
        """Number of rotations, from the certificate's file name."""
        return rotation_number(self.certificate_file)

    def find_newest(self, *, now: Callable[[], datetime] = utc_now) -> Identity:
        """Return the newest certificate of this party in the same folder, as written by `securevfl certs rotate`
        (``bank.crt``, ``bank.1.crt``, ``bank.2.crt`` …); otherwise this one.

        Raises:
            InputError: the newest cannot be used.
        """
        newest = series_files(self.certificate_file)[0]
        if rotation_number(newest) <= self.renewals:
            return self
        found = Identity.load(newest, newest.with_suffix(".key"), now=now)
        if found.name != self.name:
            raise InputError(f"{newest} names {found.name!r}, and {self.certificate_file} names {self.name!r}")
        return found

    def find_endorsed(self, endorsement: bytes) -> Identity:
        """Return the certificate in the same folder that an endorsement is for; the newest for empty bytes.

        Raises:
            InputError: there is none, or it cannot be used.
        """
        if not endorsement:
            return self.find_newest()
        wanted = Endorsement.parse_payload(endorsement).certificate
        for file in series_files(self.certificate_file):
            if wanted in read_certificates(file):
                return Identity.load(file, file.with_suffix(".key"))
        raise InputError(
            f"{self.certificate_file.parent} has no certificate {wanted.fingerprint[:16]}, which was endorsed"
        )

    def _check_key(self) -> None:
        content = read_private(self.key_file, _KEY, "the private key of the certificate (PEM)")
        try:
            key = load_pem_private_key(content, password=None)
            held = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        except Exception:  # the library's words may hold parts of the file
            raise InputError(
                f"{self.key_file} does not contain a private key in PEM without a password: name the .key file "
                "that was made with the certificate"
            ) from None
        shown = self.certificate.x509.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        if held != shown:
            raise InputError(
                f"{self.key_file} is not the key of {self.certificate_file}: name the two files that were made together"
            )


_RENEWED = re.compile(r"(.+?)(?:\.([1-9][0-9]{0,8}))?\.crt")


def series_files(certificate: Path) -> tuple[Path, ...]:
    """Return the existing certificate files of a series, newest first: ``bank.2.crt``, ``bank.1.crt``, ``bank.crt``.

    Args:
        certificate: one file of the series; included even if it does not exist.
    """
    stem = _base_name(certificate)
    there = {path for path in certificate.parent.glob(f"{escape(stem)}*.crt") if _base_name(path) == stem}
    return tuple(sorted({certificate, *there}, key=rotation_number, reverse=True))


def _base_name(path: Path) -> str:
    found = _RENEWED.fullmatch(path.name)
    return found[1] if found else path.stem


def rotation_number(path: Path) -> int:
    """How often a certificate was rotated, from the name of its file: 0 for ``bank.crt``, 3 for ``bank.3.crt``."""
    found = _RENEWED.fullmatch(path.name)
    return int(found[2] or 0) if found else 0

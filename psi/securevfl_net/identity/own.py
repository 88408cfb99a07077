"""A party's own certificate and the key that belongs to it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from glob import escape
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from securevfl_net.errors import InputError
from securevfl_net.identity.certificate import TOLERANCE, Certificate, read_certificates, shown_time, utc_now
from securevfl_net.identity.files import read_private

__all__ = ["Identity", "row_files"]

_KEY = 8 << 10
"""Bytes of a key file; one of P-256 has about 240."""


@dataclass(frozen=True)
class Identity:
    """What a party shows to its peers in TLS. Made by `load`.

    Attributes:
        certificate: that it shows.
        certificate_file, key_file: PEM; TLS reads them again when a context is made.
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
            key: PEM, without a password, which nobody else may read; P-256 or Ed25519.
            now: this machine's clock.

        Raises:
            InputError: files that cannot be used, each with the reason and the cure.
        """
        (found,) = read_certificates(certificate)
        loaded = cls(found, Path(certificate), Path(key))
        loaded._check_key()
        try:
            _ = found.name
        except InputError as error:
            raise InputError(f"{certificate}: {error}") from None
        if found.authority:
            raise InputError(f"{certificate} is an authority's; a party shows one of its own: securevfl certs new")
        time = now()
        if not found.not_before - TOLERANCE <= time <= found.not_after + TOLERANCE:
            raise InputError(
                f"{certificate} is valid from {shown_time(found.not_before)} to {shown_time(found.not_after)}, and the "
                f"clock here says {shown_time(time)}: set the clock, or make a new one with `securevfl certs rotate`"
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
        """From when the certificate is valid."""
        return self.certificate.not_before

    @property
    def not_after(self) -> datetime:
        """Until when the certificate is valid."""
        return self.certificate.not_after

    @property
    def renewals(self) -> int:
        """How often the certificate was rotated, by the name of its file."""
        return _number(self.certificate_file)

    def renewed(self, *, now: Callable[[], datetime] = utc_now) -> Identity:
        """The newest certificate of this party beside this one, as `securevfl certs rotate` writes them
        (``bank.crt``, ``bank.1.crt``, ``bank.2.crt`` …); this one where there is none.

        Raises:
            InputError: the newest cannot be used.
        """
        newest = row_files(self.certificate_file)[0]
        if _number(newest) <= self.renewals:
            return self
        found = Identity.load(newest, newest.with_suffix(".key"), now=now)
        if found.name != self.name:
            raise InputError(f"{newest} names {found.name!r}, and {self.certificate_file} names {self.name!r}")
        return found

    def _check_key(self) -> None:
        content = read_private(self.key_file, _KEY, "the private key of the certificate (PEM)")
        try:
            key = load_pem_private_key(content, password=None)
            held = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        except Exception:  # the library's words may hold parts of the file
            raise InputError(
                f"{self.key_file} holds no private key in PEM without a password: name the .key file that was made "
                "with the certificate"
            ) from None
        shown = self.certificate.x509.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        if held != shown:
            raise InputError(
                f"{self.key_file} is not the key of {self.certificate_file}: name the two files that were made together"
            )


_RENEWED = re.compile(r"(.+?)(?:\.([1-9][0-9]{0,8}))?\.crt")


def row_files(certificate: Path) -> tuple[Path, ...]:
    """The certificates of a row that are there, ``bank.2.crt``, ``bank.1.crt``, ``bank.crt``, newest first.

    Args:
        certificate: file of one of them, which is among them whether it is there or not.
    """
    stem = _stem(certificate)
    there = {path for path in certificate.parent.glob(f"{escape(stem)}*.crt") if _stem(path) == stem}
    return tuple(sorted({certificate, *there}, key=_number, reverse=True))


def _stem(path: Path) -> str:
    found = _RENEWED.fullmatch(path.name)
    return found[1] if found else path.stem


def _number(path: Path) -> int:
    found = _RENEWED.fullmatch(path.name)
    return int(found[2] or 0) if found else 0

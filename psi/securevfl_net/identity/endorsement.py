"""Endorse a new TLS certificate with the party's signing key, so that certificates can rotate while a job runs."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from securevfl_net.errors import AuditError, InputError
from securevfl_net.identity.certificate import Certificate
from securevfl_net.identity.files import read_bounded
from securevfl_net.identity.refusal import Refusal, RefusalCode

__all__ = ["Endorsement", "Signer", "Verifier", "name_endorsement", "read_endorsement"]

KIND = "securevfl certificate endorsement v1"
"""Type of the signed content."""
_HEAD = struct.Struct(">B32sQ32sH")  # length of the name, name, counter, agreement, length of the certificate
_SIGNATURE = 64
_MOST = _HEAD.size + (16 << 10) + _SIGNATURE


class Signer(Protocol):
    """A private signing key, as `securevfl.ledger.PrivateKey`."""

    def sign(self, kind: str, content: bytes) -> str:
        """Sign `content` of type `kind`; returns hexadecimal digits."""


class Verifier(Protocol):
    """A public signing key, as `securevfl.ledger.PublicKey`."""

    def verify(self, kind: str, content: bytes, signature: str) -> None:
        """Check a signature.

        Raises:
            AuditError: the signature is wrong.
        """


@dataclass(frozen=True)
class Endorsement:
    """A party's statement that a new certificate is its own.

    Attributes:
        party: the owner; the certificate names the same party.
        counter: 1, 2, …; a higher one replaces a lower one, never the reverse.
        agreement: SHA-256 of the proposal's bytes; the endorsement is valid only in this job.
        certificate: the new certificate.
    """

    party: str
    counter: int
    agreement: bytes
    certificate: Certificate

    def to_signed_bytes(self, key: Signer) -> bytes:
        """Return the endorsement with its signature, the bytes for the network and for a file.

        Raises:
            InputError: the certificate names another party, or the counter or the digest is invalid.
        """
        if self.certificate.name != self.party:
            raise InputError(f"the certificate names {self.certificate.name!r}; {self.party!r} cannot endorse it")
        if not 1 <= self.counter < 1 << 63 or len(self.agreement) != 32:
            raise InputError(
                f"counter {self.counter}, digest of {len(self.agreement)} bytes; expected a counter from 1 and 32 bytes"
            )
        content = self._signed_content()
        return content + bytes.fromhex(key.sign(KIND, content))

    def _signed_content(self) -> bytes:
        name, der = self.party.encode("ascii"), self.certificate.der
        return _HEAD.pack(len(name), name, self.counter, self.agreement, len(der)) + der

    @classmethod
    def parse_payload(cls, payload: bytes) -> Endorsement:
        """Parse a payload without checking its signature.

        Raises:
            Refusal: it is not an endorsement.
        """
        try:
            if not _HEAD.size + _SIGNATURE < len(payload) <= _MOST:
                raise InputError(f"{len(payload)} bytes")
            length, padded, counter, agreement, size = _HEAD.unpack_from(payload)
            if len(payload) != _HEAD.size + size + _SIGNATURE:
                raise InputError(f"{len(payload)} bytes, {_HEAD.size + size + _SIGNATURE} announced")
            der = payload[_HEAD.size : _HEAD.size + size]
            found = cls(padded[:length].decode("ascii"), counter, agreement, Certificate.from_der(der))
            if found._signed_content() != payload[:-_SIGNATURE]:
                raise InputError("more than one way to write it")
            return found
        except (InputError, UnicodeDecodeError, struct.error) as error:
            raise Refusal(RefusalCode.ENDORSEMENT, f"not an endorsement of a certificate: {error}") from None

    @staticmethod
    def check_payload(payload: bytes, key: Verifier) -> None:
        """Check a payload's signature.

        Raises:
            Refusal: this key did not sign it.
        """
        try:
            key.verify(KIND, payload[:-_SIGNATURE], payload[-_SIGNATURE:].hex())
        except AuditError as error:
            raise Refusal(RefusalCode.ENDORSEMENT, f"not endorsed with the agreement's signing key: {error}") from None


def name_endorsement(certificate: Path, agreement: bytes) -> Path:
    """File beside a certificate for its endorsement in one agreement: ``bank.2.1f4e9a7d.endorsement``."""
    return certificate.with_suffix(f".{agreement.hex()[:8]}.endorsement")


def read_endorsement(certificate: Path, agreement: bytes) -> bytes:
    """Read the endorsement of a certificate in one agreement.

    Args:
        certificate: file of the certificate; the endorsement is beside it, as `name_endorsement` says, or with the
            suffix ``.endorsement`` alone.
        agreement: SHA-256 of the proposal, 32 bytes.

    Raises:
        InputError: there is none for this agreement.
    """
    others = []
    for file in (name_endorsement(certificate, agreement), certificate.with_suffix(".endorsement")):
        if not file.exists():
            continue
        payload = read_bounded(file, _MOST, "the endorsement of the rotated certificate")
        try:
            found = Endorsement.parse_payload(payload)
        except Refusal as error:
            raise InputError(f"{file}: {error}") from None
        if found.agreement == agreement:
            return payload
        others.append(f"{file.name} is for agreement {found.agreement.hex()[:16]}")
    name, short = certificate.name.partition(".")[0], agreement.hex()[:16]
    why = f" ({'; '.join(others)})" if others else ""
    raise InputError(
        f"{certificate} has no endorsement for agreement {short}{why}: run `securevfl certs endorse {name} "
        "--signing-key … --agreement …` with this job's agreement"
    )

"""A party's signing key vouches for a new TLS certificate, so that certificates rotate while a job runs."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Protocol

from securevfl_net.errors import AuditError, InputError
from securevfl_net.identity.certificate import Certificate
from securevfl_net.identity.refusal import Code, Refusal

__all__ = ["Endorsement", "Signer", "Verifier"]

KIND = "securevfl certificate endorsement v1"
"""The type of what is signed."""
_HEAD = struct.Struct(">B32sQ32sH")  # length of the name, name, counter, agreement, length of the certificate
_SIGNATURE = 64
_MOST = _HEAD.size + (16 << 10) + _SIGNATURE


class Signer(Protocol):
    """A private signing key, as `securevfl.ledger.PrivateKey`."""

    def sign(self, kind: str, content: bytes) -> str:
        """The signature over `content` of a `kind`, hexadecimal."""


class Verifier(Protocol):
    """A public signing key, as `securevfl.ledger.PublicKey`."""

    def verify(self, kind: str, content: bytes, signature: str) -> None:
        """Check a signature.

        Raises:
            AuditError: it is wrong.
        """


@dataclass(frozen=True)
class Endorsement:
    """A new certificate of a party.

    Attributes:
        party: whose it is; the certificate names the same party.
        counter: 1, 2, …; a higher one replaces a lower one, and never the other way round.
        agreement: SHA-256 of the proposal's bytes: it holds in this job alone.
        certificate: the new one.
    """

    party: str
    counter: int
    agreement: bytes
    certificate: Certificate

    def signed(self, key: Signer) -> bytes:
        """The endorsement with its signature, as it goes over the network and into a file.

        Raises:
            InputError: the certificate names another party, the counter or the digest is none.
        """
        if self.certificate.name != self.party:
            raise InputError(f"the certificate names {self.certificate.name!r}; {self.party!r} cannot endorse it")
        if not 1 <= self.counter < 1 << 63 or len(self.agreement) != 32:
            raise InputError(
                f"counter {self.counter}, digest of {len(self.agreement)} bytes; 1 and more, 32 are needed"
            )
        content = self._content()
        return content + bytes.fromhex(key.sign(KIND, content))

    def _content(self) -> bytes:
        name, der = self.party.encode("ascii"), self.certificate.der
        return _HEAD.pack(len(name), name, self.counter, self.agreement, len(der)) + der

    @classmethod
    def read(cls, payload: bytes) -> Endorsement:
        """What a payload says, before its signature is checked.

        Raises:
            Refusal: it is none.
        """
        try:
            if not _HEAD.size + _SIGNATURE < len(payload) <= _MOST:
                raise InputError(f"{len(payload)} bytes")
            length, padded, counter, agreement, size = _HEAD.unpack_from(payload)
            if len(payload) != _HEAD.size + size + _SIGNATURE:
                raise InputError(f"{len(payload)} bytes, {_HEAD.size + size + _SIGNATURE} announced")
            der = payload[_HEAD.size : _HEAD.size + size]
            found = cls(padded[:length].decode("ascii"), counter, agreement, Certificate.of(der))
            if found._content() != payload[:-_SIGNATURE]:
                raise InputError("more than one way to write it")
            return found
        except (InputError, UnicodeDecodeError, struct.error) as error:
            raise Refusal(Code.ENDORSEMENT, f"no endorsement of a certificate: {error}") from None

    @staticmethod
    def check(payload: bytes, key: Verifier) -> None:
        """Check a payload's signature.

        Raises:
            Refusal: it is not by this key.
        """
        try:
            key.verify(KIND, payload[:-_SIGNATURE], payload[-_SIGNATURE:].hex())
        except AuditError as error:
            raise Refusal(
                Code.ENDORSEMENT, f"endorsed with another signing key than the agreement's: {error}"
            ) from None

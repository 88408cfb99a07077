"""Signing keys of parties: Ed25519 (RFC 8032), one for each party.

What is signed is bytes, never an object: a type, its length, the content and its length, as DSSE's pre-authentication
encoding has them (Dead Simple Signing Envelope, protocol.md, "PAE"), so that a signature over one sort of statement is
none over another.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from securevfl.errors import AuditError

__all__ = ["PrivateKey", "PublicKey", "signed_bytes"]

_PREFIX = "ed25519:"


def signed_bytes(kind: str, content: bytes) -> bytes:
    """The bytes that are signed for `content` of a `kind`."""
    return b" ".join((b"DSSEv1", b"%d" % len(kind.encode()), kind.encode(), b"%d" % len(content), content))


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The public half of a party's key.

    Attributes:
        raw: 32 bytes, as RFC 8032 encodes a point.
    """

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != 32:
            raise AuditError(f"an Ed25519 public key of {len(self.raw)} bytes; it has 32")

    @classmethod
    def from_hex(cls, text: str) -> PublicKey:
        """The key that 64 lower-case hexadecimal digits name.

        Raises:
            AuditError: they are none.
        """
        if len(text) != 64 or set(text) - set("0123456789abcdef"):
            raise AuditError(
                f"{text[:80]!r} is no Ed25519 public key; 64 hexadecimal digits, lower case, were expected"
            )
        return cls(bytes.fromhex(text))

    @property
    def hex(self) -> str:
        """64 hexadecimal digits."""
        return self.raw.hex()

    @property
    def fingerprint(self) -> str:
        """What a person compares: ``"ed25519:"`` and 43 letters, the whole SHA-256 of the key in URL-safe base64."""
        digest = hashlib.sha256(b"securevfl ed25519 key\0" + self.raw).digest()
        return _PREFIX + base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def verify(self, kind: str, content: bytes, signature: str) -> None:
        """Check a signature.

        Raises:
            AuditError: it is not this key's over this content of this kind.
        """
        try:
            raw = bytes.fromhex(signature)
            if raw.hex() != signature:
                raise ValueError
            Ed25519PublicKey.from_public_bytes(self.raw).verify(raw, signed_bytes(kind, content))
        except (InvalidSignature, ValueError):
            raise AuditError(f"the signature is not one of {self.fingerprint}") from None


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A party's signing key. Its text form shows the public half only."""

    _key: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls) -> PrivateKey:
        """A new key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_ed25519(cls, key: Ed25519PrivateKey) -> PrivateKey:
        """With a key object of the package `cryptography`."""
        return cls(key)

    @property
    def ed25519(self) -> Ed25519PrivateKey:
        """The key object of the package `cryptography`."""
        return self._key

    @property
    def public(self) -> PublicKey:
        """Its public half."""
        return PublicKey(self._key.public_key().public_bytes_raw())

    def sign(self, kind: str, content: bytes) -> str:
        """The signature over `content` of a `kind`, 128 hexadecimal digits."""
        return self._key.sign(signed_bytes(kind, content)).hex()

"""The parties' signing keys: Ed25519 (RFC 8032), one per party.

Keys sign bytes, never objects: a type, its length, the content and its length, in DSSE's pre-authentication encoding
(Dead Simple Signing Envelope, protocol.md, "PAE"). A signature over one type of statement is therefore not valid for
another.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from securevfl.errors import AuditError

__all__ = ["PrivateKey", "PublicSigningKey", "signed_bytes"]

_PREFIX = "ed25519:"


def signed_bytes(kind: str, content: bytes) -> bytes:
    """Return the bytes to sign for `content` of type `kind`."""
    return b" ".join((b"DSSEv1", b"%d" % len(kind.encode()), kind.encode(), b"%d" % len(content), content))


@dataclass(frozen=True, slots=True)
class PublicSigningKey:
    """The public half of a party's key.

    Attributes:
        raw: 32 bytes, as RFC 8032 encodes a point.
    """

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != 32:
            raise AuditError(f"an Ed25519 public key has 32 bytes, not {len(self.raw)}")

    @classmethod
    def from_hex(cls, text: str) -> PublicSigningKey:
        """Parse 64 lower-case hexadecimal digits.

        Raises:
            AuditError: `text` is not a public key.
        """
        if len(text) != 64 or set(text) - set("0123456789abcdef"):
            raise AuditError(f"{text[:80]!r} is not an Ed25519 public key; expected 64 lower-case hexadecimal digits")
        return cls(bytes.fromhex(text))

    @property
    def hex(self) -> str:
        """64 hexadecimal digits."""
        return self.raw.hex()

    @property
    def fingerprint(self) -> str:
        """The string that people compare: ``"ed25519:"`` and 43 characters, the full SHA-256 of the key in URL-safe
        base64.
        """
        digest = hashlib.sha256(b"securevfl ed25519 key\0" + self.raw).digest()
        return _PREFIX + base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def verify(self, kind: str, content: bytes, signature: str) -> None:
        """Check a signature.

        Raises:
            AuditError: this key did not sign this content with this type.
        """
        try:
            raw = bytes.fromhex(signature)
            if raw.hex() != signature:
                raise ValueError
            Ed25519PublicKey.from_public_bytes(self.raw).verify(raw, signed_bytes(kind, content))
        except (InvalidSignature, ValueError):
            raise AuditError(f"the signature was not made by {self.fingerprint}") from None


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A party's signing key. Its repr shows only the public half."""

    _key: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls) -> PrivateKey:
        """Generate a key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_ed25519(cls, key: Ed25519PrivateKey) -> PrivateKey:
        """Wrap a key object of the package `cryptography`."""
        return cls(key)

    @property
    def ed25519(self) -> Ed25519PrivateKey:
        """The key object of the package `cryptography`."""
        return self._key

    @property
    def public_key(self) -> PublicSigningKey:
        """Its public half."""
        return PublicSigningKey(self._key.public_key().public_bytes_raw())

    def sign(self, kind: str, content: bytes) -> str:
        """Sign `content` of type `kind`; returns 128 hexadecimal digits."""
        return self._key.sign(signed_bytes(kind, content)).hex()

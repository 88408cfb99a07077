"""Runs of three or more parties: the parameters that all agree on, and a secret seed for each pair."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from securevfl_psi.errors import MalformedError, PSIError

__all__ = ["Circle", "PairwiseKeys"]

_PREFIX = b"securevfl-psi"
_SEED_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class Circle:
    """The parameters of one run. Every hash and seed includes them.

    Attributes:
        names: of all parties, two or more, all different, the leader's first.
        nonce: fresh random bytes, at least 16.
        rules_tag: how identifiers are normalised, `IdRules.tag`.
        version: of the protocol, up to 16 letters and digits.

    Raises:
        PSIError: malformed names, nonce or version.
    """

    names: tuple[str, ...]
    nonce: bytes
    rules_tag: str
    version: str = "v2"

    def __post_init__(self) -> None:
        if len(self.names) < 2 or len(set(self.names)) != len(self.names):
            raise PSIError(f"names {self.names!r}; two or more, all different, are needed")
        if not isinstance(self.nonce, bytes) or len(self.nonce) < 16:
            raise PSIError(
                f"a session nonce of {len(self.nonce)} {type(self.nonce).__name__} elements; at least 16 random bytes "
                "are needed: secrets.token_bytes(16)"
            )
        if not (self.version.isascii() and self.version.isalnum() and len(self.version) <= 16):
            raise PSIError(f"protocol version {self.version!r}; expected 1 to 16 ASCII letters and digits")

    @property
    def leader(self) -> str:
        """The party that learns the intersection."""
        return self.names[0]

    @property
    def dst(self) -> bytes:
        """Domain separation tag, 45 bytes, as `Session.dst`: a digest of protocol, version, rules, nonce and names."""
        texts = ["multiparty", self.version, self.rules_tag]
        parts = [*(text.encode() for text in texts), self.nonce, *(name.encode() for name in self.names)]
        return _PREFIX + hashlib.sha512(_frame_parts(*parts)).digest()[:32]

    def require_party(self, name: str) -> None:
        """Raise PSIError unless `name` takes part."""
        if name not in self.names:
            raise PSIError(f"{name!r} is not a party of this run; the parties are {', '.join(self.names)}")


def _frame_parts(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


class PairwiseKeys:
    """One party's key agreement with each other party: a seed per pair, by X25519 (RFC 7748) and HKDF (RFC 5869).

    Public keys must arrive over channels that authenticate the peer. A leader that could replace them with its own
    would learn all seeds, and with them every pairwise intersection.
    """

    def __init__(self, circle: Circle, name: str) -> None:
        circle.require_party(name)
        self._circle = circle
        self._name = name
        self._key = X25519PrivateKey.generate()
        self._done = False
        self.public_key: bytes = self._key.public_key().public_bytes_raw()
        """This party's public key for every other party, 32 bytes."""

    def derive_seeds(self, public_keys: Mapping[str, bytes]) -> dict[str, bytes]:
        """Derive a seed of 32 bytes for each other party.

        Args:
            public_keys: the other parties' keys, by name.

        Raises:
            PSIError: called a second time.
            MalformedError: a missing or unknown party, or a key that is not 32 bytes, has small order or equals
                another party's.
        """
        if self._done:
            raise PSIError("derive_seeds was called twice; one agreement serves one session")
        self._done = True
        others = [name for name in self._circle.names if name != self._name]
        if set(public_keys) != set(others):
            raise MalformedError(f"public keys of {sorted(public_keys)}; expected those of {sorted(others)}")
        # Honest parties draw fresh keys, so equal ones mean that somebody copies or reflects messages.
        if len({self.public_key, *public_keys.values()}) != len(self._circle.names):
            raise MalformedError("two parties have the same public key; each must make a fresh one for each session")
        return {name: self._derive_seed(name, public_keys[name]) for name in others}

    def _derive_seed(self, name: str, public_key: bytes) -> bytes:
        if not isinstance(public_key, bytes) or len(public_key) != 32:
            raise MalformedError(f"the public key of {name!r} is not 32 bytes")
        try:
            shared = self._key.exchange(X25519PublicKey.from_public_bytes(public_key))
        except ValueError:
            raise MalformedError(f"the public key of {name!r} is a point of small order") from None
        ends = sorted([(self._name.encode(), self.public_key), (name.encode(), public_key)])
        info = _frame_parts(b"zero shares", *(part for end in ends for part in end))
        return HKDF(hashes.SHA256(), _SEED_BYTES, salt=self._circle.dst, info=info).derive(shared)

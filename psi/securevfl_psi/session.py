"""The parameters that two parties agree on before a run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from securevfl_psi.errors import PSIError

__all__ = ["Session"]

_PREFIX = b"securevfl-psi"


@dataclass(frozen=True, kw_only=True)
class Session:
    """The parameters of one run. Every hash includes them, so nobody can join the tokens of two sessions.

    Attributes:
        names: receiver and sender.
        nonce: fresh random bytes, at least 16.
        rules_tag: how identifiers are normalised, `IdRules.tag`.
        version: of the protocol, up to 16 letters and digits.
        protocol: its name. Nobody can join the tokens of two protocols either.
        shards: sessions of the run that this one is part of; tokens are longer for it. Both know it from the run's
            plan; not part of the tag.
        why: the reason for the protocol if both parties chose ``auto``; not part of the tag.

    Raises:
        PSIError: a nonce that is too short or not bytes, or a malformed version.
    """

    names: tuple[str, str]
    nonce: bytes
    rules_tag: str
    version: str = "v4"
    protocol: str = "dh"
    shards: int = field(default=1, compare=False)
    why: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.nonce, bytes) or len(self.nonce) < 16:
            raise PSIError(
                f"a session nonce of {len(self.nonce)} {type(self.nonce).__name__} elements; at least 16 random bytes "
                "are needed: secrets.token_bytes(16)"
            )
        if not (self.version.isascii() and self.version.isalnum() and len(self.version) <= 16):
            raise PSIError(f"protocol version {self.version!r}; expected 1 to 16 ASCII letters and digits")

    @property
    def dst(self) -> bytes:
        """Domain separation tag: a digest of protocol, version, names, nonce and rules.

        It has 45 bytes, so that hashing an identifier takes as few blocks of SHA-512 as possible.
        """
        texts = [self.protocol, self.version, *self.names, self.rules_tag]
        parts = [*(text.encode() for text in texts), self.nonce]
        # Lengths first: without them, names could be chosen so that two different sessions hash alike.
        framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return _PREFIX + hashlib.sha512(framed).digest()[:32]

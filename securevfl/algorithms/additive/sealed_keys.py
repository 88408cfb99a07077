"""The BFV keys of two parties between whom an additive model trains and predicts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import securevfl_crypto as crypto
from securevfl_crypto.pools import kept_pool

from securevfl.cut import Sealed
from securevfl.cut.handshake import read_key
from securevfl.cut.sealed_work import count_as_encryption
from securevfl.errors import InputError, ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link
from securevfl.transport import Guard, Kind

__all__ = ["KEY", "OwnKey", "SealedKeys", "TheirKey"]

KEY = "additive/key"


@dataclass(frozen=True)
class OwnKey:
    """This party's key.

    Attributes:
        secret: both halves.
        guard: of what is encrypted under it.
    """

    secret: crypto.SecretKey
    guard: Guard


@dataclass(frozen=True)
class TheirKey:
    """The other party's key.

    Attributes:
        public: its public half.
        guard: of what is encrypted under it.
    """

    public: crypto.PublicKey
    guard: Guard


class SealedKeys:
    """One party's end: it makes its key and reads the other party's. Keys last for one session: a training, or a
    prediction; their links sign them.

    Args:
        site: the party's context.
        protection: of the job.

    Attributes:
        site: the party's context.
        scheme: makes both halves of sums.
    """

    def __init__(self, site: PartyContext, protection: Sealed) -> None:
        self.site = site
        (scheme,) = protection.schemes().values()
        self.scheme = scheme.with_pool(kept_pool(site.pool))
        self._own: OwnKey | None = None
        self._theirs: TheirKey | None = None

    @property
    def is_active(self) -> bool:
        """Whether this is the active party."""
        return self.site.name == self.site.active

    @property
    def link(self) -> Link:
        """The link to the other party."""
        if self.is_active and len(self.site.passive) != 1:
            raise InputError(
                f"an additive model under {self.scheme.name!r} is between two parties, and there are "
                f"{len(self.site.passive)} passive ones: use protection 'shares' (three computing parties)"
            )
        return self.site.links[self.site.passive[0] if self.is_active else self.site.active]

    @property
    def own(self) -> OwnKey:
        """This party's key; a passive party has none in a prediction."""
        if self._own is None:
            raise ProtocolError(f"{self.site.name!r} has no key in this session")
        return self._own

    @property
    def theirs(self) -> TheirKey:
        """The other party's key."""
        if self._theirs is None:
            raise ProtocolError(f"the other party of {self.site.name!r} has sent no key in this session")
        return self._theirs

    async def exchange(self, *, both: bool) -> None:
        """Send the active party's key, and in a training the passive party's too.

        Args:
            both: whether both parties have a key.
        """
        if self.is_active:
            await self._send()
            if both:
                await self._receive()
        else:
            await self._receive()
            if both:
                await self._send()

    async def _send(self) -> None:
        with count_as_encryption(self.site.clock):
            key = self.scheme.generate_key()
        self._own = OwnKey(key, _guard_of(self.scheme, key.public))
        await self.link.send(Kind.PUBLIC_KEY, KEY, key=np.frombuffer(key.public.to_bytes(), dtype=np.uint8))

    async def _receive(self) -> None:
        link = self.link
        message = await link.receive(Kind.PUBLIC_KEY, KEY, "key")
        with count_as_encryption(self.site.clock):
            public = self.scheme.read_public(read_key(link.peer, message.arrays["key"]))
        self._theirs = TheirKey(public, _guard_of(self.scheme, public))


def _guard_of(scheme: crypto.Scheme, key: crypto.PublicKey) -> Guard:
    return Guard(scheme.name, key.bits, key.fingerprint)

"""Pairwise secrets between parties of the same kind, for masks that cancel in a sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import securevfl_crypto as crypto
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from securevfl.cut.handshake import read_key
from securevfl.errors import ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link, fan_out
from securevfl.transport import Kind

__all__ = ["agree_masks"]


async def agree_masks(
    site: PartyContext, names: Sequence[str], purpose: str, *, step: str = "cut/seed"
) -> list[crypto.PairwiseMasks]:
    """A seed with each other party of `names`: X25519, then HKDF over purpose, job and both names.

    Args:
        site: this party's, linked with all of them.
        names: all parties that share masks, this one included.
        purpose: of the masks; seeds for another purpose are independent.
        step: as which the message with the public key is declared.

    Raises:
        ProtocolError: a peer's key is none.
    """
    secret = X25519PrivateKey.generate()
    mine = secret.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    others = [name for name in names if name != site.name]

    async def send_key(link: Link) -> None:
        await link.send(Kind.PUBLIC_KEY, step, key=np.frombuffer(mine, dtype=np.uint8))

    await fan_out([site.links[name] for name in others], send_key)
    pairs = []
    for name in others:
        message = await site.links[name].receive(Kind.PUBLIC_KEY, step, "key")
        theirs = read_key(name, message.arrays["key"])
        try:
            shared = secret.exchange(X25519PublicKey.from_public_bytes(theirs))
        except ValueError as error:
            raise ProtocolError(f"{name!r} sent a bad X25519 key ({error}); nothing was masked") from error
        low, high = sorted([(site.name, mine), (name, theirs)])
        info = purpose.encode() + b"".join(
            len(part).to_bytes(2, "big") + part
            for part in (site.job.encode(), low[0].encode(), low[1], high[0].encode(), high[1])
        )
        seed = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(shared)
        pairs.append(crypto.PairwiseMasks(seed, positive=site.name < name))
    return pairs

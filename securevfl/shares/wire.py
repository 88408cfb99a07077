"""The computing parties' messages over links: each of them is declared, checked by the party's policy and written to
its ledger before it leaves, like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from securevfl_crypto.errors import CryptoError
from securevfl_crypto.replicated import (
    Computing,
    Dealt,
    DealtNarrow,
    DealtOwned,
    Expected,
    NarrowBits,
    Opening,
    agreed_streams,
)

from securevfl.errors import ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link
from securevfl.shares.exchanges import CONFIRM, INPUT, KEY, ROUND, SUMS
from securevfl.shares.release_exchanges import PART
from securevfl.transport import Guard, Kind, Message

__all__ = ["MASKED", "LinkWire", "computing_at", "read_dealt", "read_narrow", "send_dealt", "send_narrow"]

MASKED = Guard("masked", 128)
"""Uniform modulo 2^64, 2^32 or 2^8, from a generator under a key of 256 bits."""

_OPEN = Guard()
_LONGEST = 80
_SIGNED = "application/vnd.securevfl.shares.key;version=1"


class LinkWire:
    """A `securevfl_crypto.replicated.Wire` between three parties.

    Keys for randomness are signed with the parties' own keys, which their agreement names: whoever stands between two
    of them, an authority that issues certificates among others, cannot put keys of its own in their place.

    Args:
        names: of the three, in their order.
        site: of one of them.
    """

    def __init__(self, names: Sequence[str], site: PartyContext) -> None:
        self._site = site
        self._names = tuple(names)
        self._links = [site.links.get(name) for name in names]
        self.messages = 0

    async def send(self, to: int, label: str, arrays: Sequence[np.ndarray]) -> None:
        """Send arrays to party `to`."""
        self.messages += 1
        step, kind, guard = _declared_step(label)
        named = {str(i): array for i, array in enumerate(arrays)}
        meta = {"label": label}
        if kind is Kind.PUBLIC_KEY:
            content = self._key_content(self._site.name, arrays[0])
            meta["signature"] = self._site.ledger.sign_for_peers(_SIGNED, content)
        await self._link_to(to).send(kind, step, meta=meta, guard=guard, **named)

    async def receive(self, source: int, label: str, expect: Expected) -> list[np.ndarray]:
        """The next message of party `source`.

        Raises:
            ProtocolError: it is of another step, its arrays are not of these types and shapes, or a key is not signed
                by the party that it is said to come from.
        """
        step, kind, _ = _declared_step(label)
        names = [str(i) for i in range(len(expect))]
        message = await self._link_to(source).receive(kind, step, *names)
        said = message.meta.get("label")
        link = self._link_to(source)
        if said != label:
            raise ProtocolError(
                f"{link.peer!r} is at {str(said)[:_LONGEST]!r} and {link.me!r} at {label!r}: the computing parties do "
                "not count alike; nothing was opened"
            )
        found = []
        for name, (dtype, shape) in zip(names, expect, strict=True):
            found.append(_check_array(link.peer, label, message, name, np.dtype(dtype), shape))
        if kind is Kind.PUBLIC_KEY:
            content = self._key_content(link.peer, found[0])
            self._site.ledger.check_vouched(link.peer, _SIGNED, content, message.meta.get("signature"))
        return found

    def _key_content(self, sender: str, key: np.ndarray) -> bytes:
        """What the sender of a key signs: job and run, who computes, who sends, and the key. The randomness of two is
        bound to both of them and to both keys besides, by `securevfl_crypto.ring.Exchange`."""
        site = self._site
        parts = [part.encode() for part in (site.job, site.ledger.run, *self._names, sender)]
        return b"".join(len(part).to_bytes(4, "big") + part for part in (*parts, key.tobytes()))

    def _link_to(self, index: int) -> Link:
        link = self._links[index]
        if link is None:
            raise ProtocolError("a computing party does not send to itself")
        return link


def _declared_step(label: str) -> tuple[str, Kind, Guard]:
    """As which step, kind and guard a message of the engine is declared: openings and digests by their own names."""
    if label.startswith("open part "):  # of one of the parties
        return PART, Kind.SHARE, MASKED
    if label.startswith("open sums "):  # of one of the data parties
        return SUMS, Kind.SHARE, MASKED
    if label.startswith("open "):
        return f"shares/{label}", Kind.SHARE, MASKED
    if label == "keys":
        return KEY, Kind.PUBLIC_KEY, _OPEN
    if label.startswith("confirm"):
        return CONFIRM, Kind.CONTROL, _OPEN
    return ROUND, Kind.SHARE, MASKED


def _check_array(
    peer: str, what: str, message: Message, name: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]
) -> np.ndarray:
    array = np.asarray(message.arrays[name])
    if array.dtype != dtype or array.shape != shape:
        raise ProtocolError(
            f"{peer!r} sent {array.dtype} {array.shape} as {what!r}, where {dtype} {shape} was expected: a share of "
            "the wrong ring or shape; nothing was opened"
        )
    return array


async def computing_at(site: PartyContext, names: Sequence[str], openings: Mapping[str, Opening]) -> Computing:
    """The engine of the computing party at `site`, under keys that are fresh for this process and attempt.

    Args:
        site: its place.
        names: of the three, in their order.
        openings: what may be opened → how often, to whom, how many values.

    Raises:
        ProtocolError: a peer's key is none.
    """
    index, wire = names.index(site.name), LinkWire(names, site)
    try:
        streams = await agreed_streams(index, wire, f"securevfl shares {site.job} {', '.join(names)}")
    except CryptoError as error:
        raise ProtocolError(f"a computing party sent no key to share randomness under: {error}") from error
    return Computing(index, wire, streams, openings=openings)


async def send_dealt(link: Link, dealt: Sequence[Dealt]) -> None:
    """Send one computing party its parts of what a data party shared.

    Args:
        link: to it.
        dealt: its parts, one for each array.
    """
    arrays = {f"{i}{side}": part for i, one in enumerate(dealt) for side, part in zip("ab", one.parts, strict=True)}
    await link.send(Kind.SHARE, INPUT, meta={}, guard=MASKED, **arrays)


async def read_dealt(link: Link, shapes: Sequence[tuple[int, ...]]) -> list[Dealt]:
    """The parts of what the party at the other end shared.

    Args:
        link: to it.
        shapes: of the arrays.

    Raises:
        ProtocolError: parts of another ring or shape.
    """
    names = [f"{i}{side}" for i in range(len(shapes)) for side in "ab"]
    message = await link.receive(Kind.SHARE, INPUT, *names)
    found = []
    for i, shape in enumerate(shapes):
        try:
            found.append(Dealt(shape, tuple(np.asarray(message.arrays[f"{i}{side}"]) for side in "ab")))  # type: ignore[arg-type]
        except CryptoError as error:
            raise ProtocolError(f"{link.peer!r} dealt no share of its rows: {error}; nothing was opened") from error
    return found


async def send_narrow(link: Link, dealt: Sequence[DealtNarrow | DealtOwned]) -> None:
    """Send one computing party its parts of small words that a data party shared; those of a table that its owner
    computes with have one part only, for the other summand is zero.

    Args:
        link: to it.
        dealt: its parts, one for each array.
    """
    arrays = {f"{i}{side}": part for i, one in enumerate(dealt) for side, part in zip("ab", one.parts, strict=False)}
    await link.send(Kind.SHARE, INPUT, meta={}, guard=MASKED, **arrays)


async def read_narrow(
    link: Link, shapes: Sequence[tuple[int, ...]], *, index: int, owner: int | None, bits: NarrowBits = 32
) -> list[DealtNarrow | DealtOwned]:
    """The parts of small words that the party at the other end shared.

    Args:
        link: to it.
        shapes: of the arrays.
        index: of this computing party.
        owner: the index of the other end among the computing parties, or None if it does not compute.
        bits: 32 or 8.

    Raises:
        ProtocolError: parts of another ring or shape, a seed in the place of words, or words in the place of the
            summand that is zero.
    """
    sides = "ab" if owner is None else "a"
    message = await link.receive(Kind.SHARE, INPUT, *(f"{i}{side}" for i in range(len(shapes)) for side in sides))
    found: list[DealtNarrow | DealtOwned] = []
    for i, shape in enumerate(shapes):
        parts = tuple(np.asarray(message.arrays[f"{i}{side}"]) for side in sides)
        try:
            if owner is None:
                found.append(DealtNarrow(index, shape, bits, parts))
            else:
                found.append(DealtOwned(owner, index, shape, bits, parts))
        except CryptoError as error:
            raise ProtocolError(f"{link.peer!r} dealt no share of its rows: {error}; nothing was opened") from error
    return found

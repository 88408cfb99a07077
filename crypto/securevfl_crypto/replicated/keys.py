"""The randomness of one computing party: a common stream with each other party, and a private one.

Parties j and j − 1, which both have summand xⱼ, share key j. A key belongs to one incarnation: a process that restarts
exchanges new keys, because reused masks would show the other parties differences of secrets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.replicated.share import PARTIES, U8, U64
from securevfl_crypto.replicated.wire import Wire
from securevfl_crypto.ring import Exchange, Stream

__all__ = ["Streams", "agreed_streams", "fixed_streams"]


class Streams:
    """The streams of party `index`.

    Args:
        index: 0, 1 or 2.
        mine: under key `index`, shared with party index − 1.
        next: under key index + 1, shared with party index + 1.
        own: of this party alone; party 2 draws the masks of openings from it.
    """

    def __init__(self, index: int, mine: Stream, next: Stream, own: Stream) -> None:
        if index not in range(PARTIES):
            raise MalformedError(f"computing party {index}; expected 0, 1 or 2")
        self.index = index
        self._streams: dict[int | None, Stream] = {index: mine, (index + 1) % PARTIES: next, None: own}
        self._drawn: dict[int | None, int] = {}

    def draw_words(self, key: int | None, shape: tuple[int, ...]) -> U64:
        """The next words of the stream under a key, or of this party's own (None), uint64 of this shape."""
        return self._stream(key).draw_words(self._advance_counter(key), shape)

    def draw_split(self, key: int, sizes: Sequence[int]) -> list[U64]:
        """The next words of the stream under a key, in one draw, as arrays of these sizes."""
        words = self.draw_words(key, (sum(sizes),))
        ends = list(accumulate(sizes))
        return [words[end - size : end] for size, end in zip(sizes, ends, strict=True)]

    def draw_octets(self, key: int, count: int) -> U8:
        """The next octets of the stream under a key, uint8."""
        return self._stream(key).draw_octets(self._advance_counter(key), count)

    def draw_residues(self, key: int, count: int, modulus: int) -> U8:
        """The next residues of the stream under a key, uint8, from 0 to modulus − 1."""
        return self._stream(key).draw_residues(self._advance_counter(key), count, modulus)

    def draw_count(self, other: int) -> int:
        """Number of draws so far from the stream that this party shares with party `other`."""
        return self._drawn.get(other if other == (self.index + 1) % PARTIES else self.index, 0)

    def _stream(self, key: int | None) -> Stream:
        if key not in self._streams:
            raise MalformedError(f"party {self.index} does not have key {key}")
        return self._streams[key]

    def _advance_counter(self, key: int | None) -> int:
        drawn = self._drawn.get(key, 0)
        self._drawn[key] = drawn + 1
        return drawn


async def agreed_streams(index: int, wire: Wire, context: str) -> Streams:
    """Exchange fresh keys with the two other computing parties, X25519, at the start of an incarnation.

    Args:
        index: this party's index.
        wire: links that authenticate the peer.
        context: the names of job and run, equal at the three parties.
    """
    exchange = Exchange(f"party {index}")
    public = np.frombuffer(exchange.public_key, np.uint8)
    others = [other for other in range(PARTIES) if other != index]
    for other in others:
        await wire.send(other, "keys", [public])
    found = {other: (await wire.receive(other, "keys", [(np.uint8, (32,))]))[0].tobytes() for other in others}
    after, before = (index + 1) % PARTIES, (index - 1) % PARTIES
    return Streams(
        index,
        exchange.shared_stream(f"party {before}", found[before], f"{context}: key {index}"),
        exchange.shared_stream(f"party {after}", found[after], f"{context}: key {after}"),
        Stream.with_fresh_key(),
    )


def fixed_streams(seed: bytes) -> tuple[Streams, Streams, Streams]:
    """Derive the streams of all three parties from one seed, for tests and benchmarks: **not secret**."""

    def stream(name: str) -> Stream:
        return Stream(hashlib.sha256(seed + name.encode()).digest())

    zero, one, two = (
        Streams(i, stream(f"key {i}"), stream(f"key {(i + 1) % PARTIES}"), stream(f"own {i}")) for i in range(PARTIES)
    )
    return zero, one, two

"""The bytes of a message's line, without an object in between.

A party that trains for days writes hundreds of thousands of lines and keeps none of them in memory. Most of them share
all but their numbers, digests and hashes, so that the rest is encoded once.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from securevfl.ledger.lines import Entry, Way, encode
from securevfl.transport import Guard, Kind, Message

__all__ = ["Shapes", "encode_entry", "stored_shapes"]

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Name and shape of each array."""

_BEFORE_HASH = b'{"line":"message","time":%d,"prev":"%b","hash":"'
_AFTER_HASH = b'","seq":%d%b%d,"digest":"%b",%b'
_NUMBER = b'","seq":0'
_SIZE = b'0,"digest":"",'
"""What the line of message 0, of no bytes and no digest, has in these places: no text can contain them, since its
quotes would be escaped, and no shape, since it is a list."""


@lru_cache(maxsize=256)
def stored_shapes(arrays: Shapes) -> dict[str, list[int]]:
    """Return the shapes as an `Entry` stores them. Cached, because most lines share a few shapes."""
    return {name: list(shape) for name, shape in arrays}


@lru_cache(maxsize=1024)
def _encode_shared(way: Way, peer: str, kind: Kind, what: str, guard: Guard, shapes: Shapes) -> tuple[bytes, bytes]:
    """Return what `encode` writes of an `Entry` between its number and its size, and after its digest."""
    line = Entry(
        time=0,
        prev="",
        seq=0,
        way=way,
        peer=peer,
        kind=kind,
        what=what,
        shapes=stored_shapes(shapes),
        bytes=0,
        digest="",
        cipher=guard.cipher,
        bits=guard.bits,
        key=guard.key,
        noise=float(guard.noise),
    )
    _, _, rest = encode(line).partition(_NUMBER)
    before, _, after = rest.rpartition(_SIZE)
    return before, after


def encode_entry(
    way: Way, peer: str, message: Message, *, seq: int, time: int, size: int, digest: str, prev: str
) -> tuple[bytes, str]:
    """Return what `encode` writes of a message's `Entry`, and its hash, hexadecimal.

    Args:
        way, peer, seq, time, digest, prev: see `Entry`.
        message: the message.
        size: its bytes on the wire.
    """
    shapes = tuple([(name, array.shape) for name, array in message.arrays.items()])
    before, after = _encode_shared(way, peer, message.kind, message.what, message.guard, shapes)
    begin = _BEFORE_HASH % (time, prev.encode())
    end = _AFTER_HASH % (seq, before, size, digest.encode(), after)
    found = hashlib.sha256(begin + end).hexdigest()
    return begin + found.encode() + end, found

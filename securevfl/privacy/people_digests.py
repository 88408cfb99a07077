"""Keyed digests of people, and an index that finds a digest's position.

A digest is the first `DIGEST` bytes of BLAKE2s (RFC 7693). Half of a key of 256 bits is the salt, the other half begins
the message; the name's length and the name follow. A name of up to 47 bytes is one block, padded with zeros, and many
blocks are hashed together by the engine: a tenth of the time of one call a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b, blake2s

import numpy as np
from securevfl_crypto.bits import ROW_BYTES, bit_loops

__all__ = ["DIGEST", "PeopleIndex", "all_differ", "digest_people", "digest_people_singly", "first_words"]

DIGEST = 12
"""Bytes of a person's digest: 96 bits."""

_HALF = 16
_START = _HALF + 1
_LONGEST = ROW_BYTES - _START
_FEW = 2048
"""Fewer names are hashed one by one: checking and loading the kernels would take longer."""
_PART = 1 << 13
"""Names hashed at a time: half a megabyte of blocks."""


def digest_people_singly(names: Sequence[str], secret: bytes) -> np.ndarray:
    """Digests (n, `DIGEST`) as books without a `digests` field have them: by keyed BLAKE2b, a call a name."""
    keyed = partial(blake2b, key=secret, digest_size=DIGEST, person=b"securevfl person")
    found = b"".join([keyed(name.encode()).digest() for name in names])
    return np.frombuffer(found, np.uint8).reshape(-1, DIGEST)


def digest_people(names: Sequence[str], secret: bytes) -> np.ndarray:
    """Digests of people, uint8 (n, `DIGEST`).

    Args:
        names: of the people; those of `securevfl.data.Names` are hashed where they lie in memory.
        secret: the key, up to 64 bytes.
    """
    key = blake2b(key=secret, digest_size=2 * _HALF, person=b"securevfl people").digest()
    content, lengths = _join_names(names)
    ends = np.cumsum(lengths)
    if len(names) < _FEW:
        starts = ends - lengths
        each = [_digest_one(key, content[a:b].tobytes()) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        return np.frombuffer(b"".join(each), np.uint8).reshape(-1, DIGEST)
    loops, salt = bit_loops(), np.frombuffer(key[:_HALF], np.uint8)
    out = np.empty((len(names), DIGEST), np.uint8)
    for first in range(0, len(names), _PART):
        here = slice(first, first + _PART)
        inside = slice(int(ends[first] - lengths[first]), int(ends[here][-1]))
        blocks = _make_blocks(content[inside], lengths[here], key[_HALF:])
        out[here] = loops.hash_rows(blocks, ROW_BYTES, salt)[:, :DIGEST]
    for place in np.flatnonzero(lengths > _LONGEST).tolist():
        name = content[ends[place] - lengths[place] : ends[place]].tobytes()
        out[place] = np.frombuffer(_digest_one(key, name), np.uint8)
    return out


def _digest_one(key: bytes, name: bytes) -> bytes:
    message = key[_HALF:] + bytes([min(len(name), 255)]) + name
    hashed = blake2s(message.ljust(ROW_BYTES, b"\0"), salt=key[: _HALF // 2], person=key[_HALF // 2 : _HALF])
    return hashed.digest()[:DIGEST]


def _make_blocks(content: np.ndarray, lengths: np.ndarray, start: bytes) -> np.ndarray:
    """One block for each name, (n, 64); names that are too long for one get a block of zeros.

    Args:
        content: the names' bytes, one name behind the other.
        lengths: of each name, (n,).
        start: what each block begins with.
    """
    blocks = np.zeros((len(lengths), ROW_BYTES), np.uint8)
    blocks[:, :_HALF] = np.frombuffer(start, np.uint8)
    width = int(lengths.max(initial=0))
    if width > _LONGEST:
        short = lengths <= _LONGEST
        content, lengths = content[np.repeat(short, lengths)], np.where(short, lengths, 0)
        width = int(lengths.max(initial=0))
    blocks[:, _HALF] = lengths
    part = blocks[:, _START : _START + width]
    if len(content) == width * len(lengths):  # all have one length
        part[:] = content.reshape(-1, width)
    else:
        part[np.arange(width) < lengths[:, None]] = content
    return blocks


def _join_names(names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of all names, one behind the other, uint8; and the length of each, int64 (n,)."""
    buffers = getattr(names, "buffers", None)
    if buffers is not None and len(names):
        content, starts, lengths = buffers()
        return content[int(starts[0]) : int(starts[-1]) + int(lengths[-1])], lengths.astype(np.int64)
    texts = list(names)
    joined = "".join(texts)
    content = joined.encode()
    if len(content) == len(joined):  # ASCII: characters are bytes
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    else:
        lengths = np.fromiter((len(text.encode()) for text in texts), np.int64, len(texts))
    return np.frombuffer(content, np.uint8), lengths


class PeopleIndex:
    """Digests in the order in which they came, found again by a hash table with open addressing.

    Digests are uniform, so their first bits choose the slot. Its arrays take 20 to 36 bytes a person.
    """

    def __init__(self) -> None:
        self._count = 0
        self._entered = 0
        self._words = np.empty(16, "<u8")
        self._tails = np.empty(16, "<u4")
        self._slots = np.full(64, -1, np.int32)

    def __len__(self) -> int:
        return self._count

    def to_array(self) -> np.ndarray:
        """All digests, uint8 (n, `DIGEST`)."""
        out = np.empty((self._count, DIGEST), np.uint8)
        out[:, :8] = self._words[: self._count, None].view(np.uint8)
        out[:, 8:] = self._tails[: self._count, None].view(np.uint8)
        return out

    def find(self, digests: np.ndarray) -> np.ndarray:
        """Positions of digests (n, `DIGEST`), −1 for unknown ones, (n,) int64."""
        return self._find_parts(*_split_digests(digests))

    def place(self, digests: np.ndarray) -> np.ndarray:
        """Positions of digests (n, `DIGEST`), (n,) int64; new ones are added. Where a new one appears twice, both have
        one position, and the other stays unused."""
        words, tails = _split_digests(digests)
        if self._count:  # room before the slots are filled for the search, so that they are filled once
            self._make_room(self._count + len(words))
        found = self._find_parts(words, tails)
        new = np.flatnonzero(found < 0)
        if len(new):
            first, end = self._count, self._count + len(new)
            self._make_room(end)
            self._words[first:end], self._tails[first:end] = words[new], tails[new]
            self._count = end
            # A process that counts for one list of people never looks one up.
            found[new] = np.arange(end) if not first and all_differ(words) else self._enter(np.arange(first, end))
        return found

    def _find_parts(self, words: np.ndarray, tails: np.ndarray) -> np.ndarray:
        found = np.full(len(words), -1, np.int64)
        if not self._count:
            return found
        if not self._entered:
            self._enter(np.arange(self._count))
        left, at = np.arange(len(words)), self._first_slots(words)
        while len(left):
            held = self._slots[at]
            used = held >= 0
            same = used & (self._words[held] == words[left]) & (self._tails[held] == tails[left])
            found[left[same]] = held[same]
            on = used & ~same
            left, at = left[on], (at[on] + 1) & (len(self._slots) - 1)
        return found

    def _first_slots(self, words: np.ndarray) -> np.ndarray:
        return (words & np.uint64(len(self._slots) - 1)).astype(np.int64)

    def _enter(self, places: np.ndarray) -> np.ndarray:
        """Give each position a slot; of equal digests one position gets it. Returns who holds each one's."""
        self._entered += len(places)
        found = places.copy()
        left, at = np.arange(len(places)), self._first_slots(self._words[places])
        while len(left):
            free = self._slots[at] < 0
            self._slots[at[free]] = places[left[free]]  # of several that want a slot, the last one has it
            held = self._slots[at]
            lost = held != places[left]
            left, at, held = left[lost], at[lost], held[lost]
            mine = places[left]
            same = (self._words[held] == self._words[mine]) & (self._tails[held] == self._tails[mine])
            found[left[same]] = held[same]
            on = ~same
            left, at = left[on], (at[on] + 1) & (len(self._slots) - 1)
        return found

    def _make_room(self, count: int) -> None:
        if count > len(self._words):
            room = max(count, len(self._words) * 3 // 2)
            self._words = np.concatenate([self._words[: self._count], np.empty(room - self._count, "<u8")])
            self._tails = np.concatenate([self._tails[: self._count], np.empty(room - self._count, "<u4")])
        if 2 * count > len(self._slots):
            self._slots = np.full(1 << (2 * count).bit_length(), -1, np.int32)
            again, self._entered = self._entered, 0
            self._enter(np.arange(again))


def first_words(digests: np.ndarray) -> np.ndarray:
    """The first eight bytes of each digest as a word, (n,)."""
    found: np.ndarray = np.ascontiguousarray(digests[:, :8]).view("<u8").reshape(-1)
    return found


def all_differ(words: np.ndarray) -> bool:
    """Return True if no word occurs twice."""
    ranked = np.sort(words)
    return bool((ranked[1:] != ranked[:-1]).all())


def _split_digests(digests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first eight bytes of each as a word, (n,), and the last four."""
    return first_words(digests), np.ascontiguousarray(digests[:, 8:]).view("<u4").reshape(-1)

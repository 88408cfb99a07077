"""Golomb-coded set: a compressed set of hashes for membership tests with a false-positive rate of 2^-bits.

Golomb (IEEE Transactions on Information Theory 1966) and Rice; as a filter, Putze, Sanders and Singler (JEA 2009,
section 4). n hashes are mapped to whole numbers below n 2^bits, sorted, and their differences coded: the quotients by
2^bits in unary, the remainders in `bits` bits. That takes bits + 1.58 bits an item; no filter can take fewer than
`bits`, and a Bloom filter takes 1.44 · bits. All quotients come first, then all remainders, so that array operations
can read both.

Layout, numbers big-endian: ``GCS`` and the version 1 (4 bytes), bits (1), count n (8), bytes of the quotients (8); the
quotients, each that many zeros and a one; the remainders; both padded with zeros to whole bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from securevfl_psi.errors import MalformedError, PSIError, SetSizeError
from securevfl_psi.okvs import scale_fractions

__all__ = ["HASH_BYTES", "MAX_BITS", "MAX_ITEMS", "GolombSet", "decode_golomb", "encode_golomb"]

HASH_BYTES = 16
"""A hash's first half chooses its bucket, the second half gives its bits within it, see `_values`."""
MAX_ITEMS = 1 << 28
"""More items would make the buckets of 40-bit fractions less uniform than 1 ± 2^-12, see `_values`."""
MAX_BITS = 56
_HEADER = struct.Struct(">4sBQQ")
_MAGIC = b"GCS\x01"
_CHUNK = 1 << 15  # remainders packed at a time; a multiple of 8, so that chunks end at whole bytes


@dataclass(frozen=True)
class GolombSet:
    """A decoded set.

    Attributes:
        bits: a hash outside the set passes for a member with probability 2^-bits.
        values: what `_values` makes of the encoded hashes, sorted, uint64 (n,).
    """

    bits: int
    values: np.ndarray

    def contains(self, hashes: np.ndarray) -> np.ndarray:
        """Test which of these hashes, uint8 (q, 16), are in the set: bool (q,)."""
        wanted = _map_hashes(hashes, max(len(self.values), 1), self.bits)
        place = np.searchsorted(self.values, wanted)
        inside = place < len(self.values)
        found = np.zeros(len(wanted), dtype=bool)
        found[inside] = self.values[place[inside]] == wanted[inside]
        return found


def encode_golomb(hashes: np.ndarray, bits: int = 40) -> bytes:
    """Encode a set of hashes.

    Args:
        hashes: uint8 (n, 16), uniform (outputs of a pseudo-random function); whoever has the set can test any
            hash against it.
        bits: a hash outside the set passes with probability 2^-bits; 1 to `MAX_BITS`, and n 2^bits at most 2^64.

    Raises:
        PSIError: too many bits.
        SetSizeError: more than `MAX_ITEMS`.
        MalformedError: another type or shape.
    """
    count = len(hashes)
    if count > MAX_ITEMS:
        raise SetSizeError(f"a Golomb-coded set of {count} items; at most {MAX_ITEMS} are possible: split the set")
    if not 1 <= bits <= MAX_BITS or count << bits > 1 << 64:
        raise PSIError(
            f"{bits} bits for {count} items; expected 1 to {MAX_BITS} bits, and items times 2^bits at most 2^64"
        )
    values = np.sort(_map_hashes(hashes, max(count, 1), bits))
    steps = np.diff(values, prepend=np.uint64(0))
    quotients = (steps >> np.uint64(bits)).astype(np.int64)
    unary = np.zeros(count + int(quotients.sum()), dtype=np.uint8)
    unary[np.cumsum(quotients + 1) - 1] = 1
    packed = np.packbits(unary).tobytes()
    low = steps & np.uint64((1 << bits) - 1)
    remainders = [_pack_values(low[start : start + _CHUNK], bits) for start in range(0, count, _CHUNK)]
    return b"".join([_HEADER.pack(_MAGIC, bits, count, len(packed)), packed, *remainders])


def decode_golomb(data: bytes, *, max_items: int = MAX_ITEMS) -> GolombSet:
    """Decode a set. It takes about 60 bytes of memory an item, but only after the length of `data` confirms the number
    of items that its header announces.

    Raises:
        MalformedError: `encode_golomb` does not write such bytes.
        SetSizeError: more items than `max_items`.
    """
    if len(data) < _HEADER.size:
        raise MalformedError(f"a Golomb-coded set of {len(data)} bytes; its header alone has {_HEADER.size}")
    magic, bits, count, size = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise MalformedError(f"bytes begin with {magic!r}; {_MAGIC!r} was expected: no Golomb-coded set of version 1")
    if count > min(max_items, MAX_ITEMS):
        raise SetSizeError(f"a Golomb-coded set of {count} items; at most {min(max_items, MAX_ITEMS)} are accepted")
    if not 1 <= bits <= MAX_BITS or count << bits > 1 << 64:
        raise MalformedError(
            f"a Golomb-coded set of {bits} bits and {count} items; expected 1 to {MAX_BITS} bits, and items times "
            "2^bits at most 2^64"
        )
    # The quotients are below count in sum, and each ends with a one: 2 · count bits at most.
    if 8 * size > 2 * count + 7 or len(data) != _HEADER.size + size + -(-count * bits // 8):
        raise MalformedError(
            f"a Golomb-coded set of {len(data)} bytes, {size} of them quotients, does not fit {count} items of {bits} "
            "bits"
        )
    raw = np.frombuffer(data, dtype=np.uint8, offset=_HEADER.size)
    ends = np.flatnonzero(np.unpackbits(raw[:size]))
    if len(ends) != count or size != (-(-(int(ends[-1]) + 1) // 8) if count else 0):
        raise MalformedError(f"a Golomb-coded set with {len(ends)} quotients for {count} items, or bytes after them")
    low = _unpack_values(raw[size:], count, bits)
    # Quotients and remainders are summed separately: neither sum overflows, because count · 2^bits is at most 2^64.
    sums = np.cumsum(low, dtype=np.uint64)
    high = (ends - np.arange(count)).astype(np.uint64) + (sums >> np.uint64(bits))
    if count and int(high[-1]) >= count:
        raise MalformedError(
            f"a Golomb-coded set with a value of {high[-1]} · 2^{bits}; {count} items have values below {count} · "
            f"2^{bits}"
        )
    values = (high << np.uint64(bits)) | (sums & np.uint64((1 << bits) - 1))
    return GolombSet(bits, values)


def _map_hashes(hashes: np.ndarray, count: int, bits: int) -> np.ndarray:
    """Map hashes to whole numbers below count · 2^bits, uint64 (n,): one of `count` buckets, and `bits` bits within it.

    The bucket is ⌊h · count / 2^40⌋, where h is 40 bits of the hash: each has probability 1/count, within a factor of
    1 ± count/2^40.
    """
    if not isinstance(hashes, np.ndarray):
        raise MalformedError(f"hashes are {type(hashes).__name__}; uint8 (n, {HASH_BYTES}) was expected")
    if hashes.dtype != np.uint8 or hashes.ndim != 2 or hashes.shape[1] != HASH_BYTES:
        raise MalformedError(f"hashes are {hashes.dtype} {hashes.shape}; uint8 (n, {HASH_BYTES}) was expected")
    words = np.ascontiguousarray(hashes).view("<u8")
    bucket = scale_fractions(words[:, 0] >> np.uint64(24), count)
    return (bucket << np.uint64(bits)) | (words[:, 1] & np.uint64((1 << bits) - 1))


def _pack_values(values: np.ndarray, bits: int) -> bytes:
    columns = np.unpackbits(values.astype(">u8").view(np.uint8).reshape(-1, 8), axis=1)[:, 64 - bits :]
    return np.packbits(columns).tobytes()


def _unpack_values(raw: np.ndarray, count: int, bits: int) -> np.ndarray:
    out = np.empty(count, dtype=np.uint64)
    for start in range(0, count, _CHUNK):
        rows = min(_CHUNK, count - start)
        part = np.unpackbits(raw[start * bits // 8 : -(-(start + rows) * bits // 8)])
        if part[rows * bits :].any():
            raise MalformedError("a Golomb-coded set whose last byte is not filled with zeros")
        columns = np.zeros((rows, 64), dtype=np.uint8)
        columns[:, 64 - bits :] = part[: rows * bits].reshape(rows, bits)
        out[start : start + rows] = np.packbits(columns, axis=1).view(">u8")[:, 0]
    return out

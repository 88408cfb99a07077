"""The hash that assigns an identifier to a shard.

    bucket hash of x = the first 8 bytes, big-endian, of SHA-512(key in hexadecimal || x in UTF-8)
    shard of x       = its `bits` highest bits

The key has 64 bytes, so its 128 small hexadecimal digits fill one block of SHA-512. Whoever has the key can compute it
in SQL, too: Spark's ``sha2(concat(key, x), 512)`` gives the same digits.

The key is not secret: both parties know it. It is fresh in each run, so that which identifiers share a shard reveals
nothing about another run, and nobody can choose identifiers beforehand that crowd one shard.
"""

from __future__ import annotations

import hashlib

import numpy as np
from securevfl_crypto.engine import Engine, choose_engine

from securevfl_psi.column import Identifiers
from securevfl_psi.errors import ShardError

__all__ = ["KEY_BYTES", "bucket_hashes", "bucket_of", "require_key"]

KEY_BYTES = 64
_PART = 1 << 15


def require_key(key: bytes) -> bytes:
    """The key's 128 digits, which are hashed.

    Raises:
        ShardError: a key of another length.
    """
    if len(key) != KEY_BYTES:
        raise ShardError(f"a key of {len(key)} bytes for shards; {KEY_BYTES} are needed: secrets.token_bytes(64)")
    return key.hex().encode()


def bucket_hashes(ids: Identifiers, key: bytes, by: Engine | None = None) -> np.ndarray:
    """The bucket hash of each identifier, uint64 (n,).

    Raises:
        ShardError: a key of another length.
    """
    prefix, by = require_key(key), by or choose_engine()
    out = np.empty(len(ids), dtype=np.uint64)
    for start in range(0, len(ids), _PART):
        rows = np.arange(start, min(start + _PART, len(ids)))
        for places, matrix in ids.iter_matrices(rows):
            digests = by.sha512(np.ascontiguousarray(matrix), prefix)
            out[start + places] = np.ascontiguousarray(digests[:, :8]).view(">u8")[:, 0]
    return out


def bucket_of(text: str, key: bytes, bits: int) -> int:
    """The shard of one normalised identifier, by the definition; for tests and examples."""
    digest = hashlib.sha512(require_key(key) + text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - bits)

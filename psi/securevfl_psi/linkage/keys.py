"""Keys of the encoding, all derived from one secret that the data parties share and the linker lacks."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np

from securevfl_psi.errors import LinkageError

__all__ = ["KEY_BYTES", "bit_positions", "derive_key", "derive_permutation", "hkdf"]

KEY_BYTES = 32
_SALT = b"securevfl linkage v1"


def hkdf(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """HKDF with SHA-256: RFC 5869, sections 2.2 and 2.3."""
    extracted = hmac.digest(salt or bytes(32), secret, "sha256")
    block, out = b"", b""
    for counter in range(1, -(-length // 32) + 1):
        block = hmac.digest(extracted, block + info + bytes([counter]), "sha256")
        out += block
    return out[:length]


def derive_key(secret: bytes, *parts: str) -> bytes:
    """A separate key for each purpose: 32 bytes. Parts are framed by their lengths.

    Raises:
        LinkageError: a secret shorter than `KEY_BYTES`.
    """
    if not isinstance(secret, bytes) or len(secret) < KEY_BYTES:
        raise LinkageError(
            f"a linkage key of {len(secret)} {type(secret).__name__} elements; at least {KEY_BYTES} random bytes are "
            f"needed, known to the data parties only: secrets.token_bytes({KEY_BYTES})"
        )
    framed = b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in parts)
    return hkdf(secret, _SALT, framed, 32)


def bit_positions(key: bytes, message: bytes, count: int, bits: int) -> np.ndarray:
    """`count` pseudo-random bit positions below `bits`, (count,) int64, by HMAC-SHA-256 stretched with SHAKE256.

    Independent positions, not the two-hash progression of Kirsch and Mitzenmacher that Niedermeyer et al. (2014)
    broke. A smaller count is a prefix of a larger one. The bias of the remainder is below bits / 2^32.
    """
    stream = hashlib.shake_256(hmac.digest(key, message, "sha256")).digest(4 * count)
    return (np.frombuffer(stream, dtype="<u4") % np.uint32(bits)).astype(np.int64)


def derive_permutation(key: bytes, length: int) -> np.ndarray:
    """A keyed order of `length` places, (length,) int64: places sorted by 64-bit pseudo-random numbers."""
    stream = hashlib.shake_256(hmac.digest(key, b"permutation", "sha256")).digest(8 * length)
    return np.argsort(np.frombuffer(stream, dtype="<u8"), kind="stable").astype(np.int64)

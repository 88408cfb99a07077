"""What the two halves of `held` draw: small polynomials and uniform residues, from AES-256 in counter mode.

The key of a `HeldRandom` comes from the operating system and nobody else has it (`ring.Stream`): the system's own
generator takes several times as long for the 100 KB that an answer needs. Seeds of uploads are public, and expand by
the same cipher, as FrodoKEM's (NIST submission 2020, section 2.2.2, with AES-128).
"""

from __future__ import annotations

import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.ring import Stream
from securevfl_crypto.rlwe.held_layout import BASIS, DEGREE

__all__ = ["HeldRandom", "expand_seed", "hash_session"]

_SPARE = 16
"""Words more than needed: one in 2^32 or fewer is dropped for being above its prime."""
_BITS = np.uint64((1 << 50) - 1)
_HALF, _SHIFT = np.uint64((1 << 21) - 1), np.uint64(21)
_THREE = 3


class HeldRandom:
    """Secret randomness of one party in one process.

    Every draw takes the next place of the stream, so nothing is drawn twice. A copy in a forked process refuses.
    """

    def __init__(self) -> None:
        self._stream, self._use = Stream.with_fresh_key(), 0

    def _words(self, *shape: int) -> np.ndarray:
        self._use += 1
        return self._stream.draw_words(self._use, shape)

    def ternary(self, count: int) -> np.ndarray:
        """Polynomials with coefficients uniform over −1, 0 and 1, int64 (count, N)."""
        self._use += 1
        drawn = self._stream.draw_residues(self._use, count * DEGREE, _THREE)
        return drawn.astype(np.int64).reshape(count, DEGREE) - 1

    def binomial(self, count: int) -> np.ndarray:
        """Noise, centred binomial of 42 bits (σ ≈ 3.24, at most 21), int64 (count, N)."""
        words = self._words(count, DEGREE)
        ones = np.bitwise_count(words & _HALF), np.bitwise_count(words >> _SHIFT & _HALF)
        return np.asarray(ones[0].astype(np.int64) - ones[1])

    def uniform(self, count: int) -> np.ndarray:
        """Numbers uniform over Z_q, as residues uint64 (2, count)."""
        return _reduce(self._words(2, count + _SPARE), count)


def expand_seed(seed: bytes) -> np.ndarray:
    """A uniform polynomial from a public seed of 32 bytes, uint64 (2, N).

    Raises:
        MalformedError: the seed gives too few residues; no honest seed does.
    """
    cipher = Cipher(algorithms.AES256(seed), modes.CTR(bytes(16))).encryptor()
    raw = cipher.update(bytes(2 * 8 * (DEGREE + _SPARE)))
    return _reduce(np.frombuffer(raw, dtype="<u8").astype(np.uint64, copy=False).reshape(2, -1), DEGREE)


def hash_session(session: bytes) -> np.ndarray:
    """The uniform half of a session's keys, uint64 (2, N), by SHAKE-256: neither party chooses it."""
    raw = hashlib.shake_256(b"securevfl held products: key 1" + session).digest(2 * 8 * (DEGREE + _SPARE))
    return _reduce(np.frombuffer(raw, dtype="<u8").astype(np.uint64, copy=False).reshape(2, -1), DEGREE)


def _reduce(words: np.ndarray, count: int) -> np.ndarray:
    """The first `count` numbers below each prime among the low 50 bits of words (2, more): exactly uniform."""
    masked = words & _BITS
    if (masked < np.uint64(min(BASIS.primes))).all():
        return np.ascontiguousarray(masked[:, :count])
    kept = [row[row < np.uint64(prime)][:count] for row, prime in zip(masked, BASIS.primes, strict=True)]
    if min(len(row) for row in kept) < count:
        raise MalformedError(f"a seed gives fewer than {count} residues; it was chosen so: find out who sent it")
    return np.stack(kept)

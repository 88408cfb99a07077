"""Masks that cancel: two parties expand a common seed to one stream; one party adds it, the other subtracts it."""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from gmpy2 import mpz

from securevfl_crypto.errors import CryptoError, MalformedError

__all__ = ["PairwiseMasks", "ZeroShares"]

# A number of 128 bits more than the modulus, reduced, is within 2^-128 of uniform.
_SLACK = 128


class PairwiseMasks:
    """Masks from a seed that two parties share, by ChaCha20 (RFC 8439), with one stream for each counter.

    Args:
        seed: 32 bytes that both parties derived and nobody else knows.
        positive: whether this party adds the masks; the other one subtracts them.

    Raises:
        CryptoError: the seed has another length.
    """

    def __init__(self, seed: bytes, *, positive: bool) -> None:
        if len(seed) != 32:
            raise CryptoError(f"a mask seed of {len(seed)} bytes; 32 are needed")
        self._seed = seed
        self._sign = 1 if positive else -1
        self._last = -1

    def draw_masks(self, counter: int, count: int, modulus: mpz) -> list[mpz]:
        """Draw `count` masks modulo `modulus`, within 2⁻¹²⁸ of uniform.

        Raises:
            CryptoError: this counter, or a later one, was used before: nobody may use a mask twice.
        """
        width = (int(modulus).bit_length() + _SLACK + 7) // 8
        stream = self._keystream(counter, width * count)
        parts = (int.from_bytes(stream[i : i + width], "little") for i in range(0, width * count, width))
        return [mpz(self._sign * part) % modulus for part in parts]

    def draw_words(self, counter: int, count: int) -> np.ndarray:
        """Draw `count` uniform masks modulo 2^64, uint64.

        Raises:
            CryptoError: as for `draw_masks`.
        """
        words = np.frombuffer(self._keystream(counter, 8 * count), dtype="<u8").astype(np.uint64, copy=False)
        return words if self._sign > 0 else np.negative(words)

    def draw_blocks(self, counter: int, count: int, words: int) -> tuple[int, np.ndarray]:
        """Draw `count` numbers of `words` 64-bit words for a caller's ring: the sign, and uint64 (count, words).

        Raises:
            CryptoError: as for `draw_masks`.
        """
        stream = np.frombuffer(self._keystream(counter, 8 * count * words), dtype="<u8").astype(np.uint64, copy=False)
        return self._sign, stream.reshape(count, words)

    def _keystream(self, counter: int, length: int) -> bytes:
        # Two messages under one mask would show their difference, so counters only grow.
        if counter <= self._last:
            raise CryptoError(
                f"mask counter {counter} after {self._last}; use a larger one: masks are never used twice"
            )
        self._last = counter  # before the stream exists: a caller that fails later must not reuse the counter
        nonce = (0).to_bytes(8, "little") + counter.to_bytes(8, "little")  # 64-bit block counter, 64-bit nonce
        return Cipher(algorithms.ChaCha20(self._seed, nonce), mode=None).encryptor().update(bytes(length))


class ZeroShares:
    """One party's shares of zero: the sum of its pairwise masks with all the others."""

    def __init__(self, pairs: list[PairwiseMasks]) -> None:
        self._pairs = pairs
        self._counter = 0

    def __len__(self) -> int:
        """The number of other parties."""
        return len(self._pairs)

    def draw_shares(self, count: int, modulus: mpz) -> list[mpz]:
        """Draw `count` fresh shares modulo `modulus`. All parties must call in the same order, with the same counts."""
        self._counter += 1
        blocks = [pair.draw_masks(self._counter, count, modulus) for pair in self._pairs]
        return [mpz(sum(column)) % modulus for column in zip(*blocks, strict=True)] if blocks else [mpz(0)] * count

    def draw_words(self, count: int, bits: int) -> np.ndarray:
        """Draw `count` fresh shares modulo 2^bits, uint64. All parties must call in the same order.

        Raises:
            MalformedError: bits is not from 1 to 64.
        """
        if not 1 <= bits <= 64:
            raise MalformedError(f"shares of zero modulo 2^{bits}; expected 1 to 64 bits")
        self._counter += 1
        total = np.zeros(count, dtype=np.uint64)
        for pair in self._pairs:
            total += pair.draw_words(self._counter, count)
        return total & np.uint64((1 << bits) - 1)  # 2^bits divides 2^64, so the sum stays uniform and still cancels

    def draw_blocks(self, count: int, words: int) -> list[tuple[int, np.ndarray]]:
        """Draw for each pair the sign and fresh numbers, uint64 (count, words).

        The caller reduces them in its own ring and adds them up. All parties must call in the same order.
        """
        self._counter += 1
        return [pair.draw_blocks(self._counter, count, words) for pair in self._pairs]

"""Masks that cancel: each two parties expand a common seed to the same stream; one adds it, the other subtracts it."""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from gmpy2 import mpz

from securevfl_crypto.errors import CryptoError, MalformedError

__all__ = ["PairwiseMasks", "ZeroShares"]

_SLACK = 128


class PairwiseMasks:
    """Integers modulo n from a seed of two parties, by ChaCha20 (RFC 8439): a block of them for each counter.

    Args:
        seed: 32 bytes that both parties derived, and nobody else.
        positive: whether this party adds; the other subtracts.
    """

    def __init__(self, seed: bytes, *, positive: bool) -> None:
        if len(seed) != 32:
            raise CryptoError(f"a mask seed of {len(seed)} bytes; 32 are needed")
        self._seed = seed
        self._sign = 1 if positive else -1
        self._last = -1

    def masks(self, counter: int, count: int, modulus: mpz) -> list[mpz]:
        """`count` masks modulo `modulus`, within 2⁻¹²⁸ of uniform, never the same again.

        Raises:
            CryptoError: a counter that was used, or is below one that was: a mask used twice is no mask.
        """
        width = (int(modulus).bit_length() + _SLACK + 7) // 8
        stream = self._stream(counter, width * count)
        parts = (int.from_bytes(stream[i : i + width], "little") for i in range(0, width * count, width))
        return [mpz(self._sign * part) % modulus for part in parts]

    def words(self, counter: int, count: int) -> np.ndarray:
        """`count` masks modulo 2^64, uniform, uint64, never the same again.

        Raises:
            CryptoError: as for `masks`.
        """
        words = np.frombuffer(self._stream(counter, 8 * count), dtype="<u8").astype(np.uint64, copy=False)
        return words if self._sign > 0 else np.negative(words)

    def blocks(self, counter: int, count: int, words: int) -> tuple[int, np.ndarray]:
        """The sign, and `count` numbers of `words` 64-bit words each, uint64 (count, words), for a ring of its own.

        Raises:
            CryptoError: as for `masks`.
        """
        stream = np.frombuffer(self._stream(counter, 8 * count * words), dtype="<u8").astype(np.uint64, copy=False)
        return self._sign, stream.reshape(count, words)

    def _stream(self, counter: int, length: int) -> bytes:
        if counter <= self._last:
            raise CryptoError(
                f"mask counter {counter} after {self._last}; it must only grow: masks are never used twice"
            )
        self._last = counter
        nonce = (0).to_bytes(8, "little") + counter.to_bytes(8, "little")  # 64-bit block counter, 64-bit nonce
        return Cipher(algorithms.ChaCha20(self._seed, nonce), mode=None).encryptor().update(bytes(length))


class ZeroShares:
    """One party's shares of zero: the sum of its pairwise masks with all the others."""

    def __init__(self, pairs: list[PairwiseMasks]) -> None:
        self._pairs = pairs
        self._counter = 0

    def __len__(self) -> int:
        """How many others there are."""
        return len(self._pairs)

    def next(self, count: int, modulus: mpz) -> list[mpz]:
        """`count` fresh shares modulo `modulus`. All parties call this equally often, with the same counts."""
        self._counter += 1
        blocks = [pair.masks(self._counter, count, modulus) for pair in self._pairs]
        return [mpz(sum(column)) % modulus for column in zip(*blocks, strict=True)] if blocks else [mpz(0)] * count

    def words(self, count: int, bits: int) -> np.ndarray:
        """`count` fresh shares modulo 2^bits, uint64 below 2^bits. All parties call as for `next`, in the same order.

        Raises:
            MalformedError: bits not from 1 to 64.
        """
        if not 1 <= bits <= 64:
            raise MalformedError(f"shares of zero modulo 2^{bits}; 1 to 64 bits are possible")
        self._counter += 1
        total = np.zeros(count, dtype=np.uint64)
        for pair in self._pairs:
            total += pair.words(self._counter, count)
        return total & np.uint64((1 << bits) - 1)

    def blocks(self, count: int, words: int) -> list[tuple[int, np.ndarray]]:
        """Of each pair the sign and fresh numbers, uint64 (count, words), for whoever reduces and adds them up in a
        ring of its own. All parties call as for `next`, in the same order."""
        self._counter += 1
        return [pair.blocks(self._counter, count, words) for pair in self._pairs]

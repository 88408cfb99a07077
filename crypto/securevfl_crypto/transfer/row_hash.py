"""The hash that turns rows of an extension into pads: a tweakable, circular correlation-robust hash from AES.

Guo, Katz, Wang and Yu, "Efficient and Secure Multiparty Computation from Fixed-Key Block Ciphers" (IEEE S&P 2020),
section 7.4: H(x, i) = π(π(x) ⊕ i) ⊕ π(x) for a permutation π. With one application of π less, as π(σ(x) ⊕ i) ⊕ σ(x)
for a linear σ, a chooser that finds two rows and numbers with σ(x) ⊕ i = σ(x') ⊕ i' knows the difference of two pads
that it must not know; the inner π removes that.

π is AES-128 under a key that both parties derive from the batch's columns, so that nothing can be computed ahead of a
batch. If AES is an ideal cipher and Δ has k unknown bits, p evaluations of AES distinguish the n pads of a batch with
advantage about n·p / 2^k.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

__all__ = ["RowHash"]

_ROOM = 15  # the library asks for a block less one byte beyond the output
_PART = 1 << 13
"""Rows hashed at a time: a few arrays of 128 KiB stay in the cache."""


class RowHash:
    """H under one key.

    Args:
        key: public, 16 bytes.
    """

    def __init__(self, key: bytes) -> None:
        # One block is a permutation's input and output: no message is encrypted, so the mode "ECB" leaks nothing.
        self._cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305
        self._inner = np.empty(16 * _PART + _ROOM, dtype=np.uint8)
        self._outer = np.empty(16 * _PART + _ROOM, dtype=np.uint8)
        self._tweaked = np.empty((_PART, 2), dtype=np.uint64)

    def hash_rows(self, rows: np.ndarray, words: int, delta: np.ndarray | None = None) -> np.ndarray:
        """The pads of rows 0, 1, …: word w of row j is from H(x_j, (j, w // 2)).

        Args:
            rows: uint64 (n, 2), C order.
            words: words of a pad, at least 1.
            delta: uint64 (2,) to add to every row before hashing it.

        Returns:
            uint64 (n, words).
        """
        out = np.empty((len(rows), words), dtype=np.uint64)
        for start in range(0, len(rows), _PART):
            part = rows[start : start + _PART]
            size = len(part)
            tweaked = self._tweaked[:size]
            if delta is not None:
                part = np.bitwise_xor(part, delta, out=tweaked)
            inner = self._permute(part, self._inner)
            numbers = np.arange(start, start + size, dtype=np.uint64)
            for first in range(0, words, 2):
                np.copyto(tweaked, inner)
                tweaked[:, 0] ^= numbers
                tweaked[:, 1] ^= np.uint64(first // 2)
                outer = self._permute(tweaked, self._outer)
                width = min(2, words - first)
                np.bitwise_xor(outer[:, :width], inner[:, :width], out=out[start : start + size, first : first + width])
        return out

    def _permute(self, rows: np.ndarray, buffer: np.ndarray) -> np.ndarray:
        size = 16 * len(rows)
        self._cipher.update_into(rows.data.cast("B") if size else b"", buffer[: size + _ROOM].data)
        return buffer[:size].view(np.uint64).reshape(-1, 2)
